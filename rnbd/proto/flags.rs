// SPDX-License-Identifier: GPL-2.0

//! The `rw` word of an IO message: an operation in its low 8 bits, flags above.

/// What to do with a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// Read sectors.
    Read = 0,
    /// Write sectors.
    Write = 1,
    /// Empty the volatile cache.
    Flush = 2,
    /// Forget sectors.
    Discard = 3,
    /// Erase sectors securely.
    SecureErase = 4,
    /// Write zeroes to sectors.
    WriteZeroes = 5,
}

/// The number of an operation that is not known (`EOPNOTSUPP`; the C driver reads sector 0 of
/// itself and warns, D9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownOp(pub u8);

impl Op {
    /// Says whether data travels with the operation; the others concern `bi_size` bytes of which
    /// none is sent.
    #[inline]
    pub const fn has_data(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }

    /// Says whether the operation changes the device, which a read-only mapping forbids (D8).
    /// A flush changes nothing that a reader could see.
    #[inline]
    pub const fn changes_device(self) -> bool {
        !matches!(self, Op::Read | Op::Flush)
    }
}

const SYNC: u32 = 1 << 8;
const FUA: u32 = 1 << 9;
const PREFLUSH: u32 = 1 << 10;
const NOUNMAP: u32 = 1 << 11;

/// The whole word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rw {
    /// The operation.
    pub op: Op,
    /// Somebody waits for it.
    pub sync: bool,
    /// It is to be on stable storage when it is answered.
    pub fua: bool,
    /// What was written before is to be on stable storage first.
    pub preflush: bool,
    /// Write zeroes without giving the blocks back.
    pub nounmap: bool,
}

impl Rw {
    /// Creates an operation without flags.
    #[inline]
    pub const fn new(op: Op) -> Self {
        Self {
            op,
            sync: false,
            fua: false,
            preflush: false,
            nounmap: false,
        }
    }

    /// Says whether the flags about stable storage in `raw` are with an operation that can have
    /// them, which is `op`. The block layer warns about the others.
    #[inline(always)]
    pub const fn is_consistent(raw: u32, op: Op) -> bool {
        raw & (FUA | PREFLUSH) == 0 || matches!(op, Op::Write | Op::Flush)
    }

    /// Returns the word that goes on the wire.
    #[inline]
    pub const fn to_wire(self) -> u32 {
        self.op as u32
            | if self.sync { SYNC } else { 0 }
            | if self.fua { FUA } else { 0 }
            | if self.preflush { PREFLUSH } else { 0 }
            | if self.nounmap { NOUNMAP } else { 0 }
    }

    /// Reads a word from the wire. Flags that are not known are let be, as in the C driver.
    #[inline]
    pub const fn from_wire(raw: u32) -> Result<Self, UnknownOp> {
        let op = match raw & 0xff {
            0 => Op::Read,
            1 => Op::Write,
            2 => Op::Flush,
            3 => Op::Discard,
            4 => Op::SecureErase,
            5 => Op::WriteZeroes,
            // CAST: 8 bits.
            other => return Err(UnknownOp(other as u8)),
        };
        Ok(Self {
            op,
            sync: raw & SYNC != 0,
            fua: raw & FUA != 0,
            preflush: raw & PREFLUSH != 0,
            nounmap: raw & NOUNMAP != 0,
        })
    }
}
