// SPDX-License-Identifier: GPL-2.0

//! Bounds of the simulated cache: copies that leave the file servers, times, and faults that it
//! outlives.

#![expect(clippy::indexing_slicing, reason = "a test fails by panicking")]

use std::env;

use sim_cache::{
    membership,
    run,
    tree,
    Askers,
    Mutation,
    Outcome,
    Pattern,
    Scenario,
    Source,
    MS,
    US, //
};

/// Runs a scenario in which no rule may be broken.
fn sound(s: &Scenario) -> Outcome {
    let outcome = run(s);
    assert_eq!(outcome.violation, None, "{s:?}");
    outcome
}

#[test]
fn one_copy_leaves_the_file_servers() {
    let alone = sound(&Scenario::storm(1));
    for nodes in [1, 2, 8, 64, 1000] {
        let o = sound(&Scenario::storm(nodes));
        assert_eq!(o.readers, nodes);
        assert!(o.gfsd_files <= 1.1, "{nodes} nodes: {o:?}");
        assert!(o.last_ms < 1.4 * alone.last_ms, "{nodes} nodes: {o:?}");
        // Two levels of owners with a fan-out of 2 each.
        assert!(o.hottest_files < 4.8, "{nodes} nodes: {o:?}");
        assert_eq!((o.overruns, o.timeouts), (0, 0), "{nodes} nodes: {o:?}");
    }
}

/// Nodes that know which of them are near take pages from these: few copies enter a group.
#[test]
fn few_pages_leave_a_group() {
    for (nodes, groups) in [(16, 2), (64, 4), (256, 8)] {
        let s = Scenario {
            groups,
            ..Scenario::storm(nodes)
        };
        let without = sound(&Scenario {
            knows_groups: false,
            ..s
        });
        let with = sound(&s);
        assert!(with.gfsd_files <= 1.1, "{nodes} nodes: {with:?}");
        assert!(
            with.far_files <= 1.1 * (groups - 1) as f64,
            "{nodes} nodes: {with:?}"
        );
        assert!(with.far_files < without.far_files / 4.0, "{without:?}");
        assert!(with.last_ms < 1.1 * without.last_ms, "{with:?}");
    }
}

#[test]
fn without_the_cache_each_reads_a_copy() {
    let nodes = 16;
    let o = sound(&Scenario {
        source: Source::FileServer,
        ..Scenario::storm(nodes)
    });
    assert!((o.gfsd_files - 16.0).abs() < 1e-9, "{o:?}");
    let with = sound(&Scenario::storm(nodes));
    assert!(with.last_ms * 10.0 < o.last_ms);
    // A tree of whole files has one copy leave as well, and takes the longer the deeper it is.
    let storm = Scenario::storm(256);
    assert!(tree(&storm, 2, false).last_ms > 2.0 * sound(&storm).last_ms);
}

#[test]
fn other_ways_to_read_are_served_as_well() {
    let s = Scenario::storm(64);
    for (what, s) in [
        (
            "staggered",
            Scenario {
                stagger_ns: 10 * MS,
                ..s
            },
        ),
        (
            "random",
            Scenario {
                pattern: Pattern::Random(200),
                ..s
            },
        ),
        (
            "strided",
            Scenario {
                pattern: Pattern::Strided(4),
                ..s
            },
        ),
        (
            "small caches",
            Scenario {
                cache_chunks: 16,
                ..s
            },
        ),
        (
            "slow links",
            Scenario {
                node_bytes_per_us: 1250,
                ..s
            },
        ),
        (
            "slow file servers",
            Scenario {
                gfsd_bytes_per_us: 125,
                ..s
            },
        ),
        ("slow nodes", Scenario { slow: 0.1, ..s }),
    ] {
        let o = sound(&s);
        assert!(o.gfsd_files <= 1.1, "{what}: {o:?}");
    }
}

#[test]
fn lost_datagrams_cost_time_and_few_copies() {
    for seed in 0..5 {
        let s = Scenario {
            seed,
            loss: 0.01,
            ..Scenario::storm(64)
        };
        let o = sound(&s);
        assert!(
            o.gfsd_files <= 1.1 && o.p99_ms < 135.0,
            "seed {seed}: {o:?}"
        );
        let o = sound(&Scenario { loss: 0.05, ..s });
        assert!(
            o.gfsd_files <= 1.15 && o.p99_ms < 265.0,
            "seed {seed}: {o:?}"
        );
        let of_8 = Scenario { nodes: 8, ..s };
        let o = sound(&of_8);
        assert!(o.gfsd_files <= 1.1, "seed {seed}: {o:?}");
    }
}

#[test]
fn fragments_that_are_late_or_come_twice_cost_no_copy() {
    for seed in 0..5 {
        let s = Scenario {
            seed,
            reorder: 0.05,
            duplicate: 0.05,
            ..Scenario::storm(16)
        };
        let o = sound(&s);
        assert!(o.late > 0 && o.discarded > 0, "seed {seed}: {o:?}");
        assert!(o.gfsd_files <= 1.1 && o.p99_ms < 5.1, "seed {seed}: {o:?}");
    }
}

#[test]
fn changed_messages_are_not_believed() {
    let o = sound(&Scenario {
        corrupt: 0.2,
        ..Scenario::storm(16)
    });
    assert!(o.rejected > 100, "{o:?}");
}

#[test]
fn dead_and_silent_nodes_are_gone_around() {
    for seed in 0..5 {
        let s = Scenario {
            seed,
            has_gossip: true,
            ..Scenario::storm(64)
        };
        let o = sound(&Scenario { dead: 6, ..s });
        assert_eq!(o.readers, 58);
        assert!(
            o.gfsd_files <= 1.3 && o.last_ms < 1300.0,
            "seed {seed}: {o:?}"
        );
        let o = sound(&Scenario { silent: 1, ..s });
        assert!(o.gfsd_files <= 2.0, "seed {seed}: {o:?}");
    }
}

#[test]
fn who_waits_for_a_node_goes_to_the_file_server_after_five_seconds() {
    // The first node begins before the others, and its file server answers after a minute.
    let s = Scenario {
        hung_ns: 60_000 * MS,
        stagger_ns: MS,
        ..Scenario::storm(8)
    };
    let o = sound(&s);
    assert!((5_000.0..5_500.0).contains(&o.p99_ms), "{o:?}");
    assert!(o.gfsd_files < 2.2, "{o:?}");
    // Slow file servers are waited for, and so keep giving one copy: also by who has its reads in
    // two batches.
    let s = Scenario {
        gfsd_ns: 2_000 * MS,
        chunks: 16,
        ..Scenario::storm(64)
    };
    let o = sound(&s);
    assert!(o.gfsd_files <= 1.1, "{o:?}");
    let read_us = 2_000_000;
    assert!(sound(&Scenario { read_us, ..s }).gfsd_files > 10.0);
}

/// A read that waits for a node keeps no other one waiting: where one worker asks for all reads of
/// a node, what is lost costs each of them.
#[test]
fn each_read_asks_for_itself() {
    for (loss, fragment_len, dead) in [(0.01, 4096, 0), (0.01, 1024, 0), (0.0, 4096, 6)] {
        let s = Scenario {
            loss,
            fragment_len,
            dead,
            has_gossip: dead != 0,
            ..Scenario::storm(64)
        };
        let (each, askers) = (sound(&s), Askers::One);
        let one = sound(&Scenario { askers, ..s });
        assert!(each.gfsd_files < 1.6, "{each:?}");
        assert!(2.0 * each.last_ms < one.last_ms, "{each:?}, {one:?}");
    }
}

#[test]
fn dead_nodes_and_lost_datagrams_are_no_dead_network() {
    for seed in 0..3 {
        let s = Scenario {
            seed,
            has_gossip: true,
            ..Scenario::storm(64)
        };
        for s in [
            Scenario { dead: 6, ..s },
            Scenario { silent: 1, ..s },
            Scenario { loss: 0.05, ..s },
        ] {
            assert_eq!(sound(&s).cuts, 0, "{s:?}");
        }
    }
}

#[test]
fn nodes_come_and_go_under_load() {
    for seed in 0..3 {
        let s = Scenario {
            seed,
            churn_ns: 50 * MS,
            stagger_ns: 5 * MS,
            has_gossip: true,
            ..Scenario::storm(64)
        };
        let o = sound(&s);
        assert!(o.readers > 60 && o.gfsd_files < 3.1, "seed {seed}: {o:?}");
    }
}

/// Nodes whose memory goes bad, on networks that lose: none of it is passed on, and what is not
/// taken from them is little of the file.
#[test]
fn bad_memory_is_not_passed_on() {
    for (seed, fragment_len) in [(0, 4096), (1, 1024), (2, 256)] {
        let s = Scenario {
            seed,
            fragment_len,
            decay: 0.001,
            loss: 0.002,
            chunks: 8,
            ..Scenario::storm(16)
        };
        let o = sound(&s);
        assert!(o.damaged > 5 && o.gfsd_files < 1.2, "seed {seed}: {o:?}");
        let without = run(&Scenario {
            verifies: false,
            ..s
        });
        assert_eq!(
            without.violation,
            Some("a page was taken whose memory had gone bad")
        );
    }
}

/// A scenario with everything at random.
fn any(seed: u64) -> Scenario {
    let mut rng = fastrand::Rng::with_seed(seed);
    let nodes = rng.usize(2..40);
    let patterns = [
        Pattern::Sequential(4),
        Pattern::Random(60),
        Pattern::Strided(3),
    ];
    let has_gossip = rng.bool();
    Scenario {
        seed,
        chunks: rng.u64(1..24),
        pattern: patterns[rng.usize(0..patterns.len())],
        read_pages: [256, 256, 64][rng.usize(0..3)],
        stagger_ns: rng.u64(0..3) * MS,
        loss: [0.0, 0.0, 0.01, 0.05][rng.usize(0..4)],
        duplicate: [0.0, 0.0, 0.01, 0.05][rng.usize(0..4)],
        reorder: [0.0, 0.0, 0.01, 0.05][rng.usize(0..4)],
        late_ns: [20 * US, 5 * MS][rng.usize(0..2)],
        corrupt: [0.0, 0.0, 0.02][rng.usize(0..3)],
        fragment_len: [256, 1024, 4096][rng.usize(0..3)],
        serving: [1, 4, 64][rng.usize(0..3)],
        cache_chunks: [0, 0, 4][rng.usize(0..3)],
        slow: [0.0, 0.1][rng.usize(0..2)],
        receives: [4, 128][rng.usize(0..2)],
        dead: rng.usize(0..nodes / 2),
        silent: rng.usize(0..2),
        churn_ns: if has_gossip {
            rng.u64(0..2) * 30 * MS
        } else {
            0
        },
        rewrite_ns: rng.u64(0..2) * rng.u64(1..30) * MS,
        has_notices: rng.u8(0..10) != 0,
        has_gossip,
        away_ns: [(0, 0), (5 * MS, 300 * MS)][rng.usize(0..2)],
        decay: [0.0, 0.0, 0.02][rng.usize(0..3)],
        ..Scenario::storm(nodes)
    }
}

#[test]
fn no_read_gets_a_wrong_byte_or_has_no_end() {
    for seed in 0..120 {
        sound(&any(seed));
    }
}

#[test]
fn the_checks_find_what_is_left_out() {
    for (mutation, expected) in [
        (
            Mutation::ServesOtherGenerations,
            "another generation was taken",
        ),
        (Mutation::KeepsOldPages, "old generation are in the cache"),
        (Mutation::WaitsForEver, "a reader waits"),
        (Mutation::PlacesByArrival, "the bytes of another place"),
        (Mutation::LeavesFragments, "the bytes of another place"),
        (Mutation::TakesAnyFragment, "the bytes of another place"),
        (Mutation::ForgetsItsEnd, "a read that has ended goes on"),
        (Mutation::TakesDamagedPages, "whose memory had gone bad"),
    ] {
        let found = (0..20).find_map(|seed| run(&mutated(seed, mutation)).violation);
        let found = found.unwrap_or_else(|| panic!("{mutation:?} was not found"));
        assert!(found.contains(expected), "{mutation:?}: {found}");
    }
}

#[test]
fn tags_alone_tell_what_is_of_an_earlier_request() {
    for seed in 0..20 {
        sound(&mutated(seed, Mutation::TakesAnyKey));
    }
}

/// A network that does all that networks do, and a rule that is left out.
fn mutated(seed: u64, mutation: Mutation) -> Scenario {
    Scenario {
        seed,
        rewrite_ns: 10 * MS,
        loss: 0.01,
        duplicate: 0.01,
        reorder: 0.01,
        late_ns: MS,
        // Else they are what finds most of what is left out.
        verifies: mutation == Mutation::TakesDamagedPages,
        decay: match mutation {
            Mutation::TakesDamagedPages => 0.01,
            _ => 0.0,
        },
        mutation: Some(mutation),
        ..Scenario::storm(16)
    }
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    for seed in [3, 8] {
        let s = any(seed);
        assert_eq!(run(&s), run(&s));
    }
}

#[test]
fn members_find_and_lose_each_other() {
    for seed in 1..4 {
        for (loss, joined_ms, noticed_ms) in [(0.0, 340, 8_200), (0.05, 940, 6_900)] {
            let m = membership(32, loss, seed).unwrap();
            assert!(
                m.joined_ms < joined_ms && m.noticed_ms < noticed_ms,
                "{loss}: {m:?}"
            );
            assert!(m.datagrams_per_s < 2.8, "{loss}: {m:?}");
        }
    }
}

/// Many nodes that begin at once, through one: `SIM_CACHE_MEMBERS` of them in the long run.
#[test]
fn many_members_find_and_lose_each_other() {
    let nodes = env::var("SIM_CACHE_MEMBERS").map_or(128, |nodes| nodes.parse().unwrap());
    let m = membership(nodes, 0.01, 1).unwrap();
    eprintln!("{nodes} nodes: {m:?}");
    let (joined_ms, noticed_ms) = match nodes {
        ..=128 => (1_010, 7_300),
        // Of 1,000: most begin when the node that all know has receives for them.
        _ => (7_400, 118_000),
    };
    assert!(
        m.joined_ms < joined_ms && m.noticed_ms < noticed_ms,
        "{m:?}"
    );
    assert!(m.joined_datagrams < 2 * nodes as u64, "{m:?}");
    assert!(m.datagrams_per_s < 2.8 && m.wrong_ppm < 10.0, "{m:?}");
}

/// Nodes that have room for some of the others know different ones: it costs copies and time, and
/// each read ends.
#[test]
fn more_nodes_than_a_table_has_room_for_cost_copies() {
    let s = Scenario {
        has_gossip: true,
        ..Scenario::storm(64)
    };
    for (peers_max, files, last_ms) in [(57, 2.2, 2_700.0), (32, 38.0, 11_400.0)] {
        let o = sound(&Scenario { peers_max, ..s });
        assert!(o.gfsd_files < files && o.last_ms < last_ms, "{o:?}");
    }
}

/// More chunks than all directories have entries for, read once more in another order: most are
/// found, by what is left of their entries.
#[test]
fn a_second_epoch_finds_what_has_no_entry_any_more() {
    for (seed, nodes) in [(1, 4), (2, 8), (3, 16)] {
        let s = Scenario {
            seed,
            chunks: 2048,
            pattern: Pattern::Epochs(2),
            // 64 entries each.
            directory_groups: 8,
            ..Scenario::storm(nodes)
        };
        let o = sound(&s);
        assert!(o.gfsd_files <= 1.2, "{nodes} nodes: {o:?}");
    }
}
