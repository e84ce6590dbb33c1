// SPDX-License-Identifier: GPL-2.0

//! The cost of a flood of datagrams to a reader.

use sim_cache::{
    run,
    Pattern,
    Scenario, //
};

/// The longest time in which the first of eight nodes has 64 MiB while a part of its messages finds
/// no receive, in milliseconds.
fn flooded_ms(flood: f64, depth: usize, has_own_replies: bool) -> f64 {
    let of = |seed| {
        let s = Scenario {
            seed,
            flood,
            has_own_replies,
            has_gossip: true,
            pattern: Pattern::Sequential(depth),
            ..Scenario::storm(8)
        };
        let o = run(&s);
        assert_eq!(o.violation, None, "{s:?}");
        assert!(o.gfsd_files < 2.9, "{flood} {depth}, seed {seed}: {o:?}");
        o.last_ms
    };
    (0..5).map(of).fold(0.0, f64::max)
}

#[test]
fn a_flood_costs_most_if_half_of_the_messages_come() {
    // Who hears nothing is cut off, and asks file servers only; who hears a half waits.
    for (flood, depth, bar_ms) in [
        (0.1, 1, 975.0),
        (0.1, 4, 284.0),
        (0.5, 1, 7_240.0),
        (0.5, 4, 1_740.0),
        (0.9, 1, 5_650.0),
        (0.9, 4, 3_120.0),
        (0.97, 1, 1_790.0),
        (0.97, 4, 1_110.0),
        (1.0, 1, 975.0),
        (1.0, 4, 451.0),
    ] {
        let last_ms = flooded_ms(flood, depth, false);
        assert!(last_ms < bar_ms, "{flood} {depth}: {last_ms} ms");
    }
    // What a queue pair of their own for replies would bring.
    for (flood, bar_ms) in [(0.1, 272.0), (0.5, 2_560.0), (0.9, 1_930.0)] {
        let last_ms = flooded_ms(flood, 1, true);
        assert!(last_ms < bar_ms, "{flood}: {last_ms} ms");
    }
}
