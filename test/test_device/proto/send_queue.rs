// SPDX-License-Identifier: GPL-2.0

//! The memory of a send queue.

/// The bytes of a block.
const BLOCK_BYTES: u64 = 64;

/// The bytes of a work request without segments: control, and what a registration needs inline.
const OVERHEAD_BYTES: u64 = 132;

/// The bytes of a segment.
const SEGMENT_BYTES: u64 = 16;

/// Returns the blocks of 64 bytes of a send queue, as mlx5 calculates them for a reliable
/// connection (`calc_send_wqe()`, `calc_sq_size()` of `drivers/infiniband/hw/mlx5/qp.c`).
pub fn blocks(work_requests: u32, segments: u32) -> u64 {
    // None of these overflows: both numbers have 32 bits, and 16 * 2^32 is below 2^37.
    let bytes = OVERHEAD_BYTES.saturating_add(SEGMENT_BYTES.saturating_mul(segments.into()));
    let each = bytes.div_ceil(BLOCK_BYTES);
    each.saturating_mul(work_requests.into())
        .checked_next_power_of_two()
        .unwrap_or(u64::MAX)
}
