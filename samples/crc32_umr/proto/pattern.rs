// SPDX-License-Identifier: GPL-2.0

//! The data that the demonstration writes: other bytes in each block, and with each seed.

/// Fills `data`, which is that of block `block` from its start on.
pub fn fill(seed: u32, block: u64, data: &mut [u8]) {
    for (byte, value) in data.iter_mut().zip(bytes(seed, block)) {
        *byte = value;
    }
}

/// Returns where `data`, from the start of block `block` on, is first not what [`fill`] writes.
pub fn differs(seed: u32, block: u64, data: &[u8]) -> Option<usize> {
    data.iter()
        .zip(bytes(seed, block))
        .position(|(byte, value)| *byte != value)
}

/// SplitMix64, a byte at a time.
fn bytes(seed: u32, block: u64) -> impl Iterator<Item = u8> {
    let mut state = block.rotate_left(32) ^ u64::from(seed);
    core::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
    .flat_map(u64::to_le_bytes)
}
