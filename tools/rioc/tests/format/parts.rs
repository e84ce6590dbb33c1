// SPDX-License-Identifier: GPL-2.0

//! Parts of what is too much for one operation: all bytes once, in their order.

use rioc::proto::{
    span::{
        Span,
        BLOCK_BYTES,
        IO_BLOCKS_MAX,
        IO_BYTES_MAX, //
    },
    split::{
        CopyParts,
        Parts, //
    },
};

use crate::random::Random;

/// A number below another one.
fn below(random: &mut Random, end: u64) -> u64 {
    random.next() % end
}

#[test]
fn parts_are_all_bytes_once_and_end_where_blocks_do() {
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let (offset, bytes) = (below(&mut random, 1 << 20), below(&mut random, 1 << 20) + 1);
        let io_bytes_max = (below(&mut random, IO_BYTES_MAX) + 1) as u32;
        let all = Span::new(offset, bytes).unwrap();
        let mut at = offset;
        for part in Parts::new(all, io_bytes_max) {
            assert_eq!(part.offset(), at);
            assert!(part.bytes() <= io_bytes_max.into());
            assert!(part.block_count() as usize <= IO_BLOCKS_MAX);
            let is_short = u64::from(io_bytes_max) < BLOCK_BYTES;
            assert!(part.end() == all.end() || is_short || part.end() % BLOCK_BYTES == 0);
            at = part.end();
        }
        assert_eq!(at, all.end());
    }
}

#[test]
fn as_few_parts_as_possible() {
    let parts = |offset, bytes| {
        let all = Span::new(offset, bytes).unwrap();
        Parts::new(all, IO_BYTES_MAX as u32).count()
    };
    assert_eq!(parts(0, IO_BYTES_MAX), 1);
    assert_eq!(parts(100, IO_BYTES_MAX), 1);
    assert_eq!(parts(0, IO_BYTES_MAX + 1), 2);
    assert_eq!(parts(0, 1 << 20), 10);
}

#[test]
fn a_copy_is_halved_until_the_server_takes_it() {
    let mut random = Random::new(2);
    for _ in 0..5_000 {
        let (offset, bytes) = (below(&mut random, 1 << 30), below(&mut random, 1 << 30) + 1);
        let to = below(&mut random, 64) * BLOCK_BYTES + offset % BLOCK_BYTES;
        let most = below(&mut random, 1 << 28) + 2 * BLOCK_BYTES;
        let mut parts = CopyParts::new(Span::new(offset, bytes).unwrap(), to);
        let mut copied = 0;
        while let Some((span, at)) = parts.next() {
            assert_eq!((span.offset(), at), (offset + copied, to + copied));
            assert_eq!(parts.left_bytes(), bytes - copied);
            if span.bytes() > most {
                assert!(parts.halve());
            } else {
                copied += span.bytes();
                parts.done();
            }
        }
        assert_eq!((copied, parts.left_bytes()), (bytes, 0));
    }
}

#[test]
fn a_copy_of_one_block_is_not_halved() {
    for (offset, bytes) in [(0, 1), (0, BLOCK_BYTES), (4096, 4097)] {
        let mut parts = CopyParts::new(Span::new(offset, bytes).unwrap(), 0);
        assert!(!parts.halve(), "{bytes} at {offset}");
    }
}
