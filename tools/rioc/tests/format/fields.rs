// SPDX-License-Identifier: GPL-2.0

//! Each field of a message, with what it must not have.

use ferro_proto::errno::Errno;
use rioc::proto::{
    message::{
        Direction,
        Malformed,
        Message, //
    },
    span::OBJECT_BYTES_MAX,
    wire, //
};

use crate::vectors::messages;

/// The bytes of the vector of a kind, and what goes with it.
fn vector(kind: u8) -> (Vec<u8>, Direction, u32) {
    let (message, direction, _) = messages().swap_remove(usize::from(kind) - 1);
    let mut bytes = vec![0; wire::REQUEST_BYTES_MAX];
    let len = message.write(&mut bytes).unwrap();
    bytes.truncate(len);
    (bytes, direction, message.operation.data_bytes())
}

/// Parses the vector of a kind with other bytes at an offset.
fn with(kind: u8, at: usize, new: &[u8]) -> Result<(), Malformed> {
    let (mut bytes, direction, data) = vector(kind);
    bytes[at..at + new.len()].copy_from_slice(new);
    Message::parse(&bytes, (direction, data)).map(|_| ())
}

fn kinds() -> impl Iterator<Item = u8> {
    wire::ATTACH..=wire::RELEASE
}

const FLAGS: usize = 2;
const LEASE: usize = 4;
const TICKET: usize = 8;
const INCARNATION: usize = 16;
const OBJECT: usize = 24;
const OFFSET: usize = 40;
const LENGTH: usize = 48;
const BODY: usize = 56;

#[test]
fn another_version_or_kind_is_refused() {
    for kind in kinds() {
        for version in [0, 1, 2, 4, 255] {
            let refused = with(kind, 1, &[version]);
            assert_eq!(refused, Err(Malformed::Version(version)));
        }
    }
    // Of version 2, whose head had 48 bytes.
    let before = [[wire::PING, 2].as_slice(), &[0; 46]].concat();
    let refused = Message::parse(&before, (Direction::Read, wire::ANSWER_BYTES));
    assert_eq!(refused, Err(Malformed::Version(2)));
    for kind in [0, wire::RELEASE + 1, 255] {
        assert_eq!(with(wire::PING, 0, &[kind]), Err(Malformed::Kind(kind)));
    }
    assert_eq!(Malformed::Version(2).errno(), Errno::EPROTONOSUPPORT);
    assert_eq!(Malformed::Kind(0).errno(), Errno::EOPNOTSUPP);
}

#[test]
fn only_the_flags_of_a_kind_are_taken() {
    for kind in kinds() {
        let own = match kind {
            wire::CREATE | wire::SNAPSHOT => wire::FLAG_NEW,
            wire::WRITE | wire::COPY => wire::FLAG_CREATE,
            wire::LEASE => wire::FLAG_WRITER,
            _ => 0,
        };
        for flag in (0..16).map(|bit| 1u16 << bit) {
            let taken = with(kind, FLAGS, &flag.to_le_bytes());
            let expected = if flag == own {
                Ok(())
            } else {
                Err(Malformed::Flags(flag))
            };
            assert_eq!(taken, expected, "kind {kind}");
        }
    }
}

#[test]
fn the_direction_is_that_of_the_kind() {
    for kind in kinds() {
        let (bytes, direction, data) = vector(kind);
        let other = match direction {
            Direction::Read => Direction::Write,
            Direction::Write => Direction::Read,
        };
        let refused = Message::parse(&bytes, (other, data));
        assert_eq!(refused, Err(Malformed::Direction));
    }
}

#[test]
fn what_a_kind_does_not_have_is_zero() {
    let one = |at: usize, kind| with(kind, at, &1u64.to_le_bytes());
    for kind in kinds() {
        let may_have_lease = [
            wire::DELETE,
            wire::READ,
            wire::WRITE,
            wire::TRUNCATE,
            wire::COPY,
            wire::SNAPSHOT,
            wire::RELEASE,
        ];
        let taken = with(kind, LEASE, &1u32.to_le_bytes());
        assert_eq!(taken.is_ok(), may_have_lease.contains(&kind), "kind {kind}");
        let reads = [
            wire::ATTACH,
            wire::PING,
            wire::STAT,
            wire::LIST,
            wire::READ,
            wire::FLUSH,
        ];
        let ticket = with(kind, TICKET, &(1u64 << 16).to_le_bytes());
        // A lane alone is no number.
        assert_eq!(one(TICKET, kind), Err(Malformed::Ticket(1)));
        assert_eq!(ticket.is_err(), reads.contains(&kind), "kind {kind}");
        assert_eq!(with(kind, TICKET, &[0; 8]).is_ok(), reads.contains(&kind));
        let nameless = [wire::ATTACH, wire::PING, wire::LIST, wire::RELEASE];
        for half in [OBJECT, OBJECT + 8] {
            let expected = if nameless.contains(&kind) {
                Err(Malformed::Object)
            } else {
                Ok(())
            };
            assert_eq!(one(half, kind), expected, "kind {kind}");
        }
    }
    assert_eq!(
        with(wire::RELEASE, LEASE, &[0; 4]),
        Err(Malformed::Lease(0))
    );
    for kind in [
        wire::ATTACH,
        wire::CREATE,
        wire::DELETE,
        wire::STAT,
        wire::SNAPSHOT,
    ] {
        assert_eq!(one(OFFSET, kind), Err(Malformed::Unused));
        assert_eq!(one(LENGTH, kind), Err(Malformed::Unused));
    }
    assert_eq!(one(LENGTH, wire::TRUNCATE), Err(Malformed::Unused));
    assert_eq!(one(LENGTH, wire::LIST), Err(Malformed::Unused));
    assert_eq!(one(BODY + 16, wire::SNAPSHOT), Err(Malformed::Unused));
    assert_eq!(one(INCARNATION, wire::ATTACH), Err(Malformed::Unused));
    assert_eq!(one(INCARNATION, wire::PING), Ok(()));
}

#[test]
fn the_bytes_are_those_of_the_kind() {
    for kind in kinds() {
        let (mut bytes, direction, data) = vector(kind);
        for shorter in 0..bytes.len() {
            let refused = Message::parse(&bytes[..shorter], (direction, data));
            assert_eq!(refused, Err(Malformed::Length(shorter)));
        }
        bytes.push(0);
        let refused = Message::parse(&bytes, (direction, data));
        assert_eq!(refused, Err(Malformed::Length(bytes.len())));
        bytes.pop();
        for other in [data.wrapping_sub(1), data + 1, u32::MAX] {
            let refused = Message::parse(&bytes, (direction, other));
            assert_eq!(refused, Err(Malformed::DataLength(other)), "kind {kind}");
        }
    }
}

#[test]
fn bytes_of_an_object_are_possible() {
    let numbers = |offset: u64, length: u64| {
        let mut bytes = offset.to_le_bytes().to_vec();
        bytes.extend(length.to_le_bytes());
        bytes
    };
    let end = OBJECT_BYTES_MAX;
    for kind in [
        wire::READ,
        wire::WRITE,
        wire::COPY,
        wire::FLUSH,
        wire::LEASE,
    ] {
        for (offset, length) in [(end, 1), (end - 4096, 4097), (u64::MAX, 2), (1, u64::MAX)] {
            let refused = with(kind, OFFSET, &numbers(offset, length));
            let expected = Malformed::Span { offset, length };
            assert_eq!(refused, Err(expected));
            assert_eq!(expected.errno(), Errno::EFBIG);
        }
    }
    for kind in [wire::READ, wire::WRITE, wire::COPY] {
        let refused = with(kind, OFFSET, &numbers(4096, 0));
        let expected = Malformed::Span {
            offset: 4096,
            length: 0,
        };
        assert_eq!(refused, Err(expected));
    }
    for kind in [wire::READ, wire::WRITE] {
        let refused = with(kind, OFFSET, &numbers(0, 114_689));
        assert_eq!(refused, Err(Malformed::TooLong(114_689)));
        assert_eq!(Malformed::TooLong(0).errno(), Errno::EMSGSIZE);
    }
    assert_eq!(with(wire::LEASE, OFFSET, &numbers(end - 1, 0)), Ok(()));
    let offset = end;
    let nothing = Malformed::Span { offset, length: 0 };
    assert_eq!(with(wire::LEASE, OFFSET, &numbers(end, 0)), Err(nothing));
    let far = (end - 8191).to_le_bytes();
    let beyond = Malformed::Span {
        offset: end - 8191,
        length: 8192,
    };
    assert_eq!(with(wire::COPY, BODY + 16, &far), Err(beyond));
    assert_eq!(with(wire::TRUNCATE, OFFSET, &end.to_le_bytes()), Ok(()));
    let size = end + 1;
    let refused = with(wire::TRUNCATE, OFFSET, &size.to_le_bytes());
    assert_eq!(refused, Err(Malformed::Size(size)));
    let cursor = 1u64 << 32;
    let refused = with(wire::LIST, OFFSET, &cursor.to_le_bytes());
    assert_eq!(refused, Err(Malformed::Cursor(cursor)));
}

#[test]
fn a_list_has_room_for_whole_names() {
    let (bytes, direction, _) = vector(wire::LIST);
    for (data, is_right) in [
        (0, false),
        (64, false),
        (72, false),
        (80, true),
        (96, true),
        (114_752, true),
        (114_768, false),
    ] {
        let parsed = Message::parse(&bytes, (direction, data));
        let expected = Err(Malformed::DataLength(data));
        assert!(if is_right {
            parsed.is_ok()
        } else {
            parsed == expected
        });
    }
}

#[test]
fn a_store_has_a_name() {
    let name = |bytes: &[u8]| with(wire::ATTACH, BODY, bytes);
    assert_eq!(name(&[b'x'; 32]), Ok(()));
    assert_eq!(name(&[0; 32]), Err(Malformed::StoreName));
    assert_eq!(name(b"\0b"), Err(Malformed::StoreName));
    assert_eq!(name(b"b\0b"), Err(Malformed::StoreName));
}

#[test]
fn a_write_has_a_sum_for_each_block() {
    // The vector has two pieces: of one byte each.
    let (bytes, direction, data) = vector(wire::WRITE);
    let one_block = [
        &bytes[..OFFSET],
        &[0; 8],
        &2u64.to_le_bytes(),
        &bytes[BODY..],
    ]
    .concat();
    let refused = Message::parse(&one_block, (direction, data));
    assert_eq!(refused, Err(Malformed::Length(BODY + 8)));
    let taken = Message::parse(&one_block[..BODY + 4], (direction, data));
    assert!(taken.is_ok());
}

#[test]
fn every_reason_has_words_and_an_errno() {
    let all = [
        Malformed::Length(1),
        Malformed::Version(2),
        Malformed::Kind(3),
        Malformed::Flags(4),
        Malformed::Direction,
        Malformed::DataLength(5),
        Malformed::Lease(6),
        Malformed::Ticket(7),
        Malformed::Object,
        Malformed::Unused,
        Malformed::Span {
            offset: 8,
            length: 9,
        },
        Malformed::TooLong(10),
        Malformed::Size(11),
        Malformed::Cursor(12),
        Malformed::StoreName,
    ];
    let words: std::collections::BTreeSet<_> = all.iter().map(|m| m.to_string()).collect();
    assert_eq!(words.len(), all.len());
    assert!(all.iter().all(|malformed| malformed.errno().get() > 0));
}
