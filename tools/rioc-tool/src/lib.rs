// SPDX-License-Identifier: GPL-2.0

//! `rioc`: objects of a session of `rioc_client` on the command line, and the logs of stores.

#![forbid(unsafe_code)]

pub mod advice;
pub mod check;
pub mod commands;
pub mod object;
mod show;
pub mod top;
