// SPDX-License-Identifier: GPL-2.0

//! What the pure code of every protocol needs: error numbers, numbers and words that people write,
//! back-off.
//!
//! Pure as each `proto` folder: no `unsafe`, no allocation, no lock, no clock, no log and no panic.
//! The crate stands below all others, in `kernel_ext.ko`; for tests it is also a crate of the host.
//!
//! | Module | What |
//! |---|---|
//! | [`errno`] | error numbers as the kernel and the wire have them |
//! | [`text`] | numbers and words from sysfs and options |
//! | [`backoff`] | when a lost connection is tried again |

// The kernel's build says so itself.
#![cfg_attr(not(MODULE), no_std)]
#![forbid(unsafe_code)]

pub mod backoff;
pub mod errno;
#[cfg(MODULE)]
mod kernel_traits;
pub mod text;
