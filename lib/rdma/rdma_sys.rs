// SPDX-License-Identifier: GPL-2.0

//! Raw bindings that the in-tree `bindings` crate lacks; only abstractions use them.
//!
//! A type that is not generated here resolves to the in-tree one through the glob import. A type
//! that is generated here shadows an opaque in-tree one of the same name.

#![allow(
    clippy::all,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    improper_ctypes,
    missing_docs,
    non_camel_case_types,
    non_snake_case,
    non_upper_case_globals,
    unreachable_pub,
    unsafe_op_in_unsafe_fn,
    unused_imports
)]

use kernel::{bindings::*, ffi};
use pin_init::{MaybeZeroable, Zeroable};

// SAFETY: The unit holds nothing but its storage, for which all zeroes is a valid value.
unsafe impl<S: Zeroable> Zeroable for __BindgenBitfieldUnit<S> {}

include!(env!("rdma_BINDINGS"));
