// SPDX-License-Identifier: GPL-2.0

//! The pure protocol folders of the kernel modules, compiled for the host.
//!
//! The same files, unchanged, are the crate `ferro_proto` and `pub mod proto;` of the module crates
//! `rtrs_core`, `rnbd_client`, `rnbd_server`, `gfarm_ra`, `rdma`, `rdma_transfer`,
//! `rdma_test_device_main` and both of the CRC32/UMR sample. Crates that others use have the same
//! names here as in the kernel (`lib/chunk4k/`, `lib/common/`, `rtrs/`), so that
//! `use ferro_proto::...` means the same.

#![no_std]
#![forbid(unsafe_code)]

// An inline module with a path names a folder, so that `proto.rs` finds its files in `proto/` as in
// the kernel.
#[path = "../../../gfarm_ra"]
mod gfarm_folder {
    pub mod proto;
}

#[path = "../../../lib/rdma"]
mod rdma_folder {
    pub mod proto;
}

#[path = "../../../lib/transfer"]
mod transfer_folder {
    pub mod proto;
}

#[path = "../../../rnbd"]
mod rnbd_folder {
    pub mod proto;
    pub mod sidecar;
}

#[path = "../../../samples/crc32_umr"]
mod crc32_umr_folder {
    pub mod proto;
}

#[path = "../../../test/test_device"]
mod test_device_folder {
    pub mod proto;
}

pub use crc32_umr_folder::proto as crc32_umr;
pub use ferro_proto as common;
pub use gfarm_folder::proto as gfarm;
pub use rdma_folder::proto as rdma;
pub use rnbd_folder::{
    proto as rnbd,
    sidecar, //
};
pub use rtrs_core::proto as rtrs;
pub use test_device_folder::proto as test_device;
pub use transfer_folder::proto as transfer;
