// SPDX-License-Identifier: GPL-2.0

//! The memory that each fragment of a transfer is.

use proto::transfer::layout::{Cutter, Layout, LayoutError, Piece, PAGE_LEN};

const SKIPS: [u32; 7] = [0, 1, 255, 512, 1000, 4000, 4095];
const LENS: [u32; 9] = [1, 100, 511, 4095, 4096, 4097, 8192, 12_345, 1 << 20];
const FRAGMENTS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// The layouts of all combinations.
fn all() -> impl Iterator<Item = (Layout, u32, u32, u32)> {
    SKIPS.into_iter().flat_map(|skip| {
        LENS.into_iter().flat_map(move |len| {
            FRAGMENTS.into_iter().map(move |fragment| {
                let layout = Layout::new(fragment, skip, len, u16::MAX).unwrap();
                (layout, skip, len, fragment)
            })
        })
    })
}

#[test]
fn the_fragments_are_whole_pages_around_the_memory() {
    for (layout, skip, len, fragment) in all() {
        let bytes = u32::from(layout.count()) * fragment;
        assert_eq!(bytes % PAGE_LEN, 0);
        assert!(bytes >= skip + len && bytes < skip + len + PAGE_LEN);
        assert_eq!(layout.fragment(layout.count()), None);
    }
}

#[test]
fn each_byte_of_the_memory_is_in_one_fragment() {
    for (layout, skip, len, fragment) in all() {
        let (mut lead, mut memory, mut tail) = (0, 0, 0);
        for number in 0..layout.count() {
            let part = layout.fragment(number).unwrap();
            // Each goes on where it has stopped.
            for (range, at) in [
                (&part.lead, &mut lead),
                (&part.memory, &mut memory),
                (&part.tail, &mut tail),
            ] {
                assert!(range.start <= range.end);
                if range.start != range.end {
                    assert_eq!(range.start, *at);
                    *at = range.end;
                }
            }
            assert_eq!(
                part.lead.len() + part.memory.len() + part.tail.len(),
                fragment as usize
            );
            // In this order.
            assert!(part.lead.is_empty() || part.memory.is_empty() || part.memory.start == 0);
            assert!(part.tail.is_empty() || part.memory.is_empty() || part.memory.end == len);
        }
        assert_eq!((lead, memory), (skip, len));
        assert!(tail < PAGE_LEN);
    }
}

#[test]
fn a_page_is_its_fragments() {
    for (layout, skip, len, fragment) in all() {
        let pages = u32::from(layout.count()) * fragment / PAGE_LEN;
        let mut at = 0;
        for number in 0..pages {
            let number = u16::try_from(number).unwrap();
            let (fragments, memory) = layout.pages(number..number + 1).unwrap();
            assert_eq!(fragments.len(), (PAGE_LEN / fragment) as usize);
            let parts: Vec<_> = fragments
                .map(|number| layout.fragment(number).unwrap().memory)
                .filter(|range| !range.is_empty())
                .collect();
            assert_eq!(memory.start, at);
            assert_eq!(parts.first().unwrap().start, memory.start);
            assert_eq!(parts.last().unwrap().end, memory.end);
            at = memory.end;
        }
        assert_eq!(at, len, "skip {skip}");
        let pages = u16::try_from(pages).unwrap();
        assert_eq!(layout.pages(0..pages), Some((0..layout.count(), 0..len)));
        for none in [pages..pages + 1, 0..pages + 1, 0..u16::MAX, 1..1] {
            assert_eq!(layout.pages(none.clone()), None, "{none:?}");
        }
    }
}

#[test]
fn what_is_no_layout_is_refused() {
    for fragment in [0, 1, 128, 255, 257, 3072, 8192, 1 << 31, u32::MAX] {
        let made = Layout::new(fragment, 0, 4096, 256);
        assert_eq!(made, Err(LayoutError::BadFragment), "{fragment}");
    }
    for skip in [4096, u32::MAX] {
        assert_eq!(Layout::new(4096, skip, 1, 256), Err(LayoutError::BadSkip));
    }
    for len in [0, u32::MAX, u32::MAX - 4095, (256 << 12) + 1] {
        assert_eq!(Layout::new(4096, 0, len, 256), Err(LayoutError::BadLen));
    }
    assert!(Layout::new(4096, 0, 256 << 12, 256).is_ok());
    assert_eq!(
        Layout::new(4096, 1, 256 << 12, 256),
        Err(LayoutError::BadLen)
    );
}

#[test]
fn pieces_are_cut_and_none_is_skipped() {
    let pieces = [(100, 10), (500, 0), (1000, 5), (2000, 3)];
    let pieces = pieces.map(|(addr, len)| Piece { addr, len });
    let cut = |sizes: &[u32]| {
        let mut cutter = Cutter::new(pieces.into_iter());
        let mut next = |len| cutter.next(len).map(|piece| (piece.addr, piece.len));
        sizes.iter().map(|len| next(*len)).collect::<Vec<_>>()
    };
    assert_eq!(
        cut(&[4, 0, 4, 4, 100, 100, 1]),
        [
            Some((100, 4)),
            None,
            Some((104, 4)),
            Some((108, 2)),
            Some((1000, 5)),
            Some((2000, 3)),
            None
        ]
    );
    assert_eq!(
        cut(&[10, 5, 3]),
        [(100, 10), (1000, 5), (2000, 3)].map(Some)
    );
}
