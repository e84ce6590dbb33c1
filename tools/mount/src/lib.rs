// SPDX-License-Identifier: GPL-2.0

//! `mount.gfarm`, which `mount -t gfarm` runs: it knows what the kernel does not, the configuration
//! of Gfarm, the names of servers and where the key is.
//!
//! | Module | What |
//! |---|---|
//! | [`command_line`] | the arguments, as mount(8) passes them |
//! | [`options`] | which options are for whom |
//! | [`config`] | gfarm2.conf |
//! | [`servers`] | from names to addresses |
//! | [`key`] | the key of the user |
//! | [`plan`] | what is to be done, from all of it |
//! | [`kernel`] | doing it |

pub mod command_line;
pub mod config;
pub mod failure;
pub mod kernel;
pub mod key;
pub mod maps;
pub mod options;
pub mod plan;
pub mod servers;

pub use failure::Failure;
