// SPDX-License-Identifier: GPL-2.0

//! Objects over the index, beside objects that are arrays of bytes: the same operations on both,
//! and after each one the same bytes, no place of a block lost or freed twice, and the same again
//! from what a log would have kept. `world.rs` has the judge, the others choose the operations.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod ages;
mod assembly;
mod attaching;
mod backing;
mod chains;
mod claims;
mod clients;
mod crash;
mod disk;
mod filing;
mod formats;
mod full;
mod incarnations;
mod large;
mod leasing;
mod lives;
mod pages;
#[path = "../common/random.rs"]
mod random;
mod requests;
mod rig;
mod serving;
mod sharing;
mod shrinking;
mod small;
mod store;
mod turns;
mod world;
