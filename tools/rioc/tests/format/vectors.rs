// SPDX-License-Identifier: GPL-2.0

//! Golden vectors: one of each message, answer and entry.

use rioc::proto::{
    answer::{
        Attached,
        Listed,
        ReadHead,
        Short, //
    },
    entry,
    message::{
        Direction,
        Message,
        Operation,
        Sums, //
    },
    slot::{
        Blocks,
        Extent,
        InFile,
        Kept,
        Life,
        Object,
        Range,
        Slot,
        Stored,
        NONE, //
    },
    span::{
        ObjectId,
        Span, //
    },
    ticket::Ticket,
    wire, //
};
use zerocopy::{
    little_endian::U32,
    IntoBytes, //
};

const ID: ObjectId = ObjectId {
    high: 0x0102_0304_0506_0708,
    low: 10,
};
const OTHER: ObjectId = ObjectId { high: 0, low: 11 };

fn span(offset: u64, bytes: u64) -> Span {
    Span::new(offset, bytes).unwrap()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

const SUMS: [U32; 2] = [U32::new(0xe306_9283), U32::new(1)];

/// A message with its direction and its bytes.
type Vector = (Message<'static>, Direction, &'static str);

/// Makes a message; its operation is of lane 2, if it changes something.
fn message(lease: u32, sequence: u64, operation: Operation<'static>) -> Message<'static> {
    Message {
        lease,
        ticket: Ticket::new(2, sequence),
        incarnation: match operation {
            Operation::Attach { .. } => 0,
            _ => 0x1122_3344_5566,
        },
        operation,
    }
}

/// One message of each kind.
pub(crate) fn messages() -> Vec<Vector> {
    [
        about_objects(),
        about_bytes(),
        about_copies(),
        about_leases(),
    ]
    .concat()
}

/// Stores and objects as a whole.
fn about_objects() -> Vec<Vector> {
    vec![
        (
            message(0, 0, Operation::Attach { store: b"bb" }),
            Direction::Read,
            "01030000000000000000000000000000000000000000000000000000000000000000000000000000\
             00000000000000000000000000000000626200000000000000000000000000000000000000000000\
             0000000000000000",
        ),
        (
            message(0, 0, Operation::Ping),
            Direction::Read,
            "02030000000000000000000000000000665544332211000000000000000000000000000000000000\
             00000000000000000000000000000000",
        ),
        (
            message(
                0,
                1,
                Operation::Create {
                    object: ID,
                    is_new: true,
                },
            ),
            Direction::Write,
            "03030200000000000200010000000000665544332211000008070605040302010a00000000000000\
             00000000000000000000000000000000",
        ),
        (
            message(7, 2, Operation::Delete { object: ID }),
            Direction::Write,
            "04030000070000000200020000000000665544332211000008070605040302010a00000000000000\
             00000000000000000000000000000000",
        ),
        (
            message(0, 0, Operation::Stat { object: ID }),
            Direction::Read,
            "05030000000000000000000000000000665544332211000008070605040302010a00000000000000\
             00000000000000000000000000000000",
        ),
        (
            message(
                0,
                0,
                Operation::List {
                    cursor: 5,
                    count_max: 4,
                },
            ),
            Direction::Read,
            "06030000000000000000000000000000665544332211000000000000000000000000000000000000\
             05000000000000000000000000000000",
        ),
    ]
}

/// Bytes of objects.
fn about_bytes() -> Vec<Vector> {
    vec![
        (
            message(
                7,
                0,
                Operation::Read {
                    object: ID,
                    span: span(4095, 2),
                },
            ),
            Direction::Read,
            "07030000070000000000000000000000665544332211000008070605040302010a00000000000000\
             ff0f0000000000000200000000000000",
        ),
        (
            message(
                7,
                3,
                Operation::Write {
                    object: ID,
                    span: span(4095, 2),
                    creates: true,
                    sums: Sums::new(&SUMS),
                },
            ),
            Direction::Write,
            "08030100070000000200030000000000665544332211000008070605040302010a00000000000000\
             ff0f0000000000000200000000000000839206e301000000",
        ),
        (
            message(
                0,
                4,
                Operation::Truncate {
                    object: ID,
                    size: 5,
                },
            ),
            Direction::Write,
            "09030000000000000200040000000000665544332211000008070605040302010a00000000000000\
             05000000000000000000000000000000",
        ),
    ]
}

/// Copies.
fn about_copies() -> Vec<Vector> {
    vec![
        (
            message(
                0,
                5,
                Operation::Copy {
                    source: ID,
                    span: span(4096, 8192),
                    destination: OTHER,
                    offset: 0,
                    creates: true,
                },
            ),
            Direction::Write,
            "0a030100000000000200050000000000665544332211000008070605040302010a00000000000000\
             0010000000000000002000000000000000000000000000000b000000000000000000000000000000",
        ),
        (
            message(
                0,
                6,
                Operation::Snapshot {
                    source: ID,
                    destination: OTHER,
                    is_new: true,
                },
            ),
            Direction::Write,
            "0b030200000000000200060000000000665544332211000008070605040302010a00000000000000\
             0000000000000000000000000000000000000000000000000b000000000000000000000000000000",
        ),
    ]
}

/// Durability and leases.
fn about_leases() -> Vec<Vector> {
    vec![
        (
            message(
                0,
                0,
                Operation::Flush {
                    object: ID,
                    span: Span::ALL,
                },
            ),
            Direction::Write,
            "0c030000000000000000000000000000665544332211000008070605040302010a00000000000000\
             00000000000000000000000000000000",
        ),
        (
            message(
                0,
                7,
                Operation::Lease {
                    object: ID,
                    span: span(1, 2),
                    is_writer: true,
                },
            ),
            Direction::Read,
            "0d030400000000000200070000000000665544332211000008070605040302010a00000000000000\
             01000000000000000200000000000000",
        ),
        (
            message(9, 8, Operation::Release),
            Direction::Write,
            "0e030000090000000200080000000000665544332211000000000000000000000000000000000000\
             00000000000000000000000000000000",
        ),
    ]
}

#[test]
fn each_kind_of_message_has_its_bytes() {
    let all = messages();
    for (message, direction, expected) in &all {
        let mut bytes = [0xaa; wire::REQUEST_BYTES_MAX];
        let len = message.write(&mut bytes).unwrap();
        assert_eq!(hex(&bytes[..len]), *expected, "{message:?}");
        let data = (*direction, message.operation.data_bytes());
        assert_eq!(Message::parse(&bytes[..len], data), Ok(*message));
        for shorter in 0..len {
            assert_eq!(message.write(&mut vec![0; shorter]), None);
        }
    }
    let kinds: Vec<_> = all.iter().map(|(_, _, bytes)| &bytes[..2]).collect();
    let expected: Vec<_> = (wire::ATTACH..=wire::RELEASE)
        .map(|kind| hex(&[kind]))
        .collect();
    assert_eq!(kinds, expected);
}

#[test]
fn each_answer_has_its_bytes() {
    let attached = Attached {
        is_durable: true,
        has_backing: true,
        io_bytes_max: 114_688,
        boot: 0x1122_3344_5566_7788,
        client: 3,
        incarnation: 0x0102_0304_0506_0708,
        identity: 0x1112_1314_1516_1718,
    };
    let bytes = attached.to_wire();
    let zeroes = |bytes: usize| "00".repeat(bytes);
    let expected = format!(
        "0103010100c0010088776655443322110300000000000000{}{}",
        "08070605040302011817161514131211",
        zeroes(24)
    );
    assert_eq!(hex(bytes.as_bytes()), expected);
    assert_eq!(Attached::parse(bytes.as_bytes()), Ok(attached));

    let stat = Short {
        lease: 0,
        size: 4097,
        blocks: 2,
    };
    let bytes = stat.to_wire(wire::STAT);
    let expected = format!(
        "050300000000000001100000000000000200000000000000{}",
        zeroes(40)
    );
    assert_eq!(hex(bytes.as_bytes()), expected);
    assert_eq!(Short::parse(bytes.as_bytes(), wire::STAT), Ok(stat));

    let listed = Listed {
        count: 1,
        next: Some(9),
    };
    let mut bytes = listed.to_wire().as_bytes().to_vec();
    bytes.extend(wire::Id::from(ID).as_bytes());
    let id = "08070605040302010a00000000000000";
    let expected = format!("06030000010000000900000000000000{}{id}", zeroes(48));
    assert_eq!(hex(&bytes), expected);
    let (parsed, names) = Listed::parse(&bytes, 1).unwrap();
    assert_eq!(parsed, listed);
    assert_eq!(
        names
            .iter()
            .map(|id| ObjectId::from(*id))
            .collect::<Vec<_>>(),
        [ID]
    );

    let asked = span(4095, 4097);
    let mut sums = [0; wire::READ_SUMS];
    sums[..2].copy_from_slice(&[0xe306_9283, 1]);
    let read = ReadHead {
        bytes: 4096,
        size: 8191,
        sums,
    };
    let bytes = read.to_wire(&asked);
    let head = "0703020000100000ff1f000000000000";
    let expected = format!("{head}{}839206e301000000{}", zeroes(16), zeroes(120));
    assert_eq!(hex(bytes.as_bytes()), expected);
    assert_eq!(ReadHead::parse(bytes.as_bytes(), &asked), Ok(read));
}

/// A hidden object, of which blocks are in a file.
const OBJECT: Object = Object {
    id: ID,
    size: 0x1234,
    root: NONE,
    next: NONE,
    blocks: 0,
    life: Life::Hidden,
    is_shrinking: false,
    uses: 0,
    backed: 0x0605,
    is_cut: false,
    is_leaving: false,
    has_file: false,
    has_failed: false,
};

/// Operation 2 of lane 3.
const KEPT: Kept = Kept {
    client: [0x0102_0304_0506_0708, 10],
    word: 2 << 16 | 3,
    incarnation: 0x00b7_b6b5_b4b3_b2b1,
    next: NONE,
};

#[test]
fn each_entry_has_its_bytes() {
    let range = Range::new((1, 2), 3, (4, 5));
    let clean = Range {
        in_file: InFile::Clean,
        ..range
    };
    let extent = Extent {
        stored: Stored {
            place: 0x0102_0304_0506_0708,
            stamp: 0xa1a2_a3a4,
        },
        references: 0,
        ranges: NONE,
        pins: 0,
        used: Blocks::of(0, 29),
        blocks: 29,
        uses: 0,
    };
    let used = Extent {
        references: 3,
        ..extent
    };
    let zeroes = "00".repeat(16);
    let id = "08070605040302010a00000000000000";
    for (slot, restored, expected) in [
        (Slot::Free(7), Slot::Free(NONE), format!("{zeroes}{zeroes}")),
        (
            Slot::Object(OBJECT),
            Slot::Object(OBJECT),
            format!("01010000050600003412000000000000{id}"),
        ),
        (
            Slot::Range(range),
            Slot::Range(range),
            format!("02040500010000000200000003000000{zeroes}"),
        ),
        (
            Slot::Range(clean),
            Slot::Range(clean),
            format!("02040501010000000200000003000000{zeroes}"),
        ),
        (
            Slot::Extent(used),
            Slot::Extent(extent),
            format!("031d0000a4a3a2a10807060504030201{zeroes}"),
        ),
        (
            Slot::Ticket(KEPT),
            Slot::Ticket(KEPT),
            format!("04b1b2b3b4b5b6b70300020000000000{id}"),
        ),
    ] {
        let entry = entry::entry(&slot);
        assert_eq!(hex(&entry), expected);
        assert_eq!(entry::slot(&entry), Ok(restored));
    }
    // Of an extent that nothing refers to nothing is kept, and of a lane without an operation.
    assert_eq!(
        entry::entry(&Slot::Ticket(Kept { word: 0, ..KEPT })),
        [0; 32]
    );
    assert_eq!(entry::entry(&Slot::Extent(extent)), [0; 32]);
}
