// SPDX-License-Identifier: GPL-2.0

//! Chunk ids and offsets in an immediate, for all geometries that a server can have.

use proto::rtrs::{
    geometry::{
        BadPayload,
        Geometry,
        GeometryError, //
    },
    params::{
        self,
        ParamError, //
    },
};

/// Returns `ilog2(n - 1) + 1` for n > 1, in the plainest words.
fn bits(n: u64) -> u32 {
    (0..64).find(|b| (1u64 << b) >= n).unwrap()
}

/// Numbers at which something could go wrong below `end`.
fn corners(end: u32) -> impl Iterator<Item = u32> {
    [0, 1, end / 2, end.saturating_sub(2), end - 1]
        .into_iter()
        .filter(move |n| *n < end)
}

#[test]
fn every_queue_depth_takes_apart_what_it_put_together() {
    for depth in 1..=65535u32 {
        let id_bits = bits(u64::from(depth));
        let size = 1u32 << (28 - id_bits);
        let g = Geometry::new(depth, size).unwrap();
        assert_eq!(g.mem_bits(), 28 - id_bits, "queue depth {depth}");
        for id in corners(depth) {
            for offset in corners(size) {
                let payload = g.join(id as u16, offset).unwrap();
                assert!(payload < 1 << 28);
                assert_eq!(payload, id * (1 << g.mem_bits()) + offset);
                assert_eq!(g.split(payload), Ok((id as u16, offset)));
            }
        }
        let more = Geometry::new(depth, size + 1);
        assert_eq!(more, Err(GeometryError::ImmediateBits));
    }
}

#[test]
fn small_geometries_know_every_payload() {
    for depth in 1..=17u32 {
        for size in [1u32, 2, 3, 7, 8, 8192] {
            let g = Geometry::new(depth, size).unwrap();
            for id in 0..depth + 3 {
                for offset in (0..size + 3).step_by(if size > 8 { 1021 } else { 1 }) {
                    let payload = id.wrapping_shl(g.mem_bits()) | offset;
                    if payload >> 28 != 0 || (offset >> g.mem_bits()) != 0 {
                        continue;
                    }
                    let expected = if id >= depth {
                        Err(BadPayload::ChunkId(id))
                    } else if offset >= size {
                        Err(BadPayload::Offset(offset))
                    } else {
                        Ok((id as u16, offset))
                    };
                    assert_eq!(g.split(payload), expected);
                    let joined = (id < depth && offset < size).then_some(payload);
                    assert_eq!(g.join(id as u16, offset), joined);
                }
            }
        }
    }
}

#[test]
fn d22_a_queue_depth_of_one_needs_no_bits_for_the_chunk_id() {
    let g = Geometry::new(1, 128 << 10).unwrap();
    assert_eq!(g.mem_bits(), 28);
    assert_eq!(g.split(0x1020), Ok((0, 0x1020)));
    assert_eq!(g.join(0, 0x1020), Some(0x1020));
    assert_eq!(g.split(128 << 10), Err(BadPayload::Offset(128 << 10)));
    assert_eq!(g.chunk_id(0), Some(0));
    assert_eq!(g.chunk_id(1), None);
}

#[test]
fn a_bad_payload_says_what_is_wrong_with_it() {
    let g = Geometry::new(512, 100 << 10).unwrap();
    let words = |payload| g.split(payload).unwrap_err().to_string();
    assert_eq!(words(600 << g.mem_bits()), "there is no chunk 600");
    assert_eq!(words(100 << 10), "offset 102400 is beyond a chunk's end");
}

#[test]
fn nothing_and_too_much_are_no_geometry() {
    assert_eq!(Geometry::new(0, 8192), Err(GeometryError::QueueDepth));
    assert_eq!(Geometry::new(65536, 1), Err(GeometryError::QueueDepth));
    assert_eq!(Geometry::new(1, 0), Err(GeometryError::ChunkSize));
    assert_eq!(
        Geometry::new(u32::MAX, u32::MAX),
        Err(GeometryError::QueueDepth)
    );
    assert_eq!(
        Geometry::new(1, u32::MAX),
        Err(GeometryError::ImmediateBits)
    );
}

#[test]
fn a_response_for_a_chunk_that_is_not_there_is_seen() {
    let g = Geometry::new(512, 128 << 10).unwrap();
    assert_eq!(g.chunk_id(511), Some(511));
    for id in [512, 0x7ffff, u32::MAX] {
        assert_eq!(g.chunk_id(id), None);
    }
}

#[test]
fn module_parameters_are_checked_as_in_c() {
    let ok = params::check(
        params::MAX_CHUNK_SIZE_DEFAULT,
        params::SESS_QUEUE_DEPTH_DEFAULT,
    )
    .unwrap();
    assert_eq!((ok.queue_depth(), ok.chunk_size()), (512, 131_072));
    for depth in [0, -1, 65536, i32::MAX, i32::MIN] {
        assert_eq!(
            params::check(131_072, depth),
            Err(ParamError::SessQueueDepth(depth))
        );
    }
    for size in [0, -8192, 4096, 8191, 8193, 12288, i32::MAX, i32::MIN] {
        assert_eq!(
            params::check(size, 512),
            Err(ParamError::MaxChunkSize(size))
        );
    }
    assert!(params::check(8192, 32768).is_ok());
    assert_eq!(params::check(8192, 32769), Err(ParamError::ImmediateBits));
    assert_eq!(params::check(8192, 65535), Err(ParamError::ImmediateBits));
    assert_eq!(params::check(1 << 28, 2), Err(ParamError::ImmediateBits));
    assert!(params::check(1 << 28, 1).is_ok());
    assert!(params::check(1 << 27, 2).is_ok());
    assert_eq!(ParamError::ImmediateBits.errno().get(), 22);
}

#[test]
fn every_pair_of_module_parameters_agrees_with_the_rule() {
    for depth in 0..=65537 {
        for size_bits in 12..=28 {
            let legal = (1..=65535).contains(&depth)
                && size_bits >= 13
                && bits(depth as u64) + size_bits <= 28;
            assert_eq!(params::check(1 << size_bits, depth).is_ok(), legal);
        }
    }
}

#[test]
fn a_listener_may_have_fewer_chunks_and_not_more() {
    let all = Geometry::new(512, 128 << 10).unwrap();
    let fewer = all.with_depth_at_most(64).unwrap();
    assert_eq!(Geometry::new(64, 128 << 10), Ok(fewer));
    assert_eq!(all.with_depth_at_most(512), Some(all));
    assert_eq!(all.with_depth_at_most(u16::MAX), Some(all));
    assert_eq!(all.with_depth_at_most(0), None);
}
