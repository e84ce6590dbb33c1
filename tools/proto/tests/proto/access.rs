// SPDX-License-Identifier: GPL-2.0

//! Rights to a device: who may open it how, and what a mapping allows.

use proto::{
    common::errno::Errno,
    rnbd::{
        access::{
            AccessMode,
            UnknownMode, //
        },
        flags::{
            Op,
            Ops,
            Rw,
            RwFlags,
            UnknownOp, //
        },
    }, //
};

const MODES: [AccessMode; 3] = [
    AccessMode::ReadOnly,
    AccessMode::ReadWrite,
    AccessMode::Migration,
];

pub(crate) const OPS: [Op; 6] = [
    Op::Read,
    Op::Write,
    Op::Flush,
    Op::Discard,
    Op::SecureErase,
    Op::WriteZeroes,
];

#[test]
fn one_may_write_two_while_they_migrate_and_all_may_read() {
    for writers in 0..5 {
        assert_eq!(AccessMode::ReadOnly.check(writers), Ok(()));
        let expected = |allowed| if allowed { Ok(()) } else { Err(Errno::EPERM) };
        assert_eq!(AccessMode::ReadWrite.check(writers), expected(writers == 0));
        assert_eq!(AccessMode::Migration.check(writers), expected(writers < 2));
    }
}

#[test]
fn d8_a_read_only_mapping_allows_nothing_that_changes_the_device() {
    assert!(!AccessMode::ReadOnly.may_write());
    assert!(AccessMode::ReadWrite.may_write() && AccessMode::Migration.may_write());
    let changing = [Op::Write, Op::Discard, Op::SecureErase, Op::WriteZeroes];
    for op in OPS {
        let may = |access: AccessMode| access.permitted().contains(op);
        assert_eq!(may(AccessMode::ReadOnly), !changing.contains(&op), "{op:?}");
        assert!(may(AccessMode::ReadWrite) && may(AccessMode::Migration));
        assert!(!Ops::NONE.contains(op));
    }
}

#[test]
fn modes_survive_the_wire_and_the_map_line() {
    for mode in MODES {
        assert_eq!(AccessMode::from_wire(mode.to_wire()), Ok(mode));
        assert_eq!(AccessMode::parse(mode.to_string().as_bytes()), Ok(mode));
    }
    for raw in 3..=255 {
        assert_eq!(AccessMode::from_wire(raw), Err(UnknownMode));
    }
    for word in [&b""[..], b"RO", b"r", b"rww", b"migrate"] {
        assert_eq!(AccessMode::parse(word), Err(UnknownMode));
    }
}

#[test]
fn every_operation_with_every_flag_survives_the_wire() {
    for op in OPS {
        for flags in 0..16u32 {
            let of_bit = [
                RwFlags::SYNC,
                RwFlags::FUA,
                RwFlags::PREFLUSH,
                RwFlags::NOUNMAP,
            ];
            let bits = (0..).zip(of_bit);
            let set = bits.fold(RwFlags::NONE, |set, (bit, flag)| {
                let wanted = (flags >> bit) & 1 == 1;
                assert_eq!(flag.when(wanted) == flag, wanted);
                set.and(flag.when(wanted))
            });
            let rw = Rw { op, flags: set };
            assert_eq!(rw.to_wire(), op as u32 | (flags << 8));
            assert_eq!(Rw::from_wire(rw.to_wire()), Ok(rw));
            // Flags of a later version are let be.
            assert_eq!(Rw::from_wire(rw.to_wire() | 0xffff_f000), Ok(rw));
        }
    }
}

#[test]
fn d9_an_unknown_operation_is_refused() {
    for raw in 6..=255u8 {
        for flags in [0, 0x100, 0xffff_ff00] {
            assert_eq!(Rw::from_wire(flags | u32::from(raw)), Err(UnknownOp(raw)));
        }
    }
}

#[test]
fn what_is_not_on_stable_storage_by_itself_is_forced_there_or_not_sent() {
    for op in OPS {
        let flags = RwFlags::SYNC;
        let rw = Rw { op, flags };
        let wanted = match op {
            Op::Write => Some(Rw {
                op,
                flags: flags.and(RwFlags::FUA),
            }),
            Op::WriteZeroes | Op::SecureErase => None,
            Op::Read | Op::Flush | Op::Discard => Some(rw),
        };
        assert_eq!(rw.forced(), wanted, "{op:?}");
    }
}
