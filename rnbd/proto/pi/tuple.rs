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

/// What a tuple that is right says of its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Data and address are those of the tuple.
    Right,
    /// Nothing: the tuple is an escape.
    NotProtected,
}

/// What is wrong with an interval of data or its tuple (`EILSEQ`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The tuple is that of another address.
    Reference {
        /// The address in the tuple.
        tuple: u64,
        /// That of the interval.
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
            guard,
            app: 0,
            reference: mask(format, reference),
        }
    }

    /// Reads a tuple from its bytes; `None` if their number is not [`Format::tuple_bytes`].
    pub fn read(format: Format, bytes: &[u8]) -> Option<Self> {
        match format {
            Format::Crc64 => {
                let (guard, rest) = bytes.split_first_chunk()?;
                Some(Self::from_crc64([*guard, rest.try_into().ok()?]))
            }
            Format::T10 => Some(Self::from_t10(bytes.try_into().ok()?)),
        }
    }

    /// Writes the tuple; returns its bytes, of which the first [`Format::tuple_bytes`] count.
    pub fn write(&self, format: Format) -> [u8; TUPLE_LEN_MAX] {
        let mut all = [0; TUPLE_LEN_MAX];
        self.store(format, |bytes| {
            for (target, source) in all.iter_mut().zip(bytes) {
                *target = *source;
            }
        });
        all
    }

    /// Reads a tuple from the bytes that `fill` gets; they are [`Format::tuple_bytes`].
    ///
    /// Their number is a constant where `fill` is called, so that it becomes a load or two.
    #[inline(always)]
    pub fn load<E>(
        format: Format,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Self, E> {
        match format {
            Format::Crc64 => {
                let mut words = [[0; 8]; 2];
                fill(words.as_flattened_mut())?;
                Ok(Self::from_crc64(words))
            }
            Format::T10 => {
                let mut word = [0; 8];
                fill(&mut word)?;
                Ok(Self::from_t10(word))
            }
        }
    }

    #[inline]
    const fn from_crc64([guard, rest]: [[u8; 8]; 2]) -> Self {
        let rest = u64::from_be_bytes(rest);
        Self {
            guard: u64::from_be_bytes(guard),
            // CAST: The upper 16 bits.
            app: rest.wrapping_shr(48) as u16,
            reference: mask(Format::Crc64, rest),
        }
    }

    #[inline]
    const fn from_t10(word: [u8; 8]) -> Self {
        let word = u64::from_be_bytes(word);
        Self {
            guard: word.wrapping_shr(48),
            // CAST: 16 bits of it.
            app: word.wrapping_shr(32) as u16,
            reference: mask(Format::T10, word),
        }
    }

    /// Calls `put` with the bytes of the tuple, as [`Self::load`].
    #[inline(always)]
    pub fn store<R>(&self, format: Format, put: impl FnOnce(&[u8]) -> R) -> R {
        let (app, reference) = (u64::from(self.app), mask(format, self.reference));
        match format {
            Format::Crc64 => {
                let rest = app.wrapping_shl(48) | reference;
                let words = [self.guard.to_be_bytes(), rest.to_be_bytes()];
                put(words.as_flattened())
            }
            Format::T10 => {
                let word = self.guard.wrapping_shl(48) | app.wrapping_shl(32) | reference;
                put(&word.to_be_bytes())
            }
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
        if self.guard != guard() {
            return Err(Wrong::Guard { interval });
        }
        Ok(Verdict::Right)
    }
}

/// Returns the part of an address that a tuple holds.
const fn mask(format: Format, reference: u64) -> u64 {
    match format {
        Format::Crc64 => reference & ((1 << 48) - 1),
        Format::T10 => reference & ((1 << 32) - 1),
    }
}
