// SPDX-License-Identifier: GPL-2.0

//! The scrub of a device in use: each block is counted once, whatever can be read of it.

use ferro_proto::errno::Errno;
use proptest::prelude::*;
use proto::sidecar::{
    command::ScrubCommand,
    layout::Layout,
    online_scrub::{
        is_of_medium,
        OnlineScrub,
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

/// Runs the scrub to its end; returns the blocks that were checked, with the pieces' sizes.
fn run(scrub: &mut OnlineScrub, layout: &Layout, unreadable: &[u64]) -> Vec<(u64, bool)> {
    let mut seen = Vec::new();
    while let Some(piece) = scrub.next_piece(layout) {
        assert!((1..=PIECE_BLOCKS_MAX).contains(&piece.blocks));
        let end = piece.first + u64::from(piece.blocks);
        let (at, contiguous) = layout.data(piece.first).unwrap();
        assert!(u64::from(piece.blocks) <= contiguous);
        assert_eq!(
            layout.data(end - 1).unwrap().0,
            at + u64::from(piece.blocks) - 1
        );
        assert_eq!(scrub.next_piece(layout), None, "one piece at a time");
        let is_bad = (piece.first..end).any(|block| unreadable.contains(&block));
        if is_bad {
            let told = scrub.ended(false);
            assert_eq!(told, (piece.blocks == 1).then_some(piece.first));
            seen.extend(told.map(|block| (block, false)));
        } else {
            for block in piece.first..end {
                scrub.checked(Verdict::Good, false);
                seen.push((block, true));
            }
            assert_eq!(scrub.ended(true), None);
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
        let mut scrub = OnlineScrub::new();
        prop_assert!(scrub.start(layout.data_blocks(), false));
        let seen = run(&mut scrub, &layout, &unreadable);
        let expected: Vec<(u64, bool)> =
            (0..blocks).map(|block| (block, !unreadable.contains(&block))).collect();
        prop_assert_eq!(seen, expected);
        prop_assert_eq!(scrub.state(), State::Finished);
        let found = scrub.found();
        prop_assert_eq!(found.unreadable, unreadable.len() as u64);
        prop_assert_eq!(found.good + found.bad(), layout.data_blocks());
    }
}

#[test]
fn a_scrub_is_stopped_and_begun_anew() {
    let layout = layout();
    let mut scrub = OnlineScrub::default();
    assert_eq!(scrub.state(), State::Idle);
    assert!(!scrub.stop(), "none runs");
    assert_eq!(scrub.next_piece(&layout), None);
    assert!(scrub.start(layout.data_blocks(), false));
    assert!(!scrub.start(layout.data_blocks(), false), "one runs");
    let piece = scrub.next_piece(&layout).unwrap();
    scrub.withdraw();
    assert_eq!(scrub.next_piece(&layout), Some(piece), "the same piece");
    assert!(scrub.stop());
    assert!(
        !scrub.start(layout.data_blocks(), false),
        "its last piece is being read"
    );
    for _ in 0..piece.blocks {
        scrub.checked(Verdict::Unwritten, true);
    }
    assert_eq!(scrub.ended(true), None);
    assert_eq!(scrub.state(), State::Stopped);
    assert_eq!(scrub.next_piece(&layout), None);
    let text = scrub.to_string();
    let blocks = layout.data_blocks();
    assert_eq!(
        text,
        format!(
            "state stopped\nblocks {blocks}\nchecked 16\ngood 0\nunwritten 16\nunchecked 16\n\
             not_empty 0\nbad 0\nmended 0\n"
        )
    );
    assert!(scrub.start(blocks, false));
    assert_eq!(scrub.found().unwritten, 0, "counted anew");
    scrub.checked(Verdict::Lost, true);
    scrub.checked(Verdict::WrongGuard, true);
    scrub.checked(Verdict::WrongReference, true);
    assert_eq!(scrub.found().bad(), 3);
}

#[test]
fn pi_blocks_are_mended_while_a_scrub_runs_that_was_asked_to() {
    let layout = layout();
    let parse = |word: &str| ScrubCommand::parse(word.as_bytes());
    assert_eq!(parse("start\n"), Ok(ScrubCommand::Start { mends: false }));
    assert_eq!(parse(" mend\n"), Ok(ScrubCommand::Start { mends: true }));
    assert_eq!(parse("stop"), Ok(ScrubCommand::Stop));
    for word in ["", "mend now", "Mend", "mended"] {
        assert!(parse(word).is_err(), "{word}");
    }
    let mut scrub = OnlineScrub::new();
    assert!(!scrub.mends());
    assert!(scrub.start(layout.data_blocks(), false) && !scrub.mends());
    assert!(scrub.stop() && scrub.start(layout.data_blocks(), true) && scrub.mends());
    scrub.mended();
    assert!(scrub.to_string().ends_with("\nmended 1\n"));
    run(&mut scrub, &layout, &[]);
    assert_eq!(scrub.state(), State::Finished);
    assert!(!scrub.mends(), "it has ended");
    assert!(scrub.start(layout.data_blocks(), true) && scrub.stop());
    assert!(!scrub.mends(), "it was stopped");
    assert!(
        scrub.to_string().ends_with("\nmended 0\n"),
        "each scrub counts its own"
    );
}

/// Returns how many PI blocks are written anew in a row.
fn mended(scrub: &mut OnlineScrub) -> usize {
    let mends = |_: &usize| {
        let mends = scrub.mends();
        if mends {
            scrub.mended();
        }
        mends
    };
    (0..100).take_while(mends).count()
}

#[test]
fn a_device_of_which_most_cannot_be_read_is_not_mended_on() {
    let layout = Layout::new(300 * 256 + 2000, 4).unwrap();
    let mut scrub = OnlineScrub::new();
    assert!(scrub.start(layout.data_blocks(), true));
    assert_eq!(mended(&mut scrub), 8, "nothing was read");
    // 72 groups, of which 8 were bad: one more for 64 sound ones.
    let mut read = 0;
    while read < 72 * 256 {
        read += u64::from(scrub.next_piece(&layout).unwrap().blocks);
        assert_eq!(scrub.ended(true), None);
    }
    assert_eq!(mended(&mut scrub), 1);
    assert!(!scrub.mends());
}

#[test]
fn a_device_that_is_out_of_reach_is_no_bad_medium() {
    // EIO, ENODATA and EILSEQ; not ENOMEM, ENODEV, EAGAIN, ENOLINK, ETIMEDOUT, ENXIO.
    let of_medium = (1..200).filter(|number| is_of_medium(Errno::new(*number).unwrap()));
    assert_eq!(of_medium.collect::<Vec<_>>(), [5, 61, 84]);
}
