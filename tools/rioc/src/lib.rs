// SPDX-License-Identifier: GPL-2.0

//! `rioc::proto` for the host; see the crate `proto`.

#![no_std]
#![forbid(unsafe_code)]

// An inline module with a path names a folder, so that `proto.rs` finds its files in `proto/` as in
// the kernel.
#[path = "../../../rioc"]
mod folder {
    pub mod proto;
}

pub use folder::proto;
