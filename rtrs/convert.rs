// SPDX-License-Identifier: GPL-2.0

//! Conversions between the types of the protocol and the kernel.

pub mod address;
pub mod device;
mod display;
pub mod errno;
