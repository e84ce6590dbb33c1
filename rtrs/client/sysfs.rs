// SPDX-License-Identifier: GPL-2.0

//! The files of sessions and paths in sysfs.

pub(crate) mod path;
pub(crate) mod session;
