// SPDX-License-Identifier: GPL-2.0

//! Records of the journal: their bytes, what a torn write leaves of them, what is refused.

use proptest::prelude::*;
use proto::sidecar::{
    layout::Layout,
    record::{
        Builder,
        Entry,
        Head,
        Record,
        Unit,
        ENTRIES_MAX, //
    },
    tuple::Seal,
    Block,
    Checksum,
    BLOCK_BYTES, //
};
use zerocopy::IntoBytes;

use super::Sum;

const UUID: [u8; 16] = *b"0123456789abcdef";
const SECTOR: usize = 512;
const UNITS: [Unit; 2] = [Unit::SECTOR, Unit::BLOCK];

fn seal() -> Seal {
    Seal::new(&UUID, &Sum)
}

fn layout() -> Layout {
    Layout::new(2000, 100).unwrap()
}

fn entry(block: u64) -> Entry {
    Entry {
        first: block,
        blocks: 1,
        old: seal().unwritten(block),
        new: seal().data(block, block + 1000, 0).unwrap(),
    }
}

/// Writes a record to a slot, and returns its size.
fn write(slot: &mut Block, unit: Unit, head: Head, entries: &[Entry]) -> usize {
    let mut buffer = [0xa5; BLOCK_BYTES];
    let mut builder = Builder::new(&mut buffer, unit);
    for entry in entries {
        assert!(builder.push(entry));
    }
    let written = builder.finish(head, &seal(), &Sum);
    slot[..written.len()].copy_from_slice(written);
    written.len()
}

/// A record in a slot that had something else before.
fn record(unit: Unit, head: Head, entries: &[Entry]) -> Block {
    let mut slot = [0x77; BLOCK_BYTES];
    write(&mut slot, unit, head, entries);
    slot
}

const HEAD: Head = Head {
    sequence: 9,
    tail: 7,
    flushed: 0,
    device_blocks: 0,
};
/// The head of a later record in the same slot.
const NEWER: Head = Head {
    sequence: 109,
    tail: 100,
    flushed: 0,
    device_blocks: 0,
};

fn parse(block: &Block) -> Option<Record<'_>> {
    // The layout and the seal are of the test's device.
    Record::parse(block, &layout(), &seal(), &Sum)
}

fn head_of(block: &Block) -> Option<Head> {
    parse(block).map(|record| record.head())
}

fn entries(first: u64, count: usize) -> Vec<Entry> {
    (first..).take(count).map(entry).collect()
}

#[test]
fn a_record_is_read_as_written() {
    for (unit, count) in UNITS.iter().flat_map(|unit| (0..=100).map(|n| (*unit, n))) {
        let entries = entries(3, count);
        let block = record(unit, HEAD, &entries);
        let parsed = parse(&block).unwrap();
        assert_eq!(parsed.head(), HEAD);
        assert!(parsed.entries().eq(entries.iter().copied()));
    }
    let mut full = [0; BLOCK_BYTES];
    let mut builder = Builder::new(&mut full, Unit::SECTOR);
    assert!(entries(3, ENTRIES_MAX).iter().all(|e| builder.push(e)));
    assert!(!builder.push(&entry(1)));
}

#[test]
fn a_record_has_the_sectors_that_it_needs() {
    let size = |unit, count| write(&mut [0; BLOCK_BYTES], unit, HEAD, &entries(0, count));
    // 64 bytes, 40 for each entry, and 8.
    for (count, sectors) in [
        (0, 1),
        (11, 1),
        (12, 2),
        (23, 2),
        (24, 3),
        (36, 3),
        (37, 4),
        (100, 8),
    ] {
        assert_eq!(size(Unit::SECTOR, count), sectors * SECTOR, "{count}");
        assert_eq!(size(Unit::BLOCK, count), BLOCK_BYTES);
    }
}

#[test]
fn units_are_those_of_the_device() {
    for (logical, physical, unit) in [
        (512, 512, Unit::SECTOR),
        (512, 4096, Unit::BLOCK),
        (4096, 4096, Unit::BLOCK),
        (4096, 512, Unit::BLOCK),
        (1024, 1024, Unit::BLOCK),
    ] {
        assert_eq!(Unit::of_limits(logical, physical), unit);
    }
    assert_eq!(Unit::new(512), Some(Unit::SECTOR));
    assert_eq!(Unit::new(4096), Some(Unit::BLOCK));
    assert!(Unit::new(64).is_some());
    for bytes in [0, 32, 96, 4095, 8192] {
        assert_eq!(Unit::new(bytes), None);
    }
}

/// A record of two entries: `bytes` is 0 in one of a whole block.
fn golden(bytes: u16) -> Vec<u8> {
    let mut expected = 0x6c61_6e72_756f_6a70_u64.to_le_bytes().to_vec();
    expected.extend(seal().volume().to_le_bytes());
    expected.extend(9u64.to_le_bytes());
    expected.extend(7u64.to_le_bytes());
    expected.extend(2u16.to_le_bytes());
    expected.extend(bytes.to_le_bytes());
    expected.resize(64, 0);
    for block in [5, 6] {
        expected.extend((block | 1u64 << 48).to_le_bytes());
        expected.extend(entry(block).old.as_bytes());
        expected.extend(entry(block).new.as_bytes());
    }
    expected.resize(usize::from(bytes).wrapping_sub(1) % BLOCK_BYTES + 1 - 8, 0);
    expected.extend(Sum.crc64(&expected).to_le_bytes());
    expected
}

#[test]
fn a_record_is_these_bytes() {
    let all = entries(5, 2);
    // What version 1 writes and reads.
    let block = record(Unit::BLOCK, HEAD, &all);
    assert_eq!(block.as_slice(), golden(0));
    let block = record(Unit::SECTOR, HEAD, &all);
    assert_eq!(block[..SECTOR], golden(512));
    assert_eq!(block[SECTOR..], [0x77; BLOCK_BYTES - SECTOR]);
}

#[test]
fn every_bit_of_a_record_counts() {
    for (unit, count, bytes) in [
        (Unit::SECTOR, 3, SECTOR),
        (Unit::SECTOR, 13, 2 * SECTOR),
        (Unit::BLOCK, 3, BLOCK_BYTES),
    ] {
        let good = record(unit, HEAD, &entries(0, count));
        for bit in 0..BLOCK_BYTES * 8 {
            let mut block = good;
            block[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(parse(&block).is_some(), bit / 8 >= bytes, "bit {bit}");
        }
    }
}

#[test]
fn every_sector_of_a_whole_block_counts() {
    let old = record(Unit::BLOCK, HEAD, &entries(1, 2));
    let new = record(Unit::BLOCK, NEWER, &entries(1, 2));
    for sectors in 0u32..256 {
        let mut block = old;
        for sector in (0..8).filter(|sector| sectors >> sector & 1 != 0) {
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            block[range.clone()].copy_from_slice(&new[range]);
        }
        // All others are equal: they do not matter.
        let ends = (sectors & 1, sectors >> 7 & 1);
        let expected = match ends {
            (0, 0) => Some(HEAD),
            (1, 1) => Some(NEWER),
            _ => None,
        };
        assert_eq!(head_of(&block), expected);
    }
}

proptest! {
    /// A slot has had several records, the last one is torn: it counts if all of its sectors are
    /// there, and the one before if none is of which it had one.
    #[test]
    fn a_torn_record_is_the_new_one_or_the_old_one_or_none(
        counts in proptest::collection::vec((0usize..=100, any::<bool>()), 1..4),
        last in 0usize..=100,
        is_whole: bool,
        written in 0u32..256,
    ) {
        let unit = |is_whole| if is_whole { Unit::BLOCK } else { Unit::SECTOR };
        let mut slot = [0; BLOCK_BYTES];
        let (mut sequence, mut old_bytes) = (9, 0);
        for (count, is_whole) in counts {
            let head = Head { sequence, tail: sequence, flushed: 0, device_blocks: 0 };
            old_bytes = write(&mut slot, unit(is_whole), head, &entries(sequence, count));
            sequence += 100;
        }
        let (old, mut new) = (slot, slot);
        let head = Head { sequence, tail: sequence, flushed: 0, device_blocks: 0 };
        let bytes = write(&mut new, unit(is_whole), head, &entries(sequence, last));
        let mut torn = old;
        let is_there = |sector: usize| sector * SECTOR < bytes && written >> sector & 1 != 0;
        for sector in (0..8).filter(|sector| is_there(*sector)) {
            let range = sector * SECTOR..(sector + 1) * SECTOR;
            torn[range.clone()].copy_from_slice(&new[range]);
        }
        let found = head_of(&torn);
        if torn[..bytes] == new[..bytes] {
            prop_assert_eq!(found, Some(head));
        } else if torn[..old_bytes] == old[..old_bytes] {
            prop_assert_eq!(found, head_of(&old));
            prop_assert!(found.is_some());
        } else {
            prop_assert_eq!(found, None);
        }
    }
}

/// A record with a right checksum and a wrong field.
#[test]
fn sizes_of_records_are_checked() {
    let good = record(Unit::SECTOR, HEAD, &entries(0, 11));
    let with = |bytes: u16| {
        let mut block = good;
        block[34..36].copy_from_slice(&bytes.to_le_bytes());
        let size = match usize::from(bytes) {
            0 => BLOCK_BYTES,
            size => size.clamp(8, BLOCK_BYTES),
        };
        let sum = Sum.crc64(&block[..size - 8]);
        block[size - 8..size].copy_from_slice(&sum.to_le_bytes());
        parse(&block).is_some()
    };
    assert!(with(512) && with(1024) && with(0));
    for bytes in [1, 7, 8, 71, 72, 511, 4097, u16::MAX] {
        assert!(!with(bytes), "{bytes}");
    }
}

#[test]
fn records_that_make_no_sense_are_refused() {
    let is_valid = |head, entry: Entry| parse(&record(Unit::SECTOR, head, &[entry])).is_some();
    let good = entry(3);
    assert!(is_valid(HEAD, good));
    let head = |sequence, tail| Head {
        sequence,
        tail,
        flushed: 0,
        device_blocks: 0,
    };
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
    let block = record(Unit::SECTOR, HEAD, &[good]);
    let other = Seal::new(&[1; 16], &Sum);
    assert!(Record::parse(&block, &layout(), &other, &Sum).is_none());
}
