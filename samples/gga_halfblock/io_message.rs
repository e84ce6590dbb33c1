// SPDX-License-Identifier: GPL-2.0

//! The IO message: 64 bytes, a cache line; a request, and its result in the same form. All numbers
//! are big-endian; what is between the fields and behind them is written as 0 and not read.

use zerocopy::big_endian::{U32, U64};
use zerocopy::transmute;
use zerocopy_derive::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::defect::Defect;

/// Length of a message.
pub const MESSAGE_BYTES: usize = 64;
/// Blocks of a request, at most.
pub const BLOCKS_MAX: u32 = 255;

/// A message as it is sent.
pub type Bytes = [u8; MESSAGE_BYTES];

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Wire {
    kind: U32,
    gap: [u8; 4],
    user_data: U64,
    result: U32,
    io_bytes: U32,
    requester_offset: U64,
    storage_offset: U64,
    rest: [u8; 24],
}

/// The kind of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The answer to a request.
    Result,
    /// Storage to memory of the requester.
    Read,
    /// Memory of the requester to storage.
    Write,
}

/// A message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoMessage {
    /// The kind.
    pub kind: Kind,
    /// Number of the transaction; the answer has it, too.
    pub user_data: u64,
    /// Error number of an answer.
    pub result: u32,
    /// Length of the data.
    pub io_bytes: u32,
    /// Their offset in the memory that the requester has exported.
    pub requester_offset: u64,
    /// Their offset in the storage.
    pub storage_offset: u64,
}

/// The limits that a request must keep to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Transactions of a core.
    pub transactions: u32,
    /// Length of a block.
    pub block_bytes: u32,
    /// Length of the storage.
    pub storage_bytes: u64,
    /// Length of the requester's memory.
    pub memory_bytes: usize,
}

impl IoMessage {
    /// The bytes of the message.
    pub fn encode(&self) -> Bytes {
        transmute!(Wire {
            kind: U32::new(self.kind as u32),
            gap: [0; 4],
            user_data: U64::new(self.user_data),
            result: U32::new(self.result),
            io_bytes: U32::new(self.io_bytes),
            requester_offset: U64::new(self.requester_offset),
            storage_offset: U64::new(self.storage_offset),
            rest: [0; 24],
        })
    }

    /// Reads a message.
    ///
    /// # Errors
    ///
    /// Returns a defect if there is no such type.
    pub fn decode(bytes: &Bytes) -> Result<Self, Defect> {
        let wire: Wire = transmute!(*bytes);
        Ok(Self {
            kind: match wire.kind.get() {
                0 => Kind::Result,
                1 => Kind::Read,
                2 => Kind::Write,
                other => return Err(Defect::new("the type", other, "0, 1 or 2")),
            },
            user_data: wire.user_data.get(),
            result: wire.result.get(),
            io_bytes: wire.io_bytes.get(),
            requester_offset: wire.requester_offset.get(),
            storage_offset: wire.storage_offset.get(),
        })
    }

    /// The answer to this message.
    pub const fn answer(&self, result: u32) -> Self {
        Self {
            kind: Kind::Result,
            result,
            ..*self
        }
    }

    /// Answers a message with the error number that `serve` returns.
    pub fn answered(message: &Bytes, serve: impl FnOnce(Result<Self, Defect>) -> u32) -> Bytes {
        let wire: Wire = transmute!(*message);
        let result = serve(Self::decode(message));
        transmute!(Wire {
            kind: U32::new(Kind::Result as u32),
            gap: [0; 4],
            result: U32::new(result),
            rest: [0; 24],
            ..wire
        })
    }

    /// Checks a request before any number of it is used.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with it.
    pub fn check(&self, limits: &Limits) -> Result<(), Defect> {
        if self.kind == Kind::Result {
            return Err(Defect::new("the type", 0, "that of a request is 1 or 2"));
        }
        if self.user_data >= limits.transactions.into() {
            let rule = format_args!("there are {}", limits.transactions);
            return Err(Defect::new("the transaction", self.user_data, rule));
        }
        let block = limits.block_bytes;
        let blocks = self.io_bytes.checked_div(block).unwrap_or(0);
        let is_whole = blocks.checked_mul(block) == Some(self.io_bytes);
        if blocks == 0 || blocks > BLOCKS_MAX || !is_whole {
            let rule = format_args!("1 to {BLOCKS_MAX} blocks of {block}");
            return Err(Defect::new("the length of the data", self.io_bytes, rule));
        }
        if self.storage_offset % u64::from(block) != 0 {
            let rule = format_args!("a multiple of {block}");
            return Err(Defect::new(
                "the storage's offset",
                self.storage_offset,
                rule,
            ));
        }
        let memory = limits.memory_bytes as u64;
        for (field, offset, end) in [
            (
                "the storage's offset",
                self.storage_offset,
                limits.storage_bytes,
            ),
            ("the memory's offset", self.requester_offset, memory),
        ] {
            let last = offset.checked_add(self.io_bytes.into());
            if last.is_none_or(|last| last > end) {
                let rule = format_args!("{} bytes from there on end at {end}", self.io_bytes);
                return Err(Defect::new(field, offset, rule));
            }
        }
        Ok(())
    }
}
