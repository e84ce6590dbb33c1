// SPDX-License-Identifier: GPL-2.0

//! Superblocks that are older than the log, as a dump's start is hidden, and devices that others
//! took the place of.

use seglog::{
    batch::Kind,
    fault::Fault,
    identity::Device,
    layout::{
        Layout,
        SLOT_BYTES, //
    },
    log::Log,
    members::{
        Members,
        MEMBERS, //
    },
    superblock::{
        Start,
        Superblock, //
    },
    table::{
        write_page,
        Table, //
    },
};

use crate::{
    asked::{
        fails,
        found,
        give,
        hide,
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
    Crc, TAG,
};

const ALL: Members = Members::ALL;

fn members(bits: u8) -> Members {
    Members::from_bits(bits).unwrap()
}

/// Writes a batch that names one of eight segments as the next one.
fn write_next(ram: &mut Ram, log: &mut Log) {
    let free = (log.cursor().next + 1) % 8;
    let batch = (Kind::Striped, ALL, 4);
    let begun = log.begin(batch, empty(4), Some(free), &Crc).unwrap();
    ram.arrive(&begun, log.live());
    for member in 0..MEMBERS {
        log.written(begun.head.sequence, member);
    }
    assert!(log.acknowledge().is_some());
}

/// Ends a dump: the segments before its start are free.
fn dump(ram: &mut Ram, log: &Log, written: Members) {
    let start = Start {
        generation: 1,
        area: 1,
        cursor: *log.cursor(),
    };
    for member in written.iter() {
        let superblock = shown(ram, member).with_start(start);
        give(ram, superblock);
    }
}

/// Writes the pages of that dump.
fn pages(ram: &mut Ram) {
    let (layout, words) = (layout(), Words);
    for page in 0..layout.pages() {
        let mut bytes = vec![0; layout.parts().page_bytes as usize];
        write_page(&mut bytes, (page, 1), &words, (&layout, TAG), &Crc);
        let at = layout.page(1, page) as usize;
        for member in 0..MEMBERS {
            ram.bytes[member][at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }
}

/// A table without anything.
struct Words;

impl Table for Words {
    fn word(&self, _: u64) -> u64 {
        0
    }

    fn set(&mut self, _: u64, _: u64) {}
}

/// Member 2 has failed. The others have dumped, and their log names a segment as the next one that
/// is free since then; the slots that have the dump's start are damaged. Returns what is durable.
fn hidden_dump(ram: &mut Ram) -> u64 {
    let two = members(0b011);
    let (mut log, _) = assemble(ram, ALL, 6).unwrap();
    log.fail(2);
    let epoch = shown(ram, 0).epoch.without(70, Members::of(2));
    tell(ram, two, epoch);
    log.epoch_is_durable(Members::of(2));
    for _ in 0..6 {
        write_next(ram, &mut log);
    }
    flush(&mut log);
    dump(ram, &log, two);
    while log.cursor().next != 0 {
        write_next(ram, &mut log);
    }
    let durable = flush(&mut log).unwrap();
    hide(ram, two);
    durable
}

/// The log is whole from the older start on. An assembly would begin in the middle of it, and the
/// next one would end there, without what was flushed behind.
#[test]
fn no_incarnation_begins_in_the_middle_of_the_log() {
    let mut ram = Ram::new();
    let sequence = hidden_dump(&mut ram) + 1;
    for present in [members(0b011), ALL] {
        let mut ram = ram.clone();
        let before = ram.bytes.clone();
        let result = assemble(&mut ram, present, 8).map(|_| ());
        assert_eq!(result, Err(Fault::Overrun { sequence }), "{present:?}");
        let forced = assemble_by_force(&mut ram, present, 8).map(|_| ());
        assert_eq!(forced, Err(Fault::Overrun { sequence }), "{present:?}");
        assert!(ram.bytes == before, "nothing was written");
    }
}

/// Damage of one slot hides a start, on one member.
#[test]
fn no_incarnation_of_a_log_on_one_begins_in_the_middle_of_it() {
    let one = members(0b001);
    let single = Layout::single(*layout().parts()).unwrap();
    let mut ram = Ram::new();
    let superblock = Superblock::new(([1; 16], TAG), 0, single, 5);
    ram.bytes[0] = vec![0; single.end_bytes() as usize + 65536];
    give(&mut ram, superblock);
    let (mut log, _) = assemble(&mut ram, one, 6).unwrap();
    let write = |ram: &mut Ram, log: &mut Log| {
        let free = (log.cursor().next + 1) % 8;
        let batch = (Kind::Mirror, one, 4);
        let begun = log.begin(batch, empty(4), Some(free), &Crc).unwrap();
        let (head, _) = begun.head.bytes(TAG, &Crc);
        let at = begun.at as usize;
        ram.bytes[0][at..at + begun.head.column_bytes(&single)].fill(0);
        ram.bytes[0][at..at + head.len()].copy_from_slice(&head);
        log.written(begun.head.sequence, 0);
        assert!(log.acknowledge().is_some());
    };
    for _ in 0..6 {
        write(&mut ram, &mut log);
    }
    flush(&mut log);
    dump(&mut ram, &log, one);
    while log.cursor().next != 0 {
        write(&mut ram, &mut log);
    }
    let sequence = flush(&mut log).unwrap() + 1;
    hide(&mut ram, one);
    let result = assemble(&mut ram, one, 8).map(|_| ());
    assert_eq!(result, Err(Fault::Overrun { sequence }));
}

/// Member 0 has failed, and the others have gone on and dumped. 2 is lost, and by force 0 goes on
/// with 1, of which a slot hides that. Then slots of both hide what force has begun: the log of the
/// other two is far from there, but a batch of a later incarnation is on one of them.
#[test]
fn what_force_has_begun_is_known_wherever_it_is() {
    let (two, forced) = (members(0b110), members(0b011));
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    log.fail(0);
    let epoch = shown(&ram, 0).epoch.without(70, Members::of(0));
    tell(&mut ram, two, epoch);
    log.epoch_is_durable(Members::of(0));
    for _ in 0..4 {
        write_next(&mut ram, &mut log);
    }
    flush(&mut log);
    dump(&mut ram, &log, Members::of(2));
    pages(&mut ram);
    let (alone, sequence) = (ram.clone(), log.cursor().sequence);
    hide(&mut ram, Members::of(1));
    let (mut log, _) = assemble_by_force(&mut ram, forced, 8).unwrap();
    write_next(&mut ram, &mut log);
    flush(&mut log);
    hide(&mut ram, forced);
    let result = assemble(&mut ram.clone(), ALL, 9).map(|(log, _)| log.live());
    assert_eq!(result, Err(Fault::Superseded { sequence }));
    let result = assemble_by_force(&mut ram, ALL, 9).map(|(log, _)| log.live());
    assert_eq!(result, Ok(two));
    // If force has begun nothing, nothing is given up.
    let mut ram = alone;
    hide(&mut ram, Members::of(1));
    spoil_older(&mut ram, 2);
    let result = assemble(&mut ram, ALL, 9).map(|(log, _)| log.live());
    assert_eq!(result, Ok(two));
}

/// A member that was not in sync lately is not believed when it says that another device took the
/// place of one.
#[test]
fn one_that_lies_of_devices_refuses_no_array() {
    let mut ram = Ram::new();
    assemble(&mut ram, ALL, 6).unwrap();
    let lie = shown(&ram, 2);
    let mut devices = lie.devices;
    devices[1] = Device { id: 99, since: 2 };
    assemble(&mut ram, members(0b011), 7).unwrap();
    give(&mut ram, lie.with_devices(devices, lie.epoch));
    let result = assemble(&mut ram, ALL, 9).map(|(log, _)| log.live());
    assert_eq!(result, Ok(members(0b011)));
}

/// A new device takes the place of member 2 and is taken out again before a batch is written; the
/// old one is put back, and is in sync again. Then the new one is given by mistake: both have come
/// at the same use of a segment.
fn given_by_mistake() -> Ram {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    log.fail(2);
    let epoch = shown(&ram, 0).epoch.without(70, Members::of(2));
    tell(&mut ram, members(0b011), epoch);
    log.epoch_is_durable(Members::of(2));
    for _ in 0..2 {
        write_next(&mut ram, &mut log);
    }
    flush(&mut log);
    let take_back = |ram: &mut Ram, next: u64| {
        let (survivor, own) = (shown(ram, 0), shown(ram, 2));
        let devices = survivor.devices_with(&own, next);
        for member in 0..MEMBERS {
            let superblock = shown(ram, member).with_devices(devices, survivor.epoch);
            give(ram, superblock);
        }
    };
    let next = log.cursor().segment_sequence + 1;
    let old = ram.bytes[2].clone();
    let own = shown(&ram, 0).replacement(2, 99);
    ram.bytes[2].fill(0);
    give(&mut ram, own);
    take_back(&mut ram, next);
    let new = std::mem::replace(&mut ram.bytes[2], old);
    take_back(&mut ram, next);
    // What it lacks is moved, and a dump ends: it is in sync.
    log.take_back(2);
    for _ in 0..3 {
        write_next(&mut ram, &mut log);
    }
    flush(&mut log);
    log.join(2);
    let epoch = shown(&ram, 0).epoch.with(71, 2);
    tell(&mut ram, ALL, epoch);
    for _ in 0..2 {
        write_next(&mut ram, &mut log);
    }
    flush(&mut log);
    ram.bytes[2] = new;
    ram
}

#[test]
fn a_device_of_the_same_use_of_a_segment_is_not_in_sync() {
    let result = assemble(&mut given_by_mistake(), ALL, 9).map(|(log, _)| log.live());
    assert_eq!(result, Ok(members(0b011)));
    for present in [0b101, 0b110] {
        let result = assemble(&mut given_by_mistake(), members(present), 9);
        let result = result.map(|(log, found)| (log.live(), found));
        assert!(result.is_err(), "{result:?}");
    }
}

/// A new device takes the place of member 2, which has failed, and power fails when it alone has
/// been told. What a slot of another member hides the third one has, which knows the old device.
#[test]
fn a_device_that_came_later_than_others_know_is_there() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    fails(&mut ram, &mut log, 2);
    let survivor = shown(&ram, 0);
    let own = survivor.replacement(2, 99);
    ram.bytes[2].fill(0);
    give(&mut ram, own);
    let next = log.cursor().segment_sequence + 1;
    let devices = survivor.devices_with(&own, next);
    give(&mut ram, own.with_devices(devices, survivor.epoch));
    hide(&mut ram, Members::of(0));
    let result = found(assemble(&mut ram, ALL, 9));
    assert_eq!(result, Ok((members(0b011), log.durable() + 1)));
}

/// An assembly by force of 0 and 1 is cut off when it has told 0. Then 1 and 2 go on, another
/// device takes the place of 0 and is in sync, and the old one is there again. One slot of 1 or of
/// 2 cannot be read.
#[test]
fn a_device_that_force_had_told_before_it_was_replaced_does_not_count() {
    let mut ram = Ram::new();
    let (mut log, _) = assemble(&mut ram, ALL, 6).unwrap();
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    let mut forced = ram.clone();
    spoil_older(&mut forced, 0);
    assemble_by_force(&mut forced, members(0b011), 7).unwrap();
    let mut old = ram.bytes[0].clone();
    old[..8192].copy_from_slice(&forced.bytes[0][..8192]);
    let (mut log, _) = assemble(&mut ram, members(0b110), 8).unwrap();
    let mut devices = shown(&ram, 1).devices;
    devices[0] = Device { id: 99, since: 2 };
    log.take_back(0);
    log.join(0);
    let epoch = shown(&ram, 1).epoch.with(9, 0);
    for _ in 0..2 {
        for member in 1..MEMBERS {
            let superblock = shown(&ram, member);
            give(&mut ram, superblock.with_devices(devices, epoch));
        }
    }
    write(&mut ram, &mut log, 1);
    flush(&mut log);
    ram.bytes[0] = old;
    let two = found(assemble(&mut ram.clone(), members(0b110), 10));
    assert_eq!(two, Ok((members(0b110), log.durable() + 1)));
    let bad = [1, 2].map(|member| [0, 1].map(|slot| (member, slot * SLOT_BYTES)));
    for unreadable in bad.into_iter().flatten() {
        ram.unreadable = Some(unreadable);
        // The device that is missing may know more.
        let refused = found(assemble(&mut ram.clone(), ALL, 10));
        assert_eq!(refused, Err(Fault::Unsure(unreadable.0)));
        let forced = found(assemble_by_force(&mut ram.clone(), ALL, 10));
        assert_eq!(forced, two, "{unreadable:?}");
        // With one of the two alone nothing is known that is as new.
        for present in [members(0b011), members(0b101)] {
            let old = found(assemble_by_force(&mut ram.clone(), present, 10));
            assert!(
                matches!(old, Err(Fault::NoQuorum(_))),
                "{unreadable:?} {old:?}"
            );
        }
    }
}
