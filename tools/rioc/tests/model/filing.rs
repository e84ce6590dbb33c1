// SPDX-License-Identifier: GPL-2.0

//! Stores in memory whose objects have files: they hold more than the memory, give what was
//! written, and after a crash what was flushed.

use ferro_proto::errno::Errno;
use rioc::proto::{
    medium::{
        Medium,
        Ram, //
    },
    span::{
        Span,
        BLOCK_BYTES, //
    },
};

use crate::{
    crash,
    requests::Ask,
    rig::{
        Rig,
        CLIENTS, //
    },
    serving::{
        in_memory,
        Heap, //
    },
    world::id, //
};

type OnFiles = Rig<Ram<Heap>>;

const BLOCK: usize = BLOCK_BYTES as usize;

/// Blocks of memory: objects have up to 18 blocks each, and there are three of them.
const BLOCKS: [u64; 3] = [40, 50, 100];

impl OnFiles {
    /// A store of so many blocks whose objects have files.
    fn with_files(slots: usize, blocks: u64, seed: u64) -> Self {
        let mut rig = in_memory(slots, blocks, seed);
        rig.back();
        rig
    }

    /// The server fails, with the machine or alone, or ends as it should; it begins again.
    fn restart(&mut self, has_ended: bool) {
        let blocks = self.store.medium().room().1;
        self.begin_again(Ram::new(Heap::default(), blocks), has_ended);
    }

    /// Reads all objects as a client does.
    fn check_files(&mut self) {
        self.filed.failing = None;
        self.drain_files();
        for (object, bytes) in self.objects.clone() {
            let size = self.store.index().stat(object).unwrap().size;
            assert_eq!(size, bytes.len() as u64);
            for (at, part) in (0..).zip(bytes.chunks(20 * BLOCK)) {
                let from = at * 20 * BLOCK_BYTES;
                let ask = Ask::Read(object.low, from, part.len() as u64);
                let request = self.request(0, ask, 0);
                self.send(request).unwrap();
                self.drain_files();
            }
        }
        let usage = *self.store.index().usage();
        assert_eq!(usage.blocks, self.store.medium().room().0);
        let slots = self.store.index().slots();
        let ranges = (0..slots.count()).filter_map(|slot| slots.range(slot));
        let all: u64 = ranges.map(|range| u64::from(range.blocks)).sum();
        assert_eq!(usage.dirty + usage.clean, all);
    }
}

fn event(rig: &mut OnFiles, blocks: usize) {
    match rig.random.below(16) {
        0..4 => {
            let client = rig.random.below(CLIENTS);
            if rig.is_idle(client) && rig.in_flight() < 6 {
                let object = rig.random.below(3) as u64;
                let ask = match rig.random.below(8) {
                    0 => Ask::Flush(object),
                    1 | 2 => {
                        let at = rig.random.below(blocks) as u64 * 4096 + 100;
                        Ask::Read(object, at, [8192, 100, 40_000][rig.random.below(3)])
                    }
                    _ => crash::ask(&mut rig.random, blocks),
                };
                let request = rig.request(client, ask, 0);
                rig.send(request).unwrap();
            }
        }
        4..9 => rig.step_some(false),
        9..13 => drop(rig.file_step()),
        13 => drop(rig.answer()),
        14 => {
            let at = rig.random.below(4);
            rig.end_read(at);
            rig.reap_one();
        }
        _ if rig.random.below(20) == 0 => {
            rig.filed.failing = [None, Some(Errno::EIO), Some(Errno::ENOSPC)][rig.random.below(3)];
        }
        _ => (),
    }
}

fn live(seed: u64) -> OnFiles {
    let mut rig = Rig::with_files(700, BLOCKS[seed as usize % 3], seed + 3);
    for _ in 0..rig.random.below(5) + 1 {
        for _ in 0..rig.random.below(1500) {
            event(&mut rig, 15);
        }
        match rig.random.below(3) {
            0 => {
                rig.check_files();
                rig.store.end_files();
                rig.drain_files();
                rig.restart(true);
            }
            1 => rig.restart(false),
            _ => rig.check_files(),
        }
    }
    rig
}

/// Bytes are right whatever fails; what was flushed is there after a crash at any step; a store
/// that ends leaves all.
#[test]
fn what_was_flushed_is_there_after_every_crash() {
    let lives = std::env::var("RIOC_LIVES").map_or(300, |lives| lives.parse().unwrap());
    let (mut fetched, mut written, mut removed, mut failed) = (0, 0, 0, 0);
    let (mut flushed, mut done, mut full, mut crashes) = (0, 0, 0, 0);
    for seed in 0..lives {
        let life = std::panic::catch_unwind(|| live(seed));
        let rig = life.unwrap_or_else(|_| panic!("life {seed} has failed"));
        let filed = &rig.filed;
        (fetched, written) = (fetched + filed.fetched, written + filed.written);
        (removed, failed) = (removed + filed.removed, failed + filed.failed);
        (flushed, done) = (flushed + filed.flushed, done + rig.tally.done);
        (full, crashes) = (full + rig.tally.full, crashes + rig.tally.crashes);
    }
    println!(
        "{done} done, {full} full, {crashes} crashes, {flushed} flushed, {fetched} fetched, \
         {written} written, {removed} removed, {failed} failed"
    );
    assert!(crashes > lives && flushed > lives && fetched > lives && written > lives);
    assert!(removed > lives / 4 && failed > lives && done > 10 * lives);
}

const EFBIG: u16 = 27;
const ENOSPC: u16 = 28;
const EMSGSIZE: u16 = 90;
const EIO: u16 = 5;
const SLOTS: usize = 700;

impl OnFiles {
    /// Sends a request, and lets all end; returns its errno.
    pub(crate) fn errno_of(&mut self, ask: Ask) -> u16 {
        let request = self.request(0, ask, 0);
        let tag = self.send(request).unwrap();
        for _ in 0..20_000 {
            self.step(tag);
            self.file_step();
            self.reap_one();
            let answers = self.answer();
            if let Some((_, outcome)) = answers.iter().find(|(other, _)| *other == tag) {
                return outcome.errno;
            }
        }
        panic!("no answer to {ask:?}")
    }
}

/// Objects are more than the memory, and no write of them is refused: what is in files is dropped,
/// and comes back. What was flushed is there when the server begins again.
#[test]
fn objects_may_be_more_than_the_memory() {
    let mut rig = Rig::with_files(SLOTS, 40, 1);
    for block in 0..60 {
        for object in 0..4 {
            let write = Ask::Write(object, block * 4096, 4096, true);
            assert_eq!(rig.errno_of(write), 0);
        }
    }
    rig.check_files();
    let usage = *rig.store.index().usage();
    assert!(usage.blocks <= 40 && rig.filed.fetched > 8, "{usage:?}");
    let before = rig.objects.clone();
    for object in 0..4 {
        assert_eq!(rig.errno_of(Ask::Flush(object)), 0);
    }
    assert_eq!(rig.store.index().usage().dirty, 0);
    rig.restart(false);
    assert!(rig.objects == before);
    rig.check_files();
}

/// A flush says that a file has failed, and what it was to write is there; the next one writes it.
#[test]
fn a_flush_that_fails_says_so() {
    let mut rig = Rig::with_files(SLOTS, 40, 1);
    assert_eq!(rig.errno_of(Ask::Write(1, 100, 8192, true)), 0);
    rig.filed.failing = Some(Errno::EIO);
    let errnos = (0..20).map(|_| rig.errno_of(Ask::Flush(1)));
    assert!(errnos.filter(|errno| *errno == EIO).count() > 5);
    rig.filed.failing = None;
    rig.check_files();
    assert_eq!(rig.errno_of(Ask::Flush(1)), 0);
    assert_eq!(rig.store.failing(), None);
    rig.restart(false);
    assert_eq!(rig.objects.len(), 1);
}

/// A file system that is full is no room for what is written, and loses nothing: the first write
/// that finds room again goes on.
#[test]
fn a_full_file_system_is_no_room() {
    let mut rig = Rig::with_files(SLOTS, 40, 1);
    rig.filed.failing = Some(Errno::ENOSPC);
    let write = |block: u64| Ask::Write(1, block * 4096, 4096, true);
    let errnos: Vec<_> = (0..90).map(|block| rig.errno_of(write(block))).collect();
    let refused = errnos.iter().filter(|errno| **errno == ENOSPC).count();
    assert!(refused > 10 && errnos[..25].iter().all(|errno| *errno == 0));
    // Some steps of a file go well, as those of a disk with a bad place.
    assert_eq!(rig.store.failing(), Some(Errno::ENOSPC));
    rig.filed.failing = None;
    assert_eq!(rig.errno_of(write(100)), 0);
    rig.check_files();
}

/// All that is in files is read although all that may be dirty is, and files take no more.
#[test]
fn what_is_in_files_is_read_when_all_is_full() {
    let mut rig = Rig::with_files(SLOTS, 40, 1);
    for block in 0..60 {
        assert_eq!(rig.errno_of(Ask::Write(1, block * 4096, 4096, true)), 0);
    }
    assert_eq!(rig.errno_of(Ask::Flush(1)), 0);
    rig.filed.is_full = true;
    let write = |block: u64| Ask::Write(2, block * 4096, 4096, true);
    let errnos = (0..60).map(|block| rig.errno_of(write(block)));
    assert!(errnos.filter(|errno| *errno == ENOSPC).count() > 20);
    for block in 0..60 {
        assert_eq!(rig.errno_of(Ask::Read(1, block * 4096, 4096)), 0);
        rig.end_read(0);
    }
    rig.filed.is_full = false;
    rig.check_files();
}

/// A read of a file that fails is EIO, of this read alone.
#[test]
fn a_file_that_cannot_be_read_is_an_error() {
    let mut rig = Rig::with_files(SLOTS, 40, 1);
    for block in 0..60 {
        assert_eq!(rig.errno_of(Ask::Write(1, block * 4096, 4096, true)), 0);
    }
    assert_eq!(rig.errno_of(Ask::Flush(1)), 0);
    let missing = (0..60).find(|block| {
        let span = Span::new(block * 4096, 4096).unwrap();
        rig.store.index().missing(id(1), &span).is_some()
    });
    let at = missing.unwrap() * 4096;
    rig.filed.failing = Some(Errno::EIO);
    assert_eq!(rig.errno_of(Ask::Read(1, at, 100)), EIO);
    assert_eq!(rig.errno_of(Ask::Write(1, at, 100, true)), EIO);
    assert_eq!(
        rig.errno_of(Ask::Copy(1, at + 100, 4096, 2, 100, true)),
        EIO
    );
    assert_eq!(rig.errno_of(Ask::Snapshot(1, 2, true)), EIO);
    rig.filed.failing = None;
    assert_eq!(rig.errno_of(Ask::Read(1, at, 100)), 0);
    // A copy of more than an operation is halved by its client.
    assert_eq!(rig.errno_of(Ask::Copy(1, 0, 240_000, 2, 0, true)), EMSGSIZE);
    rig.check_files();
}

/// A deleted object does not come back when its name was flushed; its file goes without that, too.
#[test]
fn a_deleted_object_has_no_file() {
    let mut rig = Rig::with_files(SLOTS, 40, 1);
    for (ask, is_flushed) in [
        (Ask::Write(1, 0, 4096, true), true),
        (Ask::Create(2, true), true),
        (Ask::Write(3, 0, 4096, true), true),
    ] {
        assert_eq!(rig.errno_of(ask), 0);
        let (Ask::Write(object, ..) | Ask::Create(object, _)) = ask else {
            continue;
        };
        assert!(is_flushed && rig.errno_of(Ask::Flush(object)) == 0);
    }
    assert_eq!(rig.filed.files.synced.len(), 3);
    assert_eq!(rig.errno_of(Ask::Delete(1)), 0);
    assert_eq!(rig.errno_of(Ask::Flush(1)), 0);
    assert_eq!(rig.filed.files.synced.len(), 2);
    // An empty one that the server has found there has a file as well.
    rig.restart(false);
    assert_eq!(rig.errno_of(Ask::Delete(2)), 0);
    rig.drain_files();
    assert_eq!(rig.filed.files.synced.len(), 1);
    assert_eq!(rig.store.index().usage().objects, 1);
}

/// Bytes that are not those that their client has sent do not go to a file, which has no CRC.
#[test]
fn a_wrong_crc_is_refused_before_it_is_in_a_file() {
    let mut rig = Rig::with_files(SLOTS, 40, 1);
    let mut request = rig.request(0, Ask::Write(1, 0, 8192, true), 0);
    request.bytes[5000] ^= 1;
    let tag = rig.send(request).unwrap();
    assert_eq!(rig.answer_of(tag).errno, EIO);
    assert!(rig.objects.is_empty());
}

/// A copy drops nothing of what it shares to make room for its edges.
#[test]
fn a_copy_keeps_what_it_shares() {
    let mut rig = Rig::with_files(SLOTS, 40, 1);
    for block in 0..40 {
        assert_eq!(rig.errno_of(Ask::Write(1, block * 4096, 4096, true)), 0);
    }
    assert_eq!(rig.errno_of(Ask::Flush(1)), 0);
    assert_eq!(rig.errno_of(Ask::Copy(1, 100, 8192, 2, 100, true)), 0);
    rig.check_files();
}

/// A flush beside which its object is cut writes it again: else the next job would begin by cutting
/// off what the flush has told to be durable.
#[test]
fn a_flush_of_a_cut_object_begins_again() {
    for seed in 0..64 {
        let mut rig = Rig::with_files(SLOTS, 40, seed);
        assert_eq!(rig.errno_of(Ask::Write(1, 0, 16384, true)), 0);
        let request = rig.request(0, Ask::Flush(1), 0);
        let flush = rig.send(request).unwrap();
        rig.step(flush);
        while !rig.file_step() {}
        assert_eq!(rig.errno_of(Ask::Truncate(1, 12288)), 0);
        rig.drain_files();
        assert_eq!(rig.errno_of(Ask::Write(1, 12288, 4096, true)), 0);
        rig.store.end_files();
        // The next job has begun, in some of these.
        for _ in 0..seed / 8 {
            rig.file_step();
        }
        rig.restart(false);
    }
}

/// Files that always fail keep no other object from being written: writers go on, and a store that
/// ends leaves all whose files work.
#[test]
fn a_bad_file_is_no_other_one() {
    let mut rig = Rig::with_files(SLOTS, 40, 1);
    for object in 0..4 {
        for block in 0..5 {
            let write = Ask::Write(object, block * 4096, 4096, true);
            assert_eq!(rig.errno_of(write), 0);
        }
    }
    rig.filed.bad = [id(0), id(2)].into();
    // More than the memory.
    for block in 0..60 {
        assert_eq!(rig.errno_of(Ask::Write(4, block * 4096, 4096, true)), 0);
    }
    assert_eq!(rig.errno_of(Ask::Flush(0)), EFBIG);
    // It fails although others do not.
    assert_eq!(rig.errno_of(Ask::Flush(4)), 0);
    assert_eq!(rig.store.failing(), Some(Errno::EFBIG));
    for object in [1, 3] {
        assert_eq!(rig.errno_of(Ask::Write(object, 0, 100, true)), 0);
    }
    rig.store.end_files();
    rig.drain_files();
    for object in [1, 3, 4] {
        let synced = &rig.filed.files.synced[&id(object)];
        assert!(*synced == rig.objects[&id(object)], "{object}");
    }
    assert!(rig.store.index().usage().dirty <= 10);
    rig.filed.bad.clear();
    rig.check_files();
}

/// An object that fails in each of its many blocks is not tried for each of them.
#[test]
fn a_bad_file_is_not_tried_for_each_block() {
    let mut rig = Rig::with_files(SLOTS, 100, 1);
    for block in 0..60 {
        assert_eq!(rig.errno_of(Ask::Write(1, block * 4096, 4096, true)), 0);
    }
    rig.filed.bad = [id(1)].into();
    rig.store.end_files();
    rig.drain_files();
    assert!((1..6).contains(&rig.filed.failed), "{}", rig.filed.failed);
}

/// Blocks that very many objects share are dropped when all of them are in files.
#[test]
fn what_very_many_share_is_dropped() {
    let mut rig = Rig::with_files(5000, 40, 1);
    for block in 0..20 {
        assert_eq!(rig.errno_of(Ask::Write(1, block * 4096, 4096, true)), 0);
    }
    for object in 100..165 {
        assert_eq!(rig.errno_of(Ask::Snapshot(1, object, true)), 0);
    }
    for object in (100..165).chain([1]) {
        assert_eq!(rig.errno_of(Ask::Flush(object)), 0);
    }
    assert_eq!(rig.store.index().usage().dirty, 0);
    for block in 0..25 {
        assert_eq!(rig.errno_of(Ask::Write(2, block * 4096, 4096, true)), 0);
    }
    rig.check_files();
}

/// A flush ends beside copies into its object, one for each job.
#[test]
fn a_flush_ends_beside_copies() {
    let mut rig = Rig::with_files(SLOTS, 100, 1);
    for object in [1, 2] {
        for block in 0..18 {
            let write = Ask::Write(object, block * 4096, 4096, true);
            assert_eq!(rig.errno_of(write), 0);
        }
    }
    let request = rig.request(0, Ask::Flush(1), 0);
    let flush = rig.send(request).unwrap();
    for _ in 0..20 {
        let written = rig.filed.written;
        while rig.filed.written == written {
            rig.step(flush);
            rig.file_step();
            rig.answer();
            if rig.in_flight() == 0 {
                return rig.check_files();
            }
            let copy = rig.request(1, Ask::Copy(2, 0, 4096, 1, 4096, true), 0);
            let copy = rig.send(copy).unwrap();
            assert_eq!(rig.answer_of(copy).errno, 0);
        }
    }
    panic!("no answer");
}

/// Each block of an object that is larger than the memory is fetched once, although others of its
/// blocks are dropped for it.
#[test]
fn a_large_object_is_fetched_once() {
    let mut rig = Rig::with_files(SLOTS, 40, 1);
    for block in 0..80 {
        assert_eq!(rig.errno_of(Ask::Write(1, block * 4096, 4096, true)), 0);
    }
    assert_eq!(rig.errno_of(Ask::Flush(1)), 0);
    rig.restart(false);
    let before = rig.filed.fetched;
    for block in 0..80 {
        assert_eq!(rig.errno_of(Ask::Read(1, block * 4096, 4096)), 0);
        rig.end_read(0);
    }
    assert_eq!(rig.filed.fetched - before, 80);
}

/// A job beside which a long end of its object is removed in steps leaves a file that has all of
/// it.
#[test]
fn a_job_beside_a_long_end_is_right() {
    for steps in 0..6 {
        let mut rig = Rig::with_files(SLOTS, 200, steps);
        for block in 0..140 {
            let write = Ask::Write(1, block * 4096, 4096, true);
            let request = rig.request(0, write, 0);
            let tag = rig.send(request).unwrap();
            assert_eq!(rig.answer_of(tag).errno, 0);
        }
        let request = rig.request(0, Ask::Truncate(1, 0), 0);
        let cut = rig.send(request).unwrap();
        for _ in 0..steps {
            rig.step(cut);
        }
        // The store begins a job by itself, as more than half of the memory is dirty.
        rig.file_step();
        rig.drain_files();
        assert_eq!(rig.errno_of(Ask::Write(1, 0, 4096, true)), 0);
        assert_eq!(rig.errno_of(Ask::Read(1, 0, 40_000)), 0);
        rig.end_read(0);
        rig.check_files();
    }
}
