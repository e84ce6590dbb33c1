// SPDX-License-Identifier: GPL-2.0

//! The bytes of messages, answers and entries: vectors that must not change, and what must hold for
//! any bytes.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod answers;
mod bodies;
mod calls;
mod commands;
mod entries;
mod fields;
mod fuzz;
mod lines;
mod parts;
#[path = "../common/random.rs"]
mod random;
mod sendings;
mod spans;
mod targets;
mod vectors;
