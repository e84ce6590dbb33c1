// SPDX-License-Identifier: GPL-2.0

//! Rules of transfers, as pure code: which memory a fragment is.
//!
//! The other modules of the crate call it. It has no `unsafe`, no kernel types, no allocation, no
//! lock and no panic, and is tested on the host (`tools/proto`).

#![forbid(unsafe_code)]

pub mod layout;
