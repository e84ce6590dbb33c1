// SPDX-License-Identifier: GPL-2.0

//! The strict layout, which is that of the CRC32/UMR example.
//!
//! Who has the data elsewhere than in front of the metadata, for instance in pages of a device,
//! gives its checksum, and needs no copy: [`Metadata::seal`], [`Metadata::open`].

use zerocopy::{
    transmute,
    transmute_mut,
    transmute_ref, //
};

use crate::{
    layout::{
        Parts,
        Signed,
        Strict, //
    },
    Checksums,
    Chunk,
    Defect,
    MetadataBytes,
    DATA_LEN,
    RESERVED_LEN, //
};

/// The position of the reserved bytes in a chunk.
const RESERVED_AT: usize = DATA_LEN + 8;

/// The content of a chunk besides its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata {
    id: u64,
    reserved: [u8; RESERVED_LEN],
}

impl Metadata {
    /// Creates the metadata of chunk `id`.
    pub const fn new(id: u64, reserved: [u8; RESERVED_LEN]) -> Self {
        Self { id, reserved }
    }

    /// Returns the number of the chunk.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Returns the bytes that have no meaning.
    pub const fn reserved(&self) -> &[u8; RESERVED_LEN] {
        &self.reserved
    }

    /// Returns the bytes behind data whose checksum, by [`Checksums::crc32`], is `data_crc`.
    pub fn seal<C: Checksums>(&self, data_crc: u32) -> MetadataBytes {
        let strict = Strict {
            id: self.id.into(),
            reserved: self.reserved,
            signature: 0.into(),
        };
        let mut signed: Signed = transmute!(strict);
        signed.signature = C::crc32(data_crc, &signed.signed).into();
        transmute!(signed)
    }

    /// Returns the metadata behind data whose checksum, by [`Checksums::crc32`], is `data_crc`.
    ///
    /// # Errors
    ///
    /// Returns [`Defect::Crc`].
    pub fn open<C: Checksums>(bytes: &MetadataBytes, data_crc: u32) -> Result<Self, Defect> {
        let signed: &Signed = transmute_ref!(bytes);
        let stored = signed.signature.get();
        let computed = C::crc32(data_crc, &signed.signed);
        if stored != computed {
            return Err(Defect::Crc { stored, computed });
        }
        let strict: &Strict = transmute_ref!(bytes);
        Ok(Self {
            id: strict.id.get(),
            reserved: strict.reserved,
        })
    }

    /// Returns the metadata if it is that of chunk `id`.
    ///
    /// # Errors
    ///
    /// Returns [`Defect::Id`].
    pub fn of(self, id: u64) -> Result<Self, Defect> {
        if self.id != id {
            return Err(Defect::Id {
                found: self.id,
                expected: id,
            });
        }
        Ok(self)
    }

    /// Returns the metadata if all reserved bytes are 0.
    ///
    /// # Errors
    ///
    /// Returns [`Defect::Reserved`] with the first that is not.
    pub fn unreserved(self) -> Result<Self, Defect> {
        match (RESERVED_AT..)
            .zip(self.reserved)
            .find(|(_, byte)| *byte != 0)
        {
            Some((at, found)) => Err(Defect::Reserved { at, found }),
            None => Ok(self),
        }
    }
}

/// Completes a chunk whose data is in place.
pub fn encode<C: Checksums>(chunk: &mut Chunk, metadata: &Metadata) {
    let parts: &mut Parts = transmute_mut!(chunk);
    parts.metadata = metadata.seal::<C>(C::crc32(0, &parts.data));
}

/// Returns the metadata of a chunk; its data are the first [`DATA_LEN`] bytes.
///
/// # Errors
///
/// Returns [`Defect::Crc`].
pub fn decode<C: Checksums>(chunk: &Chunk) -> Result<Metadata, Defect> {
    let parts: &Parts = transmute_ref!(chunk);
    Metadata::open::<C>(&parts.metadata, C::crc32(0, &parts.data))
}
