// SPDX-License-Identifier: GPL-2.0

//! The scrub of a device in use: each block is counted once, whatever can be read of it.

use proptest::prelude::*;
use proto::sidecar::{
    layout::Layout,
    patrol::{
        Patrol,
        State,
        PIECE_BLOCKS_MAX, //
    },
    tuple::Verdict, //
};

/// A device of two segments, of which the first one ends within a piece's reach.
fn layout() -> Layout {
    let first = Layout::new(1100, 4).unwrap();
    first.grown(2400).unwrap()
}

/// Scrubs; returns the blocks that were checked, with the pieces' sizes.
fn scrub(patrol: &mut Patrol, layout: &Layout, unreadable: &[u64]) -> Vec<(u64, bool)> {
    let mut seen = Vec::new();
    while let Some(piece) = patrol.next_piece(layout) {
        assert!((1..=PIECE_BLOCKS_MAX).contains(&piece.blocks));
        let end = piece.first + u64::from(piece.blocks);
        let (at, contiguous) = layout.data(piece.first).unwrap();
        assert!(u64::from(piece.blocks) <= contiguous);
        assert_eq!(
            layout.data(end - 1).unwrap().0,
            at + u64::from(piece.blocks) - 1
        );
        assert_eq!(patrol.next_piece(layout), None, "one piece at a time");
        let is_bad = (piece.first..end).any(|block| unreadable.contains(&block));
        if is_bad {
            let told = patrol.ended(false);
            assert_eq!(told, (piece.blocks == 1).then_some(piece.first));
            seen.extend(told.map(|block| (block, false)));
        } else {
            for block in piece.first..end {
                patrol.checked(Verdict::Good, false);
                seen.push((block, true));
            }
            assert_eq!(patrol.ended(true), None);
        }
    }
    seen
}

proptest! {
    #[test]
    fn each_block_is_counted_once(unreadable in prop::collection::btree_set(0u64..2048, 0..20)) {
        let layout = layout();
        let blocks = layout.data_blocks();
        let unreadable: Vec<u64> = unreadable.into_iter().filter(|block| *block < blocks).collect();
        let mut patrol = Patrol::new();
        prop_assert!(patrol.start(layout.data_blocks()));
        let seen = scrub(&mut patrol, &layout, &unreadable);
        let expected: Vec<(u64, bool)> =
            (0..blocks).map(|block| (block, !unreadable.contains(&block))).collect();
        prop_assert_eq!(seen, expected);
        prop_assert_eq!(patrol.state(), State::Finished);
        let found = patrol.found();
        prop_assert_eq!(found.unreadable, unreadable.len() as u64);
        prop_assert_eq!(found.good + found.bad(), layout.data_blocks());
    }
}

#[test]
fn a_scrub_is_stopped_and_begun_anew() {
    let layout = layout();
    let mut patrol = Patrol::default();
    assert_eq!(patrol.state(), State::Idle);
    assert!(!patrol.stop(), "none runs");
    assert_eq!(patrol.next_piece(&layout), None);
    assert!(patrol.start(layout.data_blocks()));
    assert!(!patrol.start(layout.data_blocks()), "one runs");
    let piece = patrol.next_piece(&layout).unwrap();
    patrol.withdraw();
    assert_eq!(patrol.next_piece(&layout), Some(piece), "the same piece");
    assert!(patrol.stop());
    assert!(
        !patrol.start(layout.data_blocks()),
        "its last piece is being read"
    );
    for _ in 0..piece.blocks {
        patrol.checked(Verdict::Unwritten, true);
    }
    assert_eq!(patrol.ended(true), None);
    assert_eq!(patrol.state(), State::Stopped);
    assert_eq!(patrol.next_piece(&layout), None);
    let text = patrol.to_string();
    let blocks = layout.data_blocks();
    assert_eq!(
        text,
        format!(
            "state stopped\nblocks {blocks}\nchecked 16\ngood 0\nunwritten 16\nunchecked 16\n\
             not_empty 0\nbad 0\n"
        )
    );
    assert!(patrol.start(blocks));
    assert_eq!(patrol.found().unwritten, 0, "counted anew");
    patrol.checked(Verdict::Lost, true);
    patrol.checked(Verdict::WrongGuard, true);
    patrol.checked(Verdict::WrongReference, true);
    assert_eq!(patrol.found().bad(), 3);
}
