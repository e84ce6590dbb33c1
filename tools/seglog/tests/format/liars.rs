// SPDX-License-Identifier: GPL-2.0

//! A member that lies: it costs an assembly at most, not the log, nor the array.

use seglog::{
    batch::{
        Head,
        Kind,
        HEAD_BYTES, //
    },
    devices::Devices,
    epoch::Epoch,
    fault::Fault,
    layout::{
        Layout,
        Place, //
    },
    log::{
        Log,
        Wait, //
    },
    members::Members,
    superblock::{
        Refusal,
        Superblock, //
    },
    Checksum, //
};

use crate::{
    order::{
        assemble,
        flush,
        layout,
        write,
        Ram, //
    },
    Crc,
    TAG, //
};

/// The highest value of a number that is counted up.
const NUMBER_MAX: u64 = 1 << 62;

/// The bytes of a batch that one member is enough for, behind `before`, at the start of a segment.
fn mirror(before: &Head, segment: u32, next: u32, incarnation: u64) -> (Head, Vec<u8>) {
    let mut bytes = vec![0; 512];
    let head = Head {
        kind: Kind::Mirror,
        live: Members::ALL,
        used: Members::ALL.minus(Members::of(2)),
        place: Place { segment, unit: 0 },
        units: 1,
        sequence: before.sequence + 1,
        incarnation,
        segment_sequence: before.segment_sequence + 1,
        durable: 0,
        next,
        previous: before.bytes(TAG, &Crc).1,
        bodies: [Crc.crc32c(&bytes[HEAD_BYTES..]); 3],
    };
    bytes[..HEAD_BYTES].copy_from_slice(&head.bytes(TAG, &Crc).0);
    (head, bytes)
}

#[test]
fn no_batch_is_of_a_later_incarnation_than_the_epoch() {
    for incarnation in [2, NUMBER_MAX, u64::MAX] {
        let mut ram = Ram::new();
        let (mut log, _) = assemble(&mut ram, Members::ALL, 6).unwrap();
        let before = write(&mut ram, &mut log, 1).head;
        write(&mut ram, &mut log, 1);
        write(&mut ram, &mut log, 1);
        flush(&mut log);
        let (head, bytes) = mirror(&before, before.next, 5, incarnation);
        let at = layout().at(head.place).unwrap() as usize;
        ram.bytes[0][at..at + 512].copy_from_slice(&bytes);
        let (_, found) = assemble(&mut ram, Members::ALL, 7).unwrap();
        assert_eq!(found, 4, "incarnation {incarnation}");
    }
}

/// Member 0 has the next batch at the start of whichever segment is read next.
struct Endless {
    ram: Ram,
    head: Head,
    bytes: Vec<u8>,
}

impl Devices for Endless {
    type Error = ();

    fn bytes(&self, member: usize) -> u64 {
        self.ram.bytes(member)
    }

    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), ()> {
        let here = layout().at(self.head.place).unwrap();
        let next = Place {
            segment: self.head.next,
            unit: 0,
        };
        if member == 0 && layout().at(next) == Some(at) {
            let after = if next.segment == 5 { 6 } else { 5 };
            (self.head, self.bytes) = mirror(&self.head, next.segment, after, 1);
            to.copy_from_slice(&self.bytes);
        } else if member == 0 && at == here && self.bytes.len() == to.len() {
            to.copy_from_slice(&self.bytes);
        } else {
            self.ram.read(member, at, to)?;
        }
        Ok(())
    }

    fn write(&mut self, member: usize, at: u64, from: &[u8], fua: bool) -> Result<(), ()> {
        self.ram.write(member, at, from, fua)
    }

    fn flush(&mut self, _: usize) -> Result<(), ()> {
        Ok(())
    }
}

#[test]
fn a_log_ends_behind_its_segments() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, Members::ALL, 6).unwrap();
    let head = write(&mut ram, &mut log, 1).head;
    let mut liar = Endless {
        ram,
        head,
        bytes: Vec::new(),
    };
    let result = assemble(&mut liar, Members::ALL, 7).map(|_| ());
    // Two batches are in the first of eight segments.
    assert_eq!(result, Err(Fault::Endless { sequence: 10 }));
}

/// Gives member 2 another superblock.
fn with_superblock(ram: &mut Ram, change: impl Fn(&mut Superblock)) {
    let mut superblock = Superblock::new(([1; 16], TAG), 2, layout(), 5);
    change(&mut superblock);
    let at = Layout::slot(superblock.slot()) as usize;
    ram.bytes[2][at..at + 512].copy_from_slice(&superblock.bytes(&Crc));
}

#[test]
fn what_an_assembly_counts_up_can_be_read_again() {
    let two = Members::ALL.minus(Members::of(2));
    let stale = |incarnation| Epoch {
        incarnation,
        ..Epoch::first(9)
    };
    let number = |what| Err(Fault::Superblock(2, Refusal::Number(what)));
    for (incarnation, expected) in [
        ((1 << 32) + 1, number("its incarnation")),
        (NUMBER_MAX, number("its incarnation")),
        (1 << 32, Ok(())),
    ] {
        let mut ram = Ram::new();
        with_superblock(&mut ram, |s| s.epoch = stale(incarnation));
        let result = assemble(&mut ram, Members::ALL, 6).map(|_| ());
        assert_eq!(result, expected, "{incarnation}");
        // Nothing was written, or what was written can be read.
        assert!(assemble(&mut ram, two, 7).is_ok());
    }
    for (writes, expected) in [
        (NUMBER_MAX, number("the count of its writes")),
        (NUMBER_MAX - 1, number("the count of its writes")),
        (NUMBER_MAX - 2, Ok(())),
    ] {
        let mut ram = Ram::new();
        with_superblock(&mut ram, |s| s.writes = writes);
        ram.bytes[2][512..1024].fill(0);
        let result = assemble(&mut ram, Members::ALL, 6).map(|_| ());
        assert_eq!(result, expected, "{writes}");
        let again = assemble(&mut ram, Members::ALL, 7).map(|_| ());
        assert_eq!(again, number("the count of its writes"));
        assert!(assemble(&mut ram, two, 8).is_ok());
    }
}

#[test]
fn no_number_of_a_batch_is_beyond_what_a_table_can_have() {
    let last = (1 << 55) - 1;
    let bytes = |segment_sequence| {
        let head = Head {
            segment_sequence,
            ..crate::head()
        };
        head.bytes(TAG, &Crc).0
    };
    let parse =
        |bytes: &[u8]| Head::parse(bytes, crate::head().place, (&crate::layout(), TAG), &Crc);
    assert!(parse(&bytes(last)).is_some());
    assert_eq!(parse(&bytes(last + 1)), None);
    // A start there is not written behind.
    let mut ram = Ram::new();
    for member in 0..3 {
        let mut superblock = Superblock::new(([1; 16], TAG), member, layout(), 5);
        superblock.start.cursor.segment_sequence = last - 1;
        ram.bytes[member][..512].copy_from_slice(&superblock.bytes(&Crc));
    }
    let (mut log, _): (Log, usize) = assemble(&mut ram, Members::ALL, 6).unwrap();
    assert_eq!(log.cursor().segment_sequence, last);
    let batch = (Kind::Striped, Members::ALL, 1);
    let begun = log.begin(batch, [0; 3], Some(4), &Crc);
    assert_eq!(begun, Err(Wait::Stopped));
}
