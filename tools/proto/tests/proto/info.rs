// SPDX-License-Identifier: GPL-2.0

//! Session names, and the chunks that a server hands out.

use ferro_proto::errno::Errno;
use proptest::prelude::*;
use proto::rtrs::{
    geometry::Geometry,
    info::{
        check_name,
        encode,
        response_len,
        Chunks,
        InfoError,
        NameError, //
    },
    wire::{
        Descriptor,
        InfoRequest,
        InfoResponse, //
    },
};
use zerocopy::IntoBytes;

const CHUNK: u32 = 8192;

fn geometry(depth: u32) -> Geometry {
    Geometry::new(depth, CHUNK).unwrap()
}

fn response(descriptors: &[Descriptor]) -> Vec<u8> {
    let mut bytes = vec![0xee; response_len(descriptors.len() as u16)];
    assert_eq!(
        encode(&mut bytes, descriptors.iter().copied()),
        Some(bytes.len())
    );
    bytes
}

fn error(descriptors: &[Descriptor], depth: u32) -> Option<InfoError> {
    Chunks::parse(&response(descriptors), &geometry(depth)).err()
}

#[test]
fn d10_a_name_without_an_end_is_refused() {
    let mut request = InfoRequest::new(b"s").unwrap();
    request.pathname = [b'x'; 255];
    assert_eq!(request.name(), Err(NameError::TooLong));
    request.pathname[254] = 0;
    assert_eq!(request.name().map(<[u8]>::len), Ok(254));
}

#[test]
fn names_with_a_slash_or_a_relative_part_are_refused_on_either_side() {
    for name in [
        &b"a/b"[..],
        b"a..b",
        b".a",
        b"a..",
        b".",
        b"/",
        b"..",
        b"a\0b",
        b"a\nb",
        b"\x7f",
    ] {
        assert!(matches!(check_name(name), Err(NameError::Forbidden(_))));
        assert!(InfoRequest::new(name).is_err());
        let mut request = InfoRequest::new(b"s").unwrap();
        request.pathname[..name.len()].copy_from_slice(name);
        let read = request.name();
        assert!(name.contains(&0) || matches!(read, Err(NameError::Forbidden(_))));
    }
    for name in [&b"node1.example.com"[..], b"10.0.0.1", b"a.", b"fd00::1"] {
        assert_eq!(check_name(name), Ok(()));
        assert_eq!(InfoRequest::new(name).unwrap().name(), Ok(name));
    }
    assert_eq!(check_name(b""), Err(NameError::Empty));
    assert_eq!(check_name(&[b'x'; 255]), Err(NameError::TooLong));
    assert_eq!(check_name(&[b'x'; 254]), Ok(()));
}

#[test]
fn an_info_request_is_whole_and_of_its_type() {
    let request = InfoRequest::new(b"s").unwrap();
    for len in 0..272 {
        let short = InfoRequest::parse(&request.as_bytes()[..len]);
        assert_eq!(short.unwrap_err(), NameError::Truncated);
    }
    let mut other = request;
    other.kind = 1.into();
    assert_eq!(
        InfoRequest::parse(other.as_bytes()),
        Err(NameError::Kind(1))
    );
}

#[test]
fn what_stands_behind_the_name_is_let_be() {
    let mut request = InfoRequest::new(b"s").unwrap();
    request.pathname[2..].fill(b'/');
    assert_eq!(request.name(), Ok(&b"s"[..]));
}

#[test]
fn one_descriptor_for_many_chunks_is_taken_apart() {
    // always_invalidate=N: a memory region covers many chunks.
    let bytes = response(&[
        Descriptor::new(0x10_0000, 5, 4 * CHUNK),
        Descriptor::new(0x90_0000, 6, 4 * CHUNK),
    ]);
    let chunks: Vec<_> = Chunks::parse(&bytes, &geometry(8))
        .unwrap()
        .iter()
        .collect();
    let size = u64::from(CHUNK);
    for (i, chunk) in chunks.iter().enumerate() {
        let (base, rkey) = if i < 4 {
            (0x10_0000, 5)
        } else {
            (0x90_0000, 6)
        };
        assert_eq!(
            (chunk.addr, chunk.rkey),
            (base + (i as u64 % 4) * size, rkey)
        );
    }
    assert_eq!(chunks.len(), 8);
}

#[test]
fn descriptors_that_do_not_cover_the_chunks_are_refused() {
    let d = |chunks: u32| Descriptor::new(0x1000, 5, chunks * CHUNK);
    assert_eq!(error(&[d(1); 4], 4), None);
    assert_eq!(error(&[d(1), d(1)], 4), Some(InfoError::Coverage));
    assert_eq!(error(&[d(2), d(3)], 4), Some(InfoError::Coverage));
    assert_eq!(error(&[d(1); 3], 4), Some(InfoError::DescriptorCount(3)));
    assert_eq!(error(&[d(1); 5], 4), Some(InfoError::DescriptorCount(5)));
    assert_eq!(error(&[], 4), Some(InfoError::DescriptorCount(0)));
    assert_eq!(error(&[d(3), d(1)], 4), None);
}

#[test]
fn a_descriptor_that_is_no_whole_chunks_is_refused() {
    for len in [0, 1, CHUNK - 1, CHUNK + 1, u32::MAX] {
        let d = Descriptor::new(0x1000, 5, len);
        assert_eq!(error(&[d], 1), Some(InfoError::DescriptorLength(len)));
    }
}

#[test]
fn a_descriptor_that_wraps_round_is_refused() {
    let d = |addr| Descriptor::new(addr, 5, CHUNK);
    let last = u64::MAX - u64::from(CHUNK);
    assert_eq!(error(&[d(last)], 1), None);
    assert_eq!(
        error(&[d(last + 1)], 1),
        Some(InfoError::DescriptorLength(CHUNK))
    );
}

#[test]
fn a_response_that_ends_early_is_refused() {
    let bytes = response(&[Descriptor::new(0x1000, 5, CHUNK); 4]);
    for len in 0..bytes.len() {
        let parsed = Chunks::parse(&bytes[..len], &geometry(4));
        assert_eq!(parsed.err(), Some(InfoError::Truncated));
    }
    let mut other = bytes;
    other[0] = 0;
    let parsed = Chunks::parse(&other, &geometry(4));
    assert_eq!(parsed.err(), Some(InfoError::Kind(0)));
}

#[test]
fn d22_a_session_of_one_chunk_is_handed_out() {
    let one = [Descriptor::new(0x1000, 5, CHUNK)];
    assert_eq!(error(&one, 1), None);
    let bytes = response(&one);
    let chunks: Vec<_> = Chunks::parse(&bytes, &geometry(1))
        .unwrap()
        .iter()
        .collect();
    assert_eq!(chunks.len(), 1);
}

#[test]
fn a_buffer_too_small_for_the_response_is_not_written_past() {
    let one = [Descriptor::new(0x1000, 5, CHUNK); 3];
    for len in 0..response_len(3) {
        assert_eq!(encode(&mut vec![0; len], one.iter().copied()), None);
    }
    let many = vec![one[0]; 65536];
    let mut bytes = vec![0; 8 + 16 * 65536];
    assert_eq!(encode(&mut bytes, many.iter().copied()), None);
}

#[test]
fn the_header_is_all_ours() {
    assert_eq!(InfoResponse::new(512).as_bytes(), [1, 0, 0, 2, 0, 0, 0, 0]);
}

proptest! {
    #[test]
    fn names_survive_the_wire(name in prop::collection::vec(any::<u8>(), 0..300)) {
        match InfoRequest::new(&name) {
            Ok(request) => {
                let read = InfoRequest::parse(request.as_bytes()).unwrap();
                prop_assert_eq!(read.name(), Ok(&name[..]));
            }
            Err(e) => {
                prop_assert!(!e.to_string().is_empty());
                let bad = |c: &u8| matches!(c, b'/' | b'.' | 0..=31 | 127);
                prop_assert!(name.is_empty() || name.len() > 254 || name.iter().any(bad));
            }
        }
    }

    #[test]
    fn chunks_survive_the_wire(runs in prop::collection::vec((any::<u32>(), 1..8u32), 1..20)) {
        let descriptors: Vec<_> = runs
            .iter()
            .map(|(key, n)| Descriptor::new(u64::from(*key) << 20, *key, n * CHUNK))
            .collect();
        let depth: u32 = runs.iter().map(|(_, n)| n).sum();
        let bytes = response(&descriptors);
        let parsed = Chunks::parse(&bytes, &geometry(depth));
        prop_assert_eq!(parsed.is_ok(), depth as usize % runs.len() == 0);
        if let Ok(chunks) = parsed {
            let expected: Vec<_> = runs
                .iter()
                .flat_map(|(key, n)| (0..*n).map(move |i| {
                    ((u64::from(*key) << 20) + u64::from(i * CHUNK), *key)
                }))
                .collect();
            let found: Vec<_> = chunks.iter().map(|c| (c.addr, c.rkey)).collect();
            prop_assert_eq!(found, expected);
        }
    }
}

#[test]
fn a_session_is_refused_with_a_number() {
    for errno in [Errno::EPERM, Errno::EBUSY, Errno::EINVAL, Errno::ENOMEM] {
        let response = InfoResponse::refuse(errno);
        let parsed = Chunks::parse(response.as_bytes(), &geometry(8));
        assert_eq!(parsed.err(), Some(InfoError::Refused(errno)));
    }
    // What a C client sees, and what the C driver's reserved bytes mean.
    assert_eq!(
        InfoResponse::refuse(Errno::EPERM).as_bytes(),
        [1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]
    );
    assert_eq!(error(&[], 8), Some(InfoError::DescriptorCount(0)));
}
