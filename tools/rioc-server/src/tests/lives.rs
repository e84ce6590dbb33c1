// SPDX-License-Identifier: GPL-2.0

//! Lives of stores on a log: what was answered is there, once.

use super::life::{
    Counts,
    Life, //
};

/// The lives of a run, of which `LIVES` may name more.
fn lives() -> u64 {
    std::env::var("LIVES").map_or(16, |count| count.parse().unwrap())
}

/// Checks that what clients were answered is there after each crash, whole and once, whatever was
/// lost.
#[test]
fn what_the_engine_answers_is_there() {
    let mut all = Counts::default();
    for seed in 0..lives() {
        let life = std::panic::catch_unwind(|| {
            let mut life = Life::new(seed);
            for _ in 0..3 {
                let events = life.random.below(6000);
                life.live(events);
                life.crash();
                life.check();
            }
            life.counts
        });
        let counts = life.unwrap_or_else(|_| panic!("of life {seed}"));
        all.add(&counts);
    }
    println!("{all:?}");
    assert!(
        all.changes > 100 && all.reads > 100 && all.again > 10 && all.copies > 10 && all.moved > 10
    );
}
