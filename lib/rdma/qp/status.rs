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

    #[inline(always)]
    pub(crate) fn from_raw(raw: sys::ib_wc_status) -> Self {
        Self(raw)
    }

    /// Returns whether the request was flushed, which is a consequence of a failure and not its
    /// reason.
    pub fn is_flush(self) -> bool {
        self == Self::FLUSHED
    }

    /// Returns the kernel's text for the status.
    fn message(self) -> &'static CStr {
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
