// SPDX-License-Identifier: GPL-2.0

//! Symbolic links.

use super::AsKobject;
use core::ptr::NonNull;
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    str::{
        CStr,
        CString, //
    },
};

/// A symbolic link in a directory of sysfs. Dropping it removes it.
///
/// # Invariants
///
/// `directory` is a node of which this value owns a reference; the link `name` is in it, unless the
/// directory was removed.
pub struct Link {
    directory: NonNull<bindings::kernfs_node>,
    name: CString,
}

// SAFETY: a link belongs to no thread.
unsafe impl Send for Link {}
// SAFETY: there is nothing to do with a shared link.
unsafe impl Sync for Link {}

impl Link {
    /// Makes the link `name` in `directory`, to the directory of `target`. May sleep.
    ///
    /// # Errors
    ///
    /// `EEXIST` if the name is taken (the kernel logs that), `ENOENT` if the target has been
    /// removed, `ENOMEM`.
    pub fn new(
        directory: &(impl AsKobject + ?Sized),
        name: &CStr,
        target: &(impl AsKobject + ?Sized),
    ) -> Result<Self> {
        let name = CString::try_from_fmt(fmt!("{name}"))?;
        let kobject = directory.as_kobject();
        // SAFETY: both live, as they are borrowed, by the contract of `AsKobject`.
        to_result(unsafe {
            bindings::sysfs_create_link(kobject, target.as_kobject(), name.as_char_ptr())
        })?;
        // SAFETY: as above; a kobject with a link in it has a node.
        let directory = NonNull::new(unsafe { (*kobject).sd }).ok_or(ENOENT)?;
        // SAFETY: the node of a kobject that lives.
        unsafe { bindings::kernfs_get(directory.as_ptr()) };
        // INVARIANT: the reference was just taken, and the link made.
        Ok(Self { directory, name })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The kobject may be gone. `sysfs_remove_link` looks at nothing of it but its node, and
        // what it calls for that node is not exported.
        let mut kobject = bindings::kobject {
            sd: self.directory.as_ptr(),
            ..pin_init::zeroed()
        };
        // SAFETY: the node exists by the invariant. When the directory was removed, the link went
        // with it, and nothing is found.
        unsafe { bindings::sysfs_remove_link(&mut kobject, self.name.as_char_ptr()) };
        // SAFETY: a reference that this value owns.
        unsafe { bindings::kernfs_put(self.directory.as_ptr()) };
    }
}
