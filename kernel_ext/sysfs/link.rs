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

// SAFETY: A link is not tied to a thread.
unsafe impl Send for Link {}
// SAFETY: A shared link has no methods.
unsafe impl Sync for Link {}

impl Link {
    /// Creates the link `name` in `directory`, to the directory of `target`. May sleep.
    ///
    /// # Errors
    ///
    /// Returns `EEXIST` if the name is in use (the kernel logs that), `ENOENT` if the target has
    /// been removed, `ENOMEM` if an allocation fails.
    pub fn new(
        directory: &(impl AsKobject + ?Sized),
        name: &CStr,
        target: &(impl AsKobject + ?Sized),
    ) -> Result<Self> {
        let name = CString::try_from_fmt(fmt!("{name}"))?;
        let kobject = directory.as_kobject();
        // SAFETY: Both live, as they are borrowed, by the contract of `AsKobject`.
        to_result(unsafe {
            bindings::sysfs_create_link(kobject, target.as_kobject(), name.as_char_ptr())
        })?;
        // SAFETY: As above; a kobject with a link in it has a node.
        let directory = NonNull::new(unsafe { (*kobject).sd }).ok_or(ENOENT)?;
        // SAFETY: `directory` is the node of a live kobject.
        unsafe { bindings::kernfs_get(directory.as_ptr()) };
        // INVARIANT: The reference was just taken, and the link made.
        Ok(Self { directory, name })
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // The kobject may be freed already. `sysfs_remove_link` reads only its node, and the
        // function that it calls for that node is not exported.
        let mut kobject = bindings::kobject {
            sd: self.directory.as_ptr(),
            ..pin_init::zeroed()
        };
        // SAFETY: By the type invariants, the node exists. If the directory was removed, the link
        // was removed with it, and the function finds none.
        unsafe { bindings::sysfs_remove_link(&mut kobject, self.name.as_char_ptr()) };
        // SAFETY: By the type invariants, this value owns the reference.
        unsafe { bindings::kernfs_put(self.directory.as_ptr()) };
    }
}
