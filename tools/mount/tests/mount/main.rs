// SPDX-License-Identifier: GPL-2.0

//! Tests what the helper makes of its arguments, of gfarm2.conf and of a key file.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

mod command_line;
mod config;
mod key;
mod manual;
mod options;
mod plan;
mod servers;
