// SPDX-License-Identifier: GPL-2.0

//! The name by which a file is opened.
//!
//! C header: [`include/linux/dcache.h`](srctree/include/linux/dcache.h)

use super::{
    namei::bytes_of,
    FileSystem,
    Inode, //
};
use core::mem::MaybeUninit;
use kernel::{
    bindings,
    prelude::*, //
};
use kernel_ext::errno::ESTALE;
use vfs_ext_sys as raw;

/// The name by which a file is opened. A file may have several, and what each leads to may have
/// changed since the kernel has looked.
pub struct OpenedName<'a, T: FileSystem> {
    /// The directory that it is in.
    pub dir: &'a Inode<T>,
    /// The bytes of the name.
    pub bytes: &'a [u8],
}

/// Runs `with` with the name of a dentry, as it is now: the kernel may move the dentry meanwhile.
///
/// # Safety
///
/// The caller must ensure that `dentry` is one of a file of `T`, and that it stays.
pub(super) unsafe fn with_name<T: FileSystem, R>(
    dentry: *mut bindings::dentry,
    with: impl FnOnce(&OpenedName<'_, T>) -> Result<R>,
) -> Result<R> {
    let mut name = MaybeUninit::<bindings::name_snapshot>::uninit();
    // SAFETY: By the function requirements. The snapshot is initialised by the first function, is
    // not moved, as it may point into itself, and is released last; the reference to the parent,
    // which keeps its inode, as well.
    unsafe {
        bindings::take_dentry_name_snapshot(name.as_mut_ptr(), dentry);
        let parent = bindings::dget_parent(dentry);
        // A file is not the root, and each other dentry was found in a directory.
        let result = match parent == dentry {
            true => Err(ESTALE),
            false => with(&OpenedName {
                dir: Inode::from_raw(raw::vfs_ext_helper_dentry_inode(parent)),
                bytes: bytes_of(&raw const (*name.as_ptr()).name),
            }),
        };
        bindings::dput(parent);
        bindings::release_dentry_name_snapshot(name.as_mut_ptr());
        result
    }
}
