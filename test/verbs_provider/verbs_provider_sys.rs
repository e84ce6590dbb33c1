// SPDX-License-Identifier: GPL-2.0

//! Raw bindings of this module's C helpers; only the crate `verbs_provider` may use them.

#![allow(
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unused_imports
)]

use kernel::{bindings::*, ffi};
use pin_init::{MaybeZeroable, Zeroable};

include!(env!("verbs_provider_BINDINGS"));
