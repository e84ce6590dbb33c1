// SPDX-License-Identifier: GPL-2.0

//! The parameters that users write, and the sizes that follow from them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod asking;
mod commands;
mod gathering;
mod news;
mod packings;
mod progress;
mod repairs;
mod sizes;
