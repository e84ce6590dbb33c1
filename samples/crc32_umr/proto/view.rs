// SPDX-License-Identifier: GPL-2.0

//! The strided view of chunks: a stream of user data is the data of one chunk after the other.
//!
//! An adapter with UMR takes this as one descriptor: {4048 bytes, skip 48}, repeated. Others get a
//! gather list with an element for each chunk.

use chunk4k::{
    CHUNK_LEN,
    DATA_LEN, //
};

/// A piece of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The position in the chunks where it begins.
    pub offset: u32,
    /// Its bytes, at most [`DATA_LEN`].
    pub len_bytes: u32,
}

impl Piece {
    /// Returns where the rest of its chunk's data begins, and its bytes, which may be 0.
    pub const fn rest(&self) -> Self {
        Self {
            offset: self.offset.saturating_add(self.len_bytes),
            len_bytes: (DATA_LEN as u32).saturating_sub(self.len_bytes),
        }
    }
}

/// Returns the pieces of a stream of `size` bytes: all of [`DATA_LEN`] bytes but the last.
pub fn pieces(size: u16) -> impl Iterator<Item = Piece> {
    let mut left = u32::from(size);
    let mut offset = 0u32;
    core::iter::from_fn(move || {
        let len_bytes = left.min(DATA_LEN as u32);
        if len_bytes == 0 {
            return None;
        }
        let piece = Piece { offset, len_bytes };
        left = left.saturating_sub(len_bytes);
        // At most 17 chunks.
        offset = offset.saturating_add(CHUNK_LEN as u32);
        Some(piece)
    })
}
