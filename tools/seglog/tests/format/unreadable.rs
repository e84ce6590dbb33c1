// SPDX-License-Identifier: GPL-2.0

//! Places that cannot be read where the log may go on.

use seglog::{
    batch::{
        Head,
        Kind,
        HEAD_BYTES, //
    },
    collect::newest,
    fault::Fault,
    layout::Place,
    members::{
        column_of,
        Members, //
    },
};

use crate::{
    order::{
        assemble,
        assemble_by_force,
        begin,
        empty,
        flush,
        layout,
        write,
        Ram, //
    },
    Crc,
    TAG, //
};

#[test]
fn what_cannot_be_read_at_the_end_of_the_log_may_be_more_of_it() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, Members::ALL, 6).unwrap();
    let head = write(&mut ram, &mut log, 2).head;
    let at = layout().at(head.place).unwrap();
    // One column is not needed.
    for at in [at, at + 600] {
        ram.unreadable = Some((0, at));
        assert!(assemble(&mut ram.clone(), Members::ALL, 7).is_ok());
    }
    let result = assemble(&mut ram, Members::ALL.minus(Members::of(1)), 8).map(|_| ());
    assert_eq!(result, Err(Fault::Unreadable { member: 0, at }));
}

/// Two others have what was flushed, or none has.
#[test]
fn what_one_member_does_not_give_at_the_end_of_the_log_the_others_know() {
    for (arrived, found) in [(0b000, 2), (0b001, 2), (0b010, 2), (0b011, 3)] {
        let mut ram = Ram::new();
        let (mut log, _) = assemble(&mut ram, Members::ALL, 6).unwrap();
        write(&mut ram, &mut log, 1);
        let end = layout().at(log.cursor().place()).unwrap();
        let next = layout().segment(log.cursor().next);
        let late = begin(&mut log, 1).unwrap();
        ram.arrive(&late, Members::from_bits(arrived).unwrap());
        for at in [end, next] {
            ram.unreadable = Some((2, at));
            let result = assemble(&mut ram.clone(), Members::ALL, 7).map(|(_, found)| found);
            assert_eq!(result, Ok(found), "{arrived:b}");
            // One alone does not know: it may have been a mirror of the two others.
            let two = Members::ALL.minus(Members::of(1));
            let result = assemble(&mut ram.clone(), two, 7).map(|_| ());
            let unreadable = Fault::Unreadable { member: 2, at };
            assert_eq!(result, Err(unreadable), "{arrived:b}");
        }
    }
}

/// An older incarnation has left a batch that fits, on a member that is there; what the later one
/// has begun instead cannot be read of enough members.
#[test]
fn what_an_older_incarnation_has_left_does_not_hide_that_the_log_cannot_be_read() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, Members::ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    let used = log.mirror(log.cursor().segment, 0);
    let next = log.cursor().next + 1;
    let mirror = (Kind::Mirror, used, 1);
    let late = log.begin(mirror, empty(1), Some(next), &Crc).unwrap();
    let (again, _) = assemble(&mut ram, Members::ALL, 7).unwrap();
    ram.arrive(&late, Members::of(0));
    assert!(used.contains(0));
    let at = layout().segment(again.cursor().segment);
    let two = Members::ALL.minus(Members::of(1));
    let found = |ram: &Ram| {
        let assembled = assemble(&mut ram.clone(), two, 8);
        assembled.map(|(log, found)| (found, log.durable()))
    };
    assert_eq!(found(&ram), Ok((3, 3)));
    ram.unreadable = Some((2, at));
    let refused = Err(Fault::Unreadable { member: 2, at });
    assert_eq!(found(&ram), refused);
    // Nor if it cannot be read for a moment only.
    for errors in 1..6 {
        ram.errors = errors;
        let found = found(&ram);
        assert!(
            found == refused || found == Ok((3, 3)),
            "{errors} {found:?}"
        );
    }
    ram.errors = u32::MAX;
    assert!(assemble(&mut ram, Members::ALL, 8).is_ok());
}

/// The superblocks of an assembly are there, of its first batch only the column of member 1.
fn cut_off_at_the_first_batch(ram: &mut Ram, (by, opening): (&Ram, u64), told: Members) {
    for member in told.iter() {
        ram.bytes[member][..8192].copy_from_slice(&by.bytes[member][..8192]);
    }
    let first = opening as usize..opening as usize + 512;
    ram.bytes[1][first.clone()].copy_from_slice(&by.bytes[1][first]);
}

/// A head behind the first batch of an incarnation cannot be read, so that is begun again over it.
/// The power fails when one of two has the new one; the head can be read then.
#[test]
fn what_could_not_be_read_does_not_refuse_what_was_begun_again_before_it() {
    let two = Members::ALL.minus(Members::of(0));
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, two, 6).unwrap();
    let opening = layout().segment(log.cursor().segment);
    begin(&mut log, 1).unwrap();
    let late = begin(&mut log, 1).unwrap();
    ram.arrive(&late, Members::of(2));
    assert!(assemble(&mut ram.clone(), two, 7).is_ok());
    ram.unreadable = Some((2, late.at));
    let mut next = ram.clone();
    assemble(&mut next, two, 7).unwrap();
    cut_off_at_the_first_batch(&mut ram, (&next, opening), two);
    ram.unreadable = None;
    for present in [two, Members::ALL] {
        let result = assemble(&mut ram.clone(), present, 8);
        assert_eq!(result.map(|(log, _)| log.live()), Ok(two), "{present:?}");
    }
    assert!(assemble_by_force(&mut ram, two, 8).is_ok());
}

/// The same with three, of which one has a torn column of the first batch: the place is the next
/// one behind that.
#[test]
fn nor_what_could_not_be_read_at_the_end_of_the_log() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, Members::ALL, 6).unwrap();
    let opening = layout().segment(log.cursor().segment);
    let late = begin(&mut log, 1).unwrap();
    ram.arrive(&late, Members::of(2));
    ram.unreadable = Some((2, late.at));
    let mut next = ram.clone();
    assemble(&mut next, Members::ALL, 7).unwrap();
    cut_off_at_the_first_batch(&mut ram, (&next, opening), Members::ALL);
    ram.bytes[0][opening as usize + 20] ^= 1;
    ram.unreadable = None;
    let result = assemble(&mut ram, Members::ALL, 8).map(|(log, _)| log.live());
    assert_eq!(result, Ok(Members::ALL));
}

/// All can be read here. What is behind the first batch is further than the next segment, where an
/// older incarnation has left a head that leads elsewhere.
#[test]
fn nor_what_is_further_than_was_looked() {
    let two = Members::ALL.minus(Members::of(0));
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, two, 6).unwrap();
    let written = begin(&mut log, 1).unwrap();
    ram.arrive(&written, two);
    for member in two.iter() {
        log.written(written.head.sequence, member);
    }
    assert!(log.acknowledge().is_some());
    assert!(flush(&mut log).is_some());
    begin(&mut log, 8).unwrap();
    let remnant = begin(&mut log, 8).unwrap();
    ram.arrive(&remnant, Members::of(1));
    let (mut log, _) = assemble(&mut ram, two, 7).unwrap();
    let opening = layout().segment(log.cursor().segment);
    begin(&mut log, 8).unwrap();
    let last = begin(&mut log, 8).unwrap();
    ram.arrive(&last, Members::of(2));
    let mut next = ram.clone();
    assemble(&mut next, two, 8).unwrap();
    cut_off_at_the_first_batch(&mut ram, (&next, opening), two);
    let result = assemble(&mut ram, two, 9).map(|(log, _)| log.live());
    assert_eq!(result, Ok(two));
}

/// The place behind the last batch cannot be read of enough members. A later incarnation has a
/// batch that can, and is not what its head says.
#[test]
fn a_batch_that_is_wrong_does_not_say_that_a_place_was_read() {
    let two = Members::ALL.minus(Members::of(2));
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, Members::ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    let end = layout().at(log.cursor().place()).unwrap();
    let place = Place {
        segment: log.cursor().next,
        unit: 0,
    };
    assemble(&mut ram, two, 7).unwrap();
    let opening = layout().segment(place.segment) as usize;
    let opening = opening..opening + 512;
    let parsed = Head::parse(
        &ram.bytes[0][opening.clone()],
        place,
        (&layout(), TAG),
        &Crc,
    );
    let (mut head, _) = parsed.unwrap();
    head.bodies[column_of(place.segment, 2)] ^= 1;
    for member in two.iter() {
        let bytes = &mut ram.bytes[member][opening.clone()];
        bytes[..HEAD_BYTES].copy_from_slice(&head.bytes(TAG, &Crc).0);
    }
    assert!(assemble(&mut ram.clone(), two, 8).is_ok());
    ram.unreadable = Some((0, end));
    let refused = assemble(&mut ram, two, 8).map(|_| ());
    let why = Fault::Unreadable { member: 0, at: end };
    assert_eq!(refused, Err(why));
}

/// All in sync that a batch is on have it, and are too few to have what it says: the one that is
/// not there has the rest.
#[test]
fn a_batch_of_which_a_column_is_elsewhere_is_no_torn_one() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, Members::ALL, 6).unwrap();
    let mut begun = begin(&mut log, 1).unwrap();
    begun.head.live = Members::ALL.minus(Members::of(2));
    begun.head.used = begun.head.live;
    ram.arrive(&begun, Members::of(0));
    let refused = assemble(&mut ram.clone(), Members::ALL.minus(Members::of(1)), 7);
    let why = Fault::Unreadable {
        member: 1,
        at: begun.at,
    };
    assert_eq!(refused.map(|_| ()), Err(why));
    // That one does not have it.
    assert!(assemble(&mut ram, Members::ALL, 7).is_ok());
}

/// A batch cannot be read, so an assembly begins over the one that follows it, and is cut off when
/// one member has its first batch. Then all can be read, and both batches are found: what was begun
/// there is not taken for the second one by who collects.
#[test]
fn what_an_assembly_that_was_cut_off_has_begun_does_not_hide_a_batch() {
    let two = Members::ALL.minus(Members::of(1));
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, Members::ALL, 6).unwrap();
    let place = Place {
        segment: log.cursor().next,
        unit: 0,
    };
    let mut mirror = |used: Members, units: u16| {
        let free = log.cursor().next + 1;
        let batch = (Kind::Mirror, used, units);
        log.begin(batch, empty(units), Some(free), &Crc).unwrap()
    };
    let rest = mirror(Members::of(0).or(Members::of(1)), 7);
    let last = mirror(two, 1);
    assert_eq!(last.head.place, place);
    ram.arrive(&rest, Members::of(1));
    ram.arrive(&last, two);
    ram.unreadable = Some((1, rest.at));
    let mut later = ram.clone();
    assemble(&mut later, Members::ALL, 7).unwrap();
    cut_off_at_the_first_batch(&mut ram, (&later, last.at), Members::ALL);
    ram.unreadable = None;
    assert_eq!(assemble(&mut ram, Members::ALL, 8).unwrap().1, 3);
    let heads = Members::ALL.iter().filter_map(|member| {
        let column = &ram.bytes[member][last.at as usize..][..512];
        Head::parse(column, place, (&layout(), TAG), &Crc)
    });
    let found = newest(heads.map(|(head, _)| head), last.head.segment_sequence);
    assert_eq!(found, Some(last.head));
}

/// A batch cannot be read, and an assembly finds the log without it; it can be read again. The
/// next one begins in the same place, of two members, and power fails when one of them has that:
/// what the first one has begun is whole no more, and ends the log all the same.
#[test]
fn what_was_not_found_once_is_not_found_again() {
    let two = Members::ALL.minus(Members::of(1));
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, Members::ALL, 6).unwrap();
    let late = begin(&mut log, 1).unwrap();
    ram.arrive(&late, two);
    ram.unreadable = Some((0, late.at));
    let (log, found) = assemble(&mut ram, Members::ALL, 7).unwrap();
    assert_eq!(found, 1);
    ram.unreadable = None;
    let mut next = ram.clone();
    assemble(&mut next, two, 8).unwrap();
    let opening = layout().segment(log.cursor().segment) as usize;
    for member in two.iter() {
        ram.bytes[member][..8192].copy_from_slice(&next.bytes[member][..8192]);
    }
    ram.bytes[0][opening..opening + 512].copy_from_slice(&next.bytes[0][opening..opening + 512]);
    let (_, found) = assemble(&mut ram, two, 9).unwrap();
    assert_eq!(found, 1);
}
