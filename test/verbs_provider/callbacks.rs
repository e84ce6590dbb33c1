// SPDX-License-Identifier: GPL-2.0

//! The functions that `ib_core` calls.

pub(crate) mod drain;
pub(crate) mod mem;
pub(crate) mod port;
pub(crate) mod post;
pub(crate) mod queues;

use kernel::{
    error::Result,
    ffi::c_int, //
};

/// Returns what C expects of a function that returns 0 or an error.
fn status(result: Result) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => error.to_errno(),
    }
}
