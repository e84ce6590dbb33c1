// SPDX-License-Identifier: GPL-2.0

//! Assemblies that give up something by force: once and twice, and one that is cut off.

use std::{
    ops::Range,
    slice::from_ref, //
};

use seglog::{
    batch::{
        Head,
        Kind, //
    },
    cursor::Cursor,
    epoch::{
        Epoch,
        NoQuorum, //
    },
    fault::Fault,
    layout::{
        Place,
        SLOTS,
        SLOT_BYTES, //
    },
    log::Log,
    members::Members,
    superblock::Start,
    table::Dump, //
};

use crate::{
    asked::{
        fails,
        found,
        hide,
        members,
        shown,
        tell, //
    },
    doubts::spoil_older,
    order::{
        assemble,
        assemble_by_force,
        empty,
        flush,
        layout,
        write,
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

/// Force takes an array back; what it writes then is hidden again, and is given up by force again.
/// Batches that the first time has left are not taken for those of the second one.
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

/// Damage where the first time has begun hides it not: its other batches tell, and its next
/// segment.
#[test]
fn what_was_given_up_is_known_by_any_of_its_segments() {
    forced_twice(1, from_ref(&(0..1)));
    forced_twice(5, from_ref(&(0..layout().parts().segment_units)));
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

/// A dump that was given up may be named by a slot that can be read again, when another one has
/// begun to write its pages in the same area: no two have one number.
#[test]
fn a_dump_behind_what_was_given_up_has_a_number_of_its_own() {
    let mut ram = Ram::new();
    let (usual, _) = assemble(&mut ram, ALL, 6).unwrap();
    hide(&mut ram, Members::of(0));
    let (once, _) = assemble_by_force(&mut ram, TWO, 7).unwrap();
    let (_, twice) = forced_twice(5, &[]);
    for generation in [0, 1, 2, 70_000] {
        let start = Start {
            generation,
            area: (generation % 2) as u8,
            cursor: Cursor::first(),
        };
        let dumps = [&usual, &once, &twice].map(|log| Dump::begin(log, &start));
        let numbers = dumps.each_ref().map(Dump::generation);
        assert_eq!(numbers[0], generation + 1);
        assert!(
            numbers.is_sorted_by(|one, other| one < other),
            "{numbers:?}"
        );
        assert_eq!(dumps.map(|dump| dump.area()), [1 - start.area; 3]);
        // Then they are counted.
        let next = Dump::begin(&once, &Dump::begin(&once, &start).start());
        assert_eq!(
            (next.generation(), next.area()),
            (numbers[1] + 1, start.area)
        );
    }
}

/// Copies the slots of a member.
fn copy_slots(from: &Ram, to: &mut Ram, member: usize) {
    let slots = ..usize::from(SLOTS) * SLOT_BYTES as usize;
    to.bytes[member][slots].copy_from_slice(&from.bytes[member][slots]);
}

/// Member 0 is lost; a slot of 1 is damaged, and one of 2 gives errors for a time. The assembly by
/// force is cut off between both superblocks; then the slot of 2 can be read again.
#[test]
fn force_that_was_cut_off_can_be_forced_again() {
    let two = members(0b110);
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    // The next assembly, whose slot is hidden on both.
    let (mut log, _) = assemble(&mut ram, ALL, 7).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let whole = ram.clone();
    hide(&mut ram, two);
    assert!(assemble(&mut ram.clone(), two, 8).is_err());
    let mut forced = ram.clone();
    assemble_by_force(&mut forced, two, 8).unwrap();
    copy_slots(&forced, &mut ram, 1);
    copy_slots(&whole, &mut ram, 2);
    let (present, force_helps) = (two, true);
    let refused = assemble(&mut ram.clone(), two, 9).map(|_| ());
    assert_eq!(
        refused,
        Err(Fault::NoQuorum(NoQuorum {
            present,
            force_helps
        }))
    );
    // All that was flushed is on both.
    let again = found(assemble_by_force(&mut ram, two, 9));
    assert_eq!(again, Ok((two, log.durable() + 1)));
    assert_eq!(found(assemble(&mut ram, two, 10)), again);
}

/// Member 1 has failed, and 0, which went on with 2, is lost. A slot of 2 gives errors for a time,
/// in which an assembly by force of 1 and 2 is cut off when it has told 1.
#[test]
fn what_force_was_about_to_give_up_is_given_up_when_it_is_shown_again() {
    let two = members(0b110);
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let durable = log.durable();
    fails(&mut ram, &mut log, 1);
    let whole = ram.clone();
    hide(&mut ram, Members::of(2));
    let mut forced = ram.clone();
    assemble_by_force(&mut forced, two, 8).unwrap();
    copy_slots(&forced, &mut ram, 1);
    copy_slots(&whole, &mut ram, 2);
    let mut again = ram.clone();
    let given_up = found(assemble_by_force(&mut again, two, 9));
    assert_eq!(given_up, Ok((two, durable + 1)));
    assert_eq!(found(assemble(&mut again, two, 10)), given_up);
    // With the third one nothing is.
    let all = found(assemble(&mut ram.clone(), ALL, 9));
    assert_eq!(all, Ok((members(0b101), log.durable() + 1)));
}

/// An assembly by force is cut off when it has told 1, and then the two others go on, from what the
/// force began with: that is given up by no force.
#[test]
fn what_went_on_since_force_was_cut_off_is_not_given_up() {
    let two = members(0b110);
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let durable = log.durable();
    let mut forced = ram.clone();
    // The older slot, but that is not known.
    let at = SLOT_BYTES as usize * usize::from(1 - shown(&ram, 2).slot());
    forced.bytes[2][at] ^= 1;
    assemble_by_force(&mut forced, two, 8).unwrap();
    copy_slots(&forced, &mut ram, 1);
    let mut begun = ram.clone();
    let (mut log, _) = assemble(&mut begun, members(0b101), 9).unwrap();
    write(&mut begun, &mut log, 1);
    flush(&mut log);
    let [epoch, other] = [1, 2].map(|member| shown(&begun, member).epoch);
    assert_eq!(epoch.parent, other.parent);
    let (present, force_helps) = (two, false);
    let refused = assemble_by_force(&mut begun.clone(), two, 10).map(|_| ());
    let why = NoQuorum {
        present,
        force_helps,
    };
    assert_eq!(refused, Err(Fault::NoQuorum(why)));
    let all = found(assemble(&mut begun.clone(), ALL, 10));
    assert_eq!(all, Ok((members(0b101), log.durable() + 1)));
    // So it is if its first batch cannot be read.
    let mut unreadable = begun.clone();
    let start = Place {
        segment: log.cursor().segment,
        unit: 0,
    };
    unreadable.unreadable = layout().at(start).map(|at| (2, at));
    let refused = assemble_by_force(&mut unreadable, two, 10).map(|_| ());
    assert_eq!(refused, Err(Fault::NoQuorum(why)));
    // And if they were assembled once more, in place of that, and the last slot is hidden.
    let mut twice = ram.clone();
    assemble(&mut twice, members(0b101), 9).unwrap();
    let (mut log, _) = assemble(&mut twice, members(0b101), 10).unwrap();
    hide(&mut twice, Members::of(2));
    let mut empty = twice.clone();
    write(&mut twice, &mut log, 1);
    flush(&mut log);
    let forced = assemble_by_force(&mut twice, two, 11).map(|_| ());
    assert_eq!(forced, Err(Fault::NoQuorum(why)));
    // The first batch of an assembly has nothing of a user.
    let forced = found(assemble_by_force(&mut empty, two, 11));
    assert_eq!(forced, Ok((two, durable + 1)));
    // If they were told only, and have written nothing, nothing is lost.
    copy_slots(&begun, &mut ram, 2);
    let forced = found(assemble_by_force(&mut ram, two, 10));
    assert_eq!(forced, Ok((two, durable + 1)));
}

/// Two assemblies by force are cut off, each when it has told 0; then the two others go on without
/// force. That is not older than what the second one was about to begin, though the first, which
/// has written nothing, is one of those that it leaves out.
#[test]
fn what_goes_on_behind_two_that_were_cut_off_is_not_given_up() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    // Told to 1 and 2.
    let mut told = ram.clone();
    assemble(&mut told, ALL, 7).unwrap();
    copy_slots(&told, &mut ram, 1);
    copy_slots(&told, &mut ram, 2);
    let mut first = ram.clone();
    hide(&mut first, Members::of(2));
    assemble_by_force(&mut first, members(0b101), 8).unwrap();
    copy_slots(&first, &mut ram, 0);
    let mut second = ram.clone();
    assemble_by_force(&mut second, members(0b011), 9).unwrap();
    copy_slots(&second, &mut ram, 0);
    let (mut log, _) = assemble(&mut ram, members(0b110), 10).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let forced = assemble_by_force(&mut ram.clone(), members(0b011), 11).map(|_| ());
    assert!(
        matches!(forced, Err(Fault::NoQuorum(why)) if !why.force_helps),
        "{forced:?}"
    );
    let all = found(assemble(&mut ram, ALL, 11));
    assert_eq!(all, Ok((members(0b110), log.durable() + 1)));
}

/// An assembly by force of 1 and 2 is cut off when it has told 1, over a slot that was damaged; the
/// other slot is damaged later. 0 and 2 hide the epoch that it began with: 1 knows that 2 has it.
#[test]
fn who_was_told_knows_what_another_one_hides_though_it_may_hide_more() {
    let two = members(0b110);
    let mut ram = Ram::new();
    assemble(&mut ram, ALL, 6).unwrap();
    let (mut log, _) = assemble(&mut ram, ALL, 7).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let mut forced = ram.clone();
    let older = SLOT_BYTES as usize * usize::from(1 - shown(&ram, 2).slot());
    forced.bytes[2][older] ^= 1;
    assemble_by_force(&mut forced, two, 8).unwrap();
    copy_slots(&forced, &mut ram, 1);
    let older = SLOT_BYTES as usize * usize::from(1 - shown(&ram, 1).slot());
    ram.bytes[1][older] ^= 1;
    hide(&mut ram, members(0b101));
    let expected = Ok((two, log.durable() + 1));
    assert_eq!(found(assemble(&mut ram.clone(), ALL, 9)), expected);
    assert_eq!(found(assemble_by_force(&mut ram, ALL, 9)), expected);
}

/// A slot gives errors for a time, and would show the second epoch since the others were told one.
/// An assembly by force is cut off when one of two was told: that is the one of the slot, so that
/// nothing else is shown again.
#[test]
fn what_a_slot_hides_is_written_over_first() {
    let two = members(0b110);
    let mut ram = Ram::new();
    assemble(&mut ram, ALL, 6).unwrap();
    let mut log = assemble(&mut ram, two, 7).unwrap().0;
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let epoch = shown(&ram, 2).epoch;
    let hidden = Epoch {
        id: 9,
        parent: 8,
        failed: members(0b010),
        ..epoch
    };
    tell(&mut ram, Members::of(2), hidden);
    let mut cut_off = ram.clone();
    hide(&mut cut_off, Members::of(2));
    let unreadable = cut_off.bytes[2].clone();
    cut_off.writes = 1;
    let failed = assemble_by_force(&mut cut_off, two, 10).map(|_| ());
    assert!(matches!(failed, Err(Fault::Io(..))), "{failed:?}");
    cut_off.writes = usize::MAX;
    if cut_off.bytes[2] == unreadable {
        copy_slots(&ram, &mut cut_off, 2);
    }
    let again = found(assemble_by_force(&mut cut_off, two, 11));
    assert_eq!(again, Ok((two, log.durable() + 1)));
}

/// An assembly by force of 0 and 2 is cut off when it has told 0; then 1 and 2 go on, and the slot
/// of 2 that says so is damaged. By what it shows it may have been told either: the log is asked.
#[test]
fn of_two_epochs_that_one_may_have_been_told_the_log_knows_which_was_written() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let mut forced = ram.clone();
    forced.unreadable = Some((0, SLOT_BYTES * u64::from(1 - shown(&ram, 0).slot())));
    assemble_by_force(&mut forced, members(0b101), 8).unwrap();
    copy_slots(&forced, &mut ram, 0);
    let (mut log, _) = assemble(&mut ram, members(0b110), 9).unwrap();
    let mut empty = ram.clone();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    hide(&mut ram, Members::of(2));
    hide(&mut empty, Members::of(2));
    assert!(assemble(&mut empty, ALL, 10).is_ok());
    let (present, force_helps) = (ALL, false);
    let why = Fault::NoQuorum(NoQuorum {
        present,
        force_helps,
    });
    for by in [assemble, assemble_by_force] {
        assert_eq!(by(&mut ram.clone(), ALL, 10).map(|_| ()), Err(why));
    }
    // The reason says that two are to be named.
    let named = found(assemble_by_force(&mut ram, members(0b110), 10));
    assert_eq!(named, Ok((members(0b110), log.durable() + 1)));
}

/// An assembly by force of 0 and 1 is cut off when it had told 0. Then 1 and 2 go on, twice, and a
/// slot of 1 is damaged: what it shows is not older than what 0 was told, though that is later.
#[test]
fn who_went_on_twice_since_force_was_cut_off_is_not_taken_for_one_behind() {
    let (two, present) = (members(0b110), members(0b011));
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let mut forced = ram.clone();
    spoil_older(&mut forced, 1);
    assemble_by_force(&mut forced, present, 8).unwrap();
    copy_slots(&forced, &mut ram, 0);
    assemble(&mut ram, two, 9).unwrap();
    let (mut log, _) = assemble(&mut ram, two, 10).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    // As a dump does.
    let epoch = shown(&ram, 1).epoch;
    tell(&mut ram, two, epoch);
    hide(&mut ram, Members::of(1));
    let force_helps = false;
    let why = NoQuorum {
        present,
        force_helps,
    };
    let refused = assemble_by_force(&mut ram.clone(), present, 11).map(|_| ());
    assert_eq!(refused, Err(Fault::NoQuorum(why)));
    let all = found(assemble(&mut ram, ALL, 11));
    assert_eq!(all, Ok((two, log.durable() + 1)));
}
