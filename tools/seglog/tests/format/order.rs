// SPDX-License-Identifier: GPL-2.0

//! The order of acknowledgements and of batches, and what an assembly refuses, over members in
//! memory.

use seglog::{
    batch::{
        Kind,
        HEAD_BYTES, //
    },
    devices::Devices,
    fault::Fault,
    layout::{
        Layout,
        Parts,
        Place, //
    },
    log::{
        Begun,
        Log,
        Wait,
        WINDOW, //
    },
    members::{
        Members,
        MEMBERS, //
    },
    recovery::Recovery,
    superblock::{
        Refusal,
        Start,
        Superblock, //
    },
    table::{
        Dump,
        Table, //
    },
    Checksum, //
};

use crate::{
    Crc,
    TAG, //
};

const UNITS: u32 = 8;

pub(crate) fn layout() -> Layout {
    Layout::new(Parts {
        unit_bytes: 512,
        segment_units: UNITS,
        segments: 8,
        page_bytes: 512,
        entries: 100,
    })
    .unwrap()
}

/// Members in memory; a read of a byte may fail.
#[derive(Clone)]
pub(crate) struct Ram {
    pub(crate) bytes: [Vec<u8>; MEMBERS],
    pub(crate) unreadable: Option<(usize, u64)>,
    /// The reads of it that fail.
    pub(crate) errors: u32,
    /// A member that gives errors only.
    pub(crate) is_dead: Option<usize>,
    /// The writes that are done: then the power fails.
    pub(crate) writes: usize,
}

impl Ram {
    pub(crate) fn new() -> Self {
        let bytes = [0, 1, 2].map(|member| {
            let mut bytes = vec![0; layout().end_bytes() as usize];
            let superblock = Superblock::new(([1; 16], TAG), member, layout(), 5);
            bytes[..512].copy_from_slice(&superblock.bytes(&Crc));
            bytes
        });
        Self {
            bytes,
            unreadable: None,
            errors: u32::MAX,
            is_dead: None,
            writes: usize::MAX,
        }
    }

    /// Gives these members a batch.
    pub(crate) fn arrive(&mut self, begun: &Begun, members: Members) {
        let (head, _) = begun.head.bytes(TAG, &Crc);
        for member in begun.head.used.and(members).iter() {
            let column = &mut self.bytes[member][begun.at as usize..];
            column[..begun.head.column_bytes(&layout())].fill(0);
            column[..HEAD_BYTES].copy_from_slice(&head);
        }
    }

    fn flip(&mut self, member: usize, place: Place) {
        self.bytes[member][layout().at(place).unwrap() as usize + 20] ^= 1;
    }
}

impl Devices for Ram {
    type Error = ();

    fn bytes(&self, member: usize) -> u64 {
        self.bytes[member].len() as u64
    }

    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), ()> {
        let range = at..at + to.len() as u64;
        let is_bad = self
            .unreadable
            .is_some_and(|(m, at)| m == member && range.contains(&at));
        if is_bad && self.errors > 0 || self.is_dead == Some(member) {
            self.errors -= u32::from(is_bad);
            return Err(());
        }
        to.copy_from_slice(&self.bytes[member][at as usize..][..to.len()]);
        Ok(())
    }

    fn write(&mut self, member: usize, at: u64, from: &[u8], _: bool) -> Result<(), ()> {
        self.writes = self.writes.checked_sub(1).ok_or(())?;
        self.bytes[member][at as usize..][..from.len()].copy_from_slice(from);
        Ok(())
    }

    fn flush(&mut self, _: usize) -> Result<(), ()> {
        Ok(())
    }
}

/// Counts the batches that say which segment they are in.
pub(crate) struct Batches {
    pub(crate) words: Vec<u64>,
    count: usize,
}

impl Batches {
    pub(crate) fn new() -> Self {
        Self {
            words: vec![0; layout().words() as usize],
            count: 0,
        }
    }
}

impl Table for Batches {
    fn word(&self, index: u64) -> u64 {
        self.words[index as usize]
    }

    fn set(&mut self, index: u64, word: u64) {
        self.words[index as usize] = word;
        self.count += usize::from(index >= layout().parts().entries);
    }
}

/// Assembles; returns the log and the number of batches that were found.
pub(crate) fn assemble<D: Devices>(
    ram: &mut D,
    present: Members,
    id: u64,
) -> Result<(Log, usize), Fault<D::Error>> {
    assemble_with(ram, (present, false), id)
}

/// Assembles though a slot of a superblock is damaged.
pub(crate) fn assemble_by_force(
    ram: &mut Ram,
    present: Members,
    id: u64,
) -> Result<(Log, usize), Fault<()>> {
    assemble_with(ram, (present, true), id)
}

fn assemble_with<D: Devices>(
    ram: &mut D,
    present: (Members, bool),
    id: u64,
) -> Result<(Log, usize), Fault<D::Error>> {
    let mut memory = [const { [0; 4096] }; MEMBERS];
    let columns = memory.each_mut().map(|column| column.as_mut_slice());
    let mut recovery = Recovery::examine(ram, present, columns, &Crc)?;
    let mut batches = Batches::new();
    recovery.walk(&mut batches)?;
    recovery.commit(id)?;
    let free = recovery.opens_at().next + 1;
    Ok((recovery.open(id, free)?.log, batches.count))
}

pub(crate) fn empty(units: u16) -> [u32; MEMBERS] {
    let bytes = (usize::from(units) * 512).saturating_sub(HEAD_BYTES);
    [Crc.crc32c(&vec![0; bytes]); MEMBERS]
}

pub(crate) fn begin(log: &mut Log, units: u16) -> Result<Begun, Wait> {
    let free = log.cursor().next + 1;
    let batch = (Kind::Striped, Members::ALL, units);
    log.begin(batch, empty(units), Some(free), &Crc)
}

/// A batch that all members have.
pub(crate) fn write(ram: &mut Ram, log: &mut Log, units: u16) -> Begun {
    let begun = begin(log, units).unwrap();
    ram.arrive(&begun, Members::ALL);
    Members::ALL
        .iter()
        .for_each(|member| log.written(begun.head.sequence, member));
    assert_eq!(acknowledge(log), Some(begun.head.sequence));
    begun
}

pub(crate) fn acknowledge(log: &mut Log) -> Option<u64> {
    log.acknowledge().map(|batch| batch.sequence)
}

pub(crate) fn flush(log: &mut Log) -> Option<u64> {
    log.flush()
        .unwrap()
        .iter()
        .for_each(|member| log.flushed(member));
    log.end_flush()
}

#[test]
fn batches_are_acknowledged_in_their_order() {
    let (mut log, _) = assemble(&mut Ram::new(), Members::ALL, 6).unwrap();
    let batches: Vec<Begun> = (0..WINDOW).map(|_| begin(&mut log, 1).unwrap()).collect();
    assert_eq!(begin(&mut log, 1), Err(Wait::Window));
    let end =
        |log: &mut Log, batch: usize, member| log.written(batches[batch].head.sequence, member);
    Members::ALL
        .iter()
        .for_each(|member| end(&mut log, 1, member));
    end(&mut log, 0, 0);
    end(&mut log, 0, 2);
    assert_eq!(acknowledge(&mut log), None);
    end(&mut log, 0, 1);
    assert_eq!(acknowledge(&mut log), Some(batches[0].head.sequence));
    assert_eq!(acknowledge(&mut log), Some(batches[1].head.sequence));
    assert_eq!(acknowledge(&mut log), None);
    begin(&mut log, 1).unwrap();
}

#[test]
fn a_failure_is_told_before_anything_ends() {
    let (mut log, _) = assemble(&mut Ram::new(), Members::ALL, 6).unwrap();
    let begun = begin(&mut log, 1).unwrap();
    let sequence = begun.head.sequence;
    log.written(sequence, 0);
    log.written(sequence, 1);
    let durable = log.durable();
    assert_eq!(log.flush(), Some(Members::ALL));
    assert_eq!(log.flush(), None);
    log.flushed(0);
    log.flushed(1);
    log.fail(2);
    assert_eq!(log.failing(), Members::of(2));
    assert_eq!((acknowledge(&mut log), log.end_flush()), (None, None));
    assert_eq!(begin(&mut log, 1), Err(Wait::Epoch));
    log.epoch_is_durable(Members::of(2));
    assert_eq!(acknowledge(&mut log), Some(sequence));
    // The flush had begun before the batch was acknowledged.
    assert_eq!(log.end_flush(), Some(durable));
    let next = begin(&mut log, 1).unwrap().head;
    assert_eq!((next.place.unit, next.place.segment), (0, begun.head.next));
    assert_eq!(next.used, Members::ALL.minus(Members::of(2)));
    log.fail(0);
    assert_eq!(begin(&mut log, 1), Err(Wait::Stopped));
    log.epoch_is_durable(Members::of(0));
    log.written(next.sequence, 1);
    assert_eq!((acknowledge(&mut log), log.flush()), (None, None));
}

#[test]
fn mirrors_are_on_two_members_that_live() {
    let (mut log, _) = assemble(&mut Ram::new(), Members::ALL, 6).unwrap();
    for (segment, column) in (0..6).flat_map(|segment| [(segment, 0), (segment, 1)]) {
        let used = log.mirror(segment, column);
        assert_eq!(used.count(), 2);
        assert!(used.contains(seglog::members::member_of(segment, column)));
    }
    log.fail(1);
    for segment in 0..6 {
        assert_eq!(log.mirror(segment, 0), log.live());
        assert_eq!(log.mirror(segment, 1), log.live());
    }
}

#[test]
fn what_does_not_fit_goes_to_the_next_segment() {
    let (mut log, _) = assemble(&mut Ram::new(), Members::ALL, 6).unwrap();
    let first = begin(&mut log, 4).unwrap().head;
    assert_eq!(first.place.unit, 1);
    assert!(log.begins_segment(4) && !log.begins_segment(3));
    assert_eq!(begin(&mut log, 9), Err(Wait::TooLong));
    assert_eq!(begin(&mut log, 0), Err(Wait::TooLong));
    let none = log.begin((Kind::Striped, Members::ALL, 4), empty(4), None, &Crc);
    assert_eq!(none, Err(Wait::Segment));
    let same = log.begin(
        (Kind::Striped, Members::ALL, 4),
        empty(4),
        Some(first.next),
        &Crc,
    );
    assert_eq!(same, Err(Wait::Segment));
    let next = begin(&mut log, 4).unwrap().head;
    assert_eq!((next.place.segment, next.place.unit), (first.next, 0));
    assert_eq!(next.segment_sequence, first.segment_sequence + 1);
}

#[test]
fn an_assembly_finds_all_batches_and_begins_a_segment() {
    let mut ram = Ram::new();
    let (mut log, found) = assemble(&mut ram, Members::ALL, 6).unwrap();
    assert_eq!(found, 0);
    for _ in 0..5 {
        write(&mut ram, &mut log, 3);
    }
    assert_eq!(flush(&mut log), Some(6));
    // The first batch of the incarnation, too.
    let (again, found) = assemble(&mut ram, Members::ALL.minus(Members::of(1)), 7).unwrap();
    assert_eq!((found, again.durable()), (6, 7));
    assert_eq!(
        again.cursor().segment_sequence,
        log.cursor().segment_sequence + 1
    );
    assert!(again.cursor().incarnation > log.cursor().incarnation);
}

#[test]
fn a_log_that_is_damaged_in_the_middle_is_not_cut_short() {
    for durable in [false, true] {
        let mut ram = Ram::new();
        let (mut log, _) = assemble(&mut ram, Members::ALL, 6).unwrap();
        let lost = write(&mut ram, &mut log, 2).head;
        if durable {
            flush(&mut log);
        }
        write(&mut ram, &mut log, 2);
        // One column may be damaged.
        ram.flip(0, lost.place);
        ram.flip(1, lost.place);
        let result = assemble(&mut ram, Members::ALL, 7).map(|(_, found)| found);
        let sequence = lost.sequence;
        let expected = if durable {
            Err(Fault::Damaged { sequence })
        } else {
            Ok(1)
        };
        assert_eq!(result, expected);
    }
}

/// Writes between two flushes may fill many segments.
#[test]
fn what_a_head_says_segments_later_counts_too() {
    for flushed in [false, true] {
        let mut ram = Ram::new();
        let (mut log, _) = assemble(&mut ram, Members::ALL, 6).unwrap();
        let lost = write(&mut ram, &mut log, 4).head;
        let segments = lost.segment_sequence..lost.segment_sequence + 3;
        while segments.contains(&log.cursor().segment_sequence) {
            write(&mut ram, &mut log, 4);
        }
        if flushed {
            flush(&mut log);
        }
        let last = write(&mut ram, &mut log, 4).head;
        assert_eq!(last.durable >= lost.sequence, flushed);
        ram.flip(1, lost.place);
        let two = Members::ALL.minus(Members::of(0));
        let result = assemble(&mut ram, two, 7).map(|(_, found)| found);
        let sequence = lost.sequence;
        let expected = if flushed {
            Err(Fault::Damaged { sequence })
        } else {
            Ok(1)
        };
        assert_eq!(result, expected);
    }
}

#[test]
fn a_column_that_is_damaged_is_written_again() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, Members::ALL, 6).unwrap();
    let head = write(&mut ram, &mut log, 2).head;
    let before = ram.bytes.clone();
    for (member, before) in before.iter().enumerate() {
        ram.flip(member, head.place);
        assert_eq!(
            assemble(&mut ram, Members::ALL, 7 + member as u64)
                .unwrap()
                .1,
            (2 + member).min(3)
        );
        let at = layout().at(head.place).unwrap() as usize;
        assert_eq!(ram.bytes[member][at..at + 1024], before[at..at + 1024]);
    }
}

#[test]
fn a_later_incarnation_goes_before_what_an_older_one_has_left() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, Members::ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    let end = *log.cursor();
    // It is on its way when the power fails, and arrives after the next assembly.
    let late = begin(&mut log, 1).unwrap();
    let (again, found) = assemble(&mut ram, Members::ALL, 7).unwrap();
    ram.arrive(&late, Members::ALL);
    assert_eq!((found, end.sequence), (2, late.head.sequence));
    let (third, found) = assemble(&mut ram, Members::ALL, 8).unwrap();
    assert_eq!((found, third.durable()), (3, again.durable()));
}

#[test]
fn assemblies_alone_use_no_segments() {
    let mut ram = Ram::new();
    let (first, _) = assemble(&mut ram, Members::ALL, 6).unwrap();
    for id in 7..40 {
        let (log, found) = assemble(&mut ram, Members::ALL, id).unwrap();
        assert_eq!((found, log.durable()), (1, 1));
        assert_eq!(log.cursor().place(), first.cursor().place());
        assert_eq!(log.cursor().incarnation, id - 5);
        // A dump in which only this batch would be new lets the next assembly do that, too.
        let held = Start {
            generation: 0,
            area: 0,
            cursor: *first.cursor(),
        };
        let next = Dump::begin(&log, &held).start().cursor;
        assert_eq!(next.sequence, log.durable());
    }
    // One that has written something is followed by another segment.
    let (mut log, _) = assemble(&mut ram, Members::ALL, 40).unwrap();
    write(&mut ram, &mut log, 1);
    let (log, found) = assemble(&mut ram, Members::ALL, 41).unwrap();
    assert_eq!((found, log.cursor().segment), (2, 1));
}

#[test]
fn members_that_are_not_of_the_array_are_refused() {
    let result = |ram: &mut Ram, present| assemble(ram, present, 7).map(|_| ());
    let mut ram = Ram::new();
    ram.bytes.swap(0, 2);
    let swapped = Fault::OtherMember { given: 0, found: 2 };
    assert_eq!(result(&mut ram, Members::ALL), Err(swapped));
    let mut ram = Ram::new();
    ram.bytes[1][..512].fill(0);
    let none = Fault::Superblock(1, Refusal::NotFormatted);
    assert_eq!(result(&mut ram, Members::ALL), Err(none));
    let mut ram = Ram::new();
    let other = Superblock::new(([2; 16], TAG), 1, layout(), 5);
    ram.bytes[1][..512].copy_from_slice(&other.bytes(&Crc));
    assert_eq!(result(&mut ram, Members::ALL), Err(Fault::OtherArray(1)));
    assert!(matches!(
        result(&mut ram, Members::of(0)),
        Err(Fault::NoQuorum(_))
    ));
    assert!(matches!(
        result(&mut ram, Members::NONE),
        Err(Fault::NoQuorum(_))
    ));
    let mut ram = Ram::new();
    let needed = layout().end_bytes();
    ram.bytes[2].truncate(9000);
    let truncated = Fault::Truncated {
        member: 2,
        needed,
        found: 9000,
    };
    assert_eq!(result(&mut ram, Members::ALL), Err(truncated));
    ram.is_dead = Some(0);
    assert_eq!(result(&mut ram, Members::ALL), Err(Fault::Io(0, ())));
}
