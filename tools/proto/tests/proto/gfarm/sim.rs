// SPDX-License-Identifier: GPL-2.0

//! A client, a gfmd and some gfsds with faults, simulated: one seed, one run.
//!
//!     GFARM_SEEDS=10000 cargo test -p ferrofabric-proto gfarm::sim        # more of them
//!
//! The client's decisions and codecs are those of the protocol folder; the servers are models that
//! parse the same bytes. Files are written in place meanwhile, as Gfarm does it.

mod client;
mod files;
mod metadata;
mod reader;
mod server;
mod world;

use std::env;

use world::{
    Options,
    World, //
};

#[test]
fn a_run_without_faults_reads_every_file() {
    let mut read_again = 0;
    for seed in 0..20 {
        let world = World::run(seed, Options::default());
        assert!(world.jobs_done >= 40, "{seed}: {} jobs", world.jobs_done);
        assert_eq!(world.jobs_failed, 0, "{seed}");
        read_again += world.read_again;
    }
    assert!(read_again > 10, "replicas have other times: {read_again}");
}

#[test]
fn servers_that_die_at_any_message_lose_no_read() {
    const JOBS: usize = 5;
    let mut deaths = [0; 4];
    for (server, deaths) in deaths.iter_mut().enumerate() {
        for seed in 0..4 {
            for boundary in 0.. {
                let options = Options {
                    dies: Some((server, boundary)),
                    jobs: JOBS,
                    ..Options::default()
                };
                let world = World::run(seed, options);
                let ended = (world.jobs_done, world.jobs_failed);
                assert_eq!(ended, (JOBS, 0), "{server} at {boundary} of seed {seed}");
                if world.boundaries(server) <= boundary {
                    break;
                }
                *deaths += 1;
            }
        }
    }
    assert!(deaths.iter().all(|deaths| *deaths > 50), "{deaths:?}");
}

/// The number of seeds with faults.
fn seeds() -> u64 {
    env::var("GFARM_SEEDS").map_or(120, |seeds| seeds.parse().unwrap())
}

#[test]
fn no_fault_makes_a_wrong_byte_and_all_reads_end() {
    let mut done = 0;
    for seed in 0..seeds() {
        let options = Options {
            faults: true,
            writes: seed % 2 == 0,
            ..Options::default()
        };
        done += World::run(seed, options).jobs_done;
    }
    assert!(done as u64 >= 40 * seeds(), "{done}");
}

#[test]
fn what_gfmd_keeps_open_for_silent_gfsds_fails_no_read() {
    for seed in 0..4 {
        let options = Options {
            silences: true,
            ..Options::default()
        };
        let world = World::run(seed, options);
        assert_eq!(world.jobs_failed, 0, "{seed}");
        // As often as it has to be, and no more.
        assert_eq!(world.servers.processes(), 2, "{seed}");
    }
}

#[test]
fn a_file_that_a_writer_keeps_open_is_read() {
    for pause_ms in [20, 50, 500, 5000] {
        for seed in 0..2 {
            let options = Options {
                writes_on_ms: Some(pause_ms),
                ..Options::default()
            };
            let world = World::run(seed, options);
            assert_eq!(world.jobs_failed, 0, "{seed}");
            let jobs = world.jobs_done;
            assert!(jobs > 1000, "{jobs} jobs, a write each {pause_ms} ms");
        }
    }
}

/// Whether a run of a broken client ends with this complaint within some seeds.
fn is_found(options: Options, complaint: &str) -> bool {
    (0..400).any(|seed| {
        let end = std::panic::catch_unwind(|| World::run(seed, options).jobs_done);
        let text = end.err().and_then(|end| end.downcast::<String>().ok());
        text.is_some_and(|text| text.contains(complaint))
    })
}

#[test]
fn pages_without_a_witness_are_mixed_by_writes_in_place() {
    let options = Options {
        writes: true,
        no_witness: true,
        ..Options::default()
    };
    assert!(is_found(options, "are of no one state"));
}

#[test]
fn first_bytes_that_are_taken_as_they_are_are_mixed_by_writes_in_place() {
    let options = Options {
        writes: true,
        trusts_first: true,
        ..Options::default()
    };
    assert!(is_found(options, "are of no one state"));
}

#[test]
fn a_cache_that_keeps_the_pages_of_a_rewritten_file_is_stale() {
    let options = Options {
        writes: true,
        keep_pages: true,
        ..Options::default()
    };
    assert!(is_found(options, "is older than"));
}
