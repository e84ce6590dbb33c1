// SPDX-License-Identifier: GPL-2.0

//! Records as they are read by their entries.

use seglog::{
    batch::{
        Head,
        HEAD_BYTES, //
    },
    devices::Devices,
    layout::Layout,
    members::{
        member_of,
        Members,
        MEMBERS, //
    },
    reading::{
        parts_of_column,
        Parts, //
    },
    record::{
        Entry,
        Record,
        Spot,
        CODEC_ZEROES, //
    },
    source::span,
    Checksum, //
};

use crate::{
    head,
    layout,
    Crc, //
};

const FIRST: u64 = 40;

fn record(layout: &Layout) -> (Spot, Vec<u8>) {
    let record = Record {
        index: FIRST,
        count: 3,
        codec: 2,
        payload_bytes: 700,
        skipped: 0,
    };
    let mut bytes = vec![0; record.bytes()];
    let with = (layout, head().sequence);
    record.write(&mut bytes, &[9; 700], with, &Crc).unwrap();
    let entry = Entry::of(&head(), 0, 1000 / 16 * 16, &record, layout);
    let spot = entry.with_block(1).spot(layout).unwrap().unwrap();
    (spot, bytes)
}

#[test]
fn a_record_is_that_of_its_blocks_or_none() {
    let layout = layout();
    let (spot, bytes) = record(&layout);
    let found = |index, count, bytes: &[u8]| {
        let found = spot.record((index, count), bytes, &layout, &Crc);
        found.map(|(record, payload)| (record.index, payload.len()))
    };
    assert_eq!(found(FIRST + 1, 1, &bytes), Some((FIRST, 700)));
    assert_eq!(found(FIRST + 1, 2, &bytes), Some((FIRST, 700)));
    // Of the blocks behind it, of those before, of more than it has.
    assert_eq!(found(FIRST + 2, 1, &bytes), None);
    assert_eq!(found(FIRST, 1, &bytes), None);
    assert_eq!(found(FIRST + 1, 3, &bytes), None);
    let mut changed = bytes.clone();
    changed[500] ^= 1;
    assert_eq!(found(FIRST + 1, 1, &changed), None);
    let zeroes = Record {
        index: FIRST,
        count: 3,
        codec: CODEC_ZEROES,
        payload_bytes: 0,
        skipped: 0,
    };
    let mut bytes = vec![0; zeroes.bytes()];
    zeroes.write(&mut bytes, &[], (&layout, 1), &Crc).unwrap();
    assert_eq!(found(FIRST + 1, 1, &bytes), None);
}

#[test]
fn whole_units_of_a_record_are_read() {
    let layout = layout();
    let (spot, bytes) = record(&layout);
    let (start, skipped, len) = span(&spot, &layout);
    let unit = layout.unit_bytes();
    // Byte 992 of a batch that begins with unit 9 of segment 4.
    assert_eq!(start, layout.segment(4) + 10 * unit as u64);
    assert_eq!(skipped, 992 - unit);
    assert_eq!(len, (skipped + bytes.len()).next_multiple_of(unit));
}

/// The columns of a batch, on their members.
struct OfBatch([Vec<u8>; MEMBERS]);

impl Devices for OfBatch {
    type Error = ();

    fn bytes(&self, _: usize) -> u64 {
        0
    }

    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), ()> {
        let at = (at - layout().at(head().place).unwrap()) as usize;
        to.copy_from_slice(&self.0[member][at..at + to.len()]);
        Ok(())
    }

    fn write(&mut self, _: usize, _: u64, _: &[u8], _: bool) -> Result<(), ()> {
        Err(())
    }

    fn flush(&mut self, _: usize) -> Result<(), ()> {
        Err(())
    }

    fn xor_into(&self, to: &mut [u8], from: &[u8]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to ^= *from);
    }
}

/// Returns a batch whose first column has these numbers of records, of 200 bytes each.
fn batch(layout: &Layout, records: u64) -> (Head, OfBatch) {
    let mut head = head();
    let mut columns = [(); MEMBERS].map(|()| vec![0; head.column_bytes(layout)]);
    for (column, first) in [(0, FIRST), (1, FIRST + records)] {
        let mut at = HEAD_BYTES;
        for n in 0..records {
            let record = Record {
                index: first + n,
                count: 1,
                codec: 2,
                payload_bytes: 170,
                skipped: 0,
            };
            let with = (layout, head.sequence);
            let to = &mut columns[column][at..];
            at += record.write(to, &[7 + n as u8; 170], with, &Crc).unwrap();
        }
    }
    for at in HEAD_BYTES..columns[2].len() {
        columns[2][at] = columns[0][at] ^ columns[1][at];
    }
    head.bodies = [0, 1, 2].map(|column: usize| Crc.crc32c(&columns[column][HEAD_BYTES..]));
    let mut of = OfBatch(Default::default());
    for (column, bytes) in columns.into_iter().enumerate() {
        of.0[member_of(head.place.segment, column)] = bytes;
    }
    (head, of)
}

/// Zeroes are what a device gives that has lost its data, too.
#[test]
fn parts_of_a_column_are_all_of_it_or_not() {
    const RECORDS: u64 = 6;
    let layout = layout();
    let [own, other, _] = [0, 1, 2].map(|column| member_of(head().place.segment, column));
    let nth = |n: usize| HEAD_BYTES + n * 208..HEAD_BYTES + (n + 1) * 208;
    let all = HEAD_BYTES..3 * layout.unit_bytes();
    // What is lost of the member of the column, and of another one; and what is found.
    let cases = [
        (0, nth(1), nth(3), Members::ALL, vec![0, 1, 2, 3, 4, 5]),
        (0xa5, nth(1), nth(5), Members::ALL, vec![0, 1, 2, 3, 4, 5]),
        (0, nth(2), nth(2), Members::ALL, vec![0, 1, 3, 4, 5]),
        (0xa5, nth(5), nth(5), Members::ALL, vec![0, 1, 2, 3, 4]),
        (0, all.clone(), nth(0), Members::ALL, vec![1, 2, 3, 4, 5]),
        (0, all.clone(), all.clone(), Members::ALL, vec![]),
        (0, all.clone(), nth(0), Members::of(own), vec![]),
        (0, nth(4), nth(0), Members::of(own), vec![0, 1, 2, 3, 5]),
    ];
    for (with, of_own, of_other, usable, expected) in cases {
        let (head, mut devices) = batch(&layout, RECORDS);
        devices.0[own][of_own.clone()].fill(with);
        devices.0[other][of_other.clone()].fill(0x3c);
        let mut memory = [(); MEMBERS].map(|()| vec![0; head.column_bytes(&layout)]);
        let to = memory.each_mut().map(|memory| &mut memory[..]);
        let of = (&head, 0);
        let is_all = parts_of_column(&mut devices, of, usable, to, &layout, &Crc);
        let parts = Parts::new(&head, &memory[0], &layout, &Crc);
        let found: Vec<u64> = parts.map(|(_, record, _)| record.index - FIRST).collect();
        let label = format!("{with:#x} {of_own:?} {of_other:?} {usable:?}");
        assert_eq!(is_all, expected.len() as u64 == RECORDS, "{label}");
        assert_eq!(found, expected, "{label}");
    }
}
