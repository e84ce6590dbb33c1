// SPDX-License-Identifier: GPL-2.0

//! The order of requests that wait for each other, and the consequences of failures.

use proto::sidecar::{
    group,
    growth::Step,
    queue::{
        Kind,
        Place,
        Queue,
        Request, //
    },
    record::{
        Head,
        Unit, //
    },
    ring::Ring,
    sectors::Sectors,
    store::{
        Action,
        ArrayStore,
        Memory,
        Rest, //
    },
    tuple::{
        Seal,
        Tuple,
        Verdict, //
    },
    Block,
    BLOCK_BYTES, //
};

use super::Sum;

pub(super) const WRITE: Kind = Kind::Write { fua: false };
const DATA_BLOCKS: u64 = 1024;

pub(super) fn seal() -> Seal {
    Seal::new(b"0123456789abcdef", &Sum)
}

pub(super) fn request(kind: Kind, first: u64, blocks: u16) -> Request {
    Request::new(kind, first, blocks, DATA_BLOCKS).unwrap()
}

#[test]
fn requests_are_limited() {
    let is_valid = |kind, first, blocks| Request::new(kind, first, blocks, DATA_BLOCKS).is_some();
    assert!(is_valid(Kind::Read, 0, 256) && !is_valid(Kind::Read, 0, 257));
    assert!(is_valid(Kind::Discard, 100, 256));
    assert!(is_valid(WRITE, 0, 100) && !is_valid(WRITE, 0, 101));
    assert!(is_valid(WRITE, DATA_BLOCKS - 1, 1) && !is_valid(WRITE, DATA_BLOCKS - 1, 2));
    assert!(!is_valid(WRITE, u64::MAX, 1) && !is_valid(WRITE, 0, 0));
    assert!(is_valid(Kind::Flush, 0, 0) && !is_valid(Kind::Flush, 0, 1));
}

#[test]
fn what_changes_blocks_excludes_others() {
    let kinds = [Kind::Read, WRITE, Kind::Discard];
    for (a, b) in kinds.iter().flat_map(|a| kinds.map(|b| (*a, b))) {
        let both_read = (a, b) == (Kind::Read, Kind::Read);
        for (first, overlap) in [(8, false), (9, true), (13, true), (14, false)] {
            let excludes = request(a, 10, 4).excludes(&request(b, first, 2));
            assert_eq!(excludes, overlap && !both_read, "{a:?} {b:?} {first}");
        }
    }
}

#[test]
fn the_order_is_that_of_arrival() {
    let mut queue: Queue<(), _> = Queue::new([None; 4]);
    let first = queue.add(request(WRITE, 0, 4), ()).unwrap();
    let second = queue.add(request(Kind::Read, 2, 4), ()).unwrap();
    let third = queue.add(request(WRITE, 5, 1), ()).unwrap();
    let may_run =
        |queue: &Queue<(), [Place<()>; 4]>, ticket| queue.may_run(queue.get(ticket).unwrap());
    assert!(may_run(&queue, first) && !may_run(&queue, second) && !may_run(&queue, third));
    queue.remove(first);
    assert!(may_run(&queue, second) && !may_run(&queue, third));
    // A later one in an earlier place of the table waits as well.
    let fourth = queue.add(request(WRITE, 3, 1), ()).unwrap();
    assert!(fourth == first && !may_run(&queue, fourth));
    queue.remove(second);
    assert!(may_run(&queue, third) && may_run(&queue, fourth));
    assert!(queue.add(request(Kind::Read, 0, 1), ()).is_some());
    assert!(queue.add(request(Kind::Read, 0, 1), ()).is_some());
    assert!(queue.add(request(Kind::Read, 0, 1), ()).is_none());
}

/// PI blocks without data, and writes of data with the CRC 7.
pub(super) struct Pages(pub(super) Vec<Block>, pub(super) u64);

impl Memory for Pages {
    fn pi_block(&self, slot: usize) -> &Block {
        &self.0[slot]
    }

    fn pi_block_mut(&mut self, slot: usize) -> &mut Block {
        &mut self.0[slot]
    }

    fn tuple(&self, _ticket: usize, offset: u16) -> Tuple {
        seal().data(self.1 + u64::from(offset), 7, 0).unwrap()
    }
}

pub(super) fn open() -> (ArrayStore<4, 4>, Pages) {
    let mut pages = Pages(vec![[0; BLOCK_BYTES]; 4], 0);
    group::format(&mut pages.0[0], 0, &seal(), group::Blank::Unknown);
    (
        ArrayStore::in_arrays(seal(), Ring::after_mark(8, Unit::SECTOR, 1, 2000), true),
        pages,
    )
}

const HEAD: Head = Head {
    sequence: 2,
    tail: 2,
    flushed: 2,
    device_blocks: 2000,
};

/// A write of block 0 up to its data.
fn write(store: &mut ArrayStore<4, 4>) {
    store.submit(request(WRITE, 0, 1)).unwrap();
    assert_eq!(
        store.poll(),
        Some(Action::ReadPiBlock { slot: 0, group: 0 })
    );
    assert_eq!(store.poll(), None);
    store.pi_block_read(0, true);
    assert_eq!(
        store.poll(),
        Some(Action::WriteRecord {
            head: HEAD,
            fua: true
        })
    );
    assert_eq!(store.poll(), None);
}

/// A write of block 0 up to its answer.
fn write_whole(store: &mut ArrayStore<4, 4>, pages: &mut Pages) {
    write(store);
    store.record_written(true);
    assert_eq!(
        store.poll(),
        Some(Action::Data {
            ticket: 0,
            fua: false
        })
    );
    store.data_done(0, true, pages);
    let is_ok = |action| matches!(action, Some(Action::Answer { is_ok: true, .. }));
    assert!(is_ok(store.poll()));
}

const FAILED: Option<Action> = Some(Action::Answer {
    ticket: 0,
    is_ok: false,
});

#[test]
fn a_pi_block_that_cannot_be_read_fails_its_requests() {
    let (mut store, _) = open();
    for kind in [Kind::Read, WRITE] {
        store.submit(request(kind, 0, 1)).unwrap();
        let Some(Action::ReadPiBlock { slot, group: 0 }) = store.poll() else {
            panic!("the PI block is read anew");
        };
        store.pi_block_read(slot, false);
        assert_eq!(store.poll(), FAILED);
        assert!(!store.has_failed());
    }
}

#[test]
fn a_record_that_cannot_be_written_ends_writes() {
    let (mut store, mut pages) = open();
    write(&mut store);
    store.record_written(false);
    assert_eq!(store.poll(), FAILED);
    assert!(store.has_failed());
    for kind in [WRITE, Kind::Discard, Kind::Flush] {
        let blocks = if kind == Kind::Flush { 0 } else { 1 };
        store.submit(request(kind, 0, blocks)).unwrap();
        assert_eq!(store.poll(), FAILED, "{kind:?}");
    }
    store.submit(request(Kind::Read, 0, 1)).unwrap();
    assert_eq!(
        store.poll(),
        Some(Action::Data {
            ticket: 0,
            fua: false
        })
    );
    store.data_done(0, true, &mut pages);
    let ok = Action::Answer {
        ticket: 0,
        is_ok: true,
    };
    assert_eq!(store.poll(), Some(ok));
}

#[test]
fn a_flush_or_a_pi_block_that_fails_ends_writes() {
    for is_flush in [true, false] {
        let (mut store, mut pages) = open();
        write_whole(&mut store, &mut pages);
        if is_flush {
            store.submit(request(Kind::Flush, 0, 0)).unwrap();
            assert_eq!(store.poll(), Some(Action::Flush));
            store.flushed(false);
            assert_eq!(store.poll(), FAILED);
        } else {
            store.rest(Rest::Drain);
            let mut changed = Sectors::default();
            changed.add(0);
            let write_back = Action::WriteBack {
                slot: 0,
                group: 0,
                part: changed.part(Unit::SECTOR),
                fua: false,
            };
            assert_eq!(store.poll(), Some(write_back));
            store.written_back(0, false);
        }
        assert!(store.has_failed() && !store.is_clean());
        assert_eq!(store.poll(), None);
    }
}

/// A write that was answered is in the cache, of which a device may tell once that it is lost.
#[test]
fn a_flush_for_others_that_fails_ends_writes() {
    let (mut store, mut pages) = open();
    write_whole(&mut store, &mut pages);
    store.fail();
    for kind in [WRITE, Kind::Flush] {
        let blocks = if kind == Kind::Flush { 0 } else { 1 };
        store.submit(request(kind, 0, blocks)).unwrap();
        assert_eq!(store.poll(), FAILED, "{kind:?}");
    }
    store.submit(request(Kind::Read, 0, 1)).unwrap();
    assert_eq!(
        store.poll(),
        Some(Action::Data {
            ticket: 0,
            fua: false
        })
    );
}

/// The content of a block without data does not count, nor whether it can be read.
#[test]
fn reads_of_blocks_without_data_need_no_medium() {
    let (mut store, mut pages) = open();
    write_whole(&mut store, &mut pages);
    for (kind, first, blocks, expected) in [
        (Kind::Read, 1, 3, true),
        (Kind::Read, 0, 1, false),
        (Kind::Read, 0, 3, false),
        (WRITE, 5, 1, false),
    ] {
        let ticket = store.submit(request(kind, first, blocks)).unwrap();
        assert!(store.poll().is_some());
        let is_free = store.needs_no_data(ticket, &pages);
        assert_eq!(is_free, expected, "{kind:?} of {blocks} from {first}");
        if kind == Kind::Read {
            store.data_done(ticket, true, &mut pages);
            assert!(matches!(store.poll(), Some(Action::Answer { .. })));
        }
    }
}

/// Data that could not be written may be old, new, or neither.
#[test]
fn failed_data_are_read_back() {
    let unwritten = Verdict::Unwritten;
    for (crc, verdict) in [
        (Some(7), Verdict::Good),
        // Nothing describes what was there, so the block stays one without data.
        (Some(8), unwritten),
        (None, Verdict::Lost),
    ] {
        let (mut store, mut pages) = open();
        write(&mut store);
        store.record_written(true);
        assert_eq!(
            store.poll(),
            Some(Action::Data {
                ticket: 0,
                fua: false
            })
        );
        store.data_done(0, false, &mut pages);
        assert_eq!(store.poll(), Some(Action::ReadBack(0)));
        store.settle(0, |_| crc, &mut pages);
        assert_eq!(store.poll(), FAILED);
        let tuple = group::tuple(pages.pi_block(0), 0);
        assert_eq!(seal().check(&tuple, 0, 7), verdict);
        assert!(!store.has_failed());
    }
}

/// A block that was written once and not flushed is not written again before.
#[test]
fn a_fresh_block_waits_for_a_flush() {
    for (is_volatile, expects_flush) in [(true, true), (false, false)] {
        let (_, mut pages) = open();
        let mut store = ArrayStore::<4, 4>::in_arrays(
            seal(),
            Ring::after_mark(8, Unit::SECTOR, 1, 2000),
            is_volatile,
        );
        write_whole(&mut store, &mut pages);
        store.submit(request(WRITE, 0, 1)).unwrap();
        let next = store.poll();
        if expects_flush {
            assert_eq!(next, Some(Action::Flush));
            assert_eq!(store.poll(), None);
            store.flushed(true);
        }
        let head = Head {
            sequence: 3,
            tail: 2,
            flushed: 3,
            device_blocks: 2000,
        };
        let next = if expects_flush { store.poll() } else { next };
        assert_eq!(next, Some(Action::WriteRecord { head, fua: true }));
    }
}

/// A first write that has failed, though its data can be read: they may be in the cache only, and
/// with FUA as well. No data are believed before one write only, so the next one waits. A write
/// with FUA may have been a flush: after that none is said to be durable.
#[test]
fn a_block_whose_first_write_has_failed_is_fresh() {
    for fua in [false, true] {
        let (mut store, mut pages) = open();
        store.submit(request(Kind::Write { fua }, 0, 1)).unwrap();
        assert_eq!(
            store.poll(),
            Some(Action::ReadPiBlock { slot: 0, group: 0 })
        );
        store.pi_block_read(0, true);
        assert_eq!(
            store.poll(),
            Some(Action::WriteRecord {
                head: HEAD,
                fua: true
            })
        );
        store.record_written(true);
        assert_eq!(store.poll(), Some(Action::Data { ticket: 0, fua }));
        store.data_done(0, false, &mut pages);
        assert_eq!(store.poll(), Some(Action::ReadBack(0)));
        store.settle(0, |_| Some(7), &mut pages);
        assert_eq!(store.poll(), FAILED);
        store.submit(request(WRITE, 0, 1)).unwrap();
        let next = if fua { FAILED } else { Some(Action::Flush) };
        assert_eq!((store.poll(), store.has_failed()), (next, fua));
    }
}

/// A write with FUA fails: another one that ends well, and a flush, may have been in the cache that
/// was lost with it. Without a cache it is one block.
#[test]
fn nothing_is_durable_after_a_write_with_fua_that_has_failed() {
    const FUA: Kind = Kind::Write { fua: true };
    for (is_volatile, others_end) in [(true, false), (false, true)] {
        let (_, mut pages) = open();
        let ring = Ring::after_mark(8, Unit::SECTOR, 1, 2000);
        let mut store = ArrayStore::<4, 4>::in_arrays(seal(), ring, is_volatile);
        let [bad, other] = [0, 1].map(|block| store.submit(request(FUA, block, 1)).unwrap());
        store.poll();
        store.pi_block_read(0, true);
        while store.poll().is_some() {}
        store.record_written(true);
        while store.poll().is_some() {}
        let flush = store.submit(request(Kind::Flush, 0, 0)).unwrap();
        assert_eq!(store.poll(), Some(Action::Flush));
        store.data_done(bad, false, &mut pages);
        let mut answers = Vec::new();
        for end in 0..3 {
            match end {
                0 => store.data_done(other, true, &mut pages),
                1 => store.flushed(true),
                _ => {}
            }
            while let Some(action) = store.poll() {
                match action {
                    Action::ReadBack(ticket) => store.settle(ticket, |_| Some(7), &mut pages),
                    Action::Answer { ticket, is_ok } => answers.push((ticket, is_ok)),
                    action => panic!("{action:?}"),
                }
            }
        }
        answers.sort_unstable();
        let others = [other, flush].map(|ticket| (ticket, others_end));
        assert_eq!(answers, [(bad, false), others[0], others[1]]);
        assert_eq!(store.has_failed(), is_volatile);
    }
}

/// A growth flushes, and may do so behind a write with FUA. A step that the lease did not permit
/// has done nothing.
#[test]
fn steps_of_a_growth_that_fail_end_writes() {
    let pi_blocks = Step::PiBlocks { first: 4, count: 1 };
    for (step, ends) in [
        (pi_blocks, [false, false]),
        (Step::Flush, [true, true]),
        (Step::Copy, [false, true]),
        (Step::Superblock, [false, true]),
    ] {
        for (was_begun, ends) in [(true, ends), (false, [false, false])] {
            let failed = [false, true].map(|is_volatile| {
                let ring = Ring::after_mark(8, Unit::SECTOR, 1, 2000);
                let mut store = ArrayStore::<4, 4>::in_arrays(seal(), ring, is_volatile);
                store.growth_failed(step, was_begun);
                store.has_failed()
            });
            assert_eq!(failed, ends, "{step:?}, begun: {was_begun}");
        }
    }
}

/// Slots with fresh blocks wait for a flush that will not come any more.
#[test]
fn reads_go_on_after_a_flush_that_has_failed() {
    let (_, mut pages) = open();
    group::format(&mut pages.0[1], 1, &seal(), group::Blank::Unknown);
    let ring = Ring::after_mark(8, Unit::SECTOR, 1, 2000);
    let mut store = ArrayStore::<4, 2>::in_arrays(seal(), ring, true);
    for group in [0, 1] {
        pages.1 = group * 256;
        store.submit(request(WRITE, pages.1, 1)).unwrap();
        let slot = group as usize;
        assert_eq!(store.poll(), Some(Action::ReadPiBlock { slot, group }));
        store.pi_block_read(slot, true);
        assert!(matches!(
            store.poll(),
            Some(Action::WriteRecord { fua: true, .. })
        ));
        store.record_written(true);
        assert_eq!(
            store.poll(),
            Some(Action::Data {
                ticket: 0,
                fua: false
            })
        );
        store.data_done(0, true, &mut pages);
        assert!(matches!(store.poll(), Some(Action::Answer { .. })));
    }
    let read = store.submit(request(Kind::Read, 512, 1)).unwrap();
    let mut is_flushed = false;
    loop {
        match store.poll() {
            Some(Action::WriteBack { slot, .. }) => store.written_back(slot, true),
            Some(Action::Flush) => {
                store.flushed(false);
                is_flushed = true;
            }
            Some(Action::ReadPiBlock { slot, group: 2 }) => break store.pi_block_read(slot, true),
            other => panic!("{other:?}"),
        }
    }
    assert!(is_flushed && store.has_failed());
    assert_eq!(
        store.poll(),
        Some(Action::Data {
            ticket: read,
            fua: false
        })
    );
}
