// SPDX-License-Identifier: GPL-2.0

//! Errors, as the kernel has them.

use ferro_proto::errno::Errno;

/// An error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error(i32);

/// A result.
pub type Result<T = (), E = Error> = core::result::Result<T, E>;

/// The errors that drivers name.
pub mod code {
    use super::Error;

    macro_rules! errors {
        ($($name:ident $number:literal),* $(,)?) => {
            $(
                #[doc = stringify!($name)]
                pub const $name: Error = Error(-$number);
            )*
        };
    }

    errors!(
        ENOENT 2, EIO 5, EAGAIN 11, ENOMEM 12, EEXIST 17, ENODEV 19, EINVAL 22, EFBIG 27,
        ENOSPC 28, EROFS 30
    );
}

/// The log makes no sense.
pub const EUCLEAN: Error = Error(-117);

impl Error {
    /// Returns the error with this number.
    pub fn from_errno(errno: i32) -> Self {
        Self(errno)
    }

    /// Returns its number, below zero.
    pub fn to_errno(self) -> i32 {
        self.0
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Self(-i32::from(errno.get()))
    }
}
