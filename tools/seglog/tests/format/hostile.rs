// SPDX-License-Identifier: GPL-2.0

//! Members that lie: what is parsed is possible, and nothing panics.

use proptest::prelude::*;
use seglog::{
    batch::Head,
    layout::{
        Layout,
        Misfit,
        Parts,
        Place, //
    },
    members::{
        column_of,
        member_of,
        Members,
        MEMBERS, //
    },
    record::{
        assign,
        Entry,
        Record,
        CODEC_ZEROES, //
    },
    superblock::{
        newer,
        Refusal,
        Superblock, //
    },
    table::Table,
    ArrayTag, //
};

use crate::{
    head,
    layout,
    superblock,
    Any,
    Crc,
    TAG, //
};

/// The entries that are set.
#[derive(Default)]
struct Words(Vec<(u64, Entry)>);

impl Table for Words {
    fn word(&self, _: u64) -> u64 {
        0
    }

    fn set(&mut self, index: u64, word: u64) {
        let entry = Entry::from_word(word);
        assert!(index < layout().parts().entries);
        // What is assigned can be read.
        let spot = entry.spot(&layout()).unwrap();
        if let Some(spot) = spot {
            assert!(spot.offset + spot.bytes as u64 <= layout().segment_bytes());
        }
        self.0.push((index, entry));
    }
}

#[test]
fn each_changed_byte_is_found() {
    let superblock = superblock().bytes(&Crc);
    let (head_bytes, _) = head().bytes(TAG, &Crc);
    for (at, bit) in (0..superblock.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut changed = superblock;
        changed[at] ^= 1 << bit;
        assert!(Superblock::parse(&changed, 1, &Crc).is_err(), "byte {at}");
    }
    for (at, bit) in (0..head_bytes.len()).flat_map(|at| (0..8).map(move |bit| (at, bit))) {
        let mut changed = head_bytes;
        changed[at] ^= 1 << bit;
        assert_eq!(
            Head::parse(&changed, head().place, (&layout(), TAG), &Crc),
            None,
            "byte {at}"
        );
    }
}

#[test]
fn a_head_elsewhere_or_of_another_array_is_none() {
    let (bytes, _) = head().bytes(TAG, &Crc);
    let parse = |place, tag| Head::parse(&bytes, place, (&layout(), tag), &Crc);
    assert!(parse(head().place, TAG).is_some());
    assert!(parse(head().place, ArrayTag(TAG.0 + 1)).is_none());
    for (segment, unit) in [(4, 10), (5, 9), (4, 0)] {
        assert!(parse(Place { segment, unit }, TAG).is_none());
    }
}

#[test]
fn superblocks_that_make_no_sense_are_refused() {
    let bytes = superblock().bytes(&Any);
    let cases: [(usize, &[u8], Refusal); 15] = [
        (0, b"x", Refusal::NotFormatted),
        (8, &[2], Refusal::OtherVersion(2)),
        (
            10,
            &[4, 6],
            Refusal::Shape {
                data_columns: 4,
                members: 6,
            },
        ),
        (12, &[3], Refusal::Number("the number of the member")),
        (13, &[8], Refusal::Number("the members that have failed")),
        (13, &[3], Refusal::Number("the members that have failed")),
        (14, &[0], Refusal::Number("the area of the table")),
        (15, &[0], Refusal::Number("its slot")),
        (40, &[0, 3], Refusal::Layout(Misfit::Unit(768))),
        (95, &[0x7f], Refusal::Number("its incarnation")),
        // 2^62 + 1, 2^62 + 9, 2^55 + 11.
        (
            88,
            &[1, 0, 0, 0, 0, 0, 0, 0x40],
            Refusal::Number("its incarnation"),
        ),
        (111, &[0x40], Refusal::Number("the number of a batch")),
        (126, &[0x80], Refusal::Number("the count of segments")),
        (128, &[30], Refusal::Number("the start's segment")),
        (200, &[1], Refusal::OtherVersion(1)),
    ];
    for (at, change, expected) in cases {
        let mut changed = bytes;
        changed[at..at + change.len()].copy_from_slice(change);
        assert_eq!(
            Superblock::parse(&changed, 1, &Any),
            Err(expected),
            "byte {at}"
        );
        assert!(!expected.to_string().is_empty());
    }
}

#[test]
fn of_two_slots_the_newer_one_counts() {
    let new = superblock();
    let old = Superblock { writes: 0, ..new };
    assert_eq!(newer(Ok(old), Ok(new)), Ok(new));
    assert_eq!(newer(Ok(new), Ok(old)), Ok(new));
    assert_eq!(newer(Ok(old), Err(Refusal::Checksum)), Ok(old));
    assert_eq!(newer(Err(Refusal::Checksum), Ok(new)), Ok(new));
    let none = Refusal::NotFormatted;
    assert_eq!(
        newer(Err(none), Err(Refusal::Checksum)),
        Err(Refusal::Checksum)
    );
    assert_eq!(
        newer(Err(Refusal::Checksum), Err(none)),
        Err(Refusal::Checksum)
    );
}

#[test]
fn layouts_keep_their_bounds() {
    let parts = *layout().parts();
    let with = |change: fn(&mut Parts)| {
        let mut parts = parts;
        change(&mut parts);
        Layout::new(parts).map(|layout| layout.end_bytes())
    };
    assert_eq!(with(|_| ()), Ok(8192 + 2 * 40 * 4096 + 30 * (2 << 20)));
    assert_eq!(with(|p| p.unit_bytes = 64), Err(Misfit::Unit(64)));
    assert_eq!(with(|p| p.unit_bytes = 8192), Err(Misfit::Unit(8192)));
    assert_eq!(with(|p| p.segment_units = 1), Err(Misfit::SegmentUnits(1)));
    assert_eq!(with(|p| p.segments = 7), Err(Misfit::Segments(7)));
    assert_eq!(
        with(|p| p.segments = u32::MAX),
        Err(Misfit::Segments(u32::MAX))
    );
    assert_eq!(with(|p| p.page_bytes = 768), Err(Misfit::Page(768)));
    // A page is whole units.
    assert_eq!(with(|p| p.page_bytes = 256), Err(Misfit::Page(256)));
    assert!(with(|p| p.page_bytes = 512).is_ok());
    assert_eq!(with(|p| p.entries = 0), Err(Misfit::Entries(0)));
    assert_eq!(
        with(|p| p.entries = u64::MAX),
        Err(Misfit::Entries(u64::MAX))
    );
    let largest = Parts {
        unit_bytes: 4096,
        segment_units: 1 << 16,
        segments: 1 << 17,
        page_bytes: 4096,
        entries: 1 << 40,
    };
    assert!(Layout::new(largest).unwrap().end_bytes() < 1 << 63);
}

#[test]
fn columns_and_members_are_each_others() {
    for segment in 0..6 {
        let members: Members = (0..MEMBERS)
            .map(|column| member_of(segment, column))
            .collect();
        assert_eq!(members, Members::ALL);
        for column in 0..MEMBERS {
            assert_eq!(column_of(segment, member_of(segment, column)), column);
        }
    }
}

proptest! {
    #[test]
    fn any_superblock(bytes in proptest::array::uniform32(any::<u8>()), at in 8usize..140) {
        let mut block = superblock().bytes(&Any);
        let end = (at + 8).min(508);
        block[at..end].copy_from_slice(&bytes[..end - at]);
        if let Ok(parsed) = Superblock::parse(&block, 1, &Any) {
            prop_assert_eq!(parsed.bytes(&Any), block);
            prop_assert!(parsed.layout.end_bytes() < 1 << 63);
            prop_assert!(parsed.epoch.in_sync().count() >= 2);
        }
    }

    #[test]
    fn any_head(bytes in proptest::array::uniform32(any::<u8>()), at in 4usize..88) {
        let (mut block, _) = head().bytes(TAG, &Any);
        let end = (at + 8).min(92);
        block[at..end].copy_from_slice(&bytes[..end - at]);
        if let Some((parsed, _)) = Head::parse(&block, head().place, (&layout(), TAG), &Any) {
            prop_assert_eq!(parsed.bytes(TAG, &Any).0, block);
            prop_assert!(parsed.column_bytes(&layout()) <= 120 << 10);
            prop_assert!(parsed.used.is_within(parsed.live));
        }
    }

    #[test]
    fn any_body(mut body in proptest::collection::vec(any::<u8>(), 96..600)) {
        // The first record is nearly one.
        body[96..].iter_mut().take(16).skip(5).for_each(|byte| *byte &= 3);
        let mut words = Words::default();
        let _ = assign(&mut words, (&head(), 1), &body, &layout(), &Any);
    }

    #[test]
    fn any_word(word in any::<u64>()) {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&word.to_le_bytes());
        let _ = Record::parse(&bytes, (&layout(), None), &Any);
    }

    #[test]
    fn records_are_read_as_they_were_written(
        sizes in proptest::collection::vec((0u64..19_990, 1u32..=4, 0u16..200), 1..12),
        column in 0usize..2,
    ) {
        let (layout, head) = (layout(), head());
        let mut bytes = vec![0; 96];
        let mut expected = Vec::new();
        for (index, count, payload_bytes) in sizes {
            let codec = if payload_bytes == 0 { CODEC_ZEROES } else { 9 };
            let record = Record { index, count, codec, payload_bytes, skipped: 0 };
            let payload = vec![index as u8; payload_bytes.into()];
            let at = bytes.len();
            bytes.resize(at + record.bytes(), 0);
            let written = record.write(&mut bytes[at..], &payload, (&layout, head.sequence), &Crc);
            prop_assert_eq!(written, Some(record.bytes()));
            expected.extend((0..count).map(|block| (record, at, block)));
        }
        bytes.resize(bytes.len() + 40, 0);
        let mut words = Words::default();
        prop_assert!(assign(&mut words, (&head, column), &bytes, &layout, &Crc).is_ok());
        prop_assert_eq!(words.0.len(), expected.len());
        for ((index, entry), (record, at, block)) in words.0.iter().zip(expected) {
            prop_assert_eq!(*index, record.index + u64::from(block));
            let spot = entry.spot(&layout).unwrap();
            prop_assert_eq!(spot.is_none(), record.payload_bytes == 0);
            let Some(spot) = spot else { continue };
            prop_assert_eq!((spot.segment, spot.column, spot.block), (4, column, block));
            prop_assert_eq!(spot.offset, 9 * 512 + at as u64);
            prop_assert_eq!((spot.bytes, spot.copy), (record.bytes(), None));
        }
    }
}
