// SPDX-License-Identifier: GPL-2.0

//! The protocol of the CRC32/UMR example as pure code: `Documentation/crc32-umr.md` has its tables.
//!
//! As in `ferro_proto` there is no `unsafe`, no kernel type, no allocation, no lock, no clock, no
//! log and no panic.

#![forbid(unsafe_code)]

pub mod connect;
pub mod pattern;
pub mod request;
pub mod response;
pub mod view;
mod violation;

pub use violation::Violation;
