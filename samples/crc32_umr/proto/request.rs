// SPDX-License-Identifier: GPL-2.0

//! Requests.
//!
//! ```text
//!  0  8     id                 the example's header
//!  8  2     size
//! 10  1     type
//! 11  size  payload            only if it is inlined
//!     4     signature          the example's tail: the CRC-32 of the user data
//!     8     first block        what the example does not say
//!     8     address
//!     4     key
//!     4     the CRC-32 of all of the above but the payload
//! ```

use core::ops::Range;

use chunk4k::{
    Checksums,
    DATA_LEN, //
};
use zerocopy::{
    little_endian::{
        U16,
        U32,
        U64, //
    },
    transmute, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::Violation;

/// The bytes in front of a payload.
pub const HEAD_LEN: usize = 11;
/// The bytes behind a payload.
pub const REST_LEN: usize = 28;
/// The bytes of a request without payload.
pub const PLAIN_LEN: u32 = (HEAD_LEN + REST_LEN) as u32;
/// The bytes of the longest request.
pub const LEN_MAX: u32 = PLAIN_LEN + u16::MAX as u32;
/// The bytes of the checksum that follows data that is read.
pub const SIGNATURE_LEN: u32 = 4;
/// The number of chunks that the largest request is about.
pub const BLOCKS_MAX: usize = (u16::MAX as usize).div_ceil(DATA_LEN);

/// The types of the example.
const READ: u8 = 0;
const WRITE: u8 = 1;
/// The data is not in the message, but is moved by RDMA.
const RDMA: u8 = 0x80;

/// The fields in front of a payload.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    id: U64,
    size: U16,
    kind: u8,
}

/// The fields behind a payload.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Rest {
    signature: U32,
    first_block: U64,
    address: U64,
    key: U32,
    crc: U32,
}

const _: () = assert!(size_of::<Head>() == HEAD_LEN);
const _: () = assert!(size_of::<Rest>() == REST_LEN);

/// Memory of the initiator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The address of its first byte.
    pub address: u64,
    /// The key that gives access.
    pub key: u32,
}

/// The operation that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// The target writes the data, and then its checksum, to the memory.
    Read(Memory),
    /// The message has the data.
    WriteInline {
        /// The checksum of the data.
        signature: u32,
    },
    /// The target reads the data from the memory.
    WriteRdma {
        /// The checksum of the data.
        signature: u32,
        /// The memory that has the data.
        memory: Memory,
    },
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    id: u64,
    size: u16,
    first_block: u64,
    operation: Operation,
}

/// The bytes of a request without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// The bytes in front of the payload.
    pub head: [u8; HEAD_LEN],
    /// The bytes behind it.
    pub rest: [u8; REST_LEN],
}

impl Request {
    /// Creates a request about `size` bytes of data from `first_block` on.
    pub const fn new(id: u64, size: u16, first_block: u64, operation: Operation) -> Self {
        Self {
            id,
            size,
            first_block,
            operation,
        }
    }

    /// Returns its number, which the response repeats.
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// Returns the bytes of data.
    pub const fn size(&self) -> u16 {
        self.size
    }

    /// Returns what is asked for.
    pub const fn operation(&self) -> Operation {
        self.operation
    }

    /// Returns the chunks that the request is about, of a store of `chunks` of them; [`None`] if
    /// they are not all there.
    pub fn blocks(&self, chunks: u64) -> Option<Range<u64>> {
        let count = u64::from(self.size).div_ceil(DATA_LEN as u64);
        let end = self.first_block.checked_add(count)?;
        (end <= chunks).then_some(self.first_block..end)
    }

    /// Returns the bytes of the message, without the payload.
    pub fn encode<C: Checksums>(&self) -> Encoded {
        let nowhere = Memory { address: 0, key: 0 };
        let (kind, signature, memory) = match self.operation {
            Operation::Read(memory) => (READ | RDMA, 0, memory),
            Operation::WriteInline { signature } => (WRITE, signature, nowhere),
            Operation::WriteRdma { signature, memory } => (WRITE | RDMA, signature, memory),
        };
        let head: [u8; HEAD_LEN] = transmute!(Head {
            id: self.id.into(),
            size: self.size.into(),
            kind,
        });
        let mut rest = Rest {
            signature: signature.into(),
            first_block: self.first_block.into(),
            address: memory.address.into(),
            key: memory.key.into(),
            crc: 0.into(),
        };
        rest.crc = covered::<C>(&head, &transmute!(rest)).into();
        Encoded {
            head,
            rest: transmute!(rest),
        }
    }

    /// Parses a message of `len_bytes` with `head` at its start and `rest` at its end.
    ///
    /// # Errors
    ///
    /// Returns the [`Violation`].
    pub fn parse<C: Checksums>(
        len_bytes: u32,
        head: &[u8; HEAD_LEN],
        rest: &[u8; REST_LEN],
    ) -> Result<Self, Violation> {
        let (computed, Head { id, size, kind }) = (covered::<C>(head, rest), transmute!(*head));
        let rest: Rest = transmute!(*rest);
        let stored = rest.crc.get();
        if stored != computed {
            return Err(Violation::HeaderCrc { stored, computed });
        }
        let size = size.get();
        let signature = rest.signature.get();
        let memory = Memory {
            address: rest.address.get(),
            key: rest.key.get(),
        };
        let (operation, payload, moved) = match kind {
            WRITE => (Operation::WriteInline { signature }, size, 0),
            k if k == READ | RDMA => (Operation::Read(memory), 0, u64::from(SIGNATURE_LEN)),
            k if k == WRITE | RDMA => (Operation::WriteRdma { signature, memory }, 0, 0),
            other => return Err(Violation::Type(other)),
        };
        if size == 0 {
            return Err(Violation::Empty);
        }
        let expected = PLAIN_LEN.saturating_add(payload.into());
        if len_bytes != expected {
            let found = len_bytes;
            return Err(Violation::Length { found, expected });
        }
        match operation {
            Operation::Read(_) if signature != 0 => {
                return Err(Violation::ReadSignature(signature))
            }
            Operation::WriteInline { .. } if memory.address != 0 || memory.key != 0 => {
                return Err(Violation::InlineMemory);
            }
            _ => {}
        }
        let moved = moved.saturating_add(size.into());
        if memory.address.checked_add(moved).is_none() {
            return Err(Violation::Wraps(memory.address));
        }
        Ok(Self {
            id: id.get(),
            size,
            first_block: rest.first_block.get(),
            operation,
        })
    }
}

/// Returns the checksum of all but the payload, and but the checksum itself.
fn covered<C: Checksums>(head: &[u8; HEAD_LEN], rest: &[u8; REST_LEN]) -> u32 {
    let before = C::crc32(0, head);
    // The array is longer than that.
    let rest = rest.first_chunk::<{ REST_LEN - 4 }>();
    C::crc32(before, rest.map_or(&[], |rest| rest))
}
