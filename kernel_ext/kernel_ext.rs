// SPDX-License-Identifier: GPL-2.0

//! What the in-tree `kernel` crate lacks.
//!
//! Written like `rust/kernel`: each module wraps some C headers and needs no `unsafe` of its
//! users. Everything here is meant to go away as the `kernel` crate grows.
//!
//! Its scope is frozen: locks and other means of synchronisation, sysfs, module parameters, work
//! queues, memory, and what these need. A subsystem gets a crate of its own, as `block_ext` for the
//! block layer has one. The tests are a module of their own, `kernel_ext_test`.
//!
//! | Module | What |
//! |---|---|
//! | [`errno`] | error codes |
//! | [`param`] | module parameters that are `bool` or string, and readable in sysfs |
//! | [`erased`] | owned values of forgotten type |
//! | [`sync`] | irqsave lock, completion, wait queue, RCU, globals, the lock of requests in flight |
//! | [`percpu`] | per-CPU data |
//! | [`workqueue`] | own work queues, cancelling |
//! | [`sysfs`] | classes, devices, directories, attributes, links |
//! | [`pages`], [`scatterlist`], [`memory`] | pages, lists of pieces of memory, how much there is |
//! | [`random`], [`ida`] | random bytes, unique numbers |
//! | [`ratelimit`], [`cpu`] | limits for log lines, the CPUs |

pub mod cpu;
pub mod erased;
pub mod errno;
pub mod ida;
pub mod memory;
pub mod pages;
pub mod param;
pub mod percpu;
pub mod random;
pub mod ratelimit;
pub mod scatterlist;
pub mod sync;
pub mod sysfs;
pub mod workqueue;

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
