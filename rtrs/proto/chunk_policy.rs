// SPDX-License-Identifier: GPL-2.0

//! The use of a chunk that carries a request: in place, copied, or taken away from the client first
//! (decisions 0003 and 0032).

use super::{
    device::PAGE_SIZE_MIN,
    request::Request, //
};

/// The default of `write_copy_max`: the bytes of the longest write that is copied.
pub const WRITE_COPY_MAX_DEFAULT: u32 = 4096;

/// The upper end of its range. 0 is its lower end: none is copied.
pub const WRITE_COPY_MAX_MAX: u32 = 64 << 10;

/// The policy of a session, from the parameters of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkPolicy {
    always_invalidate: bool,
    write_copy_max: u32,
}

/// The use of the chunk of one request, whose head was copied once and parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkUse {
    /// The client may change the data meanwhile: a read has none, or the client is trusted.
    InPlace,
    /// The server copies the data once, and works on the copy. The client keeps the key.
    Copied,
    /// The server invalidates the chunk's key, and then copies and parses the head again.
    Invalidated,
}

impl ChunkPolicy {
    /// Returns the policy of these parameters, for chunks of so many bytes: none has more to copy.
    pub const fn new(always_invalidate: bool, write_copy_max: u32, chunk_size: u32) -> Self {
        let write_copy_max = if write_copy_max < chunk_size {
            write_copy_max
        } else {
            chunk_size
        };
        Self {
            always_invalidate,
            write_copy_max,
        }
    }

    /// Returns whether each chunk has a key of its own, which an answer may replace.
    #[inline(always)]
    pub const fn always_invalidate(self) -> bool {
        self.always_invalidate
    }

    /// Returns the bytes of memory for the copy of a write, a power of two of whole pages; 0 if
    /// none is copied.
    pub const fn copy_bytes(self) -> u32 {
        if !self.always_invalidate || self.write_copy_max == 0 {
            return 0;
        }
        match self.write_copy_max.checked_next_power_of_two() {
            Some(bytes) if bytes > PAGE_SIZE_MIN => bytes,
            _ => PAGE_SIZE_MIN,
        }
    }

    /// Returns the use of the chunk of a request.
    #[inline(always)]
    pub const fn of(self, request: &Request) -> ChunkUse {
        match request {
            Request::Write(write) if self.always_invalidate => {
                // With `write_copy_max` 0 there is no memory to copy anything to.
                if self.write_copy_max != 0 && write.data_len <= self.write_copy_max {
                    ChunkUse::Copied
                } else {
                    ChunkUse::Invalidated
                }
            }
            Request::Write(_) | Request::Read(_) => ChunkUse::InPlace,
        }
    }
}
