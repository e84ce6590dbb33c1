// SPDX-License-Identifier: GPL-2.0

//! Arrays of `rnbd_ec` from user space: the kernel's pure code (`seglog`, `rnbd_ec/proto`) over
//! files or block devices, which it only reads, and the module's files in sysfs.

#![forbid(unsafe_code)]

pub mod check;
pub mod checksum;
pub mod commands;
pub mod lenient;
pub mod media;
pub mod show;
pub mod slots;
pub mod words;
