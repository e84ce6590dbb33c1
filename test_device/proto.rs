// SPDX-License-Identifier: GPL-2.0

//! What a queue pair, a key and a message are to the test device, as pure code.
//!
//! The code decides; the module `device` copies and completes. It has no `unsafe`, no kernel types,
//! no allocation, no lock and no panic, and is tested on the host (`tools/proto`).

#![forbid(unsafe_code)]

pub mod counts;
pub mod fault;
pub mod gather;
pub mod key;
pub mod message;
pub mod qp_state;
pub mod ring;
pub mod send_queue;
