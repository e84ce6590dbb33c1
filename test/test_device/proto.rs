// SPDX-License-Identifier: GPL-2.0

//! The rules of the test device for queue pairs, keys and messages, as pure code.
//!
//! The code decides; the module `device` copies and completes. It has no `unsafe`, no kernel types,
//! no allocation, no lock and no panic, and is tested on the host (`tools/proto`).

#![forbid(unsafe_code)]

pub mod counts;
pub mod engine;
pub mod fabric;
pub mod fault;
pub mod gather;
pub mod key;
pub mod message;
pub mod qp_state;
pub mod ring;
pub mod send_queue;
