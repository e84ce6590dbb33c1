// SPDX-License-Identifier: GPL-2.0

//! Targets of the chunk format and of the CRC32/UMR sample. Their checksum is a weak one, so that
//! bytes of chance get past it.

use chunk4k::{
    extended,
    strict,
    Checksums,
    Chunk,
    CHUNK_LEN, //
};
use proto::crc32_umr::{
    connect::{
        Hello,
        Welcome, //
    },
    request::{
        Encoded,
        Operation,
        Request,
        PLAIN_LEN, //
    },
    response,
    view::pieces,
};
use zerocopy::IntoBytes;

use super::number;

/// Checksums that are the same for all bytes.
struct Weak;

impl Checksums for Weak {
    fn crc32(_before: u32, _bytes: &[u8]) -> u32 {
        0
    }

    fn crc32c(_before: u32, _bytes: &[u8]) -> u32 {
        0
    }
}

/// A reader of a medium.
pub(crate) fn chunk4k(bytes: &[u8]) {
    let mut chunk: Chunk = [0; CHUNK_LEN];
    // The end of a chunk is the interesting part.
    for (to, from) in chunk.iter_mut().rev().zip(bytes) {
        *to = *from;
    }
    chunk[4092..].fill(0);
    if let Ok(metadata) = strict::decode::<Weak>(&chunk) {
        let mut again = chunk;
        strict::encode::<Weak>(&mut again, &metadata);
        assert!(again == chunk);
        assert!(metadata.of(metadata.id()).is_ok());
        let is_unreserved = metadata.reserved().iter().all(|byte| *byte == 0);
        assert_eq!(metadata.unreserved().is_ok(), is_unreserved);
    }
    chunk[4084..4088].fill(0);
    match extended::decode::<Weak>(&chunk) {
        Ok((metadata, used)) => {
            assert_eq!(used.len(), usize::from(metadata.data_len_bytes));
            let mut again = chunk;
            extended::encode::<Weak>(&mut again, &metadata).unwrap();
            // All but data that is not used, which becomes 0.
            assert!(again[..used.len()] == *used && again[4048..] == chunk[4048..]);
        }
        Err(defect) => assert!(!defect.to_string().is_empty() && !defect.name().is_empty()),
    }
}

/// A target reads a request, an initiator its answers.
pub(crate) fn crc32_umr(bytes: &[u8]) {
    let (len, rest) = number::<4>(bytes);
    let (head, rest) = number(rest);
    let (mut tail, rest) = number::<28>(rest);
    tail[24..].fill(0);
    let size = u16::from_le_bytes([head[8], head[9]]);
    let lens = [
        u32::from_le_bytes(len),
        PLAIN_LEN,
        PLAIN_LEN + u32::from(size),
    ];
    for len_bytes in lens {
        match Request::parse::<Weak>(len_bytes, &head, &tail) {
            Ok(request) => {
                assert_eq!(request.encode::<Weak>(), Encoded { head, rest: tail });
                let is_inline = matches!(request.operation(), Operation::WriteInline { .. });
                let payload = u32::from(is_inline) * u32::from(request.size());
                assert_eq!(len_bytes, PLAIN_LEN + payload);
                for chunks in [0, 1, 1 << 20, u64::MAX] {
                    let blocks = request.blocks(chunks).unwrap_or(0..0);
                    let count = pieces(request.size()).count() as u64;
                    assert!(blocks.is_empty() || blocks.end - blocks.start == count);
                    assert!(blocks.end <= chunks);
                }
            }
            Err(violation) => assert!(!violation.to_string().is_empty()),
        }
    }
    let (answer, _) = number(rest);
    for id in [0, u64::from_le_bytes(number(rest).0)] {
        if let Ok(status) = response::parse(9, &answer, id) {
            assert_eq!(response::encode(id, status), answer);
        }
    }
    let _ = Hello::check(bytes);
    if let Ok(welcome) = Welcome::parse(bytes) {
        assert!(welcome.depth() != 0 && welcome.chunks() != 0);
        assert!(bytes.starts_with(welcome.as_bytes()));
    }
}
