// SPDX-License-Identifier: GPL-2.0

//! The IO requests of a client, from their arrival to their answer.
//!
//! | file | what |
//! |---|---|
//! | `requests` | finds the device of a request, and starts it |
//! | `target` | a device for its requests, and how it carries them out |
//! | `plain` | a bio over the request's pages |
//! | `backlog` | requests that wait until the disk takes them |
//! | `protection` | requests with protection information |
//! | `client` | who has sent them: its name, its version, and why it is refused |
//!
//! All of this is the IO path: the only allocation is that of the bio (from its pool), and there is
//! no sleeping lock. `proto` has checked that the numbers of a request are consistent, and
//! [`requests`] that the mapping permits it.

pub(super) mod backlog;
pub(super) mod client;
pub(super) mod plain;
pub(super) mod protection;
pub(super) mod requests;
pub(super) mod target;

use block_ext::Flags;
use rtrs_server::Operation;

use crate::proto::{
    flags::{
        Op,
        Rw,
        RwFlags, //
    },
    message::Direction, //
};

/// The reserve of bios of a pool, so that requests make progress under memory pressure.
pub(super) const BIOS_RESERVED: u16 = 64;

/// Returns the direction of a request's data.
#[inline]
pub(super) fn direction_of(operation: &Operation) -> Direction {
    if operation.is_read() {
        Direction::Read
    } else {
        Direction::Write
    }
}

/// Converts an operation for the block layer.
#[inline]
pub(super) fn op_of(op: Op) -> block_ext::Op {
    match op {
        Op::Read => block_ext::Op::Read,
        Op::Write => block_ext::Op::Write,
        Op::Flush => block_ext::Op::Flush,
        Op::Discard => block_ext::Op::Discard,
        Op::SecureErase => block_ext::Op::SecureErase,
        Op::WriteZeroes => block_ext::Op::WriteZeroes,
    }
}

/// Converts the flags of an operation for the block layer. All are as those of a task that waits
/// ([`Flags::awaited`]): a client has throttled its writes by itself.
#[inline]
pub(super) fn flags_of(rw: Rw) -> Flags {
    let flag = |flag, as_bio| match rw.flags.has(flag) {
        true => as_bio,
        false => Flags::NONE,
    };
    // Of reads and others they change nothing; without a condition they cost nothing.
    Flags::SYNC
        | Flags::IDLE
        | flag(RwFlags::FUA, Flags::FUA)
        | flag(RwFlags::PREFLUSH, Flags::PREFLUSH)
        | flag(RwFlags::NOUNMAP, Flags::NOUNMAP)
}
