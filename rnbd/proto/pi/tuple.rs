// SPDX-License-Identifier: GPL-2.0

//! One tuple: the guard of an interval's data, an application tag, and the interval's address.
//!
//! The numbers are big-endian, as in T10-DIF and NVMe and in the kernel's block layer. The CRCs are
//! not computed here: the kernel's are in `lib/crc`.

use super::Format;

/// The application tag of an interval that is not verified, as its tuple was never made.
pub const APP_ESCAPE: u16 = 0xffff;

/// The length of the longest tuple, in bytes.
pub const TUPLE_LEN_MAX: usize = 16;

/// A decoded tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// The checksum of the data: CRC64-NVMe, or CRC16 of T10-DIF in the lower 16 bits.
    pub guard: u64,
    /// The application tag.
    pub app: u16,
    /// The reference tag, in the lower 48 or 32 bits.
    pub reference: u64,
}

/// The result of a check whose tuple is not wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Data and address are those of the tuple.
    Right,
    /// The tuple is an escape: the data were not checked.
    NotProtected,
}

/// The fault of an interval of data or its tuple (`EILSEQ`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The tuple is that of another address.
    Reference {
        /// The address in the tuple.
        tuple: u64,
        /// The address of the interval.
        interval: u64,
    },
    /// The data has another checksum.
    Guard {
        /// The address of the interval.
        interval: u64,
    },
}

impl core::fmt::Display for Wrong {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Reference { tuple, interval } => {
                write!(f, "interval {interval} has the tuple of interval {tuple}")
            }
            Self::Guard { interval } => write!(f, "interval {interval} has a wrong checksum"),
        }
    }
}

impl Tuple {
    /// Creates the tuple of an interval's data with the checksum `guard`.
    pub const fn new(format: Format, guard: u64, reference: u64) -> Self {
        Self {
            guard: checksum(format, guard),
            app: 0,
            reference: mask(format, reference),
        }
    }

    /// Reads a tuple from its bytes; `None` if their number is not [`Format::tuple_bytes`].
    pub fn read(format: Format, bytes: &[u8]) -> Option<Self> {
        let packed = Packed::load(format, |target| {
            if target.len() != bytes.len() {
                return Err(());
            }
            for (target, source) in target.iter_mut().zip(bytes) {
                *target = *source;
            }
            Ok(())
        });
        Some(packed.ok()?.unpack(format))
    }

    /// Writes the tuple; returns its bytes, of which the first [`Format::tuple_bytes`] count.
    pub fn write(&self, format: Format) -> [u8; TUPLE_LEN_MAX] {
        let mut all = [0; TUPLE_LEN_MAX];
        self.pack(format).store(format, |bytes| {
            for (target, source) in all.iter_mut().zip(bytes) {
                *target = *source;
            }
        });
        all
    }

    /// Returns the tuple as it lies in memory.
    #[inline(always)]
    pub const fn pack(&self, format: Format) -> Packed {
        let (app, reference) = (self.app as u64, mask(format, self.reference));
        match format {
            Format::Crc64 => Packed {
                first: self.guard,
                last: app.wrapping_shl(48) | reference,
            },
            Format::T10 => Packed {
                first: 0,
                last: self.guard.wrapping_shl(48) | app.wrapping_shl(32) | reference,
            },
        }
    }

    /// Verifies the tuple of the interval with the address `reference`, whose data has the
    /// checksum that `guard` returns; it is not called for an escape.
    ///
    /// The order and the escape are those of the kernel's block layer for T10 type 1.
    pub fn verify(
        &self,
        format: Format,
        reference: u64,
        guard: impl FnOnce() -> u64,
    ) -> Result<Verdict, Wrong> {
        let interval = mask(format, reference);
        if self.app == APP_ESCAPE {
            return Ok(Verdict::NotProtected);
        }
        if self.reference != interval {
            return Err(Wrong::Reference {
                tuple: self.reference,
                interval,
            });
        }
        if self.guard != checksum(format, guard()) {
            return Err(Wrong::Guard { interval });
        }
        Ok(Verdict::Right)
    }
}

/// A tuple as it lies in memory: a word or two, as numbers. Tuples are equal if these are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packed {
    /// The first of the two words of [`Format::Crc64`]; [`Format::T10`] has one, and 0 here.
    first: u64,
    last: u64,
}

impl Packed {
    /// Reads a tuple from the bytes that `fill` gets; they are [`Format::tuple_bytes`].
    ///
    /// Their number is a constant where `fill` is called, so that it becomes a load or two.
    #[inline(always)]
    pub fn load<E>(
        format: Format,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut words = [[0; 8]; 2];
        let [_, last] = &mut words;
        match format {
            Format::Crc64 => fill(words.as_flattened_mut())?,
            Format::T10 => fill(last)?,
        }
        let [first, last] = words;
        Ok(Self {
            first: u64::from_be_bytes(first),
            last: u64::from_be_bytes(last),
        })
    }

    /// Calls `put` with the bytes of the tuple, as [`Self::load`].
    #[inline(always)]
    pub fn store<R>(self, format: Format, put: impl FnOnce(&[u8]) -> R) -> R {
        let words = [self.first.to_be_bytes(), self.last.to_be_bytes()];
        let [_, last] = &words;
        match format {
            Format::Crc64 => put(words.as_flattened()),
            Format::T10 => put(last),
        }
    }

    /// Returns what the words say.
    #[inline]
    pub const fn unpack(self, format: Format) -> Tuple {
        let (guard, app) = match format {
            Format::Crc64 => (self.first, self.last.wrapping_shr(48)),
            Format::T10 => (self.last.wrapping_shr(48), self.last.wrapping_shr(32)),
        };
        Tuple {
            guard,
            // CAST: The lower 16 bits.
            app: app as u16,
            reference: mask(format, self.last),
        }
    }
}

/// Returns the part of a checksum that a tuple holds.
const fn checksum(format: Format, guard: u64) -> u64 {
    match format {
        Format::Crc64 => guard,
        Format::T10 => guard & 0xffff,
    }
}

/// Returns the part of an address that a tuple holds.
const fn mask(format: Format, reference: u64) -> u64 {
    match format {
        Format::Crc64 => reference & ((1 << 48) - 1),
        Format::T10 => reference & ((1 << 32) - 1),
    }
}
