// SPDX-License-Identifier: GPL-2.0

//! Operations and flags of requests and bios.
//!
//! C header: [`include/linux/blk_types.h`](srctree/include/linux/blk_types.h)

use core::ops::BitOr;
use kernel::bindings;

const OP_MASK: u32 = (1 << bindings::REQ_OP_BITS) - 1;

/// The operation of a request or a bio.
///
/// Zone operations are not represented: no disk of this crate is zoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Reads sectors.
    Read,
    /// Writes sectors.
    Write,
    /// Writes back the volatile cache; carries no data and no range.
    Flush,
    /// Discards a range; its content is undefined afterwards.
    Discard,
    /// Erases a range so that it cannot be recovered.
    SecureErase,
    /// Writes zeroes to a range; carries no data.
    WriteZeroes,
    /// Another operation; drivers end it with `EOPNOTSUPP`.
    Other,
}

impl Op {
    /// Returns the operation in `cmd_flags` or `bi_opf`.
    #[inline]
    pub(crate) fn from_raw(opf: u32) -> Self {
        match opf & OP_MASK {
            bindings::req_op_REQ_OP_READ => Op::Read,
            bindings::req_op_REQ_OP_WRITE => Op::Write,
            bindings::req_op_REQ_OP_FLUSH => Op::Flush,
            bindings::req_op_REQ_OP_DISCARD => Op::Discard,
            bindings::req_op_REQ_OP_SECURE_ERASE => Op::SecureErase,
            bindings::req_op_REQ_OP_WRITE_ZEROES => Op::WriteZeroes,
            _ => Op::Other,
        }
    }

    /// Returns the `bi_opf` of this operation, `None` for [`Op::Other`].
    ///
    /// Only the block layer uses `REQ_OP_FLUSH`: a flush bio is an empty write with `REQ_PREFLUSH`.
    #[inline]
    pub(crate) fn to_bio_opf(self) -> Option<u32> {
        Some(match self {
            Op::Read => bindings::req_op_REQ_OP_READ,
            Op::Write => bindings::req_op_REQ_OP_WRITE,
            Op::Flush => bindings::req_op_REQ_OP_WRITE | Flags::PREFLUSH.0,
            Op::Discard => bindings::req_op_REQ_OP_DISCARD,
            Op::SecureErase => bindings::req_op_REQ_OP_SECURE_ERASE,
            Op::WriteZeroes => bindings::req_op_REQ_OP_WRITE_ZEROES,
            Op::Other => return None,
        })
    }

    /// Returns whether the operation carries data in memory.
    #[inline]
    pub fn has_data(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }

    /// Returns whether the operation changes the medium (or its cache).
    #[inline]
    pub fn is_write(self) -> bool {
        !matches!(self, Op::Read)
    }
}

/// The operation of a request and its modifiers (`cmd_flags`).
#[derive(Clone, Copy)]
pub struct Command(u32);

impl Command {
    #[inline]
    pub(crate) fn from_raw(opf: u32) -> Self {
        Self(opf)
    }

    /// Returns the operation.
    #[inline]
    pub fn op(self) -> Op {
        Op::from_raw(self.0)
    }

    /// Returns the modifiers.
    #[inline]
    pub fn flags(self) -> Flags {
        Flags::from_raw(self.0)
    }

    /// Returns whether a task waits for the result: reads, and writes that are synchronous, FUA or
    /// flush (`op_is_sync`).
    #[inline]
    pub fn is_sync(self) -> bool {
        let waits = Flags::SYNC | Flags::FUA | Flags::PREFLUSH;
        self.op() == Op::Read || self.flags().intersects(waits)
    }
}

/// Modifiers of an operation, a set of `REQ_*` bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(u32);

impl Flags {
    /// No modifier.
    pub const NONE: Flags = Flags(0);
    /// A task waits for this IO (`REQ_SYNC`).
    pub const SYNC: Flags = Flags(1 << bindings::req_flag_bits___REQ_SYNC);
    /// Metadata (`REQ_META`).
    pub const META: Flags = Flags(1 << bindings::req_flag_bits___REQ_META);
    /// Boost priority in cfq-like schedulers (`REQ_PRIO`).
    pub const PRIO: Flags = Flags(1 << bindings::req_flag_bits___REQ_PRIO);
    /// Anticipate more IO after this one (`REQ_IDLE`).
    pub const IDLE: Flags = Flags(1 << bindings::req_flag_bits___REQ_IDLE);
    /// Ends when the data are on stable storage (`REQ_FUA`).
    pub const FUA: Flags = Flags(1 << bindings::req_flag_bits___REQ_FUA);
    /// Write back the volatile cache first (`REQ_PREFLUSH`).
    pub const PREFLUSH: Flags = Flags(1 << bindings::req_flag_bits___REQ_PREFLUSH);
    /// Read ahead: may fail at any time (`REQ_RAHEAD`).
    pub const RAHEAD: Flags = Flags(1 << bindings::req_flag_bits___REQ_RAHEAD);
    /// Background IO (`REQ_BACKGROUND`).
    pub const BACKGROUND: Flags = Flags(1 << bindings::req_flag_bits___REQ_BACKGROUND);
    /// Ends with `EAGAIN` instead of waiting until the device takes it, and with `EOPNOTSUPP` if
    /// the device cannot do so (`REQ_NOWAIT`).
    pub const NOWAIT: Flags = Flags(1 << bindings::req_flag_bits___REQ_NOWAIT);
    /// Polled completion (`REQ_POLLED`); meaningful on requests only.
    pub const POLLED: Flags = Flags(1 << bindings::req_flag_bits___REQ_POLLED);
    /// Swaps a page out (`REQ_SWAP`); meaningful on requests only.
    pub const SWAP: Flags = Flags(1 << bindings::req_flag_bits___REQ_SWAP);
    /// Do not free blocks when writing zeroes (`REQ_NOUNMAP`).
    pub const NOUNMAP: Flags = Flags(1 << bindings::req_flag_bits___REQ_NOUNMAP);

    /// The flags that a driver may set on a bio; the others are private to the block layer or need
    /// support that [`super::bio::Bio`] does not have (integrity, polling, allocation cache).
    const BIO: u32 = Flags::SYNC.0
        | Flags::META.0
        | Flags::PRIO.0
        | Flags::IDLE.0
        | Flags::FUA.0
        | Flags::PREFLUSH.0
        | Flags::RAHEAD.0
        | Flags::BACKGROUND.0
        | Flags::NOWAIT.0
        | Flags::NOUNMAP.0;

    /// Returns the modifiers in `cmd_flags` or `bi_opf`.
    #[inline]
    pub(crate) fn from_raw(opf: u32) -> Self {
        Flags(opf & !OP_MASK)
    }

    /// Returns the bits for `bi_opf`.
    #[inline]
    pub(crate) fn to_bio_opf(self) -> u32 {
        self.0 & Self::BIO
    }

    /// Returns these and what says, of a write or a flush, that a task waits for its end, as for a
    /// direct write of user space. Writeback throttling (`blk-wbt`) lets these pass. The
    /// submitter of another one sleeps while the device has many writes, also with
    /// [`Flags::NOWAIT`], and without end if the device does not answer.
    #[inline]
    pub fn awaited(self, op: Op) -> Flags {
        match op {
            Op::Write | Op::Flush => self | Flags::SYNC | Flags::IDLE,
            _ => self,
        }
    }

    /// Returns whether all bits of `other` are set.
    #[inline]
    pub fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns whether any bit of `other` is set.
    #[inline]
    pub fn intersects(self, other: Flags) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Flags {
    type Output = Flags;

    #[inline]
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}
