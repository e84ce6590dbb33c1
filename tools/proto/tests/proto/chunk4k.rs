// SPDX-License-Identifier: GPL-2.0

//! Chunks: golden vectors, every bit that can flip, every rule that can be broken.

use chunk4k::{
    extended::{
        self,
        Algorithm,
        Expected, //
    },
    is_blank,
    strict::{
        self,
        Metadata, //
    },
    Checksums,
    Chunk,
    Defect,
    CHUNK_LEN,
    DATA_LEN,
    RESERVED_LEN, //
};
use proptest::prelude::*;

/// The checksums of two crates that know nothing of this tree.
pub(crate) struct Fast;

impl Checksums for Fast {
    fn crc32(before: u32, bytes: &[u8]) -> u32 {
        let mut hasher = crc32fast::Hasher::new_with_initial(before);
        hasher.update(bytes);
        hasher.finalize()
    }

    fn crc32c(before: u32, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(before, bytes)
    }
}

/// Data that is different at every place.
fn data(seed: u32) -> Chunk {
    let mut chunk = [0; CHUNK_LEN];
    let mut state = seed | 1;
    for byte in &mut chunk[..DATA_LEN] {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = (state >> 24) as u8;
    }
    chunk
}

fn strict_chunk(seed: u32, id: u64, reserved: [u8; RESERVED_LEN]) -> Chunk {
    let mut chunk = data(seed);
    strict::encode::<Fast>(&mut chunk, &Metadata::new(id, reserved));
    chunk
}

fn extended_chunk(seed: u32, metadata: &extended::Metadata) -> Chunk {
    let mut chunk = data(seed);
    extended::encode::<Fast>(&mut chunk, metadata).unwrap();
    chunk
}

const EXAMPLE: extended::Metadata = extended::Metadata {
    id: 0x0807_0605_0403_0201,
    object: 0x1817_1615_1413_1211_2827_2625_2423_2221,
    generation: 0x3837_3635_3433_3231,
    data_len_bytes: 100,
    algorithm: Algorithm::Crc32,
    is_lz4: false,
};

#[test]
fn the_checksums_have_their_known_answers() {
    assert_eq!(Fast::crc32(0, b"123456789"), 0xcbf4_3926);
    assert_eq!(Fast::crc32c(0, b"123456789"), 0xe306_9283);
    assert_eq!(Fast::crc32(Fast::crc32(0, b"1234"), b"56789"), 0xcbf4_3926);
    assert_eq!(
        Fast::crc32c(Fast::crc32c(0, b"1234"), b"56789"),
        0xe306_9283
    );
}

/// Each byte where the specification has it. The checksum of a chunk of zeros but for its number 1
/// is that which Python's `zlib.crc32` gives.
#[test]
fn a_strict_chunk_byte_by_byte() {
    let mut chunk = [0; CHUNK_LEN];
    strict::encode::<Fast>(&mut chunk, &Metadata::new(1, [0; RESERVED_LEN]));
    assert_eq!(chunk[4048..4056], [1, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(chunk[4092..], GOLDEN_ONE.to_le_bytes());

    let reserved: [u8; RESERVED_LEN] = core::array::from_fn(|at| 0x80 + at as u8);
    let mut chunk: Chunk = core::array::from_fn(|at| (at % 251) as u8);
    strict::encode::<Fast>(&mut chunk, &Metadata::new(0x0807_0605_0403_0201, reserved));
    assert_eq!(
        chunk[..4048],
        core::array::from_fn::<u8, 4048, _>(|at| (at % 251) as u8)
    );
    assert_eq!(chunk[4048..4056], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(chunk[4056..4092], reserved);
    assert_eq!(chunk[4092..], GOLDEN_TWO.to_le_bytes());
}

/// `python3 -c 'import zlib; print(hex(zlib.crc32(bytes(4048) + b"\1" + bytes(43))))'`
const GOLDEN_ONE: u32 = 0x4a13_3ceb;
/// `python3 -c 'import zlib; print(hex(zlib.crc32(bytes(i % 251 for i in range(4048)) +
/// bytes(range(1, 9)) + bytes(range(128, 164)))))'`
const GOLDEN_TWO: u32 = 0xfba4_9fd1;

#[test]
fn an_extended_chunk_byte_by_byte() {
    let chunk = extended_chunk(7, &EXAMPLE);
    assert_eq!(chunk[..100], data(7)[..100]);
    assert_eq!(chunk[100..4048], [0; 3948], "what is not used is 0");
    assert_eq!(chunk[4048..4056], [1, 2, 3, 4, 5, 6, 7, 8]);
    let high = [0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18];
    assert_eq!(chunk[4056..4064], high);
    assert_eq!(chunk[4064..4072], high.map(|byte| byte + 0x10));
    assert_eq!(chunk[4072..4080], high.map(|byte| byte + 0x20));
    assert_eq!(chunk[4080..4082], [100, 0]);
    assert_eq!(chunk[4082..4084], [1, 0]);
    let used = Fast::crc32(0, &chunk[..100]);
    assert_eq!(chunk[4084..4088], used.to_le_bytes());
    assert_eq!(chunk[4088..4092], [0; 4]);
    let all = Fast::crc32(0, &chunk[..4092]);
    assert_eq!(chunk[4092..], all.to_le_bytes());

    let lz4 = extended::Metadata {
        algorithm: Algorithm::Crc32c,
        is_lz4: true,
        ..EXAMPLE
    };
    let chunk = extended_chunk(7, &lz4);
    assert_eq!(chunk[4082..4084], [7, 0]);
    let all = Fast::crc32c(0, &chunk[..4092]);
    assert_eq!(chunk[4092..], all.to_le_bytes());
    assert_eq!(extended::decode::<Fast>(&chunk), Ok((lz4, &chunk[..100])));
}

#[test]
fn every_flipped_bit_of_a_strict_chunk_is_found() {
    let chunk = strict_chunk(3, 42, [9; RESERVED_LEN]);
    assert!(strict::decode::<Fast>(&chunk).is_ok());
    for bit in 0..CHUNK_LEN * 8 {
        let mut flipped = chunk;
        flipped[bit / 8] ^= 1 << (bit % 8);
        let found = strict::decode::<Fast>(&flipped);
        assert!(
            matches!(found, Err(Defect::Crc { .. })),
            "bit {bit}: {found:?}"
        );
    }
}

#[test]
fn every_flipped_bit_of_an_extended_chunk_is_found() {
    for algorithm in [Algorithm::Crc32, Algorithm::Crc32c] {
        let metadata = extended::Metadata {
            algorithm,
            data_len_bytes: 4048,
            ..EXAMPLE
        };
        let chunk = extended_chunk(5, &metadata);
        for bit in 0..CHUNK_LEN * 8 {
            let mut flipped = chunk;
            flipped[bit / 8] ^= 1 << (bit % 8);
            let found = extended::decode::<Fast>(&flipped);
            assert!(
                matches!(found, Err(Defect::Crc { .. })),
                "bit {bit}: {found:?}"
            );
        }
    }
}

#[test]
fn a_torn_chunk_is_found_wherever_it_is_torn() {
    let (old, new) = (
        strict_chunk(1, 7, [0; RESERVED_LEN]),
        strict_chunk(2, 7, [0; RESERVED_LEN]),
    );
    for at in 1..CHUNK_LEN {
        let mut torn = old;
        torn[..at].copy_from_slice(&new[..at]);
        let is_whole = torn == old || torn == new;
        assert_eq!(
            strict::decode::<Fast>(&torn).is_ok(),
            is_whole,
            "torn at {at}"
        );
    }
}

#[test]
fn each_rule_of_a_strict_chunk() {
    let metadata = strict::decode::<Fast>(&strict_chunk(1, 7, [0; RESERVED_LEN])).unwrap();
    assert_eq!(metadata.id(), 7);
    assert!(metadata.of(7).is_ok());
    let (found, expected) = (7, 8);
    assert_eq!(metadata.of(8), Err(Defect::Id { found, expected }));
    assert!(metadata.unreserved().is_ok());
    for at in 0..RESERVED_LEN {
        let mut reserved = [0; RESERVED_LEN];
        reserved[at] = 3;
        let metadata = strict::decode::<Fast>(&strict_chunk(1, 7, reserved)).unwrap();
        assert_eq!(*metadata.reserved(), reserved);
        let (at, found) = (4056 + at, 3);
        assert_eq!(metadata.unreserved(), Err(Defect::Reserved { at, found }));
    }
}

/// Signs a chunk that no encoder makes.
fn sign(chunk: &mut Chunk, crc: fn(u32, &[u8]) -> u32) {
    let signature = crc(0, &chunk[..4092]);
    chunk[4092..].copy_from_slice(&signature.to_le_bytes());
}

#[test]
fn each_rule_of_an_extended_chunk() {
    let lie = |at: usize, byte: u8, crc: fn(u32, &[u8]) -> u32| {
        let mut chunk = extended_chunk(1, &EXAMPLE);
        chunk[at] = byte;
        sign(&mut chunk, crc);
        extended::decode::<Fast>(&chunk).map(|_| ())
    };
    assert_eq!(lie(4082, 1, Fast::crc32), Ok(()));
    assert_eq!(lie(4082, 0, Fast::crc32), Err(Defect::Flags { found: 0 }));
    assert_eq!(lie(4082, 9, Fast::crc32), Err(Defect::Flags { found: 9 }));
    assert_eq!(
        lie(4083, 0x80, Fast::crc32),
        Err(Defect::Flags { found: 0x8001 })
    );
    assert!(matches!(lie(4082, 3, Fast::crc32), Err(Defect::Crc { .. })));
    for at in 4088..4092 {
        let found = 0x40;
        assert_eq!(
            lie(at, found, Fast::crc32),
            Err(Defect::Reserved { at, found })
        );
    }
    // 100 + 0x0f00 is 3940, and 100 + 0x1000 is more than 4048.
    assert!(matches!(
        lie(4081, 0x0f, Fast::crc32),
        Err(Defect::DataCrc { .. })
    ));
    assert_eq!(
        lie(4081, 0x10, Fast::crc32),
        Err(Defect::Length { found: 4196 })
    );
    assert!(matches!(
        lie(99, 0xaa, Fast::crc32),
        Err(Defect::DataCrc { .. })
    ));
    // Not data.
    assert_eq!(lie(100, 0xaa, Fast::crc32), Ok(()));
    let too_long = extended::Metadata {
        data_len_bytes: 4049,
        ..EXAMPLE
    };
    let mut chunk = data(1);
    let found = 4049;
    assert_eq!(
        extended::encode::<Fast>(&mut chunk, &too_long),
        Err(Defect::Length { found })
    );
    assert_eq!(chunk, data(1));
}

#[test]
fn each_expectation_of_a_reader() {
    let expected = Expected {
        id: EXAMPLE.id,
        object: Some(EXAMPLE.object),
        generation_min: EXAMPLE.generation,
    };
    assert_eq!(EXAMPLE.check(&expected), Ok(EXAMPLE));
    let any = Expected {
        object: None,
        generation_min: 0,
        ..expected
    };
    assert_eq!(EXAMPLE.check(&any), Ok(EXAMPLE));
    let id = Expected { id: 1, ..expected };
    assert_eq!(EXAMPLE.check(&id).unwrap_err().name(), "id");
    for object in [EXAMPLE.object ^ 1, EXAMPLE.object ^ (1 << 127)] {
        let object = Expected {
            object: Some(object),
            ..expected
        };
        assert_eq!(EXAMPLE.check(&object).unwrap_err().name(), "object");
    }
    let later = Expected {
        generation_min: EXAMPLE.generation + 1,
        ..expected
    };
    let stale = EXAMPLE.check(&later).unwrap_err();
    assert_eq!(stale.name(), "generation");
    let text = "it is of generation 4050765991979987505, and not of 4050765991979987506 or later";
    assert_eq!(stale.to_string(), text);
}

#[test]
fn no_valid_chunk_is_blank() {
    let blank = [0; CHUNK_LEN];
    assert!(is_blank(&blank));
    assert!(strict::decode::<Fast>(&blank).is_err());
    assert!(extended::decode::<Fast>(&blank).is_err());
    for at in [0, 4047, 4048, 4095] {
        let mut chunk = blank;
        chunk[at] = 1;
        assert!(!is_blank(&chunk));
    }
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(seed: u32, id: u64, reserved in any::<[u8; 32]>()) {
        let mut all = [0; RESERVED_LEN];
        all[..32].copy_from_slice(&reserved);
        let chunk = strict_chunk(seed, id, all);
        prop_assert_eq!(strict::decode::<Fast>(&chunk), Ok(Metadata::new(id, all)));
        prop_assert_eq!(&chunk[..DATA_LEN], &data(seed)[..DATA_LEN]);
        // Without the data in front of it.
        let before = Fast::crc32(0, &chunk[..DATA_LEN]);
        let sealed = Metadata::new(id, all).seal::<Fast>(before);
        prop_assert_eq!(sealed.as_slice(), &chunk[DATA_LEN..]);
    }

    #[test]
    fn what_is_encoded_extended_is_decoded(
        seed: u32, id: u64, object: u128, generation: u64, data_len_bytes in 0u16..=4048,
        is_lz4: bool, is_crc32c: bool,
    ) {
        let algorithm = if is_crc32c { Algorithm::Crc32c } else { Algorithm::Crc32 };
        let metadata = extended::Metadata {
            id, object, generation, data_len_bytes, algorithm, is_lz4,
        };
        let chunk = extended_chunk(seed, &metadata);
        let used = &data(seed)[..usize::from(data_len_bytes)];
        prop_assert_eq!(extended::decode::<Fast>(&chunk), Ok((metadata, used)));
    }

    #[test]
    fn bursts_of_up_to_32_bits_are_found(seed: u32, at in 0usize..CHUNK_LEN - 4, burst in 1u32..) {
        let mut chunk = strict_chunk(seed, 1, [0; RESERVED_LEN]);
        for (byte, flips) in chunk[at..].iter_mut().zip(burst.to_le_bytes()) {
            *byte ^= flips;
        }
        prop_assert!(strict::decode::<Fast>(&chunk).is_err());
    }
}
