// SPDX-License-Identifier: GPL-2.0

//! Forms in which the payload of a record is kept.

use core::fmt;

use seglog::record::CODEC_ZEROES;

use super::geometry::BLOCK_BYTES;

/// Form in which the payload of a record is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// The bytes as they are.
    Raw,
    /// One LZ4 block.
    Lz4,
}

/// The number of a codec is of a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unknown(pub u8);

const RAW: u8 = 2;
const LZ4: u8 = 3;
const _: () = assert!(RAW != CODEC_ZEROES && LZ4 != CODEC_ZEROES);

impl Codec {
    /// Returns the one with a number in a record that has a payload.
    ///
    /// # Errors
    ///
    /// Returns that there is none.
    pub const fn from_number(number: u8) -> Result<Self, Unknown> {
        match number {
            RAW => Ok(Self::Raw),
            LZ4 => Ok(Self::Lz4),
            _ => Err(Unknown(number)),
        }
    }

    /// Returns its number in a record.
    pub const fn number(self) -> u8 {
        match self {
            Self::Raw => RAW,
            Self::Lz4 => LZ4,
        }
    }
}

/// Treatment of what is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Data is kept as it is; only blocks of zeroes take no room.
    None,
    /// Data is kept as LZ4 blocks where that gains a sixteenth.
    #[default]
    Lz4,
}

impl Compression {
    /// Returns the one with a name.
    pub const fn parse(word: &[u8]) -> Option<Self> {
        match word {
            b"none" => Some(Self::None),
            b"lz4" => Some(Self::Lz4),
            _ => None,
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
        })
    }
}

/// Returns the bytes that the LZ4 block of `bytes` bytes may have, to be worth the work of each
/// read.
pub const fn worth(bytes: usize) -> usize {
    bytes - bytes / 16
}

/// Returns the bytes of the payload when it is not compressed any more: of `blocks` blocks.
pub const fn plain_bytes(blocks: u32) -> usize {
    (blocks as usize).saturating_mul(BLOCK_BYTES)
}
