// SPDX-License-Identifier: GPL-2.0

//! The bytes of messages, answers and entries: vectors that must not change, and what must hold for
//! any bytes.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod answers;
mod entries;
mod fields;
mod fuzz;
mod random;
mod spans;
mod vectors;
