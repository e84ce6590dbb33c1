// SPDX-License-Identifier: GPL-2.0

//! A PI block: the tuples of a group, and nothing else.
//!
//! It has no header, and needs none: each tuple says by its reference where it belongs, so that a
//! sector that was lost, torn off or misdirected costs the tuples in it, not their neighbours.

use zerocopy::{
    FromBytes,
    IntoBytes, //
};

use super::{
    tuple::{
        Seal,
        Tuple,
        TUPLE_BYTES, //
    },
    Block,
    BLOCK_BYTES, //
};

/// The number of data blocks of a group.
pub const GROUP_BLOCKS: u64 = (BLOCK_BYTES / TUPLE_BYTES) as u64;

/// A place in a group: below [`GROUP_BLOCKS`].
pub type Index = u8;
const _: () = assert!(GROUP_BLOCKS == 1 << Index::BITS);

/// Returns the group of a data block, and the block's place in it.
pub const fn place(block: u64) -> (u64, Index) {
    // CAST: the low bits are the place.
    (block / GROUP_BLOCKS, block as Index)
}

/// Returns the data block at a place of a group.
pub const fn block_at(group: u64, index: Index) -> u64 {
    // CAST: widening; `u64::from` is not const.
    group.wrapping_mul(GROUP_BLOCKS) | index as u64
}

/// Returns the tuple at a place of a PI block.
pub fn tuple(pi_block: &Block, index: Index) -> Tuple {
    pi_block
        .chunks_exact(TUPLE_BYTES)
        .nth(index.into())
        .and_then(|bytes| Tuple::read_from_bytes(bytes).ok())
        .unwrap_or_default()
}

/// Sets the tuple at a place of a PI block.
pub fn set_tuple(pi_block: &mut Block, index: Index, tuple: &Tuple) {
    if let Some(bytes) = pi_block.chunks_exact_mut(TUPLE_BYTES).nth(index.into()) {
        bytes.copy_from_slice(tuple.as_bytes());
    }
}

/// Writes the PI block of a group of whose tuples nothing is known; `crc` returns the CRC of a data
/// block that is believed to have what was written last, `None` for one that is lost.
pub fn rebuild(
    pi_block: &mut Block,
    group: u64,
    seal: &Seal,
    mut crc: impl FnMut(u64) -> Option<u64>,
) {
    for index in 0..=Index::MAX {
        let block = block_at(group, index);
        let known = crc(block).and_then(|guard| seal.data(block, guard, 0));
        set_tuple(pi_block, index, &known.unwrap_or_else(|| seal.lost(block)));
    }
}

/// The content of the device where data blocks were never written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blank {
    /// Any content: their tuples say that they have no data.
    Unknown,
    /// Zeroes, which are data as others are: of this CRC.
    Zeroes(u64),
}

/// Writes the PI block of a group whose blocks were never written.
pub fn format(pi_block: &mut Block, group: u64, seal: &Seal, blank: Blank) {
    for index in 0..=Index::MAX {
        let block = block_at(group, index);
        let tuple = match blank {
            Blank::Unknown => seal.unwritten(block),
            // The tag is not the one that is refused.
            Blank::Zeroes(guard) => seal.data(block, guard, 0).unwrap_or_default(),
        };
        set_tuple(pi_block, index, &tuple);
    }
}
