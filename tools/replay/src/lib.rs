// SPDX-License-Identifier: GPL-2.0

//! Replays records of the recovery of paths (`rtrs_client`'s parameter `trace_paths`) through
//! `proto::recovery`, the state machine that the driver calls.
//!
//! The state machine has to decide each event as the driver's record says, and the driver has to do
//! what was decided, in the order that the locks promise, and nothing else.

mod line;
mod log;
mod path;

pub use log::{
    judge,
    Verdict, //
};
