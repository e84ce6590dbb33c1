// SPDX-License-Identifier: GPL-2.0

//! The layouts. All integers are little-endian.

use zerocopy::little_endian::{
    U16,
    U32,
    U64, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use crate::{
    Chunk,
    MetadataBytes,
    CHUNK_LEN,
    DATA_LEN,
    METADATA_LEN,
    RESERVED_LEN, //
};

/// A chunk in two parts.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Parts {
    pub(crate) data: [u8; DATA_LEN],
    pub(crate) metadata: MetadataBytes,
}

/// The metadata of a strict chunk.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Strict {
    pub(crate) id: U64,
    pub(crate) reserved: [u8; RESERVED_LEN],
    pub(crate) signature: U32,
}

/// The metadata of an extended chunk.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Extended {
    pub(crate) id: U64,
    pub(crate) object_high: U64,
    pub(crate) object_low: U64,
    pub(crate) generation: U64,
    pub(crate) data_len: U16,
    pub(crate) flags: U16,
    pub(crate) data_crc: U32,
    pub(crate) zero: U32,
    pub(crate) signature: U32,
}

/// Metadata of any layout: what the checksum covers, and the checksum.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Signed {
    pub(crate) signed: [u8; METADATA_LEN - 4],
    pub(crate) signature: U32,
}

const _: () = assert!(size_of::<Parts>() == CHUNK_LEN);
const _: () = assert!(size_of::<Strict>() == METADATA_LEN);
const _: () = assert!(size_of::<Extended>() == METADATA_LEN);
const _: () = assert!(size_of::<Signed>() == METADATA_LEN);

/// Returns whether nothing was ever written to a chunk, nor to the medium below it: all bytes are
/// zero, which no valid chunk is.
pub fn is_blank(chunk: &Chunk) -> bool {
    chunk.iter().all(|byte| *byte == 0)
}
