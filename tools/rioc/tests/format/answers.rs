// SPDX-License-Identifier: GPL-2.0

//! Answers of a server that lies.

use ferro_proto::errno::Errno;
use rioc::proto::{
    answer::{
        Attached,
        Listed,
        ReadHead,
        Short,
        Unbelievable, //
    },
    retry::Life,
    span::{
        Span,
        OBJECT_BYTES_MAX, //
    },
    wire, //
};
use zerocopy::IntoBytes;

fn read(bytes: u32, size: u64, asked: &Span) -> Result<ReadHead, Unbelievable> {
    let head = ReadHead {
        bytes,
        size,
        sums: [0; wire::READ_SUMS],
    };
    ReadHead::parse(head.to_wire(asked).as_bytes(), asked)
}

#[test]
fn a_read_is_short_at_the_end_only() {
    let asked = Span::new(4000, 8192).unwrap();
    let number = Err(Unbelievable::Number);
    for (bytes, size, is_right) in [
        (8192, 12_192, true),
        (8192, 1 << 40, true),
        (8191, 12_191, true),
        (0, 4000, true),
        (0, 0, true),
        (8191, 12_192, false),
        (0, 4001, false),
        (8193, 1 << 40, false),
        (8192, 4000, false),
        (8192, OBJECT_BYTES_MAX + 1, false),
    ] {
        let parsed = read(bytes, size, &asked);
        assert!(if is_right {
            parsed.is_ok()
        } else {
            parsed == number
        });
    }
}

#[test]
fn a_read_has_no_other_sums_than_those_of_its_blocks() {
    let asked = Span::new(0, 8192).unwrap();
    let mut head = read(8192, 8192, &asked).unwrap();
    head.sums[1] = 5;
    let good = head.to_wire(&asked);
    assert!(ReadHead::parse(good.as_bytes(), &asked).is_ok());
    head.sums[2] = 5;
    let bad = head.to_wire(&asked);
    let refused = ReadHead::parse(bad.as_bytes(), &asked);
    assert_eq!(refused, Err(Unbelievable::Reserved));
    let mut bad = good;
    bad.sums_count = 3.into();
    let refused = ReadHead::parse(bad.as_bytes(), &asked);
    assert_eq!(refused, Err(Unbelievable::Number));
}

#[test]
fn what_is_kept_is_of_the_same_store() {
    let attached = |is_durable, boot, identity| Attached {
        is_durable,
        has_backing: false,
        io_bytes_max: 4096,
        boot,
        client: 0,
        incarnation: 0,
        identity,
    };
    let (memory, log) = (attached(false, 7, 7), attached(true, 7, 1));
    for (before, now, expected) in [
        (memory, memory, true),
        (memory, attached(false, 8, 8), false),
        (memory, attached(true, 8, 1), false),
        (log, log, true),
        (log, attached(true, 8, 1), true),
        (log, attached(true, 8, 2), false),
        (log, attached(false, 8, 8), false),
        // Of a server that does not tell identities.
        (attached(false, 7, 0), attached(false, 8, 0), false),
        (attached(true, 7, 0), attached(true, 8, 0), true),
    ] {
        assert_eq!(now.has_kept(&before), expected, "{before:?} {now:?}");
        assert_eq!(
            Life::from(&now).store == Life::from(&before).store,
            expected
        );
    }
}

#[test]
fn each_byte_of_an_answer_is_checked() {
    let attached = Attached {
        is_durable: false,
        has_backing: true,
        io_bytes_max: 4096,
        boot: 1,
        client: 2,
        incarnation: 7,
        identity: 9,
    };
    let refused = |bytes: &[u8]| Attached::parse(bytes).err();
    let good = attached.to_wire();
    assert_eq!(
        refused(&good.as_bytes()[..63]),
        Some(Unbelievable::Length(63))
    );
    for (at, byte, expected) in [
        (0, 2, Unbelievable::Kind(2)),
        (1, 9, Unbelievable::Version(9)),
        (2, 2, Unbelievable::Number),
        (3, 2, Unbelievable::Number),
        (7, 1, Unbelievable::Number),
        (20, 1, Unbelievable::Reserved),
        (23, 1, Unbelievable::Reserved),
        (40, 1, Unbelievable::Reserved),
        (63, 1, Unbelievable::Reserved),
    ] {
        let mut bytes = good.as_bytes().to_vec();
        bytes[at] = byte;
        assert_eq!(refused(&bytes), Some(expected));
    }
    let mut none = good;
    none.io_bytes_max = 0.into();
    assert_eq!(refused(none.as_bytes()), Some(Unbelievable::Number));
    // Of the same client in another life of the store operations may be known, or not.
    let later = Attached {
        boot: 9,
        ..attached
    };
    let anew = Attached {
        incarnation: 8,
        ..attached
    };
    assert!(later.knows_operations_of(&attached));
    assert!(!anew.knows_operations_of(&attached));
    assert_eq!(Unbelievable::Number.errno(), Errno::EIO);
    assert_eq!(Unbelievable::Version(9).errno(), Errno::EPROTONOSUPPORT);
}

#[test]
fn short_answers_have_the_numbers_of_their_kind() {
    let parse = |short: Short, kind| Short::parse(short.to_wire(kind).as_bytes(), kind).is_ok();
    let none = Short::default();
    let (lease, size, blocks) = (1, 8192, 2);
    assert!(parse(none, wire::PING) && parse(none, wire::STAT) && !parse(none, wire::LEASE));
    assert!(parse(Short { lease, ..none }, wire::LEASE));
    assert!(!parse(Short { lease, ..none }, wire::STAT));
    assert!(!parse(Short { lease, ..none }, wire::PING));
    assert!(parse(
        Short {
            size,
            blocks,
            ..none
        },
        wire::STAT
    ));
    assert!(!parse(
        Short {
            size,
            blocks: 3,
            ..none
        },
        wire::STAT
    ));
    assert!(!parse(Short { size, ..none }, wire::PING));
    assert!(!parse(
        Short {
            lease,
            size,
            blocks
        },
        wire::LEASE
    ));
    let size = OBJECT_BYTES_MAX + 1;
    assert!(!parse(Short { size, ..none }, wire::STAT));
    let other = none.to_wire(wire::PING);
    let refused = Short::parse(other.as_bytes(), wire::STAT);
    assert_eq!(refused, Err(Unbelievable::Kind(wire::PING)));
}

#[test]
fn a_list_has_no_more_names_than_there_is_room_for() {
    let listed = |count, next| {
        let mut bytes = Listed { count, next }.to_wire().as_bytes().to_vec();
        bytes.extend([0; 48]);
        bytes
    };
    assert!(Listed::parse(&listed(3, None), 3).is_ok());
    let refused = Listed::parse(&listed(4, None), 3).err();
    assert_eq!(refused, Some(Unbelievable::Number));
    let refused = Listed::parse(&listed(4, None), 4).err();
    assert_eq!(refused, Some(Unbelievable::Length(112)));
    let mut far = listed(0, Some(1));
    far[12] = 1;
    let refused = Listed::parse(&far, 3).err();
    assert_eq!(refused, Some(Unbelievable::Number));
}
