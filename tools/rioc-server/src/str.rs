// SPDX-License-Identifier: GPL-2.0

//! Strings of the kernel.

use crate::{
    collections,
    prelude::*, //
};

pub use std::ffi::CStr;

/// A string that ends with a zero.
#[derive(Debug)]
pub struct CString(std::ffi::CString);

impl CString {
    /// Makes one.
    pub fn of(bytes: &[u8]) -> Result<Self> {
        collections::allocate();
        std::ffi::CString::new(bytes).map(Self).map_err(|_| EINVAL)
    }
}

impl TryFrom<&CStr> for CString {
    type Error = AllocError;

    fn try_from(from: &CStr) -> Result<Self, AllocError> {
        collections::allocate();
        Ok(Self(from.to_owned()))
    }
}

impl core::ops::Deref for CString {
    type Target = CStr;

    fn deref(&self) -> &CStr {
        &self.0
    }
}

/// Bytes that are printed.
pub struct BStr;

impl BStr {
    /// Takes bytes.
    pub fn from_bytes(_bytes: &[u8]) -> Self {
        Self
    }
}
