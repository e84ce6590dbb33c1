// SPDX-License-Identifier: GPL-2.0

//! What the in-tree `kernel` crate lacks.
//!
//! Written like `rust/kernel`: each module wraps some C headers and needs no `unsafe` of its
//! users. Everything here is meant to go away as the `kernel` crate grows.
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
//! | [`pages`], [`memory`], [`random`], [`ida`] | memory, its size, random bytes, unique numbers |
//! | [`ratelimit`], [`cpu`] | limits for log lines, numbers of CPUs |

pub mod block;
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
mod selftest;
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

module_param_bool!(
    SELFTEST,
    "selftest",
    false,
    "Try each part at load, and print a line about it (default: N)"
);

struct Library {
    _stage: Option<selftest::Stage>,
}

impl kernel::Module for Library {
    fn init(_module: &'static ThisModule) -> Result<Self> {
        Ok(Self {
            _stage: if SELFTEST.get() {
                Some(selftest::run()?)
            } else {
                None
            },
        })
    }
}
