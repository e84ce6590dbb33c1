// SPDX-License-Identifier: GPL-2.0

//! Bytes and blocks.

use proptest::prelude::*;
use rioc::proto::span::{
    Span,
    BLOCK_BYTES,
    IO_BLOCKS_MAX,
    IO_BYTES_MAX,
    OBJECT_BYTES_MAX, //
};

#[test]
fn a_span_has_bytes_that_an_object_can_have() {
    let is_span = |offset, bytes| Span::new(offset, bytes).is_some();
    assert!(is_span(0, 1) && is_span(0, OBJECT_BYTES_MAX) && is_span(OBJECT_BYTES_MAX - 1, 1));
    assert!(!is_span(0, 0) && !is_span(OBJECT_BYTES_MAX, 1) && !is_span(1, OBJECT_BYTES_MAX));
    assert!(!is_span(u64::MAX, 1) && !is_span(2, u64::MAX));
    assert_eq!(Span::ALL.blocks(), 0..u32::MAX);
}

#[test]
fn an_operation_that_begins_in_a_block_has_one_more() {
    let most = Span::new(4095, IO_BYTES_MAX).unwrap();
    assert_eq!(most.block_count() as usize, IO_BLOCKS_MAX);
    assert!(most.is_io() && !Span::new(0, IO_BYTES_MAX + 1).unwrap().is_io());
}

proptest! {
    #[test]
    fn pieces_are_all_bytes_once(offset in 0..1u64 << 43, bytes in 1..200_000u64) {
        let span = Span::new(offset, bytes).unwrap();
        let mut next = offset;
        for piece in span.pieces() {
            prop_assert_eq!(u64::from(piece.block) * BLOCK_BYTES + u64::from(piece.from), next);
            prop_assert!(piece.from < piece.to && u64::from(piece.to) <= BLOCK_BYTES);
            prop_assert_eq!(piece.is_whole(), u64::from(piece.to - piece.from) == BLOCK_BYTES);
            next += u64::from(piece.to - piece.from);
        }
        prop_assert_eq!(next, span.end());
        prop_assert_eq!(span.pieces().count(), span.block_count() as usize);
        let whole = span.whole_blocks();
        prop_assert!(whole.contains(&span) && whole.blocks() == span.blocks());
        prop_assert!(whole.bytes() < bytes + 2 * BLOCK_BYTES);
    }

    #[test]
    fn overlap_is_a_common_byte(a in 0..40u64, b in 1..40u64, c in 0..40u64, d in 1..40u64) {
        let (one, other) = (Span::new(a, b).unwrap(), Span::new(c, d).unwrap());
        let common = (a..a + b).filter(|byte| (c..c + d).contains(byte)).count() as u64;
        prop_assert_eq!(one.overlaps(&other), common > 0);
        prop_assert_eq!(one.contains(&other), common == d);
    }
}
