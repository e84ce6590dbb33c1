// SPDX-License-Identifier: GPL-2.0

//! The extended layout, which knows of which object and of which generation a chunk is.

use zerocopy::{
    transmute,
    transmute_mut,
    transmute_ref, //
};

use crate::{
    layout::{
        self,
        Parts,
        Signed, //
    },
    Checksums,
    Chunk,
    Defect,
    DATA_LEN, //
};

const EXTENDED: u16 = 1 << 0;
const CRC32C: u16 = 1 << 1;
const LZ4: u16 = 1 << 2;
const ALL: u16 = EXTENDED | CRC32C | LZ4;

/// The position of the 4 bytes that are 0.
const ZERO_AT: usize = 4088;

/// The kind of checksum that a chunk has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// CRC-32 of IEEE 802.3.
    #[default]
    Crc32,
    /// CRC-32C.
    Crc32c,
}

impl Algorithm {
    fn of(flags: u16) -> Self {
        if flags & CRC32C == 0 {
            Self::Crc32
        } else {
            Self::Crc32c
        }
    }

    fn update<C: Checksums>(self, before: u32, bytes: &[u8]) -> u32 {
        match self {
            Self::Crc32 => C::crc32(before, bytes),
            Self::Crc32c => C::crc32c(before, bytes),
        }
    }
}

/// The content of a chunk besides its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The number of the chunk.
    pub id: u64,
    /// The object to which it belongs.
    pub object: u128,
    /// Counts the states of the object.
    pub generation: u64,
    /// The bytes of data that are used, at most [`DATA_LEN`].
    pub data_len_bytes: u16,
    /// The checksum, of the chunk and of the data.
    pub algorithm: Algorithm,
    /// The data is compressed by LZ4. This crate does not look into it.
    pub is_lz4: bool,
}

/// The values that a reader expects of a chunk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// The number of its place.
    pub id: u64,
    /// The object that it must belong to.
    pub object: Option<u128>,
    /// The least generation that it may have.
    pub generation_min: u64,
}

impl Metadata {
    fn flags(&self) -> u16 {
        let algorithm = match self.algorithm {
            Algorithm::Crc32 => 0,
            Algorithm::Crc32c => CRC32C,
        };
        EXTENDED | algorithm | if self.is_lz4 { LZ4 } else { 0 }
    }

    /// Returns the metadata if it is what the reader expects.
    ///
    /// # Errors
    ///
    /// Returns [`Defect::Id`], [`Defect::Object`] or [`Defect::Generation`].
    pub fn check(self, expected: &Expected) -> Result<Self, Defect> {
        if self.id != expected.id {
            return Err(Defect::Id {
                found: self.id,
                expected: expected.id,
            });
        }
        if let Some(object) = expected.object.filter(|object| *object != self.object) {
            return Err(Defect::Object {
                found: self.object,
                expected: object,
            });
        }
        if self.generation < expected.generation_min {
            return Err(Defect::Generation {
                found: self.generation,
                least: expected.generation_min,
            });
        }
        Ok(self)
    }
}

/// Completes a chunk whose data is in place; bytes behind those that are used become 0.
///
/// # Errors
///
/// Returns [`Defect::Length`] for more data than fits, and leaves the chunk unchanged.
pub fn encode<C: Checksums>(chunk: &mut Chunk, metadata: &Metadata) -> Result<(), Defect> {
    let parts: &mut Parts = transmute_mut!(chunk);
    let len = usize::from(metadata.data_len_bytes);
    let (used, rest) = parts.data.split_at_mut_checked(len).ok_or(Defect::Length {
        found: metadata.data_len_bytes,
    })?;
    rest.fill(0);
    let extended = layout::Extended {
        id: metadata.id.into(),
        // CAST: the two halves.
        object_high: ((metadata.object >> 64) as u64).into(),
        object_low: (metadata.object as u64).into(),
        generation: metadata.generation.into(),
        data_len: metadata.data_len_bytes.into(),
        flags: metadata.flags().into(),
        data_crc: metadata.algorithm.update::<C>(0, used).into(),
        zero: 0.into(),
        signature: 0.into(),
    };
    let mut signed: Signed = transmute!(extended);
    let before = metadata.algorithm.update::<C>(0, &parts.data);
    let signature = metadata.algorithm.update::<C>(before, &signed.signed);
    signed.signature = signature.into();
    parts.metadata = transmute!(signed);
    Ok(())
}

/// Returns the metadata of a chunk, and the data that is used.
///
/// # Errors
///
/// Returns [`Defect::Crc`], and of a chunk with a right checksum [`Defect::Flags`],
/// [`Defect::Reserved`], [`Defect::Length`] or [`Defect::DataCrc`].
pub fn decode<C: Checksums>(chunk: &Chunk) -> Result<(Metadata, &[u8]), Defect> {
    let parts: &Parts = transmute_ref!(chunk);
    let signed: &Signed = transmute_ref!(&parts.metadata);
    let extended: &layout::Extended = transmute_ref!(&parts.metadata);
    let flags = extended.flags.get();
    let algorithm = Algorithm::of(flags);
    let stored = extended.signature.get();
    let before = algorithm.update::<C>(0, &parts.data);
    let computed = algorithm.update::<C>(before, &signed.signed);
    if stored != computed {
        return Err(Defect::Crc { stored, computed });
    }
    if flags & EXTENDED == 0 || flags & !ALL != 0 {
        return Err(Defect::Flags { found: flags });
    }
    let zero = extended.zero.get().to_le_bytes();
    if let Some((at, found)) = (ZERO_AT..).zip(zero).find(|(_, byte)| *byte != 0) {
        return Err(Defect::Reserved { at, found });
    }
    let data_len_bytes = extended.data_len.get();
    let used = parts.data.get(..usize::from(data_len_bytes));
    let used = used.ok_or(Defect::Length {
        found: data_len_bytes,
    })?;
    let (stored, computed) = (extended.data_crc.get(), algorithm.update::<C>(0, used));
    if stored != computed {
        return Err(Defect::DataCrc { stored, computed });
    }
    let high = u128::from(extended.object_high.get());
    let metadata = Metadata {
        id: extended.id.get(),
        object: high << 64 | u128::from(extended.object_low.get()),
        generation: extended.generation.get(),
        data_len_bytes,
        algorithm,
        is_lz4: flags & LZ4 != 0,
    };
    Ok((metadata, used))
}

const _: () = assert!(DATA_LEN <= u16::MAX as usize);
