// SPDX-License-Identifier: GPL-2.0

//! Owned strings of C from bytes.

use kernel::{
    prelude::*,
    str::{
        CStr,
        CString, //
    }, //
};

/// Returns an owned copy of `bytes`. May sleep.
///
/// # Errors
///
/// Returns `EINVAL` if there is a NUL in them, `ENOMEM` if the allocation fails.
pub fn c_string(bytes: &[u8]) -> Result<CString> {
    let mut text = KVec::with_capacity(bytes.len().saturating_add(1), GFP_KERNEL)?;
    text.extend_from_slice(bytes, GFP_KERNEL)?;
    text.push(0, GFP_KERNEL)?;
    let text = CStr::from_bytes_with_nul(&text).map_err(|_| EINVAL)?;
    Ok(CString::try_from(text)?)
}
