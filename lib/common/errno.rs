// SPDX-License-Identifier: GPL-2.0

//! Error numbers of the protocols: positive, with the same numbers on both sides.

use core::fmt;

/// One of the system's error numbers, positive (`EINVAL` is 22).
///
/// The drivers negate it for the kernel's `Error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Errno(u16);

impl Errno {
    /// Operation not permitted.
    pub const EPERM: Self = Self(1);
    /// No such file or directory.
    pub const ENOENT: Self = Self(2);
    /// Input/output error.
    pub const EIO: Self = Self(5);
    /// No such device or address.
    pub const ENXIO: Self = Self(6);
    /// Try again.
    pub const EAGAIN: Self = Self(11);
    /// Out of memory.
    pub const ENOMEM: Self = Self(12);
    /// Permission denied.
    pub const EACCES: Self = Self(13);
    /// Block device required.
    pub const ENOTBLK: Self = Self(15);
    /// Device or resource busy.
    pub const EBUSY: Self = Self(16);
    /// File exists.
    pub const EEXIST: Self = Self(17);
    /// No such device.
    pub const ENODEV: Self = Self(19);
    /// Invalid argument.
    pub const EINVAL: Self = Self(22);
    /// File table overflow.
    pub const ENFILE: Self = Self(23);
    /// File too large; of a list: no place is left.
    pub const EFBIG: Self = Self(27);
    /// No space left on device.
    pub const ENOSPC: Self = Self(28);
    /// Read-only file system.
    pub const EROFS: Self = Self(30);
    /// Numerical result out of range.
    pub const ERANGE: Self = Self(34);
    /// File name too long.
    pub const ENAMETOOLONG: Self = Self(36);
    /// Message too long.
    pub const EMSGSIZE: Self = Self(90);
    /// Protocol not supported.
    pub const EPROTONOSUPPORT: Self = Self(93);
    /// Operation not supported.
    pub const EOPNOTSUPP: Self = Self(95);
    /// Cannot assign requested address.
    pub const EADDRNOTAVAIL: Self = Self(99);
    /// Network is down.
    pub const ENETDOWN: Self = Self(100);
    /// Software caused connection abort.
    pub const ECONNABORTED: Self = Self(103);
    /// Connection reset by peer.
    pub const ECONNRESET: Self = Self(104);
    /// Transport endpoint is not connected.
    pub const ENOTCONN: Self = Self(107);
    /// Operation already in progress.
    pub const EALREADY: Self = Self(114);
    /// Stale file handle.
    pub const ESTALE: Self = Self(116);
    /// Structure needs cleaning.
    pub const EUCLEAN: Self = Self(117);
    /// Quota exceeded.
    pub const EDQUOT: Self = Self(122);

    /// Creates an error from a number of either sign; returns `None` for 0, which is no error.
    #[inline]
    pub const fn new(raw: i32) -> Option<Self> {
        let abs = raw.unsigned_abs();
        if abs == 0 || abs > i16::MAX as u32 {
            return None;
        }
        Some(Self(abs as u16))
    }

    /// Returns the number, positive.
    #[inline]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Returns the number as C returns it: negative.
    #[inline]
    pub const fn to_raw(self) -> i32 {
        -(self.0 as i32)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error -{}", self.0)
    }
}
