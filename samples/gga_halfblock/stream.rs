// SPDX-License-Identifier: GPL-2.0

//! The stream of compressed blocks: what stays of an LZ4 frame without its header and its end mark.
//!
//! A block has its size before it, as 32 bits, little-endian; the highest bit says that it is not
//! compressed. Each has at most 64 KiB of data, and refers to no other.

use lz4_flex::block::{compress_into, decompress_into};

use crate::defect::Defect;

/// Data of a block at most.
pub const BLOCK_MAX_BYTES: usize = 64 << 10;

/// The size's bit of a block that is not compressed.
const IS_RAW: u32 = 1 << 31;

/// Compresses data; returns the length of the stream, or `None` if it does not fit. One and a half
/// times the data, of 128 bytes at least, are enough for any data.
pub fn compress(data: &[u8], stream: &mut [u8]) -> Option<usize> {
    let mut len = 0;
    for block in data.chunks(BLOCK_MAX_BYTES) {
        let (size, body) = stream.get_mut(len..)?.split_first_chunk_mut()?;
        let mut bytes = compress_into(block, body).ok()?;
        let mut flag = 0;
        if bytes >= block.len() {
            body.get_mut(..block.len())?.copy_from_slice(block);
            bytes = block.len();
            flag = IS_RAW;
        }
        *size = (u32::try_from(bytes).ok()? | flag).to_le_bytes();
        len += size.len() + bytes;
    }
    Some(len)
}

/// Decompresses a stream, which must fill `data` exactly.
///
/// # Errors
///
/// Returns what is wrong with the stream; `data` has an undefined content then.
pub fn decompress(stream: &[u8], data: &mut [u8]) -> Result<(), Defect> {
    let mut left = data;
    let mut rest = stream;
    while !rest.is_empty() {
        let at = stream.len() - rest.len();
        let cut = || {
            Defect::new(
                "the place of a compressed block",
                at,
                "the stream ends in it",
            )
        };
        let (size, behind) = rest.split_first_chunk().ok_or_else(cut)?;
        let size = u32::from_le_bytes(*size);
        let bytes = (size & !IS_RAW) as usize;
        if bytes == 0 || bytes > BLOCK_MAX_BYTES {
            let rule = format_args!("1 to {BLOCK_MAX_BYTES}");
            return Err(Defect::new("the size of a compressed block", size, rule));
        }
        let (block, next) = behind.split_at_checked(bytes).ok_or_else(cut)?;
        let room = left.len().min(BLOCK_MAX_BYTES);
        let to = left.get_mut(..room).unwrap_or_default();
        let done = if size & IS_RAW == 0 {
            let is_none = |why| Defect::new("the place of an LZ4 block", at, why);
            decompress_into(block, to).map_err(is_none)?
        } else {
            let rule = format_args!("{room} bytes of data are left");
            let large = || Defect::new("the size of a raw block", bytes, rule);
            to.get_mut(..bytes)
                .ok_or_else(large)?
                .copy_from_slice(block);
            bytes
        };
        left = left.get_mut(done..).unwrap_or_default();
        rest = next;
    }
    if left.is_empty() {
        Ok(())
    } else {
        Err(Defect::new(
            "what the stream lacks of the data",
            left.len(),
            "none",
        ))
    }
}
