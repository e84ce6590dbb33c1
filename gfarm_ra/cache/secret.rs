// SPDX-License-Identifier: GPL-2.0

//! The key of all nodes, which is in memory once for each mount, and wiped at its end.

use kernel::{
    prelude::*,
    str::CStr,
    sync::{
        Arc,
        UniqueArc, //
    }, //
};
use vfs_ext::keyring;

use crate::proto::cache::wire::Key;

/// A key, which is wiped with its last reference.
pub(crate) struct Secret(Key);

impl Secret {
    /// Reads the key `description` in the keyrings of the current task; returns `None` if it is not
    /// 32 hexadecimal digits. It is read where it stays, so no copy is left on the stack. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`keyring::with_key`], or `ENOMEM` if the allocation fails.
    pub(crate) fn find(description: &CStr) -> Result<Option<Arc<Self>>> {
        let mut secret = UniqueArc::new(Self(Key::empty()), GFP_KERNEL)?;
        let is_key = keyring::with_key(description, |text| secret.0.read(text))?;
        Ok(is_key.then(|| secret.into()))
    }

    /// Returns the key.
    pub(super) fn key(&self) -> &Key {
        &self.0
    }
}
