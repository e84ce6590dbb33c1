// SPDX-License-Identifier: GPL-2.0

//! Stored blocks, streams, parity and `.sbc` heads.

use gga_halfblock::matrix::{Half, Matrix, MatrixType};
use gga_halfblock::sbc::{self, Geometry};
use gga_halfblock::{stored, stream};
use proptest::prelude::*;

use crate::{bytes, few, noise};

/// The text of the vectors: 256 bytes.
const TEXT: &str = "A half of a block is on one server, a half on another. ";

/// The stream that liblz4 1.9.4 makes of the text: level 1, independent blocks.
const TEXT_STREAM: &str =
    "3e000000 f316 412068616c66206f66206120626c6f636b206973206f6e206f6e65207365727665722c20
    61 2400 bf 6e20616e6f746865722e20 3700 b1 507665722c20";

fn text() -> Vec<u8> {
    TEXT.bytes().cycle().take(256).collect()
}

fn encoded(data: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut area = vec![0xee; data.len() / 2 * 3];
    let compressed = stored::encode(data, &mut area).ok()?;
    area.truncate(data.len());
    Some((area, compressed))
}

fn decoded(block: &[u8]) -> Result<Vec<u8>, String> {
    let mut data = vec![0xee; block.len()];
    stored::decode(block, &mut data).map_err(|defect| defect.to_string())?;
    Ok(data)
}

/// The stored block of the text, with the stream of liblz4.
fn text_block() -> Vec<u8> {
    let mut block = [bytes("00000100 00000042"), bytes(TEXT_STREAM)].concat();
    block.resize(256, 0);
    block
}

#[test]
fn a_block_of_liblz4_is_read() {
    assert_eq!(decoded(&text_block()), Ok(text()));
}

#[test]
fn a_block_has_header_stream_zeroes_and_trailer() {
    let (block, compressed) = encoded(&text()).unwrap();
    assert_eq!(block[..4], [0, 0, 1, 0]);
    assert_eq!(block[4..8], (compressed as u32).to_be_bytes());
    let size = u32::from_le_bytes(block[8..12].try_into().unwrap());
    assert_eq!(size as usize + 4, compressed);
    assert!(block[8 + compressed..].iter().all(|&byte| byte == 0));
    assert_eq!(decoded(&block), Ok(text()));
}

/// The vector is the stream that liblz4 makes of 64 KiB and 64 bytes of `a`: two blocks.
#[test]
fn a_stream_of_several_blocks_is_read_and_made() {
    let mut vector = bytes("0b010000 1f 61 0100");
    vector.extend([0xff; 256]);
    vector.extend(bytes(
        "e7 50 6161616161 0b000000 1f 61 0100 27 50 6161616161",
    ));
    assert_eq!(vector.len(), 286);
    let mut data = vec![0; (64 << 10) + 64];
    stream::decompress(&vector, &mut data).unwrap();
    assert!(data.iter().all(|&byte| byte == b'a'));
    let mut made = vec![0; data.len() * 3 / 2];
    let len = stream::compress(&data, &mut made).unwrap();
    let first = u32::from_le_bytes(made[..4].try_into().unwrap()) as usize;
    let second = u32::from_le_bytes(made[4 + first..][..4].try_into().unwrap()) as usize;
    assert_eq!(8 + first + second, len);
}

#[test]
fn what_cannot_be_compressed_is_raw_in_the_stream() {
    let data = noise(1, 128);
    let mut made = vec![0; 192];
    assert_eq!(stream::compress(&data, &mut made), Some(132));
    assert_eq!(made[..4], [128, 0, 0, 0x80]);
    assert_eq!(made[4..132], data);
    // Beside 64 KiB that can be compressed it fits into a block.
    let mut data = vec![7; 128 << 10];
    data[64 << 10..].copy_from_slice(&noise(2, 64 << 10));
    let (block, _) = encoded(&data).unwrap();
    assert_eq!(decoded(&block), Ok(data));
}

#[test]
fn a_block_that_cannot_be_compressed_is_refused() {
    for len in [128, 4096, 64 << 10, 192 << 10] {
        let mut area = vec![0; len / 2 * 3];
        let refused = stored::encode(&noise(3, len), &mut area).unwrap_err();
        assert_eq!(refused.field(), "the size of its stream");
    }
    // The last length that fits, and the first that does not.
    let fits = |random: usize| {
        let mut data = vec![0; 1024];
        data[..random].copy_from_slice(&noise(4, random));
        encoded(&data).map(|(_, compressed)| compressed)
    };
    let last = (900..1024)
        .rev()
        .find(|&random| fits(random).is_some())
        .unwrap();
    assert_eq!(fits(last), Some(1024 - 12));
    assert_eq!(fits(last + 1), None);
}

/// A block whose bytes from `at` on are others.
fn damaged(at: usize, with: &[u8]) -> Vec<u8> {
    let mut block = text_block();
    block[at..at + with.len()].copy_from_slice(with);
    block
}

/// Bytes of the text's block from an offset on, and what is said of them.
#[rustfmt::skip]
const DAMAGE: [(usize, [u8; 4], &str); 12] = [
    (0, [0, 0, 1, 1], "the length of its data is 257: that of a block is 256"),
    (0, [0, 0, 0, 0], "the length of its data is 0: that of a block is 256"),
    (0, [0xff; 4], "the length of its data is 4294967295: that of a block is 256"),
    (4, [0, 0, 0, 245], "the size of its stream is 245: 244 fit"),
    (4, [0xff; 4], "the size of its stream is 4294967295: 244 fit"),
    (4, [0, 0, 0, 0x41], "the place of a byte of its padding is 73: it is not 0"),
    (100, [0, 1, 0, 0], "the place of a byte of its padding is 101: it is not 0"),
    (252, [0, 0, 0, 1], "its trailer is 1: it must be 0"),
    (8, [0, 0, 0, 0], "the size of a compressed block is 0: 1 to 65536"),
    (8, [1, 0, 1, 0], "the size of a compressed block is 65537: 1 to 65536"),
    (8, [0x3f, 0, 0, 0], "the place of a compressed block is 0: the stream ends in it"),
    (8, [0x3e, 0, 0, 0x80], "what the stream lacks of the data is 194: none"),
];

#[test]
fn each_field_of_a_block_is_checked() {
    let never = decoded(&[0; 256]).unwrap_err();
    assert_eq!(never, "the length of its data is 0: it was never written");
    for (at, with, complaint) in DAMAGE {
        assert_eq!(decoded(&damaged(at, &with)).unwrap_err(), complaint);
    }
    let mut data = [0; 256];
    for len in 0..12 {
        assert!(stored::decode(&vec![1; len], &mut data[..len]).is_err());
    }
    assert!(stored::decode(&text_block(), &mut data[..255]).is_err());
}

#[test]
fn each_length_of_a_stream_is_checked() {
    let complaint = |stream: &[u8], len: usize| {
        let defect = stream::decompress(stream, &mut vec![0; len]).unwrap_err();
        defect.to_string()
    };
    let none = complaint(&[], 4);
    assert_eq!(none, "what the stream lacks of the data is 4: none");
    let raw = complaint(&bytes("05000080 0102030405"), 4);
    assert_eq!(
        raw,
        "the size of a raw block is 5: 4 bytes of data are left"
    );
    let whole = bytes(TEXT_STREAM);
    let is_no_lz4 = "the place of an LZ4 block is 0: ";
    assert!(complaint(&whole, 255).starts_with(is_no_lz4));
    for len in 0..whole.len() {
        complaint(&whole[..len], 256);
        // The same, but with a size that says so.
        if len > 4 {
            let mut shorter = whole[..len].to_vec();
            shorter[0] = (len - 4) as u8;
            complaint(&shorter, 256);
        }
    }
}

#[test]
fn block_lengths() {
    for bytes in [128, 256, 4096, 12 * 128, 4 << 20] {
        assert!(stored::is_block_length(bytes));
    }
    for bytes in [0, 64, 127, 192, (4 << 20) + 128, 1 << 31, u32::MAX] {
        assert!(!stored::is_block_length(bytes));
    }
}

#[test]
fn rows_of_the_matrices() {
    assert_eq!(MatrixType::Vandermonde.row(), [1, 1]);
    // The last row of ISA-L's gf_gen_cauchy1_matrix for three rows and two columns.
    assert_eq!(MatrixType::Cauchy.row(), [0x8e, 0xf4]);
    let parity = |kind| {
        let mut parity = [0; 4];
        Matrix::new(kind).create(&[1, 0, 0x53, 0xff], &[0, 1, 0xca, 0xff], &mut parity);
        parity
    };
    assert_eq!(parity(MatrixType::Vandermonde), [1, 1, 0x99, 0]);
    assert_eq!(parity(MatrixType::Cauchy)[..2], [0x8e, 0xf4]);
    // Twice the half of a number, and three times its third, are the number.
    for byte in 0..=255 {
        let mut half = [0; 2];
        let matrix = Matrix::new(MatrixType::Cauchy);
        matrix.create(&[byte, 0], &[0, byte], &mut half);
        let twice = (half[0] << 1) ^ if half[0] & 0x80 != 0 { 0x1d } else { 0 };
        let thrice = half[1] ^ (half[1] << 1) ^ if half[1] & 0x80 != 0 { 0x1d } else { 0 };
        assert_eq!([twice, thrice], [byte; 2]);
    }
}

/// The head of a file of three half blocks of 2 KiB.
const SBC: &str = "deadf00d1337fade 00000800 00000003";

#[test]
fn the_head_of_an_sbc_file() {
    let geometry = Geometry {
        half_bytes: 2048,
        blocks: 3,
    };
    assert_eq!(geometry.encode().unwrap().to_vec(), bytes(SBC));
    assert_eq!(geometry.content_bytes(), 6144);
    assert_eq!(geometry.block_bytes(), 4096);
    assert_eq!(Geometry::decode(&bytes(SBC), 6160), Ok(Some(geometry)));
    for len in [0, 16, 6159, 6161, u64::MAX] {
        let defect = Geometry::decode(&bytes(SBC), len).unwrap_err();
        assert_eq!(defect.field(), "the length of the file");
    }
    for (head, field) in [
        (
            "deadf00d1337fade 00000000 00000003",
            "the length of a half block",
        ),
        (
            "deadf00d1337fade 00000820 00000003",
            "the length of a half block",
        ),
        (
            "deadf00d1337fade ffffffc0 00000003",
            "the length of a half block",
        ),
        (
            "deadf00d1337fade 00000800 00000000",
            "the length of the content",
        ),
        (
            "deadf00d1337fade 00000800 00100001",
            "the length of the content",
        ),
        (
            "deadf00d1337fade 00200000 ffffffff",
            "the length of the content",
        ),
    ] {
        assert_eq!(
            Geometry::decode(&bytes(head), 16).unwrap_err().field(),
            field
        );
    }
    for other in ["deadf00d1337fadf 00000800 00000003", "deadf00d1337fade", ""] {
        assert_eq!(Geometry::decode(&bytes(other), 6160), Ok(None));
    }
    // 2 GiB are the most.
    let most = Geometry {
        half_bytes: 2048,
        blocks: 1 << 20,
    };
    assert_eq!(most.content_bytes(), sbc::CONTENT_MAX_BYTES);
    let head = most.encode().unwrap();
    assert_eq!(Geometry::decode(&head, (2 << 30) + 16), Ok(Some(most)));
}

/// Data that can be compressed more or less.
fn data() -> impl Strategy<Value = Vec<u8>> {
    let piece = (prop::collection::vec(any::<u8>(), 1..40), 1..30_usize);
    (1..24_usize, prop::collection::vec(piece, 1..12)).prop_map(|(len, pieces)| {
        let repeated = pieces
            .iter()
            .flat_map(|(piece, times)| piece.repeat(*times));
        let all: Vec<u8> = repeated.collect();
        all.iter().copied().cycle().take(len * 128).collect()
    })
}

proptest! {
    #![proptest_config(few())]

    #[test]
    fn what_is_stored_is_read(data in data()) {
        if let Some((block, _)) = encoded(&data) {
            prop_assert_eq!(decoded(&block), Ok(data));
        }
    }

    #[test]
    fn a_damaged_block_is_an_error_or_data(
        data in data(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        if let Some((mut block, compressed)) = encoded(&data) {
            let at = at.index(block.len());
            let is_other = block[at] != byte;
            block[at] = byte;
            let read = decoded(&block);
            // There is no checksum: a byte of the stream may be another one, and only its data.
            let is_stream = (8..8 + compressed).contains(&at);
            prop_assert!(!is_other || is_stream || read.is_err());
        }
    }

    #[test]
    fn any_bytes_are_an_error_or_data(
        mut block in prop::collection::vec(any::<u8>(), 128..600),
        size in 0..600_u32,
    ) {
        let len = block.len() as u32;
        let _ = decoded(&block);
        block[..4].copy_from_slice(&len.to_be_bytes());
        block[4..8].copy_from_slice(&size.to_be_bytes());
        let _ = decoded(&block);
        let mut data = vec![0; 700];
        let _ = stream::decompress(&block, &mut data);
        block[..4].copy_from_slice(&(len - 4).to_le_bytes());
        let _ = stream::decompress(&block, &mut data);
    }

    #[test]
    fn each_half_is_recovered(
        first in prop::collection::vec(any::<u8>(), 64),
        second in prop::collection::vec(any::<u8>(), 64),
    ) {
        for kind in [MatrixType::Vandermonde, MatrixType::Cauchy] {
            let matrix = Matrix::new(kind);
            let (mut parity, mut half) = ([0; 64], [0; 64]);
            matrix.create(&first, &second, &mut parity);
            matrix.recover(Half::First, &second, &parity, &mut half);
            prop_assert_eq!(&half[..], &first[..]);
            matrix.recover(Half::Second, &first, &parity, &mut half);
            prop_assert_eq!(&half[..], &second[..]);
        }
    }

    #[test]
    fn any_head_is_none_an_error_or_fits(
        head in prop::collection::vec(any::<u8>(), 8),
        len in any::<u64>(),
    ) {
        let head = [&bytes("deadf00d1337fade")[..], &head].concat();
        if let Ok(Some(geometry)) = Geometry::decode(&head, len) {
            prop_assert_eq!(geometry.encode().unwrap().to_vec(), head);
            prop_assert_eq!(geometry.content_bytes() + 16, len);
        }
    }
}
