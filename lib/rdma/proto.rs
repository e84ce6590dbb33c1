// SPDX-License-Identifier: GPL-2.0

//! Rules of addresses and of transfers, as pure code: which fields an address has and when its
//! handle may go, what stands before a datagram, and which memory a fragment of a transfer is.
//!
//! The other modules of the crate call it. It has no `unsafe`, no kernel types, no allocation, no
//! lock and no panic, and is tested on the host (`tools/proto`).

#![forbid(unsafe_code)]

pub mod address;
pub mod header;
pub mod layout;
pub mod retirement;
