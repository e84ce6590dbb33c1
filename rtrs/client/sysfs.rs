// SPDX-License-Identifier: GPL-2.0

//! What user space sees of sessions and paths.

pub(crate) mod path;
pub(crate) mod session;
