// SPDX-License-Identifier: GPL-2.0

//! Conditions of the rules of an assembly: where they do not hold nothing is refused, or written.

use seglog::{
    batch::{
        Head,
        Kind, //
    },
    epoch::{
        Epoch,
        NoQuorum, //
    },
    fault::Fault,
    identity::Device,
    layout::{
        Layout,
        Place, //
    },
    log::Log,
    members::{
        Members,
        MEMBERS, //
    },
    recovery::Recovery,
    superblock::{
        Start,
        Superblock, //
    },
    table::SegmentUse,
    ArrayTag, //
};

use crate::{
    asked::{
        found,
        give,
        hide,
        members,
        shown,
        tell, //
    },
    order::{
        assemble,
        assemble_by_force,
        begin,
        empty,
        flush,
        layout,
        write,
        Batches,
        Ram, //
    },
    Crc, TAG,
};

const ALL: Members = Members::ALL;
/// An incarnation that no assembly here has.
const LATER: u64 = 1 << 20;

/// Damages the older slot of a member: it may have been the newer one.
pub(crate) fn spoil_older(ram: &mut Ram, member: usize) {
    let older = 1 - shown(ram, member).slot();
    ram.bytes[member][Layout::slot(older) as usize + 8] ^= 1;
}

/// Gives a member the head of a batch that follows the log in the next segment.
fn lie(ram: &mut Ram, log: &Log, member: usize, (incarnation, live): (u64, Members)) {
    let cursor = log.cursor();
    let place = Place {
        segment: cursor.next,
        unit: 0,
    };
    let head = Head {
        kind: Kind::Striped,
        live,
        used: live,
        place,
        units: 1,
        sequence: cursor.sequence,
        incarnation,
        segment_sequence: cursor.segment_sequence + 1,
        durable: cursor.sequence - 1,
        next: (cursor.next + 1) % 8,
        previous: cursor.previous,
        bodies: empty(1),
    };
    let (bytes, _) = head.bytes(TAG, &Crc);
    let at = layout().at(place).unwrap() as usize;
    ram.bytes[member][at..at + bytes.len()].copy_from_slice(&bytes);
}

/// A device that was replaced has one slot, and a member has a damaged one: that is one member
/// whose newer superblock may be gone, so the log is not asked, and a member that lies refuses
/// nothing.
#[test]
fn a_slot_of_a_device_that_was_replaced_is_no_doubt() {
    let two = members(0b011);
    let mut ram = Ram::new();
    let old = ram.bytes[2].clone();
    assemble(&mut ram, ALL, 6).unwrap();
    let mut devices = shown(&ram, 0).devices;
    devices[2] = Device { id: 99, since: 2 };
    for member in 0..MEMBERS {
        let superblock = shown(&ram, member);
        give(&mut ram, superblock.with_devices(devices, superblock.epoch));
    }
    let (log, _) = assemble(&mut ram, two, 7).unwrap();
    ram.bytes[2] = old;
    lie(&mut ram, &log, 1, (LATER, ALL));
    spoil_older(&mut ram, 0);
    let result = found(assemble(&mut ram, ALL, 8));
    assert_eq!(result, Ok((two, log.durable())));
}

/// A device of another array is told, whatever it says of devices.
#[test]
fn devices_of_another_array_take_the_place_of_none() {
    let mut ram = Ram::new();
    assemble(&mut ram, ALL, 6).unwrap();
    let mut other = Superblock::new(([7; 16], ArrayTag(7)), 2, layout(), 5);
    other.epoch = shown(&ram, 2).epoch;
    other.devices[0] = Device { id: 99, since: 2 };
    other.writes = shown(&ram, 2).writes + 1;
    give(&mut ram, other);
    spoil_older(&mut ram, 1);
    let result = assemble(&mut ram, ALL, 7).map(|_| ());
    assert_eq!(result, Err(Fault::OtherArray(2)));
}

/// An epoch whose child excludes one of its members does not count where the third member is
/// missing, which is in sync by the child: both may have gone on.
#[test]
fn a_child_that_one_who_is_missing_may_hold_is_not_given_up() {
    let present = members(0b011);
    let mut ram = Ram::new();
    assemble(&mut ram, present, 6).unwrap();
    let parent = shown(&ram, 0).epoch;
    let child = Epoch {
        id: 7,
        parent: parent.id,
        failed: Members::of(0),
        ..parent
    };
    tell(&mut ram, Members::of(1), child);
    let force_helps = false;
    let why = Fault::NoQuorum(NoQuorum {
        present,
        force_helps,
    });
    let result = assemble(&mut ram.clone(), present, 8).map(|_| ());
    assert_eq!(result, Err(why));
    let forced = assemble_by_force(&mut ram, present, 8).map(|_| ());
    assert_eq!(forced, Err(why));
}

/// A mirror that is not at the start of a segment covers nothing: the third member is not written
/// there, though an assembly that was cut off has begun on it behind that.
#[test]
fn a_mirror_in_a_segment_is_written_to_no_third_member() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    let batch = (Kind::Mirror, members(0b011), 1);
    let free = log.cursor().next + 1;
    let mirror = log.begin(batch, empty(1), Some(free), &Crc).unwrap();
    let used = mirror.head.used;
    ram.arrive(&mirror, used);
    used.iter()
        .for_each(|m| log.written(mirror.head.sequence, m));
    assert!(log.acknowledge().is_some() && mirror.head.place.unit > 0);
    flush(&mut log);
    // Told, and begun on the third one.
    let third = ALL.minus(used).iter().next().unwrap();
    let mut next = ram.clone();
    let (begun, _) = assemble(&mut next, ALL, 7).unwrap();
    for member in ALL.iter() {
        ram.bytes[member][..8192].copy_from_slice(&next.bytes[member][..8192]);
    }
    ram.bytes[third] = next.bytes[third].clone();
    let at = mirror.at as usize;
    let there = at..at + layout().unit_bytes();
    let before = ram.bytes[third][there.clone()].to_vec();
    let result = found(assemble(&mut ram, ALL, 8));
    assert_eq!(result, Ok((ALL, begun.durable())));
    assert_eq!(ram.bytes[third][there], before);
}

/// Batches that were flushed since a failure are given up by force, though heads call them durable.
#[test]
fn heads_that_are_given_up_do_not_say_that_the_log_was_longer() {
    let two = members(0b101);
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let durable = log.durable();
    log.fail(2);
    let epoch = shown(&ram, 0).epoch.without(70, Members::of(2));
    tell(&mut ram, members(0b011), epoch);
    log.epoch_is_durable(Members::of(2));
    for _ in 0..4 {
        let begun = begin(&mut log, 1).unwrap();
        ram.arrive(&begun, members(0b011));
        ALL.iter().for_each(|m| log.written(begun.head.sequence, m));
        assert!(log.acknowledge().is_some());
        flush(&mut log);
    }
    hide(&mut ram, Members::of(0));
    let result = found(assemble_by_force(&mut ram, two, 8));
    assert_eq!(result, Ok((two, durable + 1)));
}

/// The start of the later dump counts, which one member was told when power failed.
#[test]
fn the_log_is_followed_from_the_later_start() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let start = Start {
        generation: 1,
        area: 1,
        cursor: *log.cursor(),
    };
    for member in 0..MEMBERS {
        let mut ram = ram.clone();
        let told = shown(&ram, member).with_start(start);
        give(&mut ram, told);
        let mut memory = [const { [0; 4096] }; MEMBERS];
        let columns = memory.each_mut().map(|column| column.as_mut_slice());
        let recovery = Recovery::examine(&mut ram, (ALL, false), columns, &Crc);
        assert_eq!(recovery.map(|r| *r.start()), Ok(start), "{member}");
    }
}

/// A later incarnation that a member shows which is not in sync by the log refuses nothing.
#[test]
fn who_is_not_in_sync_by_the_log_is_not_believed() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    lie(&mut ram, &log, 0, (LATER, ALL));
    let lying = ram.bytes[0].clone();
    let epoch = shown(&ram, 0).epoch.without(70, Members::of(0));
    log.fail(0);
    tell(&mut ram, members(0b110), epoch);
    log.epoch_is_durable(Members::of(0));
    for _ in 0..3 {
        write(&mut ram, &mut log, 1);
    }
    flush(&mut log);
    ram.bytes[0] = lying;
    hide(&mut ram, members(0b110));
    let result = found(assemble(&mut ram, ALL, 8));
    assert_eq!(result, Ok((members(0b110), log.durable() + 1)));
}

/// A batch says that one of two members did not live when it was written, and too few are left. It
/// is given up by force, as what slots hide is, so the next incarnation is as much later.
#[test]
fn what_the_log_says_is_given_up_as_what_slots_hide() {
    let two = members(0b011);
    let mut ram = Ram::new();
    let (log, _) = assemble(&mut ram, two, 6).unwrap();
    let incarnation = shown(&ram, 0).epoch.incarnation;
    lie(&mut ram, &log, 1, (incarnation, members(0b110)));
    spoil_older(&mut ram, 0);
    let sequence = log.cursor().sequence;
    let refused = assemble(&mut ram.clone(), two, 7).map(|_| ());
    assert_eq!(refused, Err(Fault::Superseded { sequence }));
    let result = found(assemble_by_force(&mut ram, two, 7));
    assert_eq!(result, Ok((two, log.durable())));
    let forced = shown(&ram, 0).epoch.incarnation;
    assert!(forced > incarnation + (1 << 16), "{forced}");
}

/// The log has not ended by an incarnation which no epoch knows, whoever shows that it has begun.
#[test]
fn an_incarnation_that_no_epoch_knows_ends_nothing() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    for member in 0..MEMBERS {
        lie(&mut ram, &log, member, (LATER, ALL));
    }
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let result = found(assemble(&mut ram, ALL, 8));
    assert_eq!(result, Ok((ALL, log.durable() + 1)));
}

/// Two epochs of one incarnation, `cut` and `whole`, are as possible, as 2 is in both and hides
/// which it was told; the log is that of `whole`.
fn either_of_two(cut: Members, whole: Members) -> (Ram, Log) {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let first = cut.iter().next().unwrap();
    let mut later = ram.clone();
    assemble(&mut later, cut, 7).unwrap();
    ram.bytes[first][..8192].copy_from_slice(&later.bytes[first][..8192]);
    let (mut log, _) = assemble(&mut ram, whole, 8).unwrap();
    for _ in 0..3 {
        write(&mut ram, &mut log, 1);
    }
    flush(&mut log);
    (ram, log)
}

/// Members that were not in sync after all are not noted to have segments.
#[test]
fn a_choice_that_is_made_anew_forgets_who_has_segments() {
    let (one, other) = (members(0b101), members(0b110));
    for (cut, whole) in [(one, other), (other, one)] {
        let (mut ram, _) = either_of_two(cut, whole);
        hide(&mut ram, Members::of(2));
        let mut memory = [const { [0; 4096] }; MEMBERS];
        let columns = memory.each_mut().map(|column| column.as_mut_slice());
        let mut recovery = Recovery::examine(&mut ram, (ALL, false), columns, &Crc).unwrap();
        let mut table = Batches::new();
        recovery.walk(&mut table).unwrap();
        assert_eq!(recovery.in_sync(), whole);
        let entries = layout().parts().entries as usize;
        let uses = table.words[entries..]
            .iter()
            .map(|word| SegmentUse::from_word(*word).unwrap());
        let used: Vec<_> = uses
            .filter(|of| of.sequence > 0)
            .map(|of| of.members)
            .collect();
        assert_eq!(used, vec![whole; used.len()]);
        assert!(used.len() > 1);
    }
}

/// Batches of which each says that the members of another one did not live: a member lies, and
/// whichever is believed gives up what the other one says.
#[test]
fn batches_that_contradict_each_other_are_not_followed() {
    let (cut, whole) = (members(0b110), members(0b101));
    let (mut ram, log) = either_of_two(cut, whole);
    let incarnation = shown(&ram, 0).epoch.incarnation;
    lie(&mut ram, &log, 2, (incarnation, cut));
    hide(&mut ram, Members::of(2));
    let result = found(assemble(&mut ram, ALL, 9));
    assert!(
        matches!(result, Err(Fault::Superseded { .. })),
        "{result:?}"
    );
}

/// An assembly of 1 and 2 was cut off when it had told 1; by force 0 and 2 went on, and 2 hides it.
/// A batch says that 0 did not live: no epoch of an earlier incarnation counts for that.
#[test]
fn who_lived_is_of_the_incarnation_that_counts() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let mut told = ram.clone();
    assemble(&mut told, members(0b110), 7).unwrap();
    ram.bytes[1][..8192].copy_from_slice(&told.bytes[1][..8192]);
    spoil_older(&mut ram, 2);
    let (mut log, _) = assemble_by_force(&mut ram, members(0b101), 8).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let incarnation = shown(&ram, 0).epoch.incarnation;
    lie(&mut ram, &log, 0, (incarnation, members(0b110)));
    hide(&mut ram, Members::of(2));
    let sequence = log.cursor().sequence;
    let result = found(assemble(&mut ram, ALL, 9));
    assert_eq!(result, Err(Fault::Superseded { sequence }));
}
