// SPDX-License-Identifier: GPL-2.0

//! Data that come with a connection: the private data of the connection manager, which pads it.

use zerocopy::little_endian::{
    U16,
    U32,
    U64, //
};
use zerocopy::FromBytes as _;
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::Violation;

/// The port at which a target listens unless it is told otherwise.
pub const PORT: u16 = 4048;

/// `C32U` in the order of the wire.
const MAGIC: u32 = u32::from_le_bytes(*b"C32U");
const VERSION: u16 = 1;

/// The private data that an initiator sends.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Hello {
    magic: U32,
    version: U16,
}

impl Hello {
    /// Creates it.
    pub const fn new() -> Self {
        Self {
            magic: U32::new(MAGIC),
            version: U16::new(VERSION),
        }
    }

    /// Checks private data.
    ///
    /// # Errors
    ///
    /// Returns [`Violation::Length`], [`Violation::Magic`] or [`Violation::Version`].
    pub fn check(private: &[u8]) -> Result<(), Violation> {
        let (hello, _) = Self::read_from_prefix(private).map_err(|_| short::<Self>(private))?;
        identify(hello.magic, hello.version)
    }
}

impl Default for Hello {
    fn default() -> Self {
        Self::new()
    }
}

/// The private data that a target answers with.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Welcome {
    magic: U32,
    version: U16,
    depth: U16,
    chunks: U64,
}

impl Welcome {
    /// Creates the answer of a target with `chunks` chunks, which has `depth` receives for a
    /// connection.
    pub const fn new(depth: u16, chunks: u64) -> Self {
        Self {
            magic: U32::new(MAGIC),
            version: U16::new(VERSION),
            depth: U16::new(depth),
            chunks: U64::new(chunks),
        }
    }

    /// Parses private data.
    ///
    /// # Errors
    ///
    /// As [`Hello::check`], and [`Violation::Nothing`].
    pub fn parse(private: &[u8]) -> Result<Self, Violation> {
        let (welcome, _) = Self::read_from_prefix(private).map_err(|_| short::<Self>(private))?;
        identify(welcome.magic, welcome.version)?;
        if welcome.depth.get() == 0 || welcome.chunks.get() == 0 {
            return Err(Violation::Nothing);
        }
        Ok(welcome)
    }

    /// Returns the number of the target's chunks, at least 1.
    pub const fn chunks(&self) -> u64 {
        self.chunks.get()
    }

    /// Returns how many requests may be in flight, at least 1.
    pub const fn depth(&self) -> u16 {
        self.depth.get()
    }
}

fn short<T>(private: &[u8]) -> Violation {
    Violation::Length {
        found: u32::try_from(private.len()).unwrap_or(u32::MAX),
        // CAST: a few bytes.
        expected: size_of::<T>() as u32,
    }
}

fn identify(magic: U32, version: U16) -> Result<(), Violation> {
    if magic.get() != MAGIC {
        return Err(Violation::Magic(magic.get()));
    }
    if version.get() != VERSION {
        return Err(Violation::Version(version.get()));
    }
    Ok(())
}
