// SPDX-License-Identifier: GPL-2.0

//! A node that does not reach the others, while the file servers are there.

use sim_cache::{
    run,
    Mutation,
    Outcome,
    Pattern,
    Scenario,
    MS, //
};

/// Runs a scenario in which no rule may be broken.
fn sound(s: &Scenario) -> Outcome {
    let outcome = run(s);
    assert_eq!(outcome.violation, None, "{s:?}");
    outcome
}

#[test]
fn who_is_cut_off_reads_at_the_file_servers() {
    // One at a time is what a program has that waits for each page, four what readahead has.
    for (peers, depth) in [(2, 1), (7, 4), (63, 1), (63, 4), (255, 1)] {
        let s = Scenario {
            dead: peers,
            has_gossip: true,
            pattern: Pattern::Sequential(depth),
            ..Scenario::storm(peers + 1)
        };
        let o = sound(&s);
        assert!(o.cuts == 1 && o.timeouts <= 10, "{peers} peers: {o:?}");
        assert!(o.last_ms < 850.0, "{peers} peers: {o:?}");
        // Without that it finds out about one node after the other.
        let o = sound(&Scenario {
            mutation: Some(Mutation::AsksWhoIsSilent),
            ..s
        });
        assert!(peers < 63 || o.last_ms > 4_000.0, "{peers} peers: {o:?}");
    }
}

#[test]
fn who_was_cut_off_asks_again() {
    for seed in 0..3 {
        let s = Scenario {
            seed,
            away_ns: (100 * MS, 600 * MS),
            has_gossip: true,
            gfsd_bytes_per_us: 250,
            chunks: 500,
            pattern: Pattern::Sequential(1),
            ..Scenario::storm(8)
        };
        let o = sound(&s);
        // The node was cut off for a sixth of the time.
        assert!(o.cuts == 1 && o.gfsd_files < 1.4, "seed {seed}: {o:?}");
    }
}

#[test]
fn who_is_cut_off_reads_about_as_fast_as_a_mount_without_the_cache() {
    for seed in 0..3 {
        let s = Scenario {
            seed,
            chunks: 2048,
            gfsd_bytes_per_us: 1_250,
            has_gossip: true,
            ..Scenario::storm(8)
        };
        let without = sound(&Scenario {
            is_first_alone: true,
            ..s
        });
        let cut_off = sound(&Scenario {
            away_ns: (100 * MS, u64::MAX),
            ..s
        });
        assert_eq!(cut_off.cuts, 1, "{cut_off:?}");
        let rate = without.first_node_ms / cut_off.first_node_ms;
        assert!(rate > 0.8, "{rate}: {cut_off:?}, {without:?}");
    }
}
