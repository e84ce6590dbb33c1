// SPDX-License-Identifier: GPL-2.0

//! The tests: they see what the driver's files see of each other.

mod clients;
mod damage;
mod filed;
mod files;
mod life;
mod lives;
mod memory;
mod objects;
#[path = "../../../rioc/tests/common/random.rs"]
mod random;
mod rig;
mod steps;
