// SPDX-License-Identifier: GPL-2.0

//! Additions to the in-tree `kernel` crate.
//!
//! Follows the rules of `rust/kernel`: each module wraps some C headers, and its users need no
//! `unsafe`. A module is removed when the `kernel` crate provides the same.
//!
//! The scope is frozen: synchronisation, sysfs, module parameters, work queues, memory, checksums,
//! compression, small text files, and what these need. Another subsystem gets a crate of its own,
//! as the block layer has `block_ext`. The tests are in a separate module, `kernel_ext_test`.
//!
//! | Module | What |
//! |---|---|
//! | [`errno`] | error codes |
//! | [`param`] | module parameters that are `bool` or string, and readable in sysfs |
//! | [`erased`] | owned values of erased type |
//! | [`sync`] | irqsave lock, completion, wait queue, RCU, globals, the lock of requests in flight |
//! | [`percpu`] | per-CPU data |
//! | [`workqueue`] | own work queues, cancelling |
//! | [`sysfs`] | classes, devices, directories, attributes, links |
//! | [`pages`], [`scatterlist`], [`memory`] | pages, scatter lists, the amount of memory |
//! | [`crc`] | checksums, of slices, pages and scatter lists |
//! | [`lz4`], [`xor`] | compression, the XOR of memory |
//! | [`miscdevice`] | files of `/dev` that keep their module |
//! | [`random`], [`ida`] | random bytes, unique numbers |
//! | [`file`], [`text`] | small text files of the kernel, owned strings |
//! | [`ratelimit`], [`cpu`] | rate limits for log lines, the number of CPUs |

pub mod cpu;
pub mod crc;
pub mod erased;
pub mod errno;
pub mod file;
pub mod ida;
pub mod lz4;
pub mod memory;
pub mod miscdevice;
pub mod module;
pub mod pages;
pub mod param;
pub mod percpu;
pub mod random;
pub mod ratelimit;
pub mod scatterlist;
pub mod sync;
pub mod sysfs;
pub mod text;
pub mod workqueue;
pub mod xor;

use kernel::prelude::*;

module! {
    type: Library,
    name: "kernel_ext",
    authors: ["The Ferrofabric developers"],
    description: "What the in-tree kernel crate lacks",
    license: "GPL",
}

struct Library;

impl kernel::Module for Library {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Library)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        sysfs::wait_for_releases();
    }
}
