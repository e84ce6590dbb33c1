// SPDX-License-Identifier: GPL-2.0

//! Memory that a device reads and writes, and the protection domain that owns it.

pub(crate) mod message_buffers;
pub(crate) mod mr;
pub(crate) mod page_mapping;
pub(crate) mod pd;
pub(crate) mod segment;
pub mod sg;
