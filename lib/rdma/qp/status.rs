// SPDX-License-Identifier: GPL-2.0

//! The status of a failed work request.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::sys;
use kernel::{
    fmt,
    prelude::*,
    str::CStr, //
};

/// The status of a failed work request (`enum ib_wc_status`).
///
/// [`Display`](fmt::Display) is the text of `ib_wc_status_msg()`, for instance "WR flushed".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WcStatus(sys::ib_wc_status);

impl WcStatus {
    /// The queue pair entered the error state (closed or disconnected) before the request was
    /// executed.
    pub const FLUSHED: Self = Self(sys::ib_wc_status_IB_WC_WR_FLUSH_ERR);
    /// The peer did not answer.
    pub const RETRY_EXCEEDED: Self = Self(sys::ib_wc_status_IB_WC_RETRY_EXC_ERR);
    /// The peer denied access to its memory.
    pub const REMOTE_ACCESS: Self = Self(sys::ib_wc_status_IB_WC_REM_ACCESS_ERR);
    /// A local segment or key did not permit the access.
    pub const LOCAL_PROTECTION: Self = Self(sys::ib_wc_status_IB_WC_LOC_PROT_ERR);

    #[inline(always)]
    pub(crate) fn from_raw(raw: sys::ib_wc_status) -> Self {
        Self(raw)
    }

    /// Returns the number of the status.
    pub fn code(self) -> u32 {
        self.0
    }

    /// Returns whether the request was flushed, which is a consequence of a failure and not its
    /// reason.
    pub fn is_flush(self) -> bool {
        self == Self::FLUSHED
    }

    /// Returns the kernel's text for the status.
    pub fn message(self) -> &'static CStr {
        // SAFETY: `ib_wc_status_msg()` takes any number and returns a static string.
        unsafe { CStr::from_char_ptr(sys::ib_wc_status_msg(self.0)) }
    }
}

impl fmt::Display for WcStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.message(), f)
    }
}

impl From<WcStatus> for Error {
    fn from(status: WcStatus) -> Self {
        if status.is_flush() {
            kernel_ext::errno::ECANCELED
        } else {
            EIO
        }
    }
}
