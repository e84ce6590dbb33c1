// SPDX-License-Identifier: GPL-2.0

//! The common pure code of all protocols: error numbers, parsing of numbers and words, back-off, a
//! hash, records of state machines.
//!
//! Pure as each `proto` folder: no `unsafe`, no allocation, no lock, no clock, no log and no panic.
//! All other crates depend on this one, which is part of `kernel_ext.ko`; for tests it is also a
//! crate of the host.
//!
//! | Module | What |
//! |---|---|
//! | [`errno`] | error numbers of the kernel and the wire |
//! | [`text`] | numbers and words from sysfs and options |
//! | [`backoff`] | the delays before reconnects |
//! | [`siphash`] | a hash of texts |
//! | [`record`] | what a driver writes of the steps of its state machines |

// The kernel's build sets `no_std` itself.
#![cfg_attr(not(MODULE), no_std)]
#![forbid(unsafe_code)]

pub mod backoff;
pub mod errno;
#[cfg(MODULE)]
mod kernel_traits;
pub mod record;
pub mod siphash;
pub mod text;
