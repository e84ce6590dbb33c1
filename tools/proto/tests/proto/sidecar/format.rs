// SPDX-License-Identifier: GPL-2.0

//! Layout, superblock, records and tuples.

use std::collections::HashSet;

use proptest::prelude::*;
use proto::sidecar::{
    group,
    layout::{
        Layout,
        Misfit,
        Segment,
        SLOTS_MAX,
        SLOTS_MIN, //
    },
    record::{
        Builder,
        Entry,
        Head,
        Record,
        ENTRIES_MAX, //
    },
    superblock::{
        Refusal,
        Superblock,
        SUPERBLOCK_BYTES, //
    },
    tuple::{
        Meaning,
        Seal,
        Verdict, //
    },
    Block,
    Checksum,
    BLOCK_BYTES, //
};
use zerocopy::IntoBytes;

use super::Sum;

const UUID: [u8; 16] = *b"0123456789abcdef";

fn seal() -> Seal {
    Seal::new(&UUID, &Sum)
}

fn layout() -> Layout {
    Layout::new(2000, 100).unwrap()
}

#[test]
fn a_tuple_fits_its_block_and_device_only() {
    let (one, two) = (seal(), Seal::new(&[7; 16], &Sum));
    let tuple = one.data(5, 77, 3).unwrap();
    assert_eq!(one.meaning(&tuple, 5), Meaning::Data { guard: 77, app: 3 });
    assert_eq!(one.check(&tuple, 5, 77), Verdict::Good);
    assert_eq!(one.check(&tuple, 5, 78), Verdict::WrongGuard);
    assert_eq!(one.check(&tuple, 6, 77), Verdict::WrongReference);
    assert_eq!(two.check(&tuple, 5, 77), Verdict::WrongReference);
    for (tuple, verdict) in [
        (one.unwritten(5), Verdict::Unwritten),
        (one.lost(5), Verdict::Lost),
    ] {
        assert_eq!(one.check(&tuple, 5, 77), verdict);
        assert_eq!(one.check(&tuple, 6, 77), Verdict::WrongReference);
        assert_eq!(two.check(&tuple, 5, 77), Verdict::WrongReference);
    }
    // The tag that turns the check off in NVMe is not stored.
    assert_eq!(one.data(5, 77, 0xffff), None);
}

#[test]
fn a_bit_in_a_tuple_is_never_silent() {
    let seal = seal();
    for tuple in [
        seal.data(9, 42, 0).unwrap(),
        seal.unwritten(9),
        seal.lost(9),
    ] {
        for bit in 0..128 {
            let mut home: Block = [0; BLOCK_BYTES];
            group::set_tuple(&mut home, 9, &tuple);
            home[9 * 16 + bit / 8] ^= 1 << (bit % 8);
            let verdict = seal.check(&group::tuple(&home, 9), 9, 42);
            // Bits 64 to 79 are the application's, and are not checked here.
            let is_app = (64..80).contains(&bit) && verdict == Verdict::Good;
            assert!(!verdict.is_readable() || is_app, "bit {bit}: {verdict:?}");
        }
    }
}

#[test]
fn a_zeroed_home_has_no_readable_block() {
    let seal = seal();
    for index in 0..=255 {
        let tuple = group::tuple(&[0; BLOCK_BYTES], index);
        assert!(!seal.check(&tuple, index.into(), 0).is_readable());
    }
}

proptest! {
    #[test]
    fn no_two_blocks_share_a_place(
        blocks in 300u64..4000,
        slots in SLOTS_MIN..300,
        more in 0u64..3000,
    ) {
        let Ok(mut layout) = Layout::new(blocks, slots) else {
            // Slots and alignment take less than 2 MiB.
            prop_assert!(blocks < 1024);
            return Ok(());
        };
        if let Ok(grown) = layout.grown(blocks + more) {
            for block in 0..layout.data_blocks() {
                prop_assert_eq!(grown.data(block).unwrap().0, layout.data(block).unwrap().0);
            }
            layout = grown;
        }
        let mut used: HashSet<u64> = (0..=u64::from(slots)).collect();
        prop_assert!(used.insert(layout.copy()));
        for group in 0..layout.groups() {
            prop_assert!(used.insert(layout.home(group).unwrap()));
        }
        for block in 0..layout.data_blocks() {
            let (at, run) = layout.data(block).unwrap();
            prop_assert!(used.insert(at));
            prop_assert!(run >= 1 && layout.data(block + run - 1).unwrap().0 == at + run - 1);
        }
        prop_assert!(used.iter().all(|at| *at < layout.device_blocks()));
        prop_assert_eq!(layout.home(layout.groups()), None);
        prop_assert_eq!(layout.data(layout.data_blocks()), None);
    }
}

#[test]
fn layouts_that_cannot_be_are_refused() {
    let segment = Segment {
        start: 256,
        groups: 2,
    };
    let check = |blocks, slots, segments: &[Segment]| Layout::from_parts(blocks, slots, segments);
    assert!(check(771, 255, &[segment]).is_ok());
    assert_eq!(check(770, 255, &[segment]), Err(Misfit::Segments));
    assert_eq!(check(771, 256, &[segment]), Err(Misfit::Segments));
    assert_eq!(check(771, SLOTS_MIN - 1, &[segment]), Err(Misfit::Slots));
    assert_eq!(check(9000, SLOTS_MAX + 1, &[segment]), Err(Misfit::Slots));
    assert_eq!(check(771, 255, &[]), Err(Misfit::Segments));
    assert_eq!(check((1 << 48) + 1, 255, &[segment]), Err(Misfit::TooLarge));
    let with = |start, groups| Segment { start, groups };
    assert_eq!(check(9000, 255, &[with(257, 2)]), Err(Misfit::Segments));
    assert_eq!(check(9000, 255, &[with(256, 0)]), Err(Misfit::Segments));
    assert_eq!(
        check(9000, 255, &[with(256, u64::MAX)]),
        Err(Misfit::Segments)
    );
    assert_eq!(
        check(9000, 255, &[segment, with(512, 2)]),
        Err(Misfit::Segments)
    );
    assert_eq!(
        check(9000, 255, &[segment; 17]),
        Err(Misfit::TooManySegments)
    );
    assert_eq!(Layout::new(512, 255), Err(Misfit::TooSmall));
    assert_eq!(layout().grown(2100), Err(Misfit::TooSmall));
    let mut layout = layout();
    for _ in 0..15 {
        layout = layout.grown(layout.device_blocks() + 1024).unwrap();
    }
    let more = layout.device_blocks() + 1024;
    assert_eq!(layout.grown(more), Err(Misfit::TooManySegments));
}

fn superblock() -> (Superblock, Block) {
    let superblock = Superblock {
        uuid: UUID,
        layout: layout(),
    };
    let mut block = [0xff; BLOCK_BYTES];
    superblock.write(&mut block, 0, &Sum);
    (superblock, block)
}

#[test]
fn a_superblock_is_read_as_written() {
    let (superblock, block) = superblock();
    assert_eq!(Superblock::parse(&block, 0, 2000, &Sum), Ok(superblock));
    // A larger device has grown.
    assert_eq!(Superblock::parse(&block, 0, 9000, &Sum), Ok(superblock));
    let truncated = Refusal::Truncated {
        expected: 2000,
        found: 1999,
    };
    assert_eq!(Superblock::parse(&block, 0, 1999, &Sum), Err(truncated));
    assert_eq!(
        Superblock::parse(&block, 8, 2000, &Sum),
        Err(Refusal::Misplaced(0))
    );
    assert!(block[SUPERBLOCK_BYTES..].iter().all(|byte| *byte == 0));
}

#[test]
fn the_superblock_is_these_bytes() {
    let (_, block) = superblock();
    let mut expected = b"ferro-pi".to_vec();
    expected.extend(1u32.to_le_bytes());
    expected.extend([1, 0, 16, 0]);
    expected.extend(4096u32.to_le_bytes());
    expected.extend(256u32.to_le_bytes());
    expected.extend(UUID);
    expected.extend(0u64.to_le_bytes());
    expected.extend(2000u64.to_le_bytes());
    expected.extend(100u32.to_le_bytes());
    expected.extend(1u32.to_le_bytes());
    expected.extend(256u64.to_le_bytes());
    expected.extend(6u64.to_le_bytes());
    expected.resize(504, 0);
    assert_eq!(block[..504], expected);
}

#[test]
fn every_bit_of_a_superblock_counts() {
    let (_, block) = superblock();
    for bit in 0..SUPERBLOCK_BYTES * 8 {
        let mut block = block;
        block[bit / 8] ^= 1 << (bit % 8);
        assert!(Superblock::parse(&block, 0, 2000, &Sum).is_err(), "{bit}");
    }
}

/// A superblock with a right checksum and a wrong field.
#[test]
fn fields_of_a_superblock_are_checked() {
    let (_, block) = superblock();
    let parse = |at: usize, byte: u8| {
        let mut block = block;
        block[at] = byte;
        let mut copy = block;
        copy[504..512].fill(0);
        let sum = Sum.crc64(&copy[..512]);
        block[504..512].copy_from_slice(&sum.to_le_bytes());
        Superblock::parse(&block, 0, 2000, &Sum)
    };
    assert!(parse(0, b'f').is_ok());
    assert_eq!(parse(8, 2), Err(Refusal::OtherVersion(2)));
    for at in [12, 14, 17, 20, 400, 503] {
        assert_eq!(parse(at, 9), Err(Refusal::OtherVersion(1)), "byte {at}");
    }
    assert_eq!(parse(40, 1), Err(Refusal::Misplaced(1)));
    assert_eq!(parse(56, 2), Err(Refusal::Layout(Misfit::Slots)));
    assert_eq!(parse(60, 17), Err(Refusal::Layout(Misfit::TooManySegments)));
    assert_eq!(parse(60, 0), Err(Refusal::Layout(Misfit::Segments)));
    assert_eq!(parse(64, 1), Err(Refusal::Layout(Misfit::Segments)));
    assert_eq!(parse(85, 1), Err(Refusal::Layout(Misfit::Segments)));
}

fn entry(block: u64) -> Entry {
    Entry {
        first: block,
        blocks: 1,
        old: seal().unwritten(block),
        new: seal().data(block, block + 1000, 0).unwrap(),
    }
}

fn record(head: Head, entries: &[Entry]) -> Block {
    let mut block = [0; BLOCK_BYTES];
    let mut builder = Builder::new(&mut block);
    for entry in entries {
        assert!(builder.push(entry));
    }
    builder.finish(head, &seal(), &Sum);
    block
}

const HEAD: Head = Head {
    sequence: 9,
    tail: 7,
};

fn parse(block: &Block) -> Option<Record<'_>> {
    // The layout and the seal are of the test's device.
    Record::parse(block, &layout(), &seal(), &Sum)
}

#[test]
fn a_record_is_read_as_written() {
    let entries: Vec<Entry> = (0..ENTRIES_MAX as u64).map(|n| entry(n * 3)).collect();
    let block = record(HEAD, &entries);
    let parsed = parse(&block).unwrap();
    assert_eq!(parsed.head(), HEAD);
    assert!(parsed.entries().eq(entries.iter().copied()));
    let mut full = [0; BLOCK_BYTES];
    let mut builder = Builder::new(&mut full);
    assert!(entries.iter().all(|entry| builder.push(entry)));
    assert!(!builder.push(&entries[0]));
}

#[test]
fn every_sector_of_a_record_counts() {
    let old = record(HEAD, &[entry(1), entry(2)]);
    let newer = Head {
        sequence: 109,
        tail: 100,
    };
    let new = record(newer, &[entry(1), entry(2)]);
    for sectors in 0u32..256 {
        let mut block = old;
        for sector in (0..8).filter(|sector| sectors >> sector & 1 != 0) {
            let range = sector * 512..(sector + 1) * 512;
            block[range.clone()].copy_from_slice(&new[range]);
        }
        // All others are equal: they do not matter.
        let ends = (sectors & 1, sectors >> 7 & 1);
        let expected = match ends {
            (0, 0) => Some(HEAD),
            (1, 1) => Some(newer),
            _ => None,
        };
        assert_eq!(parse(&block).map(|record| record.head()), expected);
    }
}

#[test]
fn records_that_make_no_sense_are_refused() {
    let is_valid = |head, entry: Entry| parse(&record(head, &[entry])).is_some();
    let good = entry(3);
    assert!(is_valid(HEAD, good));
    let head = |sequence, tail| Head { sequence, tail };
    assert!(!is_valid(head(9, 10), good), "the tail is newer");
    assert!(!is_valid(head(9, 0), good), "there is no record 0");
    assert!(!is_valid(head(200, 100), good), "more records than slots");
    let blocks = |blocks| Entry { blocks, ..good };
    assert!(!is_valid(HEAD, blocks(0)), "no block");
    assert!(!is_valid(HEAD, blocks(2)), "data for two");
    let discard = |first, blocks| Entry {
        first,
        blocks,
        old: good.old,
        new: seal().unwritten(first),
    };
    assert!(is_valid(HEAD, discard(3, 253)));
    assert!(!is_valid(HEAD, discard(3, 254)), "of two groups");
    let end = layout().data_blocks();
    assert!(is_valid(HEAD, discard(end - 1, 1)));
    assert!(!is_valid(HEAD, discard(end, 1)), "behind the end");
    let new = |new| Entry { new, ..good };
    assert!(
        !is_valid(HEAD, new(entry(4).new)),
        "the tuple of another block"
    );
    assert!(
        !is_valid(HEAD, new(seal().lost(3))),
        "nobody writes lost blocks"
    );
    let block = record(HEAD, &[good]);
    let other = Seal::new(&[1; 16], &Sum);
    assert!(Record::parse(&block, &layout(), &other, &Sum).is_none());
}

#[test]
fn a_group_is_formatted_without_data() {
    let mut home = [0; BLOCK_BYTES];
    group::format(&mut home, 3, &seal());
    for index in 0..=255u8 {
        let block = group::block_at(3, index);
        assert_eq!(group::place(block), (3, index));
        let tuple = group::tuple(&home, index);
        assert_eq!(tuple.as_bytes(), seal().unwritten(block).as_bytes());
    }
}
