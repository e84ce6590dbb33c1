// SPDX-License-Identifier: GPL-2.0

//! A log on one member.

use seglog::{
    batch::{
        Head,
        Kind, //
    },
    layout::{
        Layout,
        Misfit,
        Parts, //
    },
    members::Members,
    superblock::{
        Refusal,
        Superblock, //
    }, //
};

use crate::{
    head,
    layout,
    superblock,
    Crc,
    TAG, //
};

fn single() -> Layout {
    Layout::single(*layout().parts()).unwrap()
}

fn own() -> Superblock {
    Superblock::new(([0x5a; 16], TAG), 0, single(), 77)
}

#[test]
fn the_others_have_failed_from_the_beginning() {
    let superblock = own();
    assert_eq!(superblock.epoch.in_sync(), Members::of(0));
    let bytes = superblock.bytes(&Crc);
    assert_eq!(bytes[10..12], [1, 1]);
    assert_eq!(Superblock::parse(&bytes, 0, &Crc), Ok(superblock));
    assert!(single().is_single() && !layout().is_single());
    assert_ne!(single(), layout());
    for page in 0..4 {
        assert_eq!(single().page_members(page), Members::of(0));
        assert_eq!(layout().page_members(page).count(), 2);
    }
}

#[test]
fn other_shapes_are_refused() {
    let with = |superblock: &Superblock, data_columns: u8, members: u8| {
        let mut bytes = superblock.bytes(&Crc);
        (bytes[10], bytes[11]) = (data_columns, members);
        bytes[508..].fill(0);
        let crc = crc32c::crc32c(&bytes).to_le_bytes();
        bytes[508..].copy_from_slice(&crc);
        Superblock::parse(&bytes, superblock.slot(), &Crc)
    };
    for (data_columns, members) in [(0, 0), (1, 2), (1, 3), (2, 1), (2, 2), (3, 4)] {
        let shape = Refusal::Shape {
            data_columns,
            members,
        };
        assert_eq!(with(&own(), data_columns, members), Err(shape));
    }
    // An array is no log on one member, and such a log is no array: their epochs differ.
    assert_eq!(
        with(&superblock(), 1, 1),
        Err(Refusal::Number("the number of the member"))
    );
    let failed = Refusal::Number("the members that have failed");
    assert_eq!(with(&own(), 2, 3), Err(failed));
    let first = Superblock::new(([0x5a; 16], TAG), 0, layout(), 77);
    assert_eq!(with(&first, 1, 1), Err(failed));
}

#[test]
fn a_batch_is_on_the_member() {
    let parse = |layout: &Layout, kind, live, used| {
        let (live, used) = (
            Members::from_bits(live).unwrap(),
            Members::from_bits(used).unwrap(),
        );
        let head = Head {
            kind,
            live,
            used,
            ..head()
        };
        let (bytes, _) = head.bytes(TAG, &Crc);
        let parsed = Head::parse(&bytes, head.place, (layout, TAG), &Crc);
        parsed.is_some()
    };
    assert!(parse(&single(), Kind::Mirror, 1, 1));
    for (live, used) in [(1, 0), (2, 2), (3, 1), (3, 3), (7, 1), (7, 3)] {
        assert!(!parse(&single(), Kind::Mirror, live, used));
    }
    assert!(!parse(&single(), Kind::Striped, 1, 1) && !parse(&single(), Kind::Striped, 7, 7));
    assert!(!parse(&layout(), Kind::Mirror, 1, 1) && parse(&layout(), Kind::Mirror, 7, 3));
}

#[test]
fn it_may_have_twice_as_many_segments() {
    let parts = Parts {
        unit_bytes: 4096,
        segment_units: 1 << 16,
        segments: 1 << 17,
        page_bytes: 4096,
        entries: 1 << 20,
    };
    assert!(Layout::new(parts).is_ok());
    let more = Parts {
        segments: (1 << 18) - 1,
        ..parts
    };
    assert_eq!(Layout::new(more), Err(Misfit::Segments(more.segments)));
    assert!(Layout::single(more).is_ok());
}
