// SPDX-License-Identifier: GPL-2.0

//! The steps of requests on a log: how many there are, and what each costs.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    objects::Change,
    random::Random,
    rig::{
        id,
        on_log,
        OnLog,
        DEVICE_BYTES, //
    }, //
};
use crate::{
    bdev::BlockDevice,
    pages,
    proto::{
        answer::ReadHead,
        medium::Medium,
        message::Operation as Asked,
        span::Span, //
    }, //
};

/// The bytes of one operation.
const IO: u64 = 112 << 10;

fn begin(has_cache: bool) -> (Arc<BlockDevice>, OnLog, u32) {
    let device = BlockDevice::of_zeroes(4 * DEVICE_BYTES, has_cache).unwrap();
    let mut server = on_log(&device, true).unwrap();
    let (client, _) = server.attach(1).unwrap();
    (device, server, client)
}

/// Checks that what a restart has left to be cut is cut beside the write behind its end, which
/// waits for it.
#[test]
fn a_write_behind_the_end_of_a_cut_object_ends() {
    let (device, mut server, client) = begin(true);
    let mut random = Random::new(5);
    Change::Write(2, 0, vec![1; 4096]).send(&mut server, (client, 0), 1);
    for block in 0..100 {
        let copy = Change::Copy(2, (0, 4096), 1, block * 8192);
        copy.send(&mut server, (client, 0), block + 2);
        server.settle(&mut random);
    }
    Change::Truncate(1, 0).send(&mut server, (client, 1), 1);
    // The first ranges are cut, and this is written; the others are not.
    server.go_on(0);
    while server.end_io(&mut random) {
        server.take_in();
    }
    let mut server = on_log(&device, false).unwrap();
    let (client, _) = server.attach(1).unwrap();
    let write = Change::Write(1, 40_960, vec![2; 4096]);
    let number = write.send(&mut server, (client, 0), 500);
    assert_eq!(server.run(&mut random, number).errno, 0);
}

/// Blocks that are side by side on the device are read at once.
#[test]
fn a_get_is_one_read_of_the_device() {
    let (device, mut server, client) = begin(false);
    let mut random = Random::new(5);
    let put = server.write((client, 0), 1, (1, 0), &[1; IO as usize]);
    assert_eq!(server.run(&mut random, put).errno, 0);
    for (object, other) in [(2, 3), (2, 3)] {
        // Others were written meanwhile: the batch is in memory no more.
        let put = server.write((client, 0), object, (object, 0), &[2; 4096]);
        server.run(&mut random, put);
        let put = server.write((client, 1), other, (other, 0), &[3; 4096]);
        server.run(&mut random, put);
    }
    device.take_reads();
    let get = server.read((client, 0), 1, (0, IO));
    assert_eq!(server.run(&mut random, get).errno, 0);
    assert_eq!(device.take_reads(), 1);
    // Without its first block, and in the middle of others.
    let get = server.read((client, 0), 1, (5000, 50_000));
    assert_eq!(server.run(&mut random, get).errno, 0);
    assert_eq!(device.take_reads(), 1);
}

/// A write that waits for room is not copied out of its chunk before there is some: 64 of them are,
/// as eight programs with `put` have them in flight.
#[test]
fn a_write_that_waits_is_copied_once() {
    let (_device, mut server, client) = begin(false);
    let mut random = Random::new(5);
    for (chunk, at) in (0..64).map(|chunk| (chunk, [0, 77][chunk as usize % 2])) {
        let bytes = vec![1; IO as usize - 4096];
        server.write((client, chunk), 1, (chunk.into(), at), &bytes);
    }
    pages::take_copied_bytes();
    server.settle(&mut random);
    let answers = server.take_answers();
    assert!(answers.len() == 64 && answers.iter().all(|answer| answer.errno == 0));
    let copied = pages::take_copied_bytes();
    assert_eq!(copied, 64 * (IO - 4096));
}

/// A segment of which nothing can be read is followed by a pause: what is damaged is not read again
/// and again while nothing else can be done.
#[test]
fn a_damaged_segment_is_not_read_for_ever() {
    let device = BlockDevice::of_zeroes(DEVICE_BYTES, false).unwrap();
    let mut server = on_log(&device, true).unwrap();
    let (client, _) = server.attach(1).unwrap();
    let mut random = Random::new(5);
    let (layout, _) = server.engine.store.medium().reading();
    let (_, most) = server.engine.store.medium().room();
    // Nearly as much as there may be.
    let objects = most * 9 / 10 / (IO / 4096);
    for object in 0..objects {
        let put = server.write((client, 0), object + 1, (object, 0), &[1; IO as usize]);
        assert_eq!(server.run(&mut random, put).errno, 0);
    }
    for segment in 0..layout.parts().segments {
        for unit in 0..layout.segment_bytes() / 512 {
            device.flip((layout.segment(segment) + unit * 512) as usize, 1);
        }
    }
    for sequence in objects + 1..objects + 80 {
        server.write((client, 0), sequence, (0, 0), &[2; IO as usize]);
        server.take_in();
        for _ in 0..20 {
            server.go_on(0);
            server.collect_all();
            server.end_io(&mut random);
        }
    }
    assert!(server.pauses > 0, "something was to be collected");
}

/// A new log is made on a device of zeroes only, unless it is forced.
#[test]
fn a_device_with_a_file_system_stays_as_it_is() {
    // The marks of btrfs, of a partition table, and of an old array.
    for at in [0x1_0040, 0x1fe, DEVICE_BYTES - 4096] {
        let device = BlockDevice::of_zeroes(DEVICE_BYTES, false).unwrap();
        device.flip(at, 0);
        assert_eq!(on_log(&device, true).err(), Some(EEXIST), "a byte at {at}");
    }
}

/// A store that is deleted waits for no room, which may never be there: its device ends nothing.
#[test]
fn a_store_that_is_deleted_waits_for_no_room() {
    const ENODEV: i32 = 19;
    let (_device, mut server, client) = begin(false);
    for chunk in 0..20 {
        server.write((client, chunk), 1, (chunk.into(), 0), &[1; IO as usize]);
    }
    while server.go_on(0) {}
    assert_eq!(server.take_answers().len(), 0);
    server.engine.end_waiting();
    while server.go_on(0) {}
    let answers = server.take_answers();
    // Four are in flight, and one is behind them.
    assert_eq!(answers.len(), 15);
    assert!(answers.iter().all(|answer| answer.errno == ENODEV));
    server.settle(&mut Random::new(1));
    assert!(server.engine.is_idle());
}

/// An operation of which a step was carried out is not said to be none of a store that is deleted:
/// a client would send it again, over what others have written since.
#[test]
fn a_truncation_that_has_begun_is_done_when_its_store_is_deleted() {
    let (device, mut server, client) = begin(false);
    let mut random = Random::new(5);
    Change::Write(2, 0, vec![1; 4096]).send(&mut server, (client, 0), 1);
    for block in 0..500 {
        let copy = Change::Copy(2, (0, 4096), 1, block * 8192);
        copy.send(&mut server, (client, 0), block + 2);
        server.settle(&mut random);
    }
    server.take_answers();
    let cut = Change::Truncate(1, 0).send(&mut server, (client, 1), 1);
    for chunk in 2..30 {
        server.write((client, chunk), 1, (chunk.into(), 0), &[1; IO as usize]);
    }
    while server.go_on(0) {}
    server.engine.end_waiting();
    server.settle(&mut random);
    let answers = server.take_answers();
    let [done, others] = [true, false].map(|is_cut| {
        let of = answers.iter().filter(|one| (one.number == cut) == is_cut);
        of.filter(|answer| answer.errno == 0).count()
    });
    assert!(done == 1 && others < 28, "{done} {others}");
    // The log has it.
    let mut server = on_log(&device, false).unwrap();
    let (client, _) = server.attach(1).unwrap();
    let read = server.read((client, 0), 1, (0, 4096));
    let answer = server.run(&mut random, read);
    let span = Span::new(0, 4096).unwrap();
    let head = ReadHead::parse(&answer.data, &span).unwrap();
    assert_eq!((answer.errno, head.size, head.bytes), (0, 0, 0));
}

/// A lease of which the client is told that it has failed is none: nobody would end it, and others
/// would be kept out.
#[test]
fn a_lease_that_has_failed_is_none() {
    let (device, mut server, client) = begin(false);
    let mut random = Random::new(5);
    let put = server.write((client, 0), 1, (1, 0), &[1; 4096]);
    assert_eq!(server.run(&mut random, put).errno, 0);
    // This is in flight, and the answer of the lease waits for it.
    let waits = server.write((client, 0), 2, (2, 0), &[2; 4096]);
    while server.go_on(0) {}
    let asked = Asked::Lease {
        object: id(1),
        span: Span::ALL,
        is_writer: true,
    };
    let lease = server.send((client, 1), (1, 0), asked, &[]);
    while server.go_on(0) {}
    assert!(server.take_answers().is_empty());
    assert_eq!(server.leases(client), 1);
    while let Some(io) = device.end_one(|_| 0) {
        server.engine.io_ended(io, false);
    }
    while server.go_on(0) {}
    let answers = server.take_answers();
    let errno_of = |number| {
        answers
            .iter()
            .find(|one| one.number == number)
            .map(|one| one.errno)
    };
    assert_eq!([waits, lease].map(errno_of), [Some(5); 2]);
    assert_eq!(server.leases(client), 0);
    // What is stored is read by others.
    let (other, _) = server.attach(2).unwrap();
    let read = server.read((other, 0), 1, (0, 4096));
    assert_eq!(server.run(&mut random, read).errno, 0);
}
