// SPDX-License-Identifier: GPL-2.0

//! The pure protocol folders of the kernel modules, compiled for the host.
//!
//! The same files, unchanged, are `pub mod proto;` of the module crates `rtrs_core`, `rnbd_client`
//! and `rnbd_server`. In the kernel rnbd's folder says `use rtrs_core::proto::...`; the two lines
//! below make the same words mean the same thing here.

#![no_std]
#![forbid(unsafe_code)]

extern crate self as rtrs_core;
pub use rtrs as proto;

// An inline module with a path names a folder, so that `proto.rs` finds its files in `proto/` as in
// the kernel.
#[path = "../../../rtrs"]
mod rtrs_folder {
    pub mod proto;
}
#[path = "../../../rnbd"]
mod rnbd_folder {
    pub mod proto;
}

pub use rnbd_folder::proto as rnbd;
pub use rtrs_folder::proto as rtrs;
