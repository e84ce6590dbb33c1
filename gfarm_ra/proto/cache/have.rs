// SPDX-License-Identifier: GPL-2.0

//! The notice of a node whose read is over, to the owners that it has asked: it has the pages, and
//! waits for no holder any more. It is not answered, and nothing is wrong if it is lost.

use zerocopy::{
    little_endian::U64,
    FromBytes, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::{
    super::identity::ContentId,
    content::RawContent,
    invalid::Invalid,
    pages::PageSet, //
};

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHave {
    content: RawContent,
    chunk: U64,
    pages: [U64; 4],
}

/// The notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Have {
    id: ContentId,
    chunk: u64,
    pages: PageSet,
}

impl Have {
    /// The length of a body, in bytes.
    pub const LEN: usize = size_of::<RawHave>();

    /// Names pages of a chunk, at least one.
    pub fn new(id: ContentId, chunk: u64, pages: PageSet) -> Result<Self, Invalid> {
        if id.file.inum == 0 {
            return Err(Invalid::Object);
        }
        if pages.is_empty() {
            return Err(Invalid::Pages);
        }
        Ok(Self { id, chunk, pages })
    }

    /// Returns the content.
    pub const fn id(&self) -> ContentId {
        self.id
    }

    /// Returns the number of the chunk.
    pub const fn chunk(&self) -> u64 {
        self.chunk
    }

    /// Returns the pages, at least one.
    pub const fn pages(&self) -> PageSet {
        self.pages
    }

    /// Reads the body of a datagram of the kind [`Kind::Have`](super::wire::Kind::Have).
    pub fn parse(body: &[u8]) -> Result<Self, Invalid> {
        let raw = RawHave::read_from_bytes(body).map_err(|_| Invalid::Length)?;
        let pages = PageSet::from_words(raw.pages.map(U64::get));
        Self::new(raw.content.id()?, raw.chunk.get(), pages)
    }

    /// Encodes the body.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let raw = RawHave {
            content: RawContent::new(&self.id),
            chunk: U64::new(self.chunk),
            pages: self.pages.to_words().map(U64::new),
        };
        zerocopy::transmute!(raw)
    }
}

const _: () = assert!(Have::LEN == 68);
