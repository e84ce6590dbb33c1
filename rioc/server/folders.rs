// SPDX-License-Identifier: GPL-2.0

//! The folders in which stores have files: no two stores have one.

use kernel::{
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

/// The identities of those that are in use.
pub(super) type Folders = Mutex<KVec<usize>>;

/// The use of a folder by a store. It is dropped when that has nothing to do with it any more.
pub(super) struct FolderUse {
    folders: Arc<Folders>,
    identity: usize,
}

impl FolderUse {
    /// Begins to use one. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if a store has it, or has not ended yet; `ENOMEM`.
    pub(super) fn new(folders: &Arc<Folders>, identity: usize) -> Result<Self> {
        let mut all = folders.lock();
        if all.contains(&identity) {
            return Err(EBUSY);
        }
        all.push(identity, GFP_KERNEL)?;
        drop(all);
        Ok(Self {
            folders: folders.clone(),
            identity,
        })
    }
}

impl Drop for FolderUse {
    fn drop(&mut self) {
        self.folders.lock().retain(|other| *other != self.identity);
    }
}
