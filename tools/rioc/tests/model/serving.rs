// SPDX-License-Identifier: GPL-2.0

//! The rules of a store, one by one: on a log, and in memory.

use std::collections::BTreeMap;

use rioc::proto::{
    claim::{
        Claim,
        Claims, //
    },
    index::Index,
    medium::{
        Medium,
        Pages,
        Ram, //
    },
    slot::{
        Blocks,
        Slot,
        Stored,
        NONE, //
    },
    store::{
        Arrived,
        Block,
        Store, //
    },
    ticket::Outcome,
};

use crate::{
    disk::Disk,
    random::Random,
    requests::Ask,
    rig::{
        Begun,
        Fault,
        Readable,
        Rig,
        Tables,
        CLIENTS,
        LANES,
        LIMITS, //
    },
    world::id,
};

pub(crate) const EBUSY: u16 = 16;
pub(crate) const EDQUOT: u16 = 122;
const ENOSPC: u16 = 28;
pub(crate) const ENOENT: u16 = 2;
pub(crate) const ESTALE: u16 = 116;
const EAGAIN: u16 = 11;

/// Pages, by extent and block, with the CRC of each.
#[derive(Clone, Debug, Default)]
pub(crate) struct Heap {
    pages: BTreeMap<(u64, u8), (u32, Block)>,
    next: u64,
    /// Whether there are no more pages.
    is_full: bool,
}

impl Pages for Heap {
    fn put<'b>(&mut self, blocks: impl Iterator<Item = (u32, &'b [u8])>) -> Option<Stored> {
        self.next += 1;
        for (number, (sum, block)) in (0..).zip(blocks) {
            let page = (sum, block.try_into().unwrap());
            self.pages.insert((self.next, number), page);
        }
        let stored = Stored {
            place: self.next,
            stamp: 0,
        };
        if self.is_full {
            self.pages.retain(|(place, _), _| *place != self.next);
            return None;
        }
        Some(stored)
    }

    fn free(&mut self, stored: Stored, blocks: Blocks) {
        for block in (0..32).filter(|block| blocks.contains(*block)) {
            let freed = self.pages.remove(&(stored.place, block));
            assert!(freed.is_some(), "freed twice");
        }
    }
}

impl Readable for Ram<Heap> {
    fn block(&self, _disk: &Disk, stored: &Stored, block: u8) -> Block {
        let (sum, bytes) = self.pages.pages[&(stored.place, block)];
        assert_eq!(crc32c::crc32c(&bytes), sum);
        bytes
    }

    fn durable_up_to(&self) -> u64 {
        0
    }

    fn settle_all(_store: &mut Store<Tables, Self>, _begun: &mut Begun) {}
}

pub(crate) fn in_memory(slots: usize, blocks: u64, seed: u64) -> Rig<Ram<Heap>> {
    let index = Index::new(vec![Slot::Free(NONE); slots], vec![NONE; 4], [7, 11]);
    let claims = Claims::new(vec![Claim::FREE; 64], vec![NONE; 3], ([5, 6], 7));
    let store = Store::new(index, claims, Ram::new(Heap::default(), blocks));
    let begun = Begun::new(Disk::new(0), false);
    Rig::with((store, begun), (Random::new(seed), Fault::None), 0)
}

pub(crate) fn on_log(slots: usize) -> Rig<rioc::proto::log::Logged<crate::assembly::Heap>> {
    Rig::on_log(slots, 3, (true, Fault::None))
}

impl<D: Readable> Rig<D> {
    /// Sends a request that is answered before anything else is done; returns the answer.
    pub(crate) fn ask(&mut self, client: usize, ask: Ask, lease: u32) -> Outcome {
        let request = self.request(client, ask, lease);
        match self.send(request) {
            Ok(tag) => self.answer_of(tag),
            Err(Arrived::Answer(outcome)) => outcome,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn answer_of(&mut self, tag: u32) -> Outcome {
        for _ in 0..100 {
            self.step(tag);
            self.settle();
            self.end_any();
            let answers = self.answer();
            let mut own = answers.iter().filter(|(other, _)| *other == tag);
            if let Some((_, outcome)) = own.next() {
                return *outcome;
            }
        }
        panic!("no answer")
    }

    pub(crate) fn errno(&mut self, client: usize, ask: Ask, lease: u32) -> u16 {
        self.ask(client, ask, lease).errno
    }
}

pub(crate) const WRITE: Ask = Ask::Write(1, 0, 8192, true);

/// A write that is sent again while it is in flight is carried out once, and both copies get the
/// same answer, not before it is durable.
#[test]
fn a_copy_of_a_request_waits_for_the_answer() {
    let mut rig = on_log(100);
    let request = rig.request(0, WRITE, 0);
    let tag = rig.send(request.clone()).unwrap();
    assert_eq!(rig.send(request.clone()), Err(Arrived::Repeated));
    rig.step(tag);
    rig.settle();
    assert_eq!(rig.send(request.clone()), Err(Arrived::Repeated));
    assert_eq!(rig.answer_of(tag), Outcome::default());
    let again = rig.send(request.clone());
    assert_eq!(again, Err(Arrived::Answer(Outcome::default())));
    for _ in 1..LANES {
        rig.request(0, WRITE, 0);
    }
    let next = rig.request(0, Ask::Truncate(1, 5), 0);
    let next = rig.send(next).unwrap();
    assert_eq!(rig.answer_of(next).errno, 0);
    assert_eq!(rig.send(request), Err(Arrived::Late));
    rig.check();
}

#[test]
fn a_client_has_its_limits() {
    let mut rig = in_memory(100, 100, 1);
    rig.clients[0].limits.operations_max = 1;
    let first = rig.request(0, WRITE, 0);
    let first = rig.send(first).unwrap();
    assert_eq!(rig.errno(0, WRITE, 0), EAGAIN);
    assert_eq!(rig.errno(1, Ask::Write(2, 0, 1, true), 0), 0);
    assert_eq!(rig.answer_of(first).errno, 0);
    rig.clients[0].limits = LIMITS;
    assert_eq!(rig.errno(0, WRITE, 0), 0);
}

/// Writes that come while one is in flight share the next batch; a lone one does not wait.
#[test]
fn writes_that_come_together_share_a_batch() {
    let mut rig = on_log(100);
    let send = |rig: &mut Rig<_>, client: usize, block: u64| {
        let request = rig.request(
            client,
            Ask::Write(client as u64, block * 4096, 4096, true),
            0,
        );
        let tag = rig.send(request).unwrap();
        rig.step(tag);
        rig.settle();
    };
    send(&mut rig, 0, 0);
    assert_eq!(rig.begun.disk.writes(), 1);
    // Two of four fill as much as the one in flight.
    for client in 1..3 {
        send(&mut rig, client, 1);
    }
    let begun = rig.begun.disk.writes();
    assert!(begun <= 2);
    rig.drain();
    assert!(rig.tally.batches <= 3);
}

/// A store in memory that is full says so, and takes what a delete has freed; what is refused has
/// left nothing.
#[test]
fn memory_that_is_full_takes_what_was_deleted() {
    let mut rig = in_memory(200, 10, 1);
    for object in 0..5 {
        assert_eq!(rig.errno(0, Ask::Write(object, 0, 8192, true), 0), 0);
    }
    assert_eq!(rig.errno(0, Ask::Write(7, 0, 1, true), 0), ENOSPC);
    assert_eq!(rig.errno(0, Ask::Write(1, 0, 8192, true), 0), ENOSPC);
    assert_eq!(rig.errno(0, Ask::Truncate(1, 100), 0), ENOSPC);
    assert_eq!(rig.errno(0, Ask::Truncate(1, 8192), 0), 0);
    assert_eq!(rig.errno(0, Ask::Delete(2), 0), 0);
    // It waits for what was deleted.
    let write = rig.request(0, Ask::Write(7, 0, 8192, true), 0);
    let write = rig.send(write).unwrap();
    rig.step(write);
    assert!(rig.answer().is_empty());
    assert_eq!(
        rig.store.reap((&mut rig.begun, &crate::disk::Crc)),
        Ok(false)
    );
    assert_eq!(rig.answer_of(write).errno, 0);
    rig.store.medium_mut().pages.is_full = true;
    assert_eq!(rig.errno(0, Ask::Copy(1, 0, 50, 1, 4096, true), 0), ENOSPC);
    rig.check();
}

/// Objects go with `evict=objects` that were not used lately, and none that a client uses.
#[test]
fn objects_that_are_not_used_make_room() {
    let mut rig = in_memory(200, 10, 1);
    rig.store.evict_objects();
    // In the first round, in which all were used, it is the first one.
    for object in [9, 0, 1, 2, 3] {
        assert_eq!(rig.errno(0, Ask::Write(object, 0, 8192, true), 0), 0);
    }
    let has = |rig: &Rig<_>, object: u64| -> bool {
        let rig: &Rig<Ram<Heap>> = rig;
        rig.store.index().stat(id(object)).is_ok()
    };
    for round in 10..60 {
        let lease = rig.ask(2, Ask::Lease(3, 0, 1, false), 0).lease;
        rig.begin_read(0, 0, 8192);
        rig.end_read(0);
        // What is evicted goes in steps, as what is deleted.
        let write = rig.request(1, Ask::Write(round, 0, 8192, true), 0);
        let write = rig.send(write).unwrap();
        rig.step(write);
        let reaped = rig.store.reap((&mut rig.begun, &crate::disk::Crc));
        assert_eq!(reaped, Ok(false));
        assert_eq!(rig.answer_of(write).errno, 0);
        assert!(has(&rig, 0) && has(&rig, 3) && has(&rig, round));
        assert_eq!(rig.store.index().usage().objects, 5);
        assert_eq!(rig.errno(2, Ask::Release, lease), 0);
    }
    // The only object that is left is the one that is written.
    let mut rig = in_memory(200, 4, 1);
    rig.store.evict_objects();
    assert_eq!(rig.errno(0, Ask::Write(1, 0, 16384, true), 0), 0);
    assert_eq!(rig.errno(0, Ask::Write(1, 16384, 4096, true), 0), ENOSPC);
    assert!(has(&rig, 1));
}

/// A write for which nothing can go is refused after some rounds of the table, of which each step
/// looks at some thousand slots: others go on between.
#[test]
fn eviction_looks_at_a_bounded_number_of_slots() {
    let slots = 50_000;
    let mut rig = in_memory(slots, 4, 1);
    rig.store.evict_objects();
    assert_eq!(rig.errno(0, Ask::Write(1, 0, 16384, true), 0), 0);
    // Its own object is the only one. The block at its edge is read again before each step.
    let write = rig.request(0, Ask::Write(1, 16384, 100, true), 0);
    let write = rig.send(write).unwrap();
    let mut steps = 0;
    let answer = loop {
        rig.step(write);
        steps += 1;
        assert!(steps < 1000);
        if let Some((_, outcome)) = rig.answer().first() {
            break outcome.errno;
        }
        if steps == 3 {
            assert_eq!(rig.errno(1, Ask::Create(2, false), 0), 0);
            assert_eq!(rig.errno(1, Ask::Delete(2), 0), 0);
        }
        let _ = rig.store.reap((&mut rig.begun, &crate::disk::Crc));
    };
    assert_eq!(answer, ENOSPC);
    assert!(steps > 2 * slots / 4096, "{steps}");
    rig.check();
}

/// A log that is full says so, and no write waits for good; what was there is there.
#[test]
fn a_log_that_is_full_takes_what_was_deleted() {
    let mut rig = on_log(400);
    let (_, most) = rig.store.medium().room();
    let mut objects = 0;
    while rig.errno(0, Ask::Write(objects, 0, 12288, true), 0) == 0 {
        objects += 1;
        rig.drain();
    }
    assert!(objects * 3 <= most && (objects + 1) * 3 > most);
    rig.check();
    for round in 0..200 {
        let object = round % objects;
        assert_eq!(rig.errno(1, Ask::Delete(object), 0), 0);
        rig.drain();
        assert_eq!(rig.errno(2, Ask::Write(object, 0, 12288, true), 0), 0);
        rig.drain();
    }
    rig.check();
    assert!(rig.tally.moved > 0);
}

/// The device fails: nothing is answered any more as if it were durable.
#[test]
fn a_device_that_fails_acknowledges_nothing() {
    let mut rig = on_log(100);
    let request = rig.request(0, WRITE, 0);
    let tag = rig.send(request).unwrap();
    rig.step(tag);
    rig.settle();
    let io = rig.begun.disk.end_one(&mut rig.random, false, |_| true);
    rig.store.medium_mut().ended(io.unwrap(), false);
    rig.settle();
    assert!(rig.answer().is_empty() && rig.store.medium().is_stopped());
    let request = rig.request(0, Ask::Create(9, false), 0);
    let other = rig.send(request).unwrap();
    assert!(!rig.is_refused(other));
    rig.step(other);
    assert!(rig.is_refused(other));
}

/// The same lives as on a log, in memory.
#[test]
fn objects_in_memory_are_as_bytes() {
    for seed in 0..200 {
        let mut rig = in_memory(128, [40, 1000][seed as usize % 2], seed + 9);
        for _ in 0..300 {
            let client = rig.random.below(CLIENTS);
            if rig.is_idle(client) {
                let ask = crate::crash::ask(&mut rig.random, 12);
                let request = rig.request(client, ask, 0);
                rig.send(request).unwrap();
            }
            rig.step_some(false);
            rig.answer();
            match rig.random.below(4) {
                0 if rig.held() < 3 => rig.begin_read(1, 2048, 16384),
                1 => rig.end_read(0),
                2 => {
                    let _ = rig.store.reap((&mut rig.begun, &crate::disk::Crc));
                }
                _ => (),
            }
            rig.check();
        }
        assert!(rig.tally.done > 20);
    }
}
