// SPDX-License-Identifier: GPL-2.0

//! The key of all nodes, which is in memory once for each mount, and wiped at its end.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use vfs_ext::keyring;

use crate::proto::cache::wire::Key;

/// A key that is wiped with its last reference.
pub(super) struct Secret(Key);

impl Secret {
    /// Allocates it. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if the allocation fails.
    pub(super) fn new(key: Key) -> Result<Arc<Self>> {
        Ok(Arc::new(Self(key), GFP_KERNEL)?)
    }

    /// Returns the key.
    pub(super) fn key(&self) -> &Key {
        &self.0
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        keyring::wipe(self.0.memory());
    }
}
