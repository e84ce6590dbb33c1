// SPDX-License-Identifier: GPL-2.0

//! Conversion of the protocol's error numbers.

use kernel::prelude::*;

use ferro_proto::errno::Errno;

/// Returns the error number of `error` for the wire, positive.
///
/// Returns `EIO` for an error that the protocol cannot express, such as a kernel error that is not
/// visible to user space (512 and up).
pub fn to_wire(error: Error) -> Errno {
    match Errno::new(error.to_errno()) {
        Some(e) if e.get() < 512 => e,
        _ => Errno::EIO,
    }
}

/// Converts an error number from the wire: `Ok` for 0.
#[inline]
pub fn from_wire(errno: u16) -> Result {
    match Errno::new(i32::from(errno)) {
        None => Ok(()),
        Some(e) => Err(e.into()),
    }
}
