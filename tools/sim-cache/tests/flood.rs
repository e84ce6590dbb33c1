// SPDX-License-Identifier: GPL-2.0

//! The cost of a flood of datagrams to the public queue pair of the first of eight nodes.

use sim_cache::{
    run,
    Pattern,
    Scenario, //
};

/// The longest times in which the flooded node, and the last of all, have so many MiB while a part
/// of the messages to that queue pair finds no receive, in milliseconds.
fn flooded_ms(flood: f64, depth: usize, chunks: u64) -> (f64, f64) {
    let mut longest: (f64, f64) = (0.0, 0.0);
    for seed in 0..5 {
        let s = Scenario {
            seed,
            flood,
            chunks,
            has_gossip: true,
            pattern: Pattern::Sequential(depth),
            ..Scenario::storm(8)
        };
        let o = run(&s);
        assert_eq!(o.violation, None, "{s:?}");
        assert!(o.gfsd_files < 2.6, "{flood} {depth}, seed {seed}: {o:?}");
        longest = (longest.0.max(o.first_node_ms), longest.1.max(o.last_ms));
    }
    // `--nocapture` shows what gfarm-cache-security.md has.
    println!(
        "{flood} {depth} {chunks}: {:.0}, {:.0} ms",
        longest.0, longest.1
    );
    longest
}

#[test]
fn a_flood_costs_its_node_nothing_and_others_the_silences_of_that_one() {
    for (flood, depth, own_ms, last_ms) in [
        (0.0, 1, 62.0, 61.0),
        (0.1, 1, 62.0, 337.0),
        (0.3, 1, 62.0, 1_321.0),
        (0.5, 1, 62.0, 1_230.0),
        (0.7, 1, 62.0, 1_186.0),
        (0.9, 1, 62.0, 1_339.0),
        (0.97, 1, 62.0, 1_256.0),
        (1.0, 1, 62.0, 972.0),
        (0.0, 4, 47.0, 48.0),
        (0.1, 4, 47.0, 140.0),
        (0.3, 4, 47.0, 558.0),
        (0.5, 4, 47.0, 767.0),
        (0.7, 4, 47.0, 603.0),
        (0.9, 4, 47.0, 919.0),
        (0.97, 4, 47.0, 919.0),
        (1.0, 4, 47.0, 680.0),
    ] {
        let (own, last) = flooded_ms(flood, depth, 64);
        assert!(
            own < own_ms,
            "{flood} {depth}: {own} ms of the flooded node"
        );
        assert!(last < last_ms, "{flood} {depth}: {last} ms");
    }
}

#[test]
fn a_long_flood_costs_a_copy_more_and_a_silence_now_and_then() {
    // The flooded node hears no answer to a probe, and takes the others for dead after some time;
    // others try it again each second. Both parts read a copy of their own then.
    for (flood, own_ms, last_ms) in [
        (0.0, 979.0, 979.0),
        (0.5, 1_048.0, 2_612.0),
        (1.0, 1_026.0, 1_900.0),
    ] {
        let (own, last) = flooded_ms(flood, 1, 1024);
        assert!(own < own_ms, "{flood}: {own} ms of the flooded node");
        assert!(last < last_ms, "{flood}: {last} ms");
    }
}

/// Answers to probes come to the public queue pair: that no replies come is another thing.
#[test]
fn a_node_to_which_no_replies_come_asks_file_servers_although_probes_are_answered() {
    for (unheard, depth, own_ms) in [
        (0.5, 1, 5_730.0),
        (0.9, 1, 5_950.0),
        (1.0, 1, 3_580.0),
        (1.0, 4, 1_340.0),
    ] {
        for seed in 0..5 {
            let s = Scenario {
                seed,
                unheard,
                has_gossip: true,
                pattern: Pattern::Sequential(depth),
                ..Scenario::storm(8)
            };
            let o = run(&s);
            assert_eq!(o.violation, None, "{s:?}");
            assert!(o.first_node_ms < own_ms, "{unheard} {depth}: {o:?}");
        }
    }
}

/// One reply for many silences is one for a node that is cut off.
#[test]
fn few_replies_for_many_reads_keep_no_node_from_the_file_servers() {
    for unheard in [0.9, 0.95, 0.97] {
        for seed in 0..5 {
            let s = Scenario {
                seed,
                unheard,
                chunks: 512,
                has_gossip: true,
                pattern: Pattern::Sequential(16),
                ..Scenario::storm(8)
            };
            let o = run(&s);
            assert_eq!(o.violation, None, "{s:?}");
            assert!(o.first_node_ms < 1_690.0, "{unheard}: {o:?}");
        }
    }
}
