// SPDX-License-Identifier: GPL-2.0

//! The bytes of messages and answers: vectors that must not change, and what must hold for
//! any bytes.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod answers;
mod fields;
mod fuzz;
mod random;
mod spans;
mod vectors;
