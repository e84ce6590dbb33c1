// SPDX-License-Identifier: GPL-2.0

//! Symbolic links.

use super::{
    AsKobject,
    HasFolder, //
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    str::{
        CStr,
        CString, //
    },
    sync::Arc, //
};

/// A symbolic link in the folder of a `D`, which it keeps. Dropping it removes it.
///
/// # Invariants
///
/// The link `name` is in the folder, unless that was removed with one of its parents.
pub struct Link<D: HasFolder> {
    folder: Arc<D>,
    name: CString,
}

impl<D: HasFolder> Link<D> {
    /// Creates the link `name` in `folder`, to the folder of `target`. May sleep.
    ///
    /// # Errors
    ///
    /// Returns `EEXIST` if the name is in use (the kernel logs that), `ENOENT` if the folder or the
    /// target has been removed, `ENOMEM` if an allocation fails.
    pub fn new(folder: Arc<D>, name: &CStr, target: &(impl AsKobject + ?Sized)) -> Result<Self> {
        let name = CString::try_from_fmt(fmt!("{name}"))?;
        // SAFETY: Both kobjects live, as they are borrowed, by the contract of `AsKobject`; that of
        // the folder stays in sysfs by the contract of `HasFolder`. The target may be removed
        // meanwhile: the function locks against that.
        to_result(unsafe {
            bindings::sysfs_create_link(
                folder.as_kobject(),
                target.as_kobject(),
                name.as_char_ptr(),
            )
        })?;
        // INVARIANT: The link was just made.
        Ok(Self { folder, name })
    }
}

impl<D: HasFolder> Drop for Link<D> {
    fn drop(&mut self) {
        // SAFETY: By the contract of `HasFolder`, the kobject stays in sysfs while it is borrowed.
        // If the folder was removed with a parent, the link was as well, and the function finds
        // none.
        unsafe { bindings::sysfs_remove_link(self.folder.as_kobject(), self.name.as_char_ptr()) };
    }
}
