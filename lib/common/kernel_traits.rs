// SPDX-License-Identifier: GPL-2.0

//! Implementations of traits of the `kernel` crate, which only the crate of a type may provide; not
//! compiled on the host.

use kernel::prelude::*;

use crate::{
    errno::Errno,
    text::{
        Escaped,
        NumberError, //
    }, //
};

/// Forwards the kernel's `Display`, which `pr_err!` and the other macros require, to that of
/// `core`, which pure code implements.
#[macro_export]
macro_rules! forward_display {
    ($($name:ty,)*) => {$(
        impl ::kernel::fmt::Display for $name {
            fn fmt(&self, f: &mut ::kernel::fmt::Formatter<'_>) -> ::kernel::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }
    )*};
}

forward_display! {
    Errno,
    Escaped<'_>,
    NumberError,
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Error::from_errno(errno.to_raw())
    }
}
