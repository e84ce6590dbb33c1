// SPDX-License-Identifier: GPL-2.0

//! The cost of a flood of datagrams to the public queue pair of the first of eight nodes.

use sim_cache::{
    run,
    Pattern,
    Scenario, //
};

/// The longest times in which the flooded node, and the last of all, have 64 MiB while a part of
/// the messages to that queue pair finds no receive, in milliseconds.
fn flooded_ms(flood: f64, depth: usize) -> (f64, f64) {
    let mut longest: (f64, f64) = (0.0, 0.0);
    for seed in 0..5 {
        let s = Scenario {
            seed,
            flood,
            has_gossip: true,
            pattern: Pattern::Sequential(depth),
            ..Scenario::storm(8)
        };
        let o = run(&s);
        assert_eq!(o.violation, None, "{s:?}");
        assert!(o.gfsd_files < 2.6, "{flood} {depth}, seed {seed}: {o:?}");
        longest = (longest.0.max(o.first_node_ms), longest.1.max(o.last_ms));
    }
    longest
}

#[test]
fn a_flood_costs_its_node_nothing_and_others_the_silences_of_that_one() {
    for (flood, depth, own_ms, last_ms) in [
        (0.0, 1, 62.0, 62.0),
        (0.1, 1, 62.0, 376.0),
        (0.3, 1, 62.0, 975.0),
        (0.5, 1, 62.0, 2_701.0),
        (0.7, 1, 62.0, 3_988.0),
        (0.9, 1, 62.0, 1_923.0),
        (0.97, 1, 62.0, 1_515.0),
        (1.0, 1, 62.0, 972.0),
        (0.0, 4, 36.0, 36.0),
        (0.1, 4, 36.0, 121.0),
        (0.3, 4, 36.0, 629.0),
        (0.5, 4, 36.0, 785.0),
        (0.7, 4, 36.0, 1_255.0),
        (0.9, 4, 36.0, 1_183.0),
        (0.97, 4, 36.0, 919.0),
        (1.0, 4, 36.0, 670.0),
    ] {
        let (own, last) = flooded_ms(flood, depth);
        assert!(
            own < own_ms,
            "{flood} {depth}: {own} ms of the flooded node"
        );
        assert!(last < last_ms, "{flood} {depth}: {last} ms");
    }
}
