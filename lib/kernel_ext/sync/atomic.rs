// SPDX-License-Identifier: GPL-2.0

//! Atomics: the only module of the tree that names them (decision 0008).
//!
//! - Memory that only Rust touches: the types of `core`, re-exported here. Each operation is one
//!   instruction. Those of `kernel::sync::atomic` call a C helper each time, as 7.2 inlines helpers
//!   only with `CONFIG_RUST_INLINE_HELPERS`, which needs a kernel built by the LLVM of its rustc
//!   and is off in Debian's. On x86-64 a relaxed load is five instructions with it instead of one,
//!   and the registers that a call clobbers are saved around it.
//! - Memory that C code accesses too: [`lkmm`], as only the kernel's memory model says what the two
//!   together mean.
//!
//! The orderings of `core` are used as the kernel's memory model orders the C operations of the
//! same name; nothing here relies on more. When the helpers are inlined, this file becomes a
//! re-export of `kernel::sync::atomic`.

pub use core::sync::atomic::{
    AtomicBool,
    AtomicI32,
    AtomicPtr,
    AtomicU32,
    AtomicU64,
    AtomicU8,
    AtomicUsize,
    Ordering, //
};

/// Atomics of the kernel's memory model, for memory that C code accesses too.
pub mod lkmm {
    pub use kernel::sync::atomic::{
        Atomic,
        Full,
        Relaxed, //
    };
}
