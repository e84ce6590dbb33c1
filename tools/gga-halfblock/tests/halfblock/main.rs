// SPDX-License-Identifier: GPL-2.0

//! Tests of the half blocks: formats and messages with vectors, the roles over memory, the write
//! hole, and the program as its users call it.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test fails by panicking"
)]

mod formats;
mod memory;
mod messages;
mod program;
mod roles;
mod write_hole;

use proptest::test_runner::Config;

/// Properties are tried with few inputs each: the whole is to take seconds.
fn few() -> Config {
    Config {
        failure_persistence: None,
        ..Config::with_cases(64)
    }
}

/// Bytes written as hexadecimal digits, with blanks between them.
fn bytes(hexadecimal: &str) -> Vec<u8> {
    let digits: Vec<u32> = hexadecimal.chars().filter_map(|c| c.to_digit(16)).collect();
    digits
        .chunks_exact(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8)
        .collect()
}

/// Bytes that cannot be compressed.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed << 1 | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}
