// SPDX-License-Identifier: GPL-2.0

//! Rules of addresses, as pure code: which fields an address has and when its handle may go, and
//! what stands before a datagram.
//!
//! The other modules of the crate call it. It has no `unsafe`, no kernel types, no allocation, no
//! lock and no panic, and is tested on the host (`tools/proto`).

#![forbid(unsafe_code)]

pub mod address;
pub mod header;
pub mod retirement;
