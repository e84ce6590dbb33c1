// SPDX-License-Identifier: GPL-2.0

//! Protection information in a sidecar, from user space: the kernel's pure code (`rnbd/sidecar`)
//! over a file or a block device.

#![forbid(unsafe_code)]

pub mod checksum;
pub mod claim;
pub mod commands;
pub mod device;
pub mod format;
pub mod session;
pub mod volume;
