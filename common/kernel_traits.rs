// SPDX-License-Identifier: GPL-2.0

//! Traits of the `kernel` crate, which only the crate of a type may implement; left out on the
//! host.

use kernel::prelude::*;

use crate::{
    errno::Errno,
    text::NumberError, //
};

/// Forwards the kernel's `Display`, which `pr_err!` and its like ask for, to that of `core`, which
/// is the one that pure code knows.
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
    NumberError,
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Error::from_errno(errno.to_raw())
    }
}
