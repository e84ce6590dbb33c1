// SPDX-License-Identifier: GPL-2.0

//! The local devices that sessions have open.

pub(super) mod export;
pub(super) mod identity;
pub(super) mod mapping;
pub(super) mod removal;
