// SPDX-License-Identifier: GPL-2.0

//! The protocol's types as the kernel's.

pub mod address;
pub mod device;
mod display;
pub mod errno;
