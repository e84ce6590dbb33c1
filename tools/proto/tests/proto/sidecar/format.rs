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
    record::Unit,
    superblock::{
        Refusal,
        Superblock,
        Unreadable,
        Version,
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
            let mut pi_block: Block = [0; BLOCK_BYTES];
            group::set_tuple(&mut pi_block, 9, &tuple);
            pi_block[9 * 16 + bit / 8] ^= 1 << (bit % 8);
            let verdict = seal.check(&group::tuple(&pi_block, 9), 9, 42);
            // Bits 64 to 79 are the application's, and are not checked here.
            let is_app = (64..80).contains(&bit) && verdict == Verdict::Good;
            assert!(!verdict.is_readable() || is_app, "bit {bit}: {verdict:?}");
        }
    }
}

#[test]
fn a_zeroed_pi_block_has_no_readable_block() {
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
            prop_assert!(used.insert(layout.pi_block(group).unwrap()));
        }
        for block in 0..layout.data_blocks() {
            let (at, run) = layout.data(block).unwrap();
            prop_assert!(used.insert(at));
            prop_assert!(run >= 1 && layout.data(block + run - 1).unwrap().0 == at + run - 1);
        }
        prop_assert!(used.iter().all(|at| *at < layout.device_blocks()));
        prop_assert_eq!(layout.pi_block(layout.groups()), None);
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
    superblock_of(Version::Two)
}

fn superblock_of(version: Version) -> (Superblock, Block) {
    let superblock = Superblock {
        uuid: UUID,
        version,
        layout: layout(),
    };
    let mut block = [0xff; BLOCK_BYTES];
    superblock.write(&mut block, 0, &Sum);
    (superblock, block)
}

#[test]
fn a_superblock_is_read_as_written() {
    let (one, block) = superblock_of(Version::One);
    assert_eq!(Superblock::parse(&block, 0, 2000, &Sum), Ok(one));
    // Version 1 reads whole blocks only.
    assert_eq!(one.unit(Unit::SECTOR), Unit::BLOCK);
    let (superblock, block) = superblock();
    assert_eq!(Superblock::parse(&block, 0, 2000, &Sum), Ok(superblock));
    for unit in [Unit::SECTOR, Unit::BLOCK] {
        assert_eq!(superblock.unit(unit), unit);
    }
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
    for (version, number) in [(Version::One, 1u32), (Version::Two, 2)] {
        let (_, block) = superblock_of(version);
        let mut expected = b"ferro-pi".to_vec();
        expected.extend(number.to_le_bytes());
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

/// A mark of use is written with the superblock, as both were read.
#[test]
fn a_superblock_that_was_read_badly_is_not_written_back() {
    let (_, mut block) = superblock();
    // The size that the device has now is not looked at.
    assert!(Superblock::write_back(&mut block, None, &Sum));
    // Another mark.
    block[SUPERBLOCK_BYTES..2 * SUPERBLOCK_BYTES].fill(0xff);
    assert!(Superblock::write_back(&mut block, None, &Sum));
    for bit in 0..SUPERBLOCK_BYTES * 8 {
        let mut block = block;
        block[bit / 8] ^= 1 << (bit % 8);
        assert!(!Superblock::write_back(&mut block, None, &Sum), "{bit}");
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
    assert!(parse(0, b'f').is_ok() && parse(8, 1).is_ok());
    assert_eq!(parse(8, 0), Err(Refusal::OtherVersion(0)));
    assert_eq!(parse(8, 3), Err(Refusal::OtherVersion(3)));
    assert_eq!(parse(9, 1), Err(Refusal::OtherVersion(0x102)));
    for at in [12, 14, 17, 20, 400, 503] {
        assert_eq!(parse(at, 9), Err(Refusal::OtherVersion(2)), "byte {at}");
    }
    assert_eq!(parse(40, 1), Err(Refusal::Misplaced(1)));
    assert_eq!(parse(56, 2), Err(Refusal::Layout(Misfit::Slots)));
    assert_eq!(parse(60, 17), Err(Refusal::Layout(Misfit::TooManySegments)));
    assert_eq!(parse(60, 0), Err(Refusal::Layout(Misfit::Segments)));
    assert_eq!(parse(64, 1), Err(Refusal::Layout(Misfit::Segments)));
    assert_eq!(parse(85, 1), Err(Refusal::Layout(Misfit::Segments)));
}

/// A device that cannot be read may have a sidecar; a new dm-integrity has none.
#[test]
fn a_device_that_cannot_be_read_is_no_plain_one() {
    const BLANK: u8 = 84;
    const BAD: u8 = 5;
    let unknown = Unreadable::Unknown(BAD);
    for (error, journal, copy, expected) in [
        (BAD, Ok(false), Ok(false), Unreadable::NoSidecar),
        (BLANK, Ok(false), Ok(false), Unreadable::NoSidecar),
        (BLANK, Err(BLANK), Err(BLANK), Unreadable::NoSidecar),
        (BLANK, Err(BLANK), Ok(false), Unreadable::NoSidecar),
        (BAD, Err(BAD), Err(BAD), unknown),
        (BAD, Err(BAD), Ok(false), unknown),
        (BAD, Ok(false), Err(BLANK), unknown),
        (BLANK, Err(BLANK), Err(BAD), unknown),
        (BAD, Ok(true), Err(BAD), Unreadable::Damaged),
        (BLANK, Err(BLANK), Ok(true), Unreadable::Damaged),
    ] {
        let judged = Unreadable::judge(error, [journal, copy], |error| error == BLANK);
        assert_eq!(judged, expected, "{error} {journal:?} {copy:?}");
    }
}

#[test]
fn a_group_is_formatted_without_data() {
    let mut pi_block = [0; BLOCK_BYTES];
    group::format(&mut pi_block, 3, &seal(), group::Blank::Unknown);
    for index in 0..=255u8 {
        let block = group::block_at(3, index);
        assert_eq!(group::place(block), (3, index));
        let tuple = group::tuple(&pi_block, index);
        assert_eq!(tuple.as_bytes(), seal().unwritten(block).as_bytes());
    }
}
