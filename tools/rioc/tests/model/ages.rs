// SPDX-License-Identifier: GPL-2.0

//! Eviction by age: what is used again and again stays beside a scan.

use crate::{
    requests::Ask,
    serving::in_memory,
    world::id, //
};

const HOT: u64 = 8;

/// Objects that a scan writes, and reads once, go before those that are read all the time.
#[test]
fn a_scan_evicts_no_object_that_is_hot() {
    let mut rig = in_memory(300, 40, 1);
    rig.store.evict_objects();
    for object in 0..HOT + 400 {
        let write = rig.request(0, Ask::Write(object, 0, 4096, true), 0);
        let write = rig.send(write).unwrap();
        rig.step(write);
        rig.reap_one();
        assert_eq!(rig.answer_of(write).errno, 0);
        for read in [object, object % HOT, (object + 3) % HOT] {
            if rig.store.index().stat(id(read)).is_ok() {
                rig.begin_read(read, 0, 4096);
                rig.end_read(0);
            }
        }
    }
    let hot = (0..HOT).filter(|object| rig.store.index().stat(id(*object)).is_ok());
    assert_eq!(hot.count(), HOT as usize);
}

/// Blocks that are in files are dropped alike: a scan fetches each of its own once, and none of
/// those that are read all the time.
#[test]
fn a_scan_drops_no_block_that_is_hot() {
    let mut rig = in_memory(3000, 40, 1);
    rig.back();
    let objects = HOT + 400;
    for object in 0..objects {
        assert_eq!(rig.errno_of(Ask::Write(object, 0, 4096, true)), 0);
        assert_eq!(rig.errno_of(Ask::Flush(object)), 0);
    }
    let mut read = |object| {
        let before = rig.filed.fetched;
        assert_eq!(rig.errno_of(Ask::Read(object, 0, 4096)), 0);
        rig.end_read(0);
        rig.filed.fetched - before
    };
    for object in (0..HOT).chain(0..HOT) {
        read(object);
    }
    let (mut hot, mut scanned) = (0, 0);
    for object in HOT..objects {
        scanned += read(object);
        hot += read(object % HOT);
    }
    assert_eq!(hot, 0, "fetched again");
    assert!(scanned > 350, "{scanned}");
}

/// A write is not refused for what is read all the time: that goes after some rounds.
#[test]
fn readers_keep_no_memory_for_ever() {
    for is_backed in [false, true] {
        let mut rig = in_memory(20_000, 40, 2);
        match is_backed {
            true => rig.back(),
            false => rig.store.evict_objects(),
        }
        for object in 0..HOT {
            assert_eq!(rig.errno_of(Ask::Write(object, 0, 5 * 4096, true)), 0);
            if is_backed {
                assert_eq!(rig.errno_of(Ask::Flush(object)), 0);
            }
            for _ in 0..4 {
                assert_eq!(rig.errno_of(Ask::Read(object, 0, 5 * 4096)), 0);
                rig.end_read(0);
            }
        }
        let write = rig.request(1, Ask::Write(HOT, 0, 20 * 4096, true), 0);
        let write = rig.send(write).unwrap();
        let mut steps = 0;
        let errno = loop {
            rig.step(write);
            steps += 1;
            assert!(steps < 1000);
            if let Some((_, outcome)) = rig.answer().first() {
                break outcome.errno;
            }
            for object in 0..HOT {
                if rig.store.index().stat(id(object)).is_ok() {
                    assert_eq!(rig.errno_of(Ask::Read(object, 0, 5 * 4096)), 0);
                    rig.end_read(0);
                }
            }
            let _ = rig.store.reap((&mut rig.begun, &crate::disk::Crc));
        };
        assert_eq!(errno, 0, "after {steps} steps, with files: {is_backed}");
    }
}
