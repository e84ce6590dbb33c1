// SPDX-License-Identifier: GPL-2.0

//! The `rw` word of an IO message: an operation in its low 8 bits, flags above.

/// An operation on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Op {
    /// Read sectors.
    Read = 0,
    /// Write sectors.
    Write = 1,
    /// Write back the volatile cache.
    Flush = 2,
    /// Discard sectors.
    Discard = 3,
    /// Erase sectors securely.
    SecureErase = 4,
    /// Write zeroes to sectors.
    WriteZeroes = 5,
}

/// The number of an unknown operation (`EOPNOTSUPP`; the C driver reads sector 0 instead and prints
/// a warning, D9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownOp(pub u8);

impl Op {
    /// Returns whether the operation has data; the others concern `bi_size` bytes, which are not
    /// sent.
    #[inline]
    pub const fn has_data(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }
}

/// A set of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ops(u8);

impl Ops {
    /// The set without an operation.
    pub const NONE: Self = Self(0);
    /// The set of all operations.
    pub const ALL: Self = Self(u8::MAX);
    /// The operations that do not change the device, which a read-only mapping permits (D8). A
    /// flush changes no data.
    pub const READING: Self = Self(1 << Op::Read as u8 | 1 << Op::Flush as u8);

    /// Returns the set without an operation.
    #[must_use]
    pub const fn without(self, op: Op) -> Self {
        Self(self.0 & !1u8.wrapping_shl(op as u32))
    }

    /// Restores what [`into_raw`](Self::into_raw) gave.
    #[inline]
    pub const fn from_raw(raw: u8) -> Self {
        Self(raw)
    }

    /// Returns the set as a number, for an atomic.
    #[inline]
    pub const fn into_raw(self) -> u8 {
        self.0
    }

    /// Returns whether the operation is in the set.
    #[inline]
    pub const fn contains(self, op: Op) -> bool {
        self.0.wrapping_shr(op as u32) & 1 != 0
    }
}

/// Modifiers of an operation, a set of the bits of the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RwFlags(u32);

impl RwFlags {
    /// No modifier.
    pub const NONE: Self = Self(0);
    /// A task waits for it.
    pub const SYNC: Self = Self(1 << 8);
    /// The data must be on stable storage before the answer.
    pub const FUA: Self = Self(1 << 9);
    /// Earlier writes must be on stable storage first.
    pub const PREFLUSH: Self = Self(1 << 10);
    /// Write zeroes without freeing the blocks.
    pub const NOUNMAP: Self = Self(1 << 11);
    const ALL: Self = Self::SYNC
        .and(Self::FUA)
        .and(Self::PREFLUSH)
        .and(Self::NOUNMAP);

    /// Returns the union of both sets.
    #[inline(always)]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns this set if `wanted`, else none.
    #[inline(always)]
    pub const fn when(self, wanted: bool) -> Self {
        if wanted {
            self
        } else {
            Self::NONE
        }
    }

    /// Returns those of the set that the word `raw` has.
    #[inline(always)]
    pub const fn of(self, raw: u32) -> Self {
        Self(self.0 & raw)
    }

    /// Returns whether any modifier of `other` is in the set.
    #[inline(always)]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// The decoded word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rw {
    /// The operation.
    pub op: Op,
    /// Its modifiers.
    pub flags: RwFlags,
}

impl Rw {
    /// Creates an operation without flags.
    #[inline]
    pub const fn new(op: Op) -> Self {
        Self {
            op,
            flags: RwFlags::NONE,
        }
    }

    /// Returns the operation as it is sent while the block layer sends no flushes for a cache that
    /// the server's device has now: a write is on stable storage before the answer. `None` for
    /// those that change data and cannot have that flag.
    #[inline]
    pub const fn forced(self) -> Option<Self> {
        match self.op {
            Op::Write => Some(Self {
                flags: self.flags.and(RwFlags::FUA),
                ..self
            }),
            Op::WriteZeroes | Op::SecureErase => None,
            // What a discarded block has is not defined, before and after it is on stable storage.
            Op::Read | Op::Flush | Op::Discard => Some(self),
        }
    }

    /// Returns whether the operation can have its flags about stable storage. The block layer warns
    /// about the others.
    #[inline(always)]
    pub const fn is_consistent(self) -> bool {
        !self.flags.has(RwFlags::FUA.and(RwFlags::PREFLUSH))
            || matches!(self.op, Op::Write | Op::Flush)
    }

    /// Returns the word for the wire.
    #[inline]
    pub const fn to_wire(self) -> u32 {
        self.op as u32 | self.flags.0
    }

    /// Decodes a word from the wire. Unknown flags are ignored, as in the C driver.
    #[inline]
    pub const fn from_wire(raw: u32) -> Result<Self, UnknownOp> {
        let op = match raw & 0xff {
            0 => Op::Read,
            1 => Op::Write,
            2 => Op::Flush,
            3 => Op::Discard,
            4 => Op::SecureErase,
            5 => Op::WriteZeroes,
            // CAST: The value has 8 bits.
            other => return Err(UnknownOp(other as u8)),
        };
        Ok(Self {
            op,
            flags: RwFlags::ALL.of(raw),
        })
    }
}
