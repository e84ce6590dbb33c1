// SPDX-License-Identifier: GPL-2.0

//! The protocol's error numbers as the kernel's.

use kernel::prelude::*;

use ferro_proto::errno::Errno;

/// Returns the error number of `error` for the wire, positive.
///
/// `EIO` where the protocol has no word for it; a kernel error that is not one of user space's
/// (512 and up) is one such.
pub fn to_wire(error: Error) -> Errno {
    match Errno::new(error.to_errno()) {
        Some(e) if e.get() < 512 => e,
        _ => Errno::EIO,
    }
}

/// Returns what an error number from the wire means: `Ok` for 0.
#[inline]
pub fn from_wire(errno: u16) -> Result {
    match Errno::new(i32::from(errno)) {
        None => Ok(()),
        Some(e) => Err(e.into()),
    }
}
