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
                let (guard, rest) = bytes.split_first_chunk::<8>()?;
                let (app, rest) = rest.split_first_chunk::<2>()?;
                let [a, b, c, d, e, f] = *<&[u8; 6]>::try_from(rest).ok()?;
                Some(Self {
                    guard: u64::from_be_bytes(*guard),
                    app: u16::from_be_bytes(*app),
                    reference: u64::from_be_bytes([0, 0, a, b, c, d, e, f]),
                })
            }
            Format::T10 => {
                let (guard, rest) = bytes.split_first_chunk::<2>()?;
                let (app, rest) = rest.split_first_chunk::<2>()?;
                let reference = u32::from_be_bytes(rest.try_into().ok()?);
                Some(Self {
                    guard: u16::from_be_bytes(*guard).into(),
                    app: u16::from_be_bytes(*app),
                    reference: reference.into(),
                })
            }
        }
    }

    /// Writes the tuple; returns its bytes, of which the first [`Format::tuple_bytes`] count.
    pub const fn write(&self, format: Format) -> [u8; TUPLE_LEN_MAX] {
        let [a0, a1] = self.app.to_be_bytes();
        let [g0, g1, g2, g3, g4, g5, g6, g7] = self.guard.to_be_bytes();
        let [_, _, r2, r3, r4, r5, r6, r7] = self.reference.to_be_bytes();
        match format {
            Format::Crc64 => [
                g0, g1, g2, g3, g4, g5, g6, g7, a0, a1, r2, r3, r4, r5, r6, r7,
            ],
            Format::T10 => [g6, g7, a0, a1, r4, r5, r6, r7, 0, 0, 0, 0, 0, 0, 0, 0],
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
