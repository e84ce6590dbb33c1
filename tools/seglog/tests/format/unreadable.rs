// SPDX-License-Identifier: GPL-2.0

//! Places that cannot be read where the log may go on.

use seglog::{
    batch::Kind,
    fault::Fault,
    members::Members, //
};

use crate::{
    order::{
        assemble,
        begin,
        empty,
        layout,
        write,
        Ram, //
    },
    Crc,
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
