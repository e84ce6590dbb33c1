// SPDX-License-Identifier: GPL-2.0

//! Replays what drivers record of their state machines (the parameter `trace` of the modules)
//! through the same machines.
//!
//! The machine has to decide each event as the record says, and the driver has to do what was
//! decided, in the order that the locks promise, and nothing else.

mod admin_lock;
mod availability;
mod line;
mod log;
mod path;
mod replay;
mod server_path;

pub use line::Line;
pub use log::{
    judge,
    Verdict, //
};
