// SPDX-License-Identifier: GPL-2.0

//! The engine of `rioc_server` on the host: its own files, with this crate in the place of the
//! kernel, of `rtrs_server` and of the block layer. Its tests send requests as clients do, lose
//! messages, let IO end in any order, and cut the power.
//!
//! Locks and work items of `store.rs` are not the driver's: [`turns`](server) take their steps in
//! its order. Neither are the bios of `log_io.rs`.

extern crate self as block_ext;
extern crate self as kernel;
extern crate self as kernel_ext;
extern crate self as pin_init;
extern crate self as rtrs_server;

pub mod bdev;
mod collections;
pub mod error;
pub mod file;
mod operation;
pub mod pages;
pub mod prelude;
pub mod str;
pub mod sync;

pub use error as errno;
pub use operation::{
    Answer,
    Answers,
    Operation, //
};
pub(crate) use rioc::proto;

// An inline module with a path names a folder.
#[path = "../../../rioc/server"]
#[allow(dead_code, unused_variables, unused_imports)]
mod server {
    mod engine;
    mod files;
    mod log;
    #[path = "../../tools/rioc-server/src/log_io.rs"]
    mod log_io;
    mod medium;
    mod memory;
    mod message;
    mod one_device;
    mod reading;
    #[cfg(test)]
    #[path = "../../tools/rioc-server/src/tests/all.rs"]
    mod tests;
    mod upkeep;

    static LOG_LIMIT: crate::ratelimit::RateLimit = crate::ratelimit::RateLimit;
}

/// The bytes of a sector.
pub const SECTOR_BYTES: u32 = 512;

/// The flags of an IO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags(bool);

impl Flags {
    /// None.
    pub const NONE: Self = Self(false);
    /// Says that it is durable at its end.
    pub const FUA: Self = Self(true);

    /// Whether it is durable at its end.
    pub const fn is_fua(self) -> bool {
        self.0
    }
}

/// The waiting for an IO.
pub mod blocking {
    pub use crate::bdev::{
        Blocking,
        Limit, //
    };
}

/// Work items, which run when a test says so.
pub mod workqueue {
    use crate::{
        error::Error,
        prelude::CStr, //
    };

    /// The flags of a queue.
    #[derive(Clone, Copy)]
    pub struct Flags;

    impl Flags {
        /// Runs items on any processor.
        pub const UNBOUND: Self = Self;
        /// Has a rescuer.
        pub const MEM_RECLAIM: Self = Self;
    }

    impl std::ops::BitOr for Flags {
        type Output = Self;

        fn bitor(self, _other: Self) -> Self {
            self
        }
    }

    /// A queue of items.
    pub struct WorkQueue;

    impl WorkQueue {
        /// Creates one.
        pub fn new(_name: &CStr, _flags: Flags, _max_active: u16) -> Result<Self, Error> {
            Ok(Self)
        }

        /// Calls at once.
        pub fn try_spawn(
            &self,
            _flags: crate::prelude::GfpFlags,
            func: impl FnOnce(),
        ) -> Result<(), Error> {
            func();
            Ok(())
        }
    }
}

/// The CRC of the kernel.
pub mod crc {
    /// Returns that of some bytes; `seed` is 0.
    pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
        assert_eq!(seed, 0);
        crc32c::crc32c(bytes)
    }
}

/// Numbers by chance, the same in each run of a test.
pub mod random {
    use std::cell::Cell;

    thread_local! {
        static LAST: Cell<u64> = const { Cell::new(0) };
    }

    /// Returns another one.
    pub fn number() -> u64 {
        LAST.with(|last| {
            let next = last.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
            last.set(next);
            (next ^ next >> 31).wrapping_mul(0xbf58_476d_1ce4_e5b9)
        })
    }

    /// Returns an identifier.
    pub fn uuid() -> [u8; 16] {
        let number = u128::from(number()) << u64::BITS | u128::from(number());
        number.to_le_bytes()
    }
}

/// The memory of the machine.
pub mod memory {
    /// Returns the bytes that are free.
    pub fn available_bytes() -> u64 {
        1 << 32
    }
}

/// The limits of log lines.
pub mod ratelimit {
    /// One that lets no line through.
    pub struct RateLimit;

    impl RateLimit {
        /// Returns the lines that were left out before one, if there may be one.
        pub fn allow(&self) -> Option<u32> {
            None
        }
    }
}

/// Text of the kernel.
pub mod text {
    use crate::{
        prelude::*,
        str::CString, //
    };

    /// Makes a string of bytes.
    pub fn c_string(bytes: &[u8]) -> Result<CString> {
        CString::of(bytes)
    }
}

/// Memory of zeroes, for a box.
pub struct Zeroed;

/// Returns memory of zeroes.
pub fn init_zeroed() -> Zeroed {
    Zeroed
}
