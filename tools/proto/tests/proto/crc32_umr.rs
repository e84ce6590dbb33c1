// SPDX-License-Identifier: GPL-2.0

//! The protocol of the CRC32/UMR sample: golden vectors, every bit that can flip, every lie.

use chunk4k::{
    Checksums,
    CHUNK_LEN,
    DATA_LEN, //
};
use proptest::prelude::*;
use proto::crc32_umr::{
    connect::{
        Hello,
        Welcome, //
    },
    pattern,
    request::{
        Encoded,
        Memory,
        Operation,
        Request,
        BLOCKS_MAX,
        HEAD_LEN,
        PLAIN_LEN,
        REST_LEN, //
    },
    response::{
        self,
        Status, //
    },
    view::{
        pieces,
        Piece, //
    },
    Violation,
};
use zerocopy::IntoBytes;

use crate::chunk4k::Fast;

const MEMORY: Memory = Memory {
    address: 0x2827_2625_2423_2221,
    key: 0x3433_3231,
};
const ID: u64 = 0x0807_0605_0403_0201;
const BLOCK: u64 = 0x1817_1615_1413_1211;
const SIGNATURE: u32 = 0x4443_4241;

fn parse(len_bytes: u32, encoded: &Encoded) -> Result<Request, Violation> {
    Request::parse::<Fast>(len_bytes, &encoded.head, &encoded.rest)
}

/// Signs a request that no encoder makes.
fn sign(encoded: &mut Encoded) {
    let crc = Fast::crc32(Fast::crc32(0, &encoded.head), &encoded.rest[..24]);
    encoded.rest[24..].copy_from_slice(&crc.to_le_bytes());
}

fn operations() -> [(Operation, u8, u32); 3] {
    let (signature, memory) = (SIGNATURE, MEMORY);
    [
        (Operation::Read(memory), 0x80, 0),
        (Operation::WriteInline { signature }, 1, SIGNATURE),
        (Operation::WriteRdma { signature, memory }, 0x81, SIGNATURE),
    ]
}

/// The example's header and tail as it has them, and behind them what it does not say.
#[test]
fn requests_byte_by_byte() {
    for (operation, kind, signature) in operations() {
        let encoded = Request::new(ID, 0x1234, BLOCK, operation).encode::<Fast>();
        assert_eq!(encoded.head, [1, 2, 3, 4, 5, 6, 7, 8, 0x34, 0x12, kind]);
        let rest = &encoded.rest;
        assert_eq!(rest[..4], signature.to_le_bytes());
        assert_eq!(rest[4..12], BLOCK.to_le_bytes());
        let memory = match operation {
            Operation::WriteInline { .. } => Memory { address: 0, key: 0 },
            _ => MEMORY,
        };
        assert_eq!(rest[12..20], memory.address.to_le_bytes());
        assert_eq!(rest[20..24], memory.key.to_le_bytes());
        let crc = Fast::crc32(Fast::crc32(0, &encoded.head), &rest[..24]);
        assert_eq!(rest[24..], crc.to_le_bytes());
    }
    assert_eq!(
        (HEAD_LEN, REST_LEN, PLAIN_LEN, BLOCKS_MAX),
        (11, 28, 39, 17)
    );
}

/// `python3 -c 'import struct, zlib; m = struct.pack("<QHBIQQI", 1, 4048, 0x81, 2, 3, 4, 5);
/// print(hex(zlib.crc32(m)))'`
#[test]
fn the_checksum_of_a_request_is_that_of_zlib() {
    let memory = Memory { address: 4, key: 5 };
    let signature = 2;
    let operation = Operation::WriteRdma { signature, memory };
    let encoded = Request::new(1, 4048, 3, operation).encode::<Fast>();
    assert_eq!(encoded.rest[24..], 0x6386_ad7b_u32.to_le_bytes());
}

#[test]
fn every_flipped_bit_of_a_request_is_found() {
    for (operation, ..) in operations() {
        let request = Request::new(ID, 1000, BLOCK, operation);
        let encoded = request.encode::<Fast>();
        let payload = u32::from(matches!(operation, Operation::WriteInline { .. })) * 1000;
        let len_bytes = PLAIN_LEN + payload;
        assert_eq!(parse(len_bytes, &encoded), Ok(request));
        for bit in 0..PLAIN_LEN as usize * 8 {
            let (byte, flip) = (bit / 8, 1 << (bit % 8));
            let mut flipped = encoded;
            match byte.checked_sub(HEAD_LEN) {
                None => flipped.head[byte] ^= flip,
                Some(byte) => flipped.rest[byte] ^= flip,
            }
            let found = parse(len_bytes, &flipped);
            assert!(
                matches!(found, Err(Violation::HeaderCrc { .. })),
                "bit {bit}: {found:?}"
            );
        }
    }
}

#[test]
fn each_lie_of_a_request() {
    let signature = SIGNATURE;
    let inline = Request::new(ID, 1000, 0, Operation::WriteInline { signature }).encode::<Fast>();
    let read = Request::new(ID, 1000, 0, Operation::Read(MEMORY)).encode::<Fast>();
    let lie = |mut encoded: Encoded, len_bytes, change: fn(&mut Encoded)| {
        change(&mut encoded);
        sign(&mut encoded);
        parse(len_bytes, &encoded).unwrap_err()
    };
    for len_bytes in [0, 39, 1038, 1040, u32::MAX] {
        let (found, expected) = (len_bytes, 1039);
        let length = Violation::Length { found, expected };
        assert_eq!(lie(inline, len_bytes, |_| ()), length);
    }
    for len_bytes in [0, 38, 40, 1039] {
        let (found, expected) = (len_bytes, 39);
        let length = Violation::Length { found, expected };
        assert_eq!(lie(read, len_bytes, |_| ()), length);
    }
    // A read cannot be inlined, and there is nothing beyond a write.
    for (kind, name) in [(0u8, "0x00"), (2, "0x02"), (0x82, "0x82"), (0xff, "0xff")] {
        let mut encoded = read;
        encoded.head[10] = kind;
        sign(&mut encoded);
        let violation = parse(39, &encoded).unwrap_err();
        assert_eq!(violation, Violation::Type(kind));
        let text = format!("a request of type {name}, which does not exist");
        assert_eq!(violation.to_string(), text);
    }
    assert_eq!(lie(read, 39, |e| e.head[8..10].fill(0)), Violation::Empty);
    assert_eq!(
        lie(read, 39, |e| e.rest[0] = 7),
        Violation::ReadSignature(7)
    );
    assert_eq!(
        lie(inline, 1039, |e| e.rest[12] = 1),
        Violation::InlineMemory
    );
    assert_eq!(
        lie(inline, 1039, |e| e.rest[23] = 1),
        Violation::InlineMemory
    );
}

#[test]
fn memory_ends_at_the_last_address() {
    // 1000 bytes and the checksum, which ends before the last byte of all.
    for (address, fits) in [(u64::MAX - 1004, true), (u64::MAX - 1003, false)] {
        let operation = Operation::Read(Memory { address, key: 1 });
        let read = Request::new(ID, 1000, 0, operation);
        let parsed = parse(39, &read.encode::<Fast>());
        assert_eq!(
            parsed,
            if fits {
                Ok(read)
            } else {
                Err(Violation::Wraps(address))
            }
        );
    }
    let memory = Memory {
        address: u64::MAX - 1000,
        key: 1,
    };
    let signature = 1;
    let write = Request::new(ID, 1000, 0, Operation::WriteRdma { signature, memory });
    assert_eq!(parse(39, &write.encode::<Fast>()), Ok(write));
}

#[test]
fn blocks_of_a_request_are_all_there_or_none() {
    let of =
        |size, first, chunks| Request::new(1, size, first, Operation::Read(MEMORY)).blocks(chunks);
    assert_eq!(of(1, 0, 1), Some(0..1));
    assert_eq!(of(4048, 9, 10), Some(9..10));
    assert_eq!(of(4049, 9, 10), None);
    assert_eq!(of(4049, 8, 10), Some(8..10));
    assert_eq!(of(u16::MAX, 0, 17), Some(0..17));
    assert_eq!(of(u16::MAX, 0, 16), None);
    assert_eq!(of(1, u64::MAX, u64::MAX), None);
    assert_eq!(of(1, u64::MAX - 1, u64::MAX), Some(u64::MAX - 1..u64::MAX));
}

#[test]
fn responses_byte_by_byte() {
    let statuses = [
        (0, Status::Done),
        (1, Status::Payload),
        (2, Status::Range),
        (3, Status::Chunk),
        (4, Status::Place),
        (5, Status::Io),
    ];
    for (number, status) in statuses {
        let bytes = response::encode(ID, status);
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, number]);
        assert_eq!(response::parse(9, &bytes, ID), Ok(status));
    }
    let bytes = response::encode(ID, Status::Done);
    for found in [0, 8, 10, 64] {
        let expected = 9;
        let length = Violation::Length { found, expected };
        assert_eq!(response::parse(found, &bytes, ID), Err(length));
    }
    let (found, expected) = (ID, ID + 1);
    let other = Violation::Id { found, expected };
    assert_eq!(response::parse(9, &bytes, ID + 1), Err(other));
    for status in 6..=255 {
        let mut bytes = bytes;
        bytes[8] = status;
        assert_eq!(
            response::parse(9, &bytes, ID),
            Err(Violation::Status(status))
        );
    }
}

#[test]
fn what_comes_with_a_connection_byte_by_byte() {
    let hello = *b"C32U\x01\x00";
    assert_eq!(Hello::new().as_bytes(), hello);
    let welcome = *b"C32U\x01\x00\x04\x00\x00\x02\x00\x00\x00\x00\x00\x00";
    assert_eq!(Welcome::new(4, 512).as_bytes(), welcome);
    // The connection manager pads both.
    let mut padded = [0; 56];
    padded[..6].copy_from_slice(&hello);
    assert_eq!(Hello::check(&padded), Ok(()));
    let mut padded = [0; 196];
    padded[..16].copy_from_slice(&welcome);
    let parsed = Welcome::parse(&padded).unwrap();
    assert_eq!((parsed.depth(), parsed.chunks()), (4, 512));

    for (len, expected) in [(0, 6), (5, 6)] {
        let found = len as u32;
        let length = Violation::Length { found, expected };
        assert_eq!(Hello::check(&hello[..len]), Err(length));
    }
    assert!(Welcome::parse(&welcome[..15]).is_err());
    assert_eq!(
        Hello::check(b"C32u\x01\x00"),
        Err(Violation::Magic(0x7532_3343))
    );
    assert_eq!(Hello::check(b"C32U\x02\x00"), Err(Violation::Version(2)));
    for (depth, chunks) in [(0, 1), (1, 0)] {
        let nothing = Welcome::new(depth, chunks);
        assert_eq!(
            Welcome::parse(nothing.as_bytes()).err(),
            Some(Violation::Nothing)
        );
    }
}

/// All that a view of any size must be: the data of one chunk after the other, and nothing else.
#[test]
fn every_size_has_its_pieces() {
    for size in 0..=u16::MAX {
        let mut offset = 0;
        let mut sum = 0;
        for piece in pieces(size) {
            assert_eq!(piece.offset, offset);
            assert!((1..=DATA_LEN as u32).contains(&piece.len_bytes));
            let is_last = sum + piece.len_bytes == u32::from(size);
            assert!(is_last || piece.len_bytes == DATA_LEN as u32);
            let rest = piece.rest();
            assert_eq!(rest.offset, piece.offset + piece.len_bytes);
            assert_eq!(rest.len_bytes + piece.len_bytes, DATA_LEN as u32);
            offset += CHUNK_LEN as u32;
            sum += piece.len_bytes;
        }
        assert_eq!(sum, u32::from(size));
        assert!(offset as usize <= BLOCKS_MAX * CHUNK_LEN);
    }
    let two: Vec<_> = pieces(4050).collect();
    let piece = |offset, len_bytes| Piece { offset, len_bytes };
    assert_eq!(two, [piece(0, 4048), piece(4096, 2)]);
}

#[test]
fn a_pattern_belongs_to_one_block_and_one_seed() {
    let mut data = [0; DATA_LEN];
    pattern::fill(1, 7, &mut data);
    assert_eq!(pattern::differs(1, 7, &data), None);
    for (seed, block) in [(1, 8), (2, 7), (0, 7), (1, 7 << 32)] {
        assert!(pattern::differs(seed, block, &data).is_some_and(|at| at < 8));
    }
    for at in 0..DATA_LEN {
        data[at] ^= 0x10;
        assert_eq!(pattern::differs(1, 7, &data), Some(at));
        data[at] ^= 0x10;
    }
}

proptest! {
    #[test]
    fn what_is_encoded_is_parsed(
        id: u64, size in 1u16.., block: u64, address in 0..u64::MAX - 0x2_0000, key: u32,
        signature: u32, which in 0..3,
    ) {
        let memory = Memory { address, key };
        let (operation, payload) = match which {
            0 => (Operation::Read(memory), 0),
            1 => (Operation::WriteInline { signature }, u32::from(size)),
            _ => (Operation::WriteRdma { signature, memory }, 0),
        };
        let request = Request::new(id, size, block, operation);
        prop_assert_eq!(parse(PLAIN_LEN + payload, &request.encode::<Fast>()), Ok(request));
    }

    #[test]
    fn what_is_parsed_is_what_was_sent(head: [u8; HEAD_LEN], rest: [u8; REST_LEN], len: u16) {
        let mut encoded = Encoded { head, rest };
        sign(&mut encoded);
        let len_bytes = PLAIN_LEN + u32::from(len);
        if let Ok(request) = parse(len_bytes, &encoded) {
            prop_assert_eq!(request.encode::<Fast>(), encoded);
        }
    }
}
