// SPDX-License-Identifier: GPL-2.0

//! Choice of the epoch that an array is assembled with.

use seglog::{
    epoch::{
        choose,
        Epoch,
        NoQuorum, //
    },
    fault::Fault,
    layout::Layout,
    members::Members,
    superblock::{
        Refusal,
        Superblock, //
    },
};

use crate::{
    order::{
        assemble,
        assemble_by_force,
        flush,
        layout,
        write,
        Ram, //
    },
    Crc,
    TAG, //
};

const FIRST: Epoch = Epoch::first(1);

fn members(bits: u8) -> Members {
    Members::from_bits(bits).unwrap()
}

/// The epoch of an assembly from these members.
fn assembled(id: u64, parent: Epoch, incarnation: u64, in_sync: u8) -> Epoch {
    Epoch {
        id,
        parent: parent.id,
        incarnation,
        failed: Members::ALL.minus(members(in_sync)),
    }
}

#[test]
fn two_that_hold_an_epoch_are_enough() {
    let choice = choose(&[Some(FIRST), None, Some(FIRST)]).unwrap();
    assert_eq!((choice.epoch, choice.in_sync), (FIRST, members(0b101)));
    let epoch = choice.assembly(2);
    assert_eq!(epoch, assembled(2, FIRST, 1, 0b101));
    // The one that was absent is stale.
    let choice = choose(&[Some(epoch), Some(FIRST), Some(epoch)]).unwrap();
    assert_eq!((choice.epoch, choice.in_sync), (epoch, members(0b101)));
    assert_eq!(choice.assembly(3).failed, members(0b010));
}

#[test]
fn one_is_refused_and_so_is_a_stale_one_beside_it() {
    let present = members(0b001);
    assert_eq!(
        choose(&[Some(FIRST), None, None]),
        Err(NoQuorum {
            present,
            force_helps: false
        })
    );
    let epoch = FIRST.without(2, members(0b100));
    let present = members(0b101);
    assert_eq!(
        choose(&[Some(epoch), None, Some(epoch)]),
        Err(NoQuorum {
            present,
            force_helps: false
        })
    );
}

#[test]
fn an_epoch_that_one_member_holds_is_given_to_those_with_its_parent() {
    let epoch = FIRST.without(2, members(0b100));
    let choice = choose(&[Some(epoch), Some(FIRST), Some(FIRST)]).unwrap();
    assert_eq!((choice.epoch, choice.behind), (epoch, members(0b010)));
    assert_eq!(choice.in_sync, members(0b011));
    // Nothing was acknowledged that relies on it, as the other member does not hold it.
    let choice = choose(&[None, Some(FIRST), Some(FIRST)]).unwrap();
    assert_eq!((choice.epoch, choice.in_sync), (FIRST, members(0b110)));
}

#[test]
fn two_assemblies_with_others_absent_do_not_mix() {
    // The first one was cut off when one of its members held it.
    let one = assembled(2, FIRST, 1, 0b011);
    let other = assembled(3, FIRST, 1, 0b110);
    let choice = choose(&[Some(one), Some(other), Some(other)]).unwrap();
    assert_eq!((choice.epoch, choice.in_sync), (other, members(0b110)));
    // That incarnation is not used again.
    assert_eq!(choice.assembly(4).incarnation, 2);
    // Both say that the other one's member has failed, and neither is held by two.
    let held = [Some(one), None, Some(other)];
    assert!(choose(&held).is_err());
}

/// Member 2 was absent from the last assembly, of which one slot of member 0 alone can tell.
#[test]
fn an_epoch_that_a_damaged_slot_hides_is_not_given_up_unasked() {
    let hidden = [(8u64, 0xffu8), (40, 1), (0, 0xff)];
    for (at, change) in hidden {
        let mut ram = Ram::new();
        assemble(&mut ram, Members::ALL, 6).unwrap();
        assemble(&mut ram, members(0b011), 7).unwrap();
        let stale = assemble(&mut ram.clone(), members(0b101), 8);
        assert!(matches!(stale, Err(Fault::NoQuorum(_))));
        ram.bytes[0][at as usize] ^= change;
        let refused = assemble(&mut ram.clone(), members(0b101), 8);
        assert_eq!(refused.map(|_| ()), Err(Fault::Unsure(0)), "byte {at}");
        // Who gives it up gets what was there before; with all members nothing is hidden.
        let mut given_up = ram.clone();
        assemble_by_force(&mut given_up, members(0b101), 8).unwrap();
        let (log, _) = assemble(&mut given_up, Members::ALL, 9).unwrap();
        assert_eq!(log.live(), members(0b101));
        let (log, _) = assemble(&mut ram, Members::ALL, 8).unwrap();
        assert_eq!(log.live(), members(0b011));
        // It was written anew.
        assert!(assemble(&mut ram, members(0b011), 9).is_ok());
    }
}

/// Member 2 was absent from the last assembly, of which no slot can tell any more; the log can.
#[test]
fn what_is_older_than_the_log_is_not_taken_unasked() {
    let mut ram = Ram::new();
    assemble(&mut ram, Members::ALL, 6).unwrap();
    let (mut log, _) = assemble(&mut ram, members(0b011), 7).unwrap();
    let first = log.cursor().sequence - 1;
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    for member in [0, 1] {
        ram.bytes[member][8] ^= 0xff;
    }
    let refused = assemble(&mut ram.clone(), Members::ALL, 8).map(|_| ());
    assert_eq!(refused, Err(Fault::Superseded { sequence: first }));
    let (log, found) = assemble_by_force(&mut ram, Members::ALL, 8).unwrap();
    assert_eq!((log.live(), found), (Members::ALL, 0));
}

#[test]
fn a_slot_that_gives_an_error_is_one_that_is_damaged() {
    let mut ram = Ram::new();
    assemble(&mut ram, Members::ALL, 6).unwrap();
    assemble(&mut ram, members(0b011), 7).unwrap();
    // The newer slot of member 0, which alone of these two knows that member 2 was absent.
    ram.unreadable = Some((0, 8));
    let refused = assemble(&mut ram.clone(), members(0b101), 8);
    assert_eq!(refused.map(|_| ()), Err(Fault::Unsure(0)));
    let mut given_up = ram.clone();
    let forced = assemble_by_force(&mut given_up, members(0b101), 8);
    assert_eq!(forced.unwrap().0.live(), members(0b101));
    let (log, _) = assemble(&mut ram, Members::ALL, 8).unwrap();
    assert_eq!(log.live(), members(0b011));
    // The older one hides nothing, but that is not known. By what it shows the third one has
    // failed, which the next epoch does not rely on then.
    ram.unreadable = Some((1, 0));
    for present in [members(0b011), Members::ALL] {
        let (log, _) = assemble(&mut ram.clone(), present, 9).unwrap();
        assert_eq!(log.live(), members(0b011));
    }
    // Force does not help where no epoch can be chosen.
    let refused = assemble(&mut ram, members(0b110), 9).map(|_| ());
    assert!(matches!(refused, Err(Fault::NoQuorum(why)) if !why.force_helps));
}

/// The power fails when one member of three is told an epoch, and another one cannot give the epoch
/// before: it was told that.
#[test]
fn who_cannot_be_read_while_an_epoch_is_told_has_its_parent() {
    let mut ram = Ram::new();
    assemble(&mut ram, Members::ALL, 6).unwrap();
    let mut later = ram.clone();
    assemble(&mut later, Members::ALL, 7).unwrap();
    ram.bytes[0][..8192].copy_from_slice(&later.bytes[0][..8192]);
    ram.unreadable = Some((2, 4096));
    let (log, _) = assemble(&mut ram.clone(), Members::ALL, 8).unwrap();
    assert_eq!(log.live(), Members::ALL);
    // Where the third one may hide something, too, that is not known.
    ram.bytes[1][8] ^= 1;
    let refused = assemble(&mut ram, Members::ALL, 8).map(|_| ());
    let present = Members::ALL;
    assert_eq!(
        refused,
        Err(Fault::NoQuorum(NoQuorum {
            present,
            force_helps: false
        }))
    );
}

/// Two go on without the third, and flush. The power fails when the first of them is told the epoch
/// of the next assembly; the other one cannot give the epoch before, and shows the one that the
/// third one has, too, which is there again.
#[test]
fn what_was_flushed_is_not_given_up_for_what_a_stale_member_holds() {
    let mut ram = Ram::new();
    assemble(&mut ram, Members::ALL, 6).unwrap();
    let (mut log, _) = assemble(&mut ram, members(0b101), 7).unwrap();
    for _ in 0..3 {
        write(&mut ram, &mut log, 1);
    }
    flush(&mut log);
    let durable = log.durable();
    let mut later = ram.clone();
    assemble(&mut later, members(0b101), 8).unwrap();
    ram.bytes[0][..8192].copy_from_slice(&later.bytes[0][..8192]);
    ram.unreadable = Some((2, 0));
    let refused = assemble(&mut ram.clone(), members(0b101), 9).map(|_| ());
    assert_eq!(refused, Err(Fault::Unsure(2)));
    let forced = assemble_by_force(&mut ram.clone(), members(0b101), 9);
    for result in [assemble(&mut ram, Members::ALL, 9), forced] {
        let found = result.map(|(log, _)| (log.live(), log.next_sequence() > durable));
        assert_eq!(found, Ok((members(0b101), true)));
    }
}

/// An assembly by force is cut off when one member was told its epoch. The two others go on
/// without that one, and are assembled again and again. Then all are there, and one of the two
/// cannot give one of its slots, whichever that is.
#[test]
fn what_was_cut_off_by_force_is_not_later_than_what_went_on() {
    let mut ram = Ram::new();
    assemble(&mut ram, Members::ALL, 6).unwrap();
    let mut forced = ram.clone();
    forced.unreadable = Some((0, 0));
    assemble_by_force(&mut forced, members(0b011), 7).unwrap();
    ram.bytes[0][..8192].copy_from_slice(&forced.bytes[0][..8192]);
    for id in 8..11 {
        let (mut log, _) = assemble(&mut ram, members(0b110), id).unwrap();
        write(&mut ram, &mut log, 1);
        flush(&mut log);
        // At first it may hide the only sign that it did not go on with the one that was told.
        for slot in [0, 4096].into_iter().filter(|_| id > 8) {
            let mut ram = ram.clone();
            ram.unreadable = Some((1, slot));
            let found = assemble(&mut ram, Members::ALL, 20).map(|(found, _)| {
                let is_there = found.next_sequence() > log.durable();
                (found.live(), is_there)
            });
            assert_eq!(found, Ok((members(0b110), true)), "{id}, {slot}");
        }
    }
}

/// The power fails while epochs of one incarnation are told, and a member cannot give its newer
/// one: what it shows may be later than what another one holds, so the others are assembled.
#[test]
fn who_cannot_be_read_does_not_count_within_one_incarnation() {
    let mut ram = Ram::new();
    let all = Epoch {
        incarnation: 7,
        ..Epoch::first(6)
    };
    let two = all.without(7, members(0b010));
    let held = [two.with(8, 1), two, all];
    for (member, epoch) in held.into_iter().enumerate() {
        let superblock = Superblock::new(([1; 16], TAG), member, layout(), 5).with_epoch(epoch);
        let at = Layout::slot(superblock.slot()) as usize;
        ram.bytes[member][at..at + 512].copy_from_slice(&superblock.bytes(&Crc));
    }
    ram.bytes[2][8] ^= 1;
    let (log, _) = assemble(&mut ram, Members::ALL, 9).unwrap();
    assert_eq!(log.live(), members(0b011));
}

/// Force does not help where there is no slot to go by: it would be any device.
#[test]
fn a_member_without_a_slot_that_can_be_read_is_refused() {
    let error = Err(Fault::Io(0, ()));
    let refused = |ram: &Ram| assemble_by_force(&mut ram.clone(), Members::ALL, 6).map(|_| ());
    let mut ram = Ram::new();
    ram.is_dead = Some(0);
    assert_eq!(refused(&ram), error);
    // A new member has nothing in the other slot.
    let mut ram = Ram::new();
    ram.unreadable = Some((0, 0));
    let why = Err(Fault::Superblock(0, Refusal::Unreadable));
    assert_eq!(refused(&ram), why);
}

#[test]
fn all_states_of_a_change_are_assembled_when_all_are_there() {
    let mount = assembled(2, FIRST, 1, 0b111);
    let failure = mount.without(3, members(0b001));
    let steps: [(Epoch, Epoch, u8); 3] = [
        (FIRST, mount, 0b111),
        (mount, failure, 0b110),
        (FIRST, assembled(4, FIRST, 1, 0b011), 0b011),
    ];
    for (before, after, to) in steps {
        for written in (0..8u8).filter(|written| written & !to == 0) {
            let held = [0, 1, 2].map(|m| Some(if written >> m & 1 == 1 { after } else { before }));
            let choice = choose(&held).unwrap();
            let is_known = choice.epoch == before || choice.epoch == after;
            assert!(
                is_known && choice.in_sync.count() >= 2,
                "{written:b} {choice:?}"
            );
            // What all have that are to have it is not given up.
            assert!(
                written != to || choice.epoch == after,
                "{written:b} {choice:?}"
            );
        }
    }
}

/// Batches that were given up by force neither come back nor have the array refused: not at the
/// next assembly, nor when the new ones have grown beside them.
#[test]
fn what_was_given_up_is_no_part_of_the_log_any_more() {
    // Forced with all, with the two that have gone on, and with the one that had failed.
    let ways: [(Members, &[usize]); 3] = [
        (Members::ALL, &[0, 1]),
        (members(0b011), &[0, 1]),
        (members(0b101), &[0]),
    ];
    for (present, damaged) in ways {
        let olds = (0..7).chain([16, 32]);
        for (old, new) in olds.flat_map(|old| (0..18).map(move |new| (old, new))) {
            let mut ram = Ram::new();
            assemble(&mut ram, Members::ALL, 6).unwrap();
            let (mut log, _) = assemble(&mut ram, members(0b011), 7).unwrap();
            for _ in 0..old {
                write(&mut ram, &mut log, 1);
                flush(&mut log);
            }
            for member in damaged {
                ram.bytes[*member][8] ^= 0xff;
            }
            let (mut log, found) = assemble_by_force(&mut ram, present, 8).unwrap();
            let live = log.live();
            for _ in 0..new {
                write(&mut ram, &mut log, 2);
                flush(&mut log);
            }
            // One that has written nothing else is begun again in its place.
            let begun = usize::from(new > 0);
            let last = log.acknowledged() + begun as u64;
            for (id, more) in [(9, 0), (10, begun)] {
                let again = assemble(&mut ram, present, id);
                let again = again.map(|(log, n)| (log.live(), log.acknowledged(), n));
                let expected = (live, last, found + 1 + new + more);
                assert_eq!(
                    again,
                    Ok(expected),
                    "{present:?}: {old} given up, {new} written"
                );
            }
            // The older slots of two are damaged: the log is asked, and has nothing against it.
            let is_taken = (0..2u8).any(|slot| {
                let mut ram = ram.clone();
                for member in present.iter().take(2) {
                    ram.bytes[member][Layout::slot(slot) as usize + 8] ^= 0xff;
                }
                let again = assemble(&mut ram, Members::ALL, 11);
                again.is_ok_and(|(log, _)| log.acknowledged() >= last)
            });
            assert!(is_taken, "{present:?}: {old} given up, {new} written");
            let with_the_third = assemble(&mut ram, Members::ALL, 11);
            assert_eq!(
                with_the_third.map(|(log, _)| log.live()),
                Ok(live),
                "it is stale"
            );
        }
    }
}
