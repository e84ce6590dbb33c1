// SPDX-License-Identifier: GPL-2.0

//! Bodies of batches: their bytes, their room, and those that are damaged.

use rioc::proto::{
    body::{
        self,
        Body,
        ASSIGNMENT_BYTES,
        BODY_BYTES_MAX,
        BODY_HEAD_BYTES,
        TAGGED_BYTES,
        WRITE_CHANGES_MAX, //
    },
    entry::{
        Entry,
        Malformed, //
    },
    slot::{
        Slot,
        Stored,
        NONE, //
    },
    span::IO_BLOCKS_MAX, //
};
use seglog::Checksum;

use crate::{
    random::Random,
    targets,
    vectors::hex, //
};

struct Crc;

impl Checksum for Crc {
    fn crc32c(&self, bytes: &[u8]) -> u32 {
        crc32c::crc32c(bytes)
    }
}

/// The entry of an extent of as many blocks as the slot's number.
fn entry(slot: u32) -> Entry {
    let mut entry = [0; 32];
    (entry[0], entry[1], entry[8]) = (3, slot as u8, 9);
    entry
}

/// A body of two blocks and two slots, at a place; where its blocks are.
fn example() -> (Vec<u8>, Stored) {
    let mut body = Body::new(vec![0; 9000], (0x1000, 7), vec![0; 2]);
    let blocks = [[0x11; 4096], [0x22; 4096]];
    let blocks = blocks.iter().map(|block| (Crc.crc32c(block), &block[..]));
    let stored = body.put(blocks, &Crc).unwrap();
    for slot in [1, 2, 1] {
        body.change(slot);
    }
    let used = body.finish(entry).unwrap();
    let (mut bytes, _) = body.take();
    bytes.truncate(used);
    (bytes, stored)
}

#[test]
fn a_body_has_its_bytes() {
    let (bytes, stored) = example();
    assert_eq!(hex(&bytes[..16]), "01000000202000000200000000000000");
    let first = Crc.crc32c(&[0x11; 4096]).to_le_bytes();
    let origin = [0x1010u64.to_le_bytes(), 7u64.to_le_bytes()].concat();
    let stamp = Crc.crc32c(&origin);
    assert_eq!(
        stored,
        Stored {
            place: 0x1010,
            stamp
        }
    );
    assert_eq!(bytes[16..20], first);
    assert_eq!(bytes[20..24], stamp.to_le_bytes());
    assert!(bytes[24..4120].iter().all(|byte| *byte == 0x11));
    let entries = format!("01000000{}02000000{}", hex(&entry(1)), hex(&entry(2)));
    assert_eq!(hex(&bytes[8224..]), entries);
    let all: Vec<_> = body::assignments(&bytes).unwrap().collect();
    assert_eq!(all, [(1, &entry(1)), (2, &entry(2))]);
    let mut slots = [Slot::Free(NONE); 3];
    body::assign(&mut slots, &bytes).unwrap();
    assert!(matches!(
        slots,
        [Slot::Free(_), Slot::Extent(_), Slot::Extent(_)]
    ));
    assert_eq!(body::assign(&mut slots[..2], &bytes), Err(Malformed));
}

#[test]
fn a_block_is_proven_by_its_tag() {
    let (bytes, stored) = example();
    let block = |number: u8| {
        let at = (body::place_of(&stored, number) - 0x1000) as usize;
        &bytes[at..at + TAGGED_BYTES]
    };
    let (sum, found) = body::block(block(1), &stored, &Crc).unwrap();
    assert_eq!((sum, found), (Crc.crc32c(&[0x22; 4096]), &[0x22; 4096][..]));
    for bit in 0..TAGGED_BYTES * 8 {
        let mut damaged = block(0).to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(body::block(&damaged, &stored, &Crc), Err(Malformed));
    }
    // The block of another batch, or of another place, is none of this extent.
    for origin in [(0x1000, 8), (0x1008, 7)] {
        let mut other = Body::new(vec![0; 5000], origin, vec![0; 2]);
        let block = [0x11; 4096];
        let blocks = [(Crc.crc32c(&block), &block[..])].into_iter();
        let elsewhere = other.put(blocks, &Crc).unwrap();
        let bytes = other.at(elsewhere.place).unwrap();
        assert!(body::block(bytes, &elsewhere, &Crc).is_ok());
        assert_eq!(body::block(bytes, &stored, &Crc), Err(Malformed));
    }
}

#[test]
fn the_longest_write_fits() {
    let mut body = Body::new(vec![0; BODY_BYTES_MAX], (0, 1), vec![0; WRITE_CHANGES_MAX]);
    assert!(body.has_room(IO_BLOCKS_MAX, WRITE_CHANGES_MAX));
    let block = [7; 4096];
    let blocks = (0..IO_BLOCKS_MAX).map(|_| (Crc.crc32c(&block), &block[..]));
    body.put(blocks, &Crc).unwrap();
    (0..WRITE_CHANGES_MAX as u32).for_each(|slot| body.change(slot));
    assert!(!body.has_room(0, 1));
    assert!(body.finish(entry).is_some());
}

#[test]
fn room_is_up_to_the_last_byte() {
    let exactly = BODY_HEAD_BYTES + TAGGED_BYTES + ASSIGNMENT_BYTES;
    for (bytes, slots, has_room) in [
        (exactly, 1, true),
        (exactly - 1, 1, false),
        (exactly, 0, false),
    ] {
        let mut body = Body::new(vec![0; bytes], (0, 1), vec![0; slots]);
        assert_eq!(body.has_room(1, 1), has_room);
        let put = body.put([(0, &[7; 4096][..])].into_iter(), &Crc);
        assert!(put.is_some());
        body.change(5);
        let is_whole = body.finish(entry).is_some_and(|used| used == exactly);
        assert_eq!(is_whole, has_room);
    }
}

#[test]
fn a_refused_operation_leaves_no_blocks() {
    let mut body = Body::new(vec![0; 9000], (0, 1), vec![0; 4]);
    let block = [7; 4096];
    let blocks = |count: usize| (0..count).map(move |_| (0, &[7; 4096][..]));
    let mark = body.mark();
    assert!(body.put(blocks(3), &Crc).is_none());
    assert!(body.put([(0, &block[1..])].into_iter(), &Crc).is_none());
    let first = body.put(blocks(2), &Crc).unwrap();
    body.go_back(mark);
    assert!(body.is_empty() && body.at(first.place).is_none());
    assert_eq!(body.put(blocks(1), &Crc).unwrap().place, first.place);
    body.change(5);
    let used = body.finish(entry).unwrap();
    let (bytes, _) = body.take();
    assert_eq!(used, BODY_HEAD_BYTES + TAGGED_BYTES + ASSIGNMENT_BYTES);
    assert_eq!(body::assignments(&bytes).unwrap().count(), 1);
}

#[test]
fn a_body_of_zeroes_assigns_nothing() {
    assert_eq!(body::assignments(&[0; 512]).unwrap().count(), 0);
    assert!(body::assignments(&[0; 15]).is_err());
}

/// Any body is refused, or assigns what is in it.
#[test]
fn a_body_is_refused_or_assigns() {
    let (good, _) = example();
    let mut random = Random::new(4);
    for _ in 0..200_000 {
        let mut bytes = good.clone();
        for _ in 0..=random.below(2) {
            let at = random.below(16);
            match random.below(3) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at & 12] = random.next() as u8,
                _ => bytes.truncate(random.below(bytes.len()).max(16)),
            }
        }
        targets::batch(&bytes);
    }
}
