// SPDX-License-Identifier: GPL-2.0

//! A stored block: as long as its data, so that a half of it has a fixed place on a device.
//!
//! | bytes | what |
//! |---|---|
//! | 0 to 3 | length of the data, big-endian |
//! | 4 to 7 | length of the stream, big-endian |
//! | from 8 on | the [stream](crate::stream), then zeroes |
//! | the last 4 | 0 |

use crate::{defect::Defect, stream};

/// Length of what is before the stream.
pub const HEADER_BYTES: usize = 8;
/// Length of what ends the block.
pub const TRAILER_BYTES: usize = 4;
/// The least block; each is a multiple of it, so that the halves are of what EC hardware takes.
pub const BLOCK_MIN_BYTES: u32 = 128;
/// The largest block.
pub const BLOCK_MAX_BYTES: u32 = 4 << 20;

/// Whether a block can have this length.
pub const fn is_block_length(bytes: u32) -> bool {
    bytes >= BLOCK_MIN_BYTES && bytes <= BLOCK_MAX_BYTES && bytes % BLOCK_MIN_BYTES == 0
}

/// Makes the stored block of some data at the start of `area`, which has room for one and a half
/// blocks; returns the length of its stream. What is behind the block has an undefined content.
///
/// # Errors
///
/// Returns a defect if the stream is too long: the format has no other form for such data.
pub fn encode(data: &[u8], area: &mut [u8]) -> Result<usize, Defect> {
    let room = data.len().saturating_sub(HEADER_BYTES + TRAILER_BYTES);
    let defect = |bytes| {
        let rule =
            format_args!("it cannot be compressed to {room}, and the format has no other form");
        Defect::new("the size of its stream", bytes, rule)
    };
    let fits = |compressed: &usize| *compressed <= room;
    let (header, to) = area
        .split_at_mut_checked(HEADER_BYTES)
        .ok_or_else(|| defect(0))?;
    let compressed = stream::compress(data, to).ok_or_else(|| defect(usize::MAX))?;
    let compressed = Some(compressed)
        .filter(fits)
        .ok_or_else(|| defect(compressed))?;
    let words = [data.len() as u32, compressed as u32];
    for (to, word) in header.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_be_bytes());
    }
    // Padding and trailer.
    let rest = area.get_mut(HEADER_BYTES + compressed..data.len());
    rest.unwrap_or_default().fill(0);
    Ok(compressed)
}

/// Whether a block was never written.
pub fn is_blank(block: &[u8]) -> bool {
    block.iter().all(|&byte| byte == 0)
}

/// Takes the data out of a stored block of the same length; returns the length of its stream.
///
/// # Errors
///
/// Returns what is wrong; `data` has an undefined content then.
pub fn decode(block: &[u8], data: &mut [u8]) -> Result<usize, Defect> {
    let short = || {
        Defect::new(
            "the length of a block",
            block.len(),
            "it has no room for a stream",
        )
    };
    let (original, rest) = block.split_first_chunk().ok_or_else(short)?;
    let (compressed, rest) = rest.split_first_chunk().ok_or_else(short)?;
    let (body, trailer) = rest.split_last_chunk().ok_or_else(short)?;
    let [original, compressed, trailer] =
        [original, compressed, trailer].map(|word| u32::from_be_bytes(*word));
    if original as usize != block.len() || block.len() != data.len() {
        let rule = match is_blank(block) {
            true => "it was never written".to_owned(),
            false => format!("that of a block is {}", data.len()),
        };
        return Err(Defect::new("the length of its data", original, rule));
    }
    let long = || {
        Defect::new(
            "the size of its stream",
            compressed,
            format_args!("{} fit", body.len()),
        )
    };
    let halves = body.split_at_checked(compressed as usize);
    let (stream, padding) = halves.ok_or_else(long)?;
    if let Some(at) = padding.iter().position(|&byte| byte != 0) {
        let at = HEADER_BYTES + stream.len() + at;
        return Err(Defect::new(
            "the place of a byte of its padding",
            at,
            "it is not 0",
        ));
    }
    if trailer != 0 {
        return Err(Defect::new("its trailer", trailer, "it must be 0"));
    }
    stream::decompress(stream, data)?;
    Ok(stream.len())
}
