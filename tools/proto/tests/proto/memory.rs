// SPDX-License-Identifier: GPL-2.0

//! The memory that a disk takes.

use proto::rnbd::memory::dma_alignment_mask;

/// Returns in how many pages `bytes` lie that begin at an offset of a page.
fn pages(offset: u32, bytes: u32) -> u32 {
    (offset + bytes).div_ceil(4096)
}

#[test]
fn a_block_anywhere_in_memory_has_no_more_pieces_than_a_request() {
    for max_segments in [1, 2, 8, 9, 30, 126, 510, u16::MAX] {
        let unit = dma_alignment_mask(max_segments) + 1;
        assert_eq!(unit, if max_segments > 8 { 4 } else { 512 });
        let blocks: &[u32] = match unit {
            4 => &[512, 1024, 4096, 32768],
            // A block of 512 bytes is never in two pages.
            _ => &[512],
        };
        for &block in blocks {
            for offset in (0..4096).step_by(unit as usize) {
                assert!(pages(offset, block) <= max_segments.into());
            }
        }
    }
}
