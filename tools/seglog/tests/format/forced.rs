// SPDX-License-Identifier: GPL-2.0

//! What is given up by force: once and twice.

use std::ops::Range;

use seglog::{
    batch::{
        Head,
        Kind, //
    },
    fault::Fault,
    layout::Place,
    log::Log,
    members::Members, //
};

use crate::{
    asked::{
        found,
        hide,
        shown, //
    },
    order::{
        assemble,
        assemble_by_force,
        empty,
        flush,
        layout,
        Ram, //
    },
    Crc,
    TAG, //
};

const ALL: Members = Members::ALL;
const TWO: Members = Members::ALL.minus(Members::of(2));

/// Writes and flushes a batch that names one of eight segments as the next one.
fn write_next(ram: &mut Ram, log: &mut Log, units: u16) {
    let free = (log.cursor().next + 1) % 8;
    let batch = (Kind::Striped, ALL, units);
    let begun = log.begin(batch, empty(units), Some(free), &Crc).unwrap();
    ram.arrive(&begun, log.live());
    for member in ALL.iter() {
        log.written(begun.head.sequence, member);
    }
    assert!(log.acknowledge().is_some());
    flush(log);
}

/// Twice an array of two goes back by force: what the first time has written is hidden, and some of
/// it is `lost`. Returns the array and its log as the second time has left them.
fn forced_twice(written: usize, lost: &[Range<u32>]) -> (Ram, Log) {
    let mut ram = Ram::new();
    assemble(&mut ram, ALL, 6).unwrap();
    assemble(&mut ram, ALL, 7).unwrap();
    hide(&mut ram, Members::of(0));
    let (mut log, _) = assemble_by_force(&mut ram, TWO, 8).unwrap();
    let first = shown(&ram, 0).epoch;
    let segment = log.cursor().segment;
    for _ in 0..written {
        write_next(&mut ram, &mut log, 4);
    }
    for unit in lost.iter().cloned().flatten() {
        let at = layout().at(Place { segment, unit }).unwrap() as usize;
        for member in TWO.iter() {
            ram.bytes[member][at..at + layout().unit_bytes()].fill(0);
        }
    }
    hide(&mut ram, TWO);
    let refused = assemble(&mut ram.clone(), TWO, 9).map(|_| ());
    assert_eq!(refused, Err(Fault::Unsure(0)));
    let (log, _) = assemble_by_force(&mut ram, TWO, 9).unwrap();
    let second = shown(&ram, 0).epoch.incarnation;
    assert!(second > first.incarnation, "{written}, {lost:?}");
    (ram, log)
}

/// By force an array goes back; what it writes then is hidden again, and is given up by force
/// again. What the first time has left is not taken for what the second one writes.
#[test]
fn what_is_given_up_twice_stays_given_up() {
    let (start, _) = forced_twice(5, &[]);
    assert!(shown(&start, 0).epoch.incarnation < 1 << 20);
    for (units, new) in [4, 3].into_iter().flat_map(|n| (0..8).map(move |m| (n, m))) {
        let (mut ram, mut log) = forced_twice(5, &[]);
        for _ in 0..new {
            write_next(&mut ram, &mut log, units);
        }
        let next = found(assemble(&mut ram.clone(), TWO, 10));
        let expected = Ok((TWO, log.durable() + u64::from(new > 0)));
        assert_eq!(next, expected, "{new} of {units} units");
        assert_eq!(found(assemble_by_force(&mut ram, TWO, 10)), expected);
    }
}

/// So it is where the place that tells of the first time is damaged: its other batches tell, and
/// its next segment.
#[test]
fn what_was_given_up_is_known_by_any_of_its_segments() {
    forced_twice(1, &[0..1]);
    forced_twice(5, &[0..layout().parts().segment_units]);
}

/// One member has a head of an incarnation that none comes near: it uses up no numbers.
#[test]
fn a_head_that_lies_uses_up_no_incarnations() {
    let (mut ram, log) = forced_twice(1, &[]);
    let place = Place {
        segment: 5,
        unit: 0,
    };
    let head = Head {
        kind: Kind::Striped,
        live: ALL,
        used: ALL,
        place,
        units: 1,
        sequence: 1 << 40,
        incarnation: 1 << 40,
        segment_sequence: 1 << 20,
        durable: 0,
        next: 0,
        previous: 0,
        bodies: empty(1),
    };
    let at = layout().at(place).unwrap() as usize;
    let (bytes, _) = head.bytes(TAG, &Crc);
    ram.bytes[1][at..at + bytes.len()].copy_from_slice(&bytes);
    hide(&mut ram, TWO);
    let forced = found(assemble_by_force(&mut ram, TWO, 10));
    assert_eq!(forced, Ok((TWO, log.durable())));
    assert!(shown(&ram, 0).epoch.incarnation < 1 << 20);
}
