// SPDX-License-Identifier: GPL-2.0

//! Members that fail and return, and what is moved for them.

use seglog::{
    collect::live,
    epoch::{
        choose,
        Epoch, //
    },
    identity::Device,
    layout::Layout,
    log::{
        Log,
        Wait, //
    },
    members::Members,
    record::{
        Entry,
        Record, //
    },
    resync::{
        Resync,
        Step, //
    },
    segments::{
        Segment,
        Segments, //
    },
    superblock::{
        Start,
        Superblock, //
    },
    table::{
        Dump,
        SegmentUse,
        Table, //
    },
};

use crate::{
    order::{
        acknowledge,
        assemble,
        begin,
        layout,
        Ram, //
    },
    TAG,
};

fn two() -> Members {
    Members::ALL.minus(Members::of(2))
}

fn ended(log: &mut Log, sequence: u64, members: Members) {
    members
        .iter()
        .for_each(|member| log.written(sequence, member));
}

#[test]
fn a_member_that_returns_is_waited_for_and_no_epoch_says_that_it_fails() {
    let (mut log, _) = assemble(&mut Ram::new(), two(), 6).unwrap();
    let before = begin(&mut log, 1).unwrap().head;
    log.take_back(2);
    assert_eq!((log.live(), log.written_members()), (two(), Members::ALL));
    let head = begin(&mut log, 1).unwrap().head;
    assert_eq!((head.place.unit, head.used), (0, Members::ALL));
    ended(&mut log, before.sequence, two());
    ended(&mut log, head.sequence, two());
    let first = log.acknowledge().unwrap();
    assert_eq!((first.sequence, first.members), (before.sequence, two()));
    assert_eq!(acknowledge(&mut log), None);
    assert_eq!(log.flush(), Some(Members::ALL));
    two().iter().for_each(|member| log.flushed(member));
    assert_eq!(log.end_flush(), None);
    log.fail(2);
    assert_eq!(
        (log.failing(), log.written_members()),
        (Members::NONE, two())
    );
    // What it had of the batch is not said to be there.
    log.take_back(2);
    let acknowledged = log.acknowledge().unwrap();
    assert_eq!(acknowledged.members, two());
    assert_eq!(log.end_flush(), Some(before.sequence));
    // One that has joined is missed.
    log.join(2);
    log.fail(2);
    assert_eq!(log.failing(), Members::of(2));
    assert_eq!(begin(&mut log, 1), Err(Wait::Epoch));
}

#[test]
fn what_was_not_flushed_may_be_lost() {
    let (mut log, _) = assemble(&mut Ram::new(), Members::ALL, 6).unwrap();
    let first = begin(&mut log, 7).unwrap().head;
    ended(&mut log, first.sequence, Members::ALL);
    log.acknowledge();
    log.flush();
    let second = begin(&mut log, 7).unwrap().head;
    assert!(second.segment_sequence > first.segment_sequence);
    assert_eq!(log.collectable_before(), first.segment_sequence);
    ended(&mut log, second.sequence, Members::ALL);
    log.acknowledge();
    assert_eq!(log.collectable_before(), second.segment_sequence);
    Members::ALL.iter().for_each(|member| log.flushed(member));
    log.end_flush();
    // The flush had begun before the second one.
    assert_eq!(log.may_be_lost_from(), first.segment_sequence);
}

#[test]
fn an_epoch_with_a_member_follows_one_that_it_was_told() {
    let without = Epoch::first(1).without(2, Members::of(2));
    let with = without.with(3, 2);
    assert_eq!((with.parent, with.failed), (without.id, Members::NONE));
    for written in 0..8u8 {
        let held = [0, 1, 2].map(|m| Some(if written >> m & 1 == 1 { with } else { without }));
        let choice = choose(&held).unwrap();
        assert!(choice.epoch == with || choice.epoch == without);
        // It fails again when all have that epoch.
        let again = with.without(4, Members::of(0));
        let held = [0, 1, 2].map(|m| Some(if written >> m & 1 == 1 { again } else { with }));
        let choice = choose(&held).unwrap();
        assert!(choice.in_sync.count() >= 2);
    }
    // One that was not told is in the way when all are there.
    let held = [Some(with), Some(without), Some(Epoch::first(1))];
    assert!(choose(&held).is_err());
}

#[test]
fn a_device_in_the_place_of_another_has_nothing_before_it() {
    let survivor = Superblock::new(([1; 16], TAG), 0, layout(), 5);
    let old = Superblock::new(([1; 16], TAG), 2, layout(), 5);
    assert_eq!(survivor.devices_with(&old, 9), survivor.devices);
    let new = survivor.replacement(2, 77);
    assert!(survivor.is_of_same_array(&new) && new.member == 2);
    let devices = survivor.devices_with(&new, 9);
    assert_eq!(devices[2], Device { id: 77, since: 9 });
    // It is in sync with no member.
    let choice = choose(&[Some(survivor.epoch), Some(survivor.epoch), Some(new.epoch)]);
    assert_eq!(choice.unwrap().in_sync, two());
    assert!(choose(&[Some(survivor.epoch), None, Some(new.epoch)]).is_err());
    // The old one is another device now, and the new one is the same when it returns.
    let told = survivor.with_devices(devices, survivor.epoch);
    assert_eq!(told.devices_with(&old, 20)[2], Device { id: 0, since: 20 });
    let returned = new.with_devices(devices, survivor.epoch);
    assert_eq!(told.devices_with(&returned, 20), devices);
}

struct Words(Vec<u64>);

impl Table for Words {
    fn word(&self, index: u64) -> u64 {
        self.0.get(index as usize).copied().unwrap_or_default()
    }

    fn set(&mut self, index: u64, word: u64) {
        self.0[index as usize] = word;
    }
}

/// Segments of which one has something that a member lacks.
fn lacking(layout: &Layout) -> Segments<Vec<Segment>> {
    let mut table = Words(vec![0; layout.words() as usize]);
    let known = SegmentUse::default().with(1, two());
    table.set(layout.parts().entries + 4, known.word());
    table.set(0, Entry::from_word((4 * 512 + 6) | 2 << 42).word());
    Segments::count(vec![Segment::default(); 8], &table, layout).unwrap()
}

#[test]
fn a_member_is_in_sync_when_nothing_lacks_it_and_a_dump_has_it() {
    let (mut log, _) = assemble(&mut Ram::new(), two(), 6).unwrap();
    let mut segments = lacking(&layout());
    let mut start = Start {
        generation: 3,
        area: 1,
        cursor: *log.cursor(),
    };
    log.take_back(2);
    let mut resync = Resync::begin(2, &log);
    let step =
        |resync: &mut Resync, log: &Log, segments: &_, start: &Start, dump: Option<&Dump>| {
            resync.step(log, segments, (start, dump.map(Dump::start).as_ref()))
        };
    assert_eq!(
        step(&mut resync, &log, &segments, &start, None),
        Step::Batch
    );
    let head = begin(&mut log, 1).unwrap().head;
    assert_eq!(
        step(&mut resync, &log, &segments, &start, None),
        Step::Collect
    );
    ended(&mut log, head.sequence, Members::ALL);
    log.acknowledge();
    // A dump that has begun before it had all does not count.
    let early = Dump::begin(&log, &start);
    let entry = Entry::from_word((4 * 512 + 6) | 2 << 42);
    segments.assign((entry, Entry::ZEROES), head.sequence, &layout());
    assert_eq!(
        step(&mut resync, &log, &segments, &start, Some(&early)),
        Step::Dump
    );
    start = early.start();
    assert_eq!(step(&mut resync, &log, &segments, &start, None), Step::Dump);
    start = Dump::begin(&log, &start).start();
    assert!(start.cursor.sequence >= head.sequence);
    assert_eq!(step(&mut resync, &log, &segments, &start, None), Step::Join);
    let mut failed = log.clone();
    failed.fail(2);
    assert_eq!(
        step(&mut resync, &failed, &segments, &start, None),
        Step::Over
    );
    log.join(2);
    assert_eq!(log.live(), Members::ALL);
}

#[test]
fn a_dump_is_begun_again_when_a_member_fails_before_its_flush_has_ended() {
    use seglog::table::Step;
    let (log, _) = assemble(&mut Ram::new(), Members::ALL, 6).unwrap();
    let start = Start {
        generation: 3,
        area: 1,
        cursor: *log.cursor(),
    };
    let mut dump = Dump::begin(&log, &start);
    assert_eq!(dump.step(&layout()), Step::Page(0));
    while dump.step(&layout()) != Step::Flush {}
    dump.member_failed(&layout());
    assert_eq!(dump.step(&layout()), Step::Page(0));
    while dump.step(&layout()) != Step::Superblocks(dump.start()) {}
    dump.member_failed(&layout());
    assert_eq!(dump.step(&layout()), Step::Done);
}

#[test]
fn what_is_moved_is_what_the_table_has_there() {
    let head = crate::head();
    let layout = crate::layout();
    let record = Record {
        index: 7,
        count: 3,
        codec: 9,
        payload_bytes: 40,
        skipped: 0,
    };
    // Behind the head of a batch at unit 9 of segment 4, in column 1.
    let position = (4 * 2 + 1) * (2 << 20) + 9 * 512 + 96;
    let here =
        |block: u64| Entry::from_word((position / 16) | (4 << 42) | (block << 53) | (2 << 57));
    let at = (&head, 1, 96);
    let all = |index: u64| here(index - 7);
    assert_eq!(live(&record, at, all, &layout), Some(record));
    let one = |index| {
        if index == 8 {
            Entry::ZEROES
        } else {
            all(index)
        }
    };
    let moved = Record {
        skipped: 2,
        ..record
    };
    assert_eq!(live(&record, at, one, &layout), Some(moved));
    // What a record did not assign is not its own again.
    assert_eq!(live(&moved, at, all, &layout), Some(moved));
    assert_eq!(live(&record, at, |_| here(3), &layout), None);
    let zeroes = Record {
        codec: seglog::record::CODEC_ZEROES,
        payload_bytes: 0,
        ..record
    };
    assert_eq!(live(&zeroes, at, |_| Entry::ZEROES, &layout), None);
}
