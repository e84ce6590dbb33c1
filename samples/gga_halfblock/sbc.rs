// SPDX-License-Identifier: GPL-2.0

//! The head of an `.sbc` file: what a device holds, behind 16 bytes that say how long its blocks
//! are and how many it has.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{transmute, FromBytes};
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{defect::Defect, stored};

/// Length of the head.
pub const HEADER_BYTES: usize = 16;
/// The bytes that a file has behind the head, at most.
pub const CONTENT_MAX_BYTES: u64 = 2 << 30;

const MAGIC: u64 = 0xdead_f00d_1337_fade;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Header {
    magic: U64,
    block_bytes: U32,
    blocks: U32,
}

/// The blocks of one device, each a half of a block of the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Length of a half block.
    pub half_bytes: u32,
    /// Their number.
    pub blocks: u32,
}

impl Geometry {
    /// Length of all half blocks.
    pub const fn content_bytes(&self) -> u64 {
        self.half_bytes as u64 * self.blocks as u64
    }

    /// Length of a block of the initiator.
    pub const fn block_bytes(&self) -> u32 {
        self.half_bytes.saturating_mul(2)
    }

    /// The head of a file.
    ///
    /// # Errors
    ///
    /// Returns why no file can have this content.
    pub fn encode(&self) -> Result<[u8; HEADER_BYTES], Defect> {
        self.check()?;
        Ok(transmute!(Header {
            magic: U64::new(MAGIC),
            block_bytes: U32::new(self.half_bytes),
            blocks: U32::new(self.blocks),
        }))
    }

    /// Reads the head of a file of `file_bytes`; `None` if it is no `.sbc` file.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it.
    pub fn decode(head: &[u8], file_bytes: u64) -> Result<Option<Self>, Defect> {
        let header = match Header::read_from_prefix(head) {
            Ok((header, _)) if header.magic.get() == MAGIC => header,
            _ => return Ok(None),
        };
        let geometry = Self {
            half_bytes: header.block_bytes.get(),
            blocks: header.blocks.get(),
        };
        geometry.check()?;
        let expected = geometry.content_bytes() + HEADER_BYTES as u64;
        if file_bytes != expected {
            let rule = format_args!("its head says {expected}");
            return Err(Defect::new("the length of the file", file_bytes, rule));
        }
        Ok(Some(geometry))
    }

    fn check(&self) -> Result<(), Defect> {
        let block = self.half_bytes.checked_mul(2);
        if !block.is_some_and(stored::is_block_length) {
            let rule = "a multiple of 64 up to 2 MiB";
            return Err(Defect::new(
                "the length of a half block",
                self.half_bytes,
                rule,
            ));
        }
        let content = self.content_bytes();
        if content == 0 || content > CONTENT_MAX_BYTES {
            let rule = format_args!("1 to {CONTENT_MAX_BYTES}");
            return Err(Defect::new("the length of the content", content, rule));
        }
        Ok(())
    }
}
