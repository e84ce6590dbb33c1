// SPDX-License-Identifier: GPL-2.0

//! Superblocks that hide or exclude each other, and what the log and the others know of it.

use seglog::{
    fault::Fault,
    identity::Device,
    layout::Layout,
    log::Log,
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
        flush,
        write,
        Ram, //
    },
    Crc,
};

const ALL: Members = Members::ALL;

fn members(bits: u8) -> Members {
    Members::from_bits(bits).unwrap()
}

/// What a member shows.
fn shown(ram: &Ram, member: usize) -> Superblock {
    let read = |slot: u8| {
        let at = Layout::slot(slot) as usize;
        let bytes = ram.bytes[member][at..at + 512].try_into().unwrap();
        Superblock::parse(bytes, slot, &Crc)
    };
    newer(read(0), read(1)).unwrap()
}

/// A member is given its next superblock.
fn give(ram: &mut Ram, superblock: Superblock) {
    let at = Layout::slot(superblock.slot()) as usize;
    ram.bytes[superblock.member][at..at + 512].copy_from_slice(&superblock.bytes(&Crc));
}

/// The newer slots of members are damaged.
fn hide(ram: &mut Ram, hidden: Members) {
    for member in hidden.iter() {
        let at = Layout::slot(shown(ram, member).slot()) as usize;
        ram.bytes[member][at + 8] ^= 1;
    }
}

type Found = Result<(Members, u64), Fault<()>>;

fn found(result: Result<(Log, usize), Fault<()>>) -> Found {
    result.map(|(log, _)| (log.live(), log.durable()))
}

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
