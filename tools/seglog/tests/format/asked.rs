// SPDX-License-Identifier: GPL-2.0

//! Superblocks that hide or exclude each other, and what the log and the others know of it.

use seglog::{
    epoch::{
        Epoch,
        NoQuorum, //
    },
    fault::Fault,
    identity::Device,
    layout::{
        Layout,
        SLOTS, //
    },
    log::{
        Begun,
        Log, //
    },
    members::{
        Members,
        MEMBERS, //
    },
    superblock::{
        newer,
        Superblock, //
    },
};

use crate::{
    order::{
        assemble,
        assemble_by_force,
        begin,
        flush,
        layout,
        write,
        Ram, //
    },
    Crc,
};

const ALL: Members = Members::ALL;

pub(crate) fn members(bits: u8) -> Members {
    Members::from_bits(bits).unwrap()
}

/// Returns the superblock that a member shows.
pub(crate) fn shown(ram: &Ram, member: usize) -> Superblock {
    let read = |slot: u8| {
        let at = Layout::slot(slot) as usize;
        let bytes = ram.bytes[member][at..at + 512].try_into().unwrap();
        Superblock::parse(bytes, slot, &Crc)
    };
    newer(read(0), read(1)).unwrap()
}

/// Writes a superblock to its slot.
pub(crate) fn give(ram: &mut Ram, superblock: Superblock) {
    let at = Layout::slot(superblock.slot()) as usize;
    ram.bytes[superblock.member][at..at + 512].copy_from_slice(&superblock.bytes(&Crc));
}

/// Tells members of an epoch.
pub(crate) fn tell(ram: &mut Ram, told: Members, epoch: Epoch) {
    for member in told.iter() {
        let superblock = shown(ram, member).with_epoch(epoch);
        give(ram, superblock);
    }
}

/// The newer slots of members are damaged.
pub(crate) fn hide(ram: &mut Ram, hidden: Members) {
    for member in hidden.iter() {
        let at = Layout::slot(shown(ram, member).slot()) as usize;
        ram.bytes[member][at + 8] ^= 1;
    }
}

/// A member has failed while the array runs, and the two others go on.
pub(crate) fn fails(ram: &mut Ram, log: &mut Log, member: usize) {
    let others = ALL.minus(Members::of(member));
    let epoch = shown(ram, 0).epoch.without(70, Members::of(member));
    log.fail(member);
    tell(ram, others, epoch);
    log.epoch_is_durable(Members::of(member));
    for _ in 0..3 {
        write(ram, log, 1);
    }
    flush(log);
}

pub(crate) type Found = Result<(Members, u64), Fault<()>>;

pub(crate) fn found(result: Result<(Log, usize), Fault<()>>) -> Found {
    result.map(|(log, _)| (log.live(), log.durable()))
}

/// Two slots hide that a member has failed. Each batch since then says so.
#[test]
fn who_has_failed_by_the_log_is_not_in_sync() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    fails(&mut ram, &mut log, 2);
    hide(&mut ram, members(0b011));
    let expected = Ok((members(0b011), log.durable() + 1));
    for is_forced in [false, true] {
        let mut ram = ram.clone();
        let result = if is_forced {
            assemble_by_force(&mut ram, ALL, 8)
        } else {
            assemble(&mut ram, ALL, 8)
        };
        assert_eq!(found(result), expected);
        assert_eq!(shown(&ram, 0).epoch.failed, members(0b100));
    }
}

/// Member 2 failed while a batch was on its way to it, which was flushed then.
fn failed_in_a_batch() -> (Ram, Begun) {
    let two = members(0b011);
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    let late = begin(&mut log, 1).unwrap();
    ram.arrive(&late, two);
    for member in two.iter() {
        log.written(late.head.sequence, member);
    }
    log.fail(2);
    let epoch = shown(&ram, 0).epoch.without(70, Members::of(2));
    tell(&mut ram, two, epoch);
    log.epoch_is_durable(Members::of(2));
    assert!(log.acknowledge().is_some());
    assert_eq!(flush(&mut log), Some(late.head.sequence));
    (ram, late)
}

/// The third member failed while a batch was on its way to it, which was flushed then. Two slots
/// hide that, and one of the two others cannot give its column: what the third one lacks does not
/// say that it was torn.
#[test]
fn what_a_member_lacks_that_may_have_failed_was_not_torn() {
    let (mut ram, late) = failed_in_a_batch();
    hide(&mut ram, members(0b011));
    let result = found(assemble(&mut ram.clone(), ALL, 7));
    assert_eq!(result, Ok((ALL, late.head.sequence + 1)));
    let (member, at) = (1, late.at);
    ram.unreadable = Some((member, at));
    let refused = assemble(&mut ram.clone(), ALL, 7).map(|_| ());
    assert_eq!(refused, Err(Fault::Unreadable { member, at }));
    // Nor if the third one may hide something, too.
    let older = 1 - shown(&ram, 2).slot();
    ram.bytes[2][Layout::slot(older) as usize + 8] ^= 1;
    let refused = assemble(&mut ram, ALL, 7).map(|_| ());
    assert_eq!(refused, Err(Fault::Unreadable { member, at }));
}

/// Members that hide that a third one has failed are told an epoch with all three, which writes
/// over what says so: the third one has what it lacks before, or two would go on without that.
#[test]
fn who_may_have_failed_has_all_before_what_says_so_is_written_over() {
    let (mut ram, late) = failed_in_a_batch();
    hide(&mut ram, members(0b011));
    let mut writes = 0;
    loop {
        let mut cut_off = ram.clone();
        cut_off.writes = writes;
        let is_whole = assemble(&mut cut_off, ALL, 7).is_ok();
        cut_off.writes = usize::MAX;
        for present in [0b111, 0b011, 0b101, 0b110] {
            let result = found(assemble(&mut cut_off.clone(), members(present), 8));
            let has_all = result.is_ok_and(|(_, durable)| durable > late.head.sequence);
            assert!(
                has_all || result.is_err(),
                "{writes}: {present:b} {result:?}"
            );
        }
        if is_whole {
            break;
        }
        writes += 1;
    }
    assert!(writes > 3);
}

/// A member failed while a batch was on its way to it, which was flushed then. The next assembly of
/// the two others was cut off when it had told one of them. The other one hides a slot, and shows
/// what the one that has failed does, which hides a slot as well: it has the parent of that epoch.
#[test]
fn who_hides_a_slot_was_told_the_parent_though_a_stale_one_hides_one_too() {
    let two = members(0b110);
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    let epoch = shown(&ram, 0).epoch;
    // As a dump does.
    tell(&mut ram, ALL, epoch);
    let late = begin(&mut log, 1).unwrap();
    ram.arrive(&late, two);
    for member in two.iter() {
        log.written(late.head.sequence, member);
    }
    log.fail(0);
    tell(&mut ram, two, epoch.without(70, Members::of(0)));
    log.epoch_is_durable(Members::of(0));
    assert!(log.acknowledge().is_some());
    assert_eq!(flush(&mut log), Some(late.head.sequence));
    let mut next = ram.clone();
    assemble(&mut next, two, 7).unwrap();
    ram.bytes[1][..8192].copy_from_slice(&next.bytes[1][..8192]);
    hide(&mut ram, members(0b101));
    assert_eq!(shown(&ram, 0).epoch, shown(&ram, 2).epoch);
    let result = found(assemble(&mut ram, ALL, 8));
    assert_eq!(result, Ok((two, late.head.sequence + 1)));
}

/// Two assemblies with others absent have one incarnation: the first was cut off when one of its
/// members was told, the other one has gone on. Who is in both cannot give its newer slot.
#[test]
fn of_two_epochs_of_one_incarnation_the_log_knows_which_it_is() {
    for (cut, whole) in [(0b110, 0b101), (0b101, 0b110)] {
        let mut ram = Ram::new();
        assemble(&mut ram, ALL, 6).unwrap();
        let (cut, whole) = (members(cut), members(whole));
        let first = cut.iter().next().unwrap();
        let mut later = ram.clone();
        assemble(&mut later, cut, 7).unwrap();
        ram.bytes[first][..8192].copy_from_slice(&later.bytes[first][..8192]);
        let (mut log, _) = assemble(&mut ram, whole, 8).unwrap();
        for _ in 0..3 {
            write(&mut ram, &mut log, 1);
        }
        flush(&mut log);
        hide(&mut ram, Members::of(2));
        let found = found(assemble(&mut ram, ALL, 9));
        assert_eq!(found, Ok((whole, log.durable() + 1)));
    }
}

/// A slot of a member cannot be read while the next assembly tells another one its epoch, and can
/// be read again after that was cut off: it has another child of the epoch that counted.
#[test]
fn children_that_exclude_each_other_do_not_count() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let parent = shown(&ram, 0).epoch;
    let next = Epoch {
        id: 7,
        parent: parent.id,
        incarnation: parent.incarnation + 1,
        ..parent
    };
    let mut forked = ram.clone();
    tell(&mut forked, Members::of(0), next);
    tell(
        &mut forked,
        Members::of(1),
        parent.without(8, Members::of(2)),
    );
    let result = found(assemble(&mut forked.clone(), ALL, 9));
    assert_eq!(result, Ok((ALL, log.durable() + 1)));
    // Who has failed by a child does not say that a batch was torn.
    let (member, at) = (0, layout().segment(log.cursor().next));
    let mut bad = forked.clone();
    bad.unreadable = Some((member, at));
    let refused = assemble(&mut bad, ALL, 9).map(|_| ());
    assert_eq!(refused, Err(Fault::Unreadable { member, at }));
    // The one that is missing may know more.
    let present = members(0b011);
    let refused = assemble(&mut forked.clone(), present, 9).map(|_| ());
    let force_helps = true;
    let why = NoQuorum {
        present,
        force_helps,
    };
    assert_eq!(refused, Err(Fault::NoQuorum(why)));
    // By force the two are taken, which both epochs call in sync.
    let forced = found(assemble_by_force(&mut forked, present, 9));
    assert_eq!(forced, Ok((present, log.durable() + 1)));
    // A member that returns is told its parent, and is not in sync by it.
    let (mut log, _) = assemble(&mut ram, members(0b110), 10).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let parent = shown(&ram, 1).epoch;
    tell(&mut ram, Members::of(0), parent);
    tell(&mut ram, Members::of(2), parent.with(11, 0));
    let next = Epoch {
        id: 12,
        parent: parent.id,
        incarnation: parent.incarnation + 1,
        ..parent
    };
    tell(&mut ram, Members::of(1), next);
    let result = found(assemble(&mut ram, ALL, 13));
    assert_eq!(result, Ok((members(0b110), log.durable() + 1)));
}

/// Two members hide what they were told, so another epoch of the same members is told to one of
/// them over it. Then both can be read.
#[test]
fn two_epochs_of_the_same_members_are_as_good() {
    let two = members(0b011);
    let mut ram = Ram::new();
    assemble(&mut ram, two, 6).unwrap();
    let before = ram.clone();
    let (mut log, _) = assemble(&mut ram, two, 7).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let mut other = before;
    assemble(&mut other, two, 8).unwrap();
    ram.bytes[0][..8192].copy_from_slice(&other.bytes[0][..8192]);
    for present in [two, ALL] {
        let result = found(assemble(&mut ram.clone(), present, 9));
        assert_eq!(result, Ok((two, log.durable() + 1)), "{present:?}");
    }
}

/// One that went on with a child hides it, and shows its parent again: that is older than the log.
#[test]
fn a_child_that_was_relied_on_is_not_given_up_as_one_of_two() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    let parent = shown(&ram, 0).epoch;
    fails(&mut ram, &mut log, 2);
    // As if an assembly had been cut off while both could not be read.
    let mut superblock = shown(&ram, 1);
    superblock.epoch = Epoch {
        id: 9,
        parent: parent.id,
        incarnation: parent.incarnation + 1,
        ..parent
    };
    give(&mut ram, superblock);
    let result = found(assemble(&mut ram, ALL, 10));
    assert_eq!(result, Ok((members(0b011), log.durable() + 1)));
}

/// A device was replaced, and is put back in the place of the one that has replaced it. It hides a
/// slot, and power has failed when one of the others was told an epoch: it is not one of those that
/// are behind.
#[test]
fn a_device_that_was_replaced_is_not_taken_for_the_one_in_its_place() {
    let mut ram = Ram::new();
    assemble(&mut ram, ALL, 6).unwrap();
    let old = ram.bytes[2].clone();
    let replaced = shown(&ram, 0).devices;
    let (mut log, _) = assemble(&mut ram, ALL, 7).unwrap();
    let mut devices = replaced;
    devices[2] = Device { id: 99, since: 2 };
    for member in 0..MEMBERS {
        let superblock = shown(&ram, member);
        give(&mut ram, superblock.with_devices(devices, superblock.epoch));
    }
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let mut next = ram.clone();
    assemble(&mut next, ALL, 8).unwrap();
    ram.bytes[0][..8192].copy_from_slice(&next.bytes[0][..8192]);
    ram.bytes[2] = old;
    hide(&mut ram, Members::of(2));
    let result = found(assemble(&mut ram.clone(), ALL, 9));
    assert_eq!(result, Ok((members(0b011), log.durable() + 1)));
    // Nor does it say what the one that is missing may know.
    hide(&mut ram, Members::of(0));
    let refused = assemble(&mut ram, ALL, 9).map(|_| ());
    assert_eq!(refused, Err(Fault::Unsure(0)));
}

/// A member failed while the array ran. One of the two others is lost, and the other one has lost
/// the slot that says so: by force what was written since then is given up.
#[test]
fn what_was_written_since_a_failure_is_given_up_by_force() {
    let two = members(0b101);
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let durable = log.durable();
    fails(&mut ram, &mut log, 2);
    hide(&mut ram, Members::of(0));
    let refused = assemble(&mut ram.clone(), two, 8).map(|_| ());
    assert_eq!(refused, Err(Fault::Unsure(0)));
    // It may be cut off, at each of its writes of a superblock.
    let mut forced = ram.clone();
    let result = found(assemble_by_force(&mut forced, two, 8));
    assert_eq!(result, Ok((two, durable + 1)));
    for told in [two, Members::of(0), Members::of(2)] {
        let mut cut = ram.clone();
        for member in told.iter() {
            let slots = ..usize::from(SLOTS) * 4096;
            cut.bytes[member][slots].copy_from_slice(&forced.bytes[member][slots]);
        }
        let again = found(assemble_by_force(&mut cut.clone(), two, 9));
        assert_eq!(again, Ok((two, durable + 1)), "{told:?}");
        if told == two {
            assert_eq!(found(assemble(&mut cut, two, 9)), again);
        }
    }
    // It is given up for good, also if the other one is there again.
    for new in 0..12 {
        let mut ram = forced.clone();
        let (mut log, _) = assemble(&mut ram, two, 10).unwrap();
        for _ in 0..new {
            write(&mut ram, &mut log, 1);
            flush(&mut log);
        }
        let expected = Ok((two, log.durable() + u64::from(new > 0)));
        for present in [two, ALL] {
            let again = found(assemble(&mut ram.clone(), present, 11));
            assert_eq!(again, expected, "{new} {present:?}");
        }
    }
}
