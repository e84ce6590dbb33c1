// SPDX-License-Identifier: GPL-2.0

//! Tests of the simulation itself: that it can fail, and that a seed is a seed. One binary, so that
//! it links once.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod command;
mod mutation;
mod runs;

use sim::{
    Options,
    Outcome, //
};

/// Runs seeds until something is wrong; returns the seed with what came of it.
fn first_failure(seeds: u64, options: Options) -> Option<(u64, Outcome)> {
    (0..seeds)
        .map(|seed| (seed, sim::run(seed, options).unwrap()))
        .find(|(_, outcome)| outcome.violation.is_some())
}
