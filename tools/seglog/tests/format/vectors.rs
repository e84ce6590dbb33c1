// SPDX-License-Identifier: GPL-2.0

//! Golden vectors: the bytes that each later version must read.

use std::ops::Range;

use seglog::{
    batch::{
        Head,
        HEAD_BYTES, //
    },
    record::{
        Record,
        CODEC_ZEROES, //
    },
    superblock::Superblock, //
};

use crate::{
    head,
    layout,
    superblock,
    Crc,
    TAG, //
};

fn check(bytes: &[u8], fields: &[(Range<usize>, u64)]) {
    let mut end = 0;
    for (range, expected) in fields {
        assert_eq!(range.start, end, "a gap before {range:?}");
        let mut padded = [0; 8];
        padded[..range.len()].copy_from_slice(&bytes[range.clone()]);
        assert_eq!(u64::from_le_bytes(padded), *expected, "{range:?}");
        end = range.end;
    }
}

#[test]
fn head_of_a_batch() {
    let (bytes, hash) = head().bytes(TAG, &Crc);
    check(
        &bytes,
        &[
            (0..4, u64::from(u32::from_le_bytes(*b"FSLB"))),
            (4..5, 1),
            (5..6, 1),
            (6..7, 7),
            (7..8, 7),
            (8..16, TAG.0),
            (16..24, 0x1_0000_0007),
            (24..32, 5),
            (32..40, 11),
            (40..48, 0x1_0000_0004),
            (48..52, 4),
            (52..56, 9),
            (56..58, 3),
            (58..60, 0),
            (60..64, 6),
            (64..68, 0x0a0b_0c0d),
            (68..72, 1),
            (72..76, 2),
            (76..80, 3),
            (80..88, 0),
            (88..92, 0),
            (92..96, hash.into()),
        ],
    );
    let mut covered = bytes;
    covered[92..].fill(0);
    assert_eq!(crc32c::crc32c(&covered), hash);
    assert_eq!(bytes.len(), HEAD_BYTES);
    let parsed = Head::parse(&bytes, head().place, (&layout(), TAG), &Crc);
    assert_eq!(parsed, Some((head(), hash)));
}

#[test]
fn superblock_of_a_member() {
    let bytes = superblock().bytes(&Crc);
    check(
        &bytes,
        &[
            (0..8, u64::from_le_bytes(*b"ferrolog")),
            (8..10, 1),
            (10..11, 2),
            (11..12, 3),
            (12..13, 2),
            (13..14, 2),
            (14..15, 1),
            (15..16, 1),
            (16..24, 0x5a5a_5a5a_5a5a_5a5a),
            (24..32, 0x5a5a_5a5a_5a5a_5a5a),
            (32..40, TAG.0),
            (40..44, 512),
            (44..48, 4096),
            (48..52, 30),
            (52..56, 4096),
            (56..64, 20_000),
            (64..72, 1),
            (72..80, 78),
            (80..88, 77),
            (88..96, 0),
            (96..104, 3),
            (104..112, 9),
            (112..120, 0),
            (120..128, 11),
            (128..132, 4),
            (132..136, 12),
            (136..140, 6),
            (140..144, 13),
            (144..152, 0),
            (152..160, 0),
            (160..168, 0x77),
            (168..176, 5),
            (176..184, 0),
            (184..192, 0),
        ],
    );
    assert!(bytes[192..508].iter().all(|byte| *byte == 0));
    assert_eq!(Superblock::parse(&bytes, 1, &Crc), Ok(superblock()));
}

#[test]
fn record_of_two_blocks_and_of_zeroes() {
    let mut body = [0xff; 64];
    let record = Record {
        index: 300,
        count: 2,
        codec: 7,
        payload_bytes: 5,
        skipped: 0,
    };
    let written = record.write(&mut body, b"bytes", (&layout(), 0x1_0000_0007), &Crc);
    assert_eq!(written, Some(32));
    let crc = crc32c::crc32c(&body[4..29]);
    check(
        &body,
        &[
            (0..4, crc.into()),
            (4..6, 5),
            (6..7, 7),
            (7..8, 0),
            (8..12, 2),
            (12..16, 7),
            (16..24, 300),
            (24..29, 0x73_6574_7962),
            (29..32, 0),
        ],
    );
    // The first block is elsewhere.
    let moved = Record {
        skipped: 1,
        ..record
    };
    let written = moved.write(&mut body, b"bytes", (&layout(), 0x1_0000_0007), &Crc);
    assert_eq!((written, body[7]), (Some(32), 1));
    let parsed = Record::parse(&body, (&layout(), Some(7)), &Crc);
    assert_eq!(parsed, Ok(Some((moved, &b"bytes"[..]))));
    // One that assigns nothing, or blocks that it does not have, is none.
    for skipped in [3, 4, 7, 0x80] {
        let none = Record { skipped, ..record };
        let written = none.write(&mut body, b"bytes", (&layout(), 7), &Crc);
        assert_eq!(written, None);
    }
    let zeroes = Record {
        count: 1000,
        codec: CODEC_ZEROES,
        payload_bytes: 0,
        ..record
    };
    assert_eq!(
        zeroes.write(&mut body[32..], &[], (&layout(), 1), &Crc),
        Some(32)
    );
    let parsed = Record::parse(&body[32..], (&layout(), Some(1)), &Crc);
    assert_eq!(parsed, Ok(Some((zeroes, &[][..]))));
}
