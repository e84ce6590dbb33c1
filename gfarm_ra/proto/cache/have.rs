// SPDX-License-Identifier: GPL-2.0

//! The notice of a node whose read is over, to the owners that it has asked: it has the pages, and
//! waits for no holder any more. It is not answered, and nothing is wrong if it is lost.
//!
//! ```text
//!   0  inum       8    not 0
//!   8  gen        8
//!  16  chunk      8
//!  24  pages     32    a bit for each, at least one
//! ```

use super::{
    super::attr::FileId,
    invalid::Invalid,
    pages::PageSet, //
};

/// The notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Have {
    id: FileId,
    chunk: u64,
    pages: PageSet,
}

impl Have {
    /// The length of a body, in bytes.
    pub const LEN: usize = 56;

    /// Names pages of a chunk, at least one.
    pub fn new(id: FileId, chunk: u64, pages: PageSet) -> Result<Self, Invalid> {
        if id.inum == 0 {
            return Err(Invalid::Object);
        }
        if pages.is_empty() {
            return Err(Invalid::Pages);
        }
        Ok(Self { id, chunk, pages })
    }

    /// Returns the content.
    pub const fn id(&self) -> FileId {
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
        let body: &[u8; Self::LEN] = body.try_into().map_err(|_| Invalid::Length)?;
        let mut numbers = [0; Self::LEN / 8];
        for (number, bytes) in numbers.iter_mut().zip(body.chunks_exact(8)) {
            let bytes = bytes.first_chunk().ok_or(Invalid::Length)?;
            *number = u64::from_le_bytes(*bytes);
        }
        let [inum, gen, chunk, p0, p1, p2, p3] = numbers;
        let pages = PageSet::from_words([p0, p1, p2, p3]);
        Self::new(FileId { inum, gen }, chunk, pages)
    }

    /// Encodes the body.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let [p0, p1, p2, p3] = self.pages.to_words();
        let numbers = [self.id.inum, self.id.gen, self.chunk, p0, p1, p2, p3];
        let mut body = [0; Self::LEN];
        let bytes = numbers.into_iter().flat_map(u64::to_le_bytes);
        for (to, from) in body.iter_mut().zip(bytes) {
            *to = from;
        }
        body
    }
}
