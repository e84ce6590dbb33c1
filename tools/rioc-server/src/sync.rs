// SPDX-License-Identifier: GPL-2.0

//! Shared memory.

use crate::{
    collections,
    prelude::*, //
};

/// A shared value.
#[derive(Debug)]
pub struct Arc<T: ?Sized>(std::sync::Arc<T>);

impl<T> Arc<T> {
    /// Allocates it.
    pub fn new(value: T, _flags: GfpFlags) -> Result<Self, AllocError> {
        collections::allocate();
        Ok(Self(std::sync::Arc::new(value)))
    }
}

impl<T: ?Sized> Clone for Arc<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ?Sized> core::ops::Deref for Arc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}
