// SPDX-License-Identifier: GPL-2.0

//! The names that each file of a driver uses.

pub use crate::{
    collections::{
        AllocError,
        GfpFlags,
        KBox,
        KVVec,
        KVec,
        GFP_KERNEL, //
    },
    error::{
        code::*,
        Error,
        Result, //
    },
    pr_err,
    pr_info,
    pr_warn, //
};
pub use std::ffi::CStr;

/// Drops a line of the log.
#[macro_export]
macro_rules! pr_err {
    ($($line:tt)*) => {};
}

/// Drops a line of the log.
#[macro_export]
macro_rules! pr_warn {
    ($($line:tt)*) => {};
}

/// Drops a line of the log.
#[macro_export]
macro_rules! pr_info {
    ($($line:tt)*) => {};
}
