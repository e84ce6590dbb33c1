// SPDX-License-Identifier: GPL-2.0

//! The budget of memory that sessions may take together.

use proto::rtrs::{
    budget::{
        charge,
        client_bytes,
        connection_bytes,
        default_limit_mib,
        is_to_spare,
        path_bytes,
        session_bytes,
        LIMIT_MIB_MAX, //
    },
    chunk_policy::{
        ChunkPolicy,
        WRITE_COPY_MAX_MAX, //
    },
    geometry::Geometry,
    signal::{
        QueueLimits,
        QueueSizes, //
    }, //
};

/// A device without limits.
const ANY: QueueLimits = QueueLimits {
    work_requests: u32::MAX,
    completions: u32::MAX,
};

#[test]
fn the_default_is_a_quarter_of_the_memory() {
    assert_eq!(default_limit_mib(64 << 30), 16 << 10);
    assert_eq!(default_limit_mib(0), 1);
    assert_eq!(default_limit_mib(u64::MAX), LIMIT_MIB_MAX);
}

#[test]
fn nothing_is_granted_beyond_the_limit() {
    assert_eq!(charge(0, 1 << 20, 1), Some(1 << 20));
    assert_eq!(charge(1, 1 << 20, 1), None);
    assert_eq!(charge(2 << 20, 1, 1), None, "a limit that was lowered");
    assert_eq!(charge(u64::MAX, 1, 0), None, "no limit is not no end");
    assert_eq!(charge(1 << 60, 1 << 60, 0), Some(1 << 61));
}

#[test]
fn the_largest_session_does_not_overflow() {
    let largest = Geometry::new(1 << 15, 8192).unwrap();
    assert_eq!(session_bytes(&largest), 1 << 28);
    let none = path_bytes(&largest, ChunkPolicy::new(true, 0, 65536));
    assert!(none > 0);
    assert_eq!(
        path_bytes(&largest, ChunkPolicy::new(false, 4096, 65536)),
        none
    );
    let copied = path_bytes(&largest, ChunkPolicy::new(true, WRITE_COPY_MAX_MAX, 65536));
    assert_eq!(copied, none + (1 << 31));
    let most = QueueSizes {
        send: u32::MAX,
        recv: u32::MAX,
    };
    assert!(connection_bytes(&most) > u64::from(u32::MAX));
}

#[test]
fn a_client_counts_what_it_was_measured_to_take() {
    // Two processors, 512 requests: Documentation/benchmarks.md has 8.0 MiB.
    let measured = client_bytes(512, 2, &QueueSizes::client_io(512, ANY).unwrap());
    assert!((8 << 20..12 << 20).contains(&measured), "{measured}");
    let most = client_bytes(
        u16::MAX,
        u16::MAX,
        &QueueSizes::client_io(u16::MAX, ANY).unwrap(),
    );
    assert!(most > 1 << 40, "no overflow");
}

#[test]
fn a_sixteenth_of_the_memory_stays_free() {
    let total = 16 << 20;
    assert!(is_to_spare(1 << 20, 2 << 20, total));
    assert!(!is_to_spare((1 << 20) + 1, 2 << 20, total));
    assert!(!is_to_spare(3 << 20, 2 << 20, total));
    assert!(!is_to_spare(0, 0, total));
}
