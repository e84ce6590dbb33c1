// SPDX-License-Identifier: GPL-2.0

//! The reasons why a chunk is not what it should be.

use core::fmt;

/// The reason why a chunk is not what it should be. Positions are bytes of the chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// The checksum of the chunk is not that of its bytes. Nothing else in it counts.
    Crc {
        /// The checksum in the chunk.
        stored: u32,
        /// The checksum of its bytes.
        computed: u32,
    },
    /// The chunk is another one.
    Id {
        /// The number in the chunk.
        found: u64,
        /// The number of its place.
        expected: u64,
    },
    /// A byte that must be 0 is not.
    Reserved {
        /// The position of the byte.
        at: usize,
        /// The byte that is there.
        found: u8,
    },
    /// The chunk belongs to another object.
    Object {
        /// The object in the chunk.
        found: u128,
        /// The object that was asked for.
        expected: u128,
    },
    /// The chunk is an old state.
    Generation {
        /// The generation in the chunk.
        found: u64,
        /// The least that it may have.
        least: u64,
    },
    /// The chunk has more data than fits.
    Length {
        /// The bytes that it claims to use.
        found: u16,
    },
    /// The chunk has flags that do not exist, or is not an extended chunk.
    Flags {
        /// The flags.
        found: u16,
    },
    /// The checksum of the data that is used is not that of its bytes, while that of the chunk is
    /// right: who wrote the chunk had wrong data.
    DataCrc {
        /// The checksum in the chunk.
        stored: u32,
        /// The checksum of the bytes.
        computed: u32,
    },
}

impl Defect {
    /// Returns a word for programs.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Crc { .. } => "crc",
            Self::Id { .. } => "id",
            Self::Reserved { .. } => "reserved",
            Self::Object { .. } => "object",
            Self::Generation { .. } => "generation",
            Self::Length { .. } => "length",
            Self::Flags { .. } => "flags",
            Self::DataCrc { .. } => "data-crc",
        }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Crc { stored, computed } => {
                write!(
                    f,
                    "its checksum is {stored:#010x}, that of its bytes {computed:#010x}"
                )
            }
            Self::Id { found, expected } => {
                write!(f, "it is chunk {found}, and not {expected}")
            }
            Self::Reserved { at, found } => {
                write!(f, "byte {at} is {found:#04x}, and not 0")
            }
            Self::Object { found, expected } => {
                write!(
                    f,
                    "it belongs to object {found:#x}, and not to {expected:#x}"
                )
            }
            Self::Generation { found, least } => {
                write!(
                    f,
                    "it is of generation {found}, and not of {least} or later"
                )
            }
            Self::Length { found } => {
                write!(
                    f,
                    "it claims {found} bytes of data, which is more than fits"
                )
            }
            Self::Flags { found } => {
                write!(f, "its flags are {found:#06x}, which no extended chunk has")
            }
            Self::DataCrc { stored, computed } => write!(
                f,
                "the checksum of its data is {stored:#010x}, that of its bytes {computed:#010x}"
            ),
        }
    }
}
