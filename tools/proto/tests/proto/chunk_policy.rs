// SPDX-License-Identifier: GPL-2.0

//! The use of a chunk that carries a request.

use proto::rtrs::{
    chunk_policy::{
        ChunkPolicy,
        ChunkUse,
        WRITE_COPY_MAX_DEFAULT,
        WRITE_COPY_MAX_MAX, //
    },
    request::{
        ReadRequest,
        Request,
        WriteRequest, //
    }, //
};

const CHUNK: u32 = 128 << 10;

fn write(data_len: u32) -> Request {
    Request::Write(WriteRequest {
        data_len,
        usr_len: 20,
    })
}

fn read(data_len: u32) -> Request {
    Request::Read(ReadRequest {
        data_len,
        usr_len: 20,
        reply: None,
    })
}

#[test]
fn a_write_that_the_client_can_change_is_never_used_in_place() {
    for copy_max in [0, 1, 512, WRITE_COPY_MAX_DEFAULT, 5000, WRITE_COPY_MAX_MAX] {
        let policy = ChunkPolicy::new(true, copy_max, CHUNK);
        for len in [
            0,
            1,
            512,
            4095,
            4096,
            4097,
            5000,
            5001,
            65536,
            65537,
            u32::MAX,
        ] {
            let fits = copy_max != 0 && len <= copy_max;
            let wanted = if fits {
                ChunkUse::Copied
            } else {
                ChunkUse::Invalidated
            };
            assert_eq!(policy.of(&write(len)), wanted, "{copy_max} {len}");
            assert_eq!(policy.of(&read(len)), ChunkUse::InPlace);
            // There is memory for what is copied.
            assert!(!fits || len <= policy.copy_bytes(), "{copy_max} {len}");
        }
    }
}

#[test]
fn who_is_trusted_costs_no_copy_and_no_memory() {
    let policy = ChunkPolicy::new(false, WRITE_COPY_MAX_DEFAULT, CHUNK);
    for len in [0, 4096, 4097, u32::MAX] {
        assert_eq!(policy.of(&write(len)), ChunkUse::InPlace);
        assert_eq!(policy.of(&read(len)), ChunkUse::InPlace);
    }
    assert_eq!(policy.copy_bytes(), 0);
    assert_eq!(ChunkPolicy::new(true, 0, CHUNK).copy_bytes(), 0);
}

#[test]
fn memory_for_a_copy_is_whole_pages() {
    for copy_max in 1..=WRITE_COPY_MAX_MAX {
        let bytes = ChunkPolicy::new(true, copy_max, CHUNK).copy_bytes();
        assert!(bytes >= copy_max && bytes.is_power_of_two() && bytes % 4096 == 0);
        assert!(copy_max > 4096 || bytes == 4096);
    }
}

#[test]
fn no_copy_is_larger_than_its_chunk() {
    let policy = ChunkPolicy::new(true, WRITE_COPY_MAX_MAX, 8192);
    assert_eq!(policy.copy_bytes(), 8192);
    assert_eq!(policy.of(&write(8192)), ChunkUse::Copied);
    assert_eq!(policy.of(&write(8193)), ChunkUse::Invalidated);
}
