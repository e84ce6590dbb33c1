// SPDX-License-Identifier: GPL-2.0

//! The operations of inodes and of names: lookup, revalidation, attributes, permissions, links.
//!
//! A path walk under RCU must not sleep: see [`rcu_walk`].
//!
//! C headers: [`include/linux/fs.h`](srctree/include/linux/fs.h),
//! [`include/linux/namei.h`](srctree/include/linux/namei.h)

use super::{
    directory::DirectoryOps,
    rcu_walk,
    Access,
    FileSystem,
    Freshness,
    Inode,
    Judge,
    Kind,
    Name,
    Validity,
    NAME_BYTES_MAX, //
};
use core::{
    marker::PhantomData,
    ptr,
    slice, //
};
use kernel::{
    bindings,
    error::{
        from_result,
        to_result, //
    },
    prelude::*, //
};
use kernel_ext::errno::ENAMETOOLONG;
use vfs_ext_sys as raw;

/// The bytes of the longest target of a symbolic link: a page, less the NUL at the end.
const TARGET_BYTES_MAX: usize = kernel::page::PAGE_SIZE - 1;

/// Sets the operations of a new inode.
///
/// # Safety
///
/// The caller must ensure that `inode` is a new one of `T`, of this kind, and not shared.
pub(super) unsafe fn set_operations<T: FileSystem>(inode: *mut bindings::inode, kind: Kind) {
    let ops = match kind {
        Kind::Directory => InodeOps::<T>::directory(),
        Kind::Symlink => InodeOps::<T>::symlink(),
        Kind::Regular => InodeOps::<T>::regular(),
    };
    // SAFETY: By the function requirements.
    unsafe {
        (*inode).i_op = ops;
        if kind == Kind::Directory {
            (*inode).__bindgen_anon_3.i_fop = DirectoryOps::<T>::get();
        }
    }
}

/// Checks whether the current task may do `mask` (`MAY_READ` and others) with an inode: by its mode
/// and owner, or, if `judge` leaves that to the server, only whether a file may be executed at all.
///
/// # Errors
///
/// `EACCES`, and those of `generic_permission()`.
///
/// # Safety
///
/// The caller must ensure that `idmap` is that of a mount of the inode's file system.
pub(super) unsafe fn may<T: FileSystem>(
    idmap: *mut bindings::mnt_idmap,
    inode: &Inode<T>,
    mask: c_int,
    judge: Judge,
) -> Result {
    let by_server = judge == Judge::Server;
    // SAFETY: By the function requirements and the type invariants.
    to_result(unsafe { raw::vfs_ext_helper_may(idmap, inode.as_raw(), mask, by_server) })
}

/// The operations of an inode of `T`.
struct InodeOps<T: FileSystem>(PhantomData<T>);

impl<T: FileSystem> InodeOps<T> {
    const REGULAR: bindings::inode_operations = {
        // SAFETY: All zeroes is a valid value, without functions.
        let mut ops: bindings::inode_operations = unsafe { core::mem::zeroed() };
        ops.getattr = Some(Self::getattr);
        ops.permission = Some(Self::permission);
        ops
    };

    const DIRECTORY: bindings::inode_operations = {
        let mut ops = Self::REGULAR;
        ops.lookup = Some(Self::lookup);
        ops
    };

    const SYMLINK: bindings::inode_operations = {
        let mut ops = Self::REGULAR;
        ops.get_link = Some(Self::get_link);
        ops
    };

    fn regular() -> &'static bindings::inode_operations {
        &Self::REGULAR
    }

    fn directory() -> &'static bindings::inode_operations {
        &Self::DIRECTORY
    }

    fn symlink() -> &'static bindings::inode_operations {
        &Self::SYMLINK
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with the path of an inode of `T`.
    unsafe extern "C" fn getattr(
        idmap: *mut bindings::mnt_idmap,
        path: *const bindings::path,
        to: *mut bindings::kstat,
        mask: u32,
        flags: c_uint,
    ) -> c_int {
        from_result(|| {
            let freshness = match flags & bindings::AT_STATX_SYNC_TYPE {
                bindings::AT_STATX_FORCE_SYNC => Freshness::Forced,
                bindings::AT_STATX_DONT_SYNC => Freshness::Any,
                _ => Freshness::Default,
            };
            // SAFETY: By the function requirements, the path keeps its inode.
            let inode = unsafe { raw::vfs_ext_helper_dentry_inode((*path).dentry) };
            // SAFETY: As above.
            let inode_ref = unsafe { Inode::<T>::from_raw(inode) };
            // For a task that may not use the mount the server is asked nothing.
            if T::permission(inode_ref, Access::new(inode_ref, 0)).is_ok() {
                T::refresh(inode_ref, freshness)?;
            }
            // SAFETY: By the function requirements.
            unsafe { bindings::generic_fillattr(idmap, mask, inode, to) };
            Ok(0)
        })
    }

    /// Checks permissions with fresh attributes. Those of a file that is opened are told by the
    /// open, which checks once more (`FileOps::open`). What is refused by what is known is refused
    /// by what the server says now.
    ///
    /// # Safety
    ///
    /// Must only be called by the VFS, with an inode of `T`.
    unsafe extern "C" fn permission(
        idmap: *mut bindings::mnt_idmap,
        inode: *mut bindings::inode,
        mask: c_int,
    ) -> c_int {
        // CAST: The bits of a mask are positive.
        let bits = mask as u32;
        if bits & bindings::MAY_NOT_BLOCK != 0 {
            // SAFETY: By the function requirements: the VFS walks under RCU.
            return match unsafe { rcu_walk::may::<T>(idmap, inode, mask) } {
                true => 0,
                false => ECHILD.to_errno(),
            };
        }
        // SAFETY: By the function requirements; the caller keeps the inode, as it may sleep.
        let inode = unsafe { Inode::<T>::from_raw(inode) };
        from_result(|| {
            let judge = T::permission(inode, Access::new(inode, mask))?;
            // SAFETY: By the function requirements.
            let check = || unsafe { may(idmap, inode, mask, judge) };
            let is_opened = bits & bindings::MAY_OPEN != 0 && inode.kind() == Kind::Regular;
            let is_known = is_opened || judge == Judge::Server;
            let is_asked = !is_known && T::refresh(inode, Freshness::Default)?;
            match check() {
                Err(EACCES) if !is_asked && T::refresh(inode, Freshness::Forced)? => check()?,
                result => result?,
            }
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with a directory of `T`, which is locked, and a new name in
    /// it.
    unsafe extern "C" fn lookup(
        dir: *mut bindings::inode,
        dentry: *mut bindings::dentry,
        _flags: c_uint,
    ) -> *mut bindings::dentry {
        // SAFETY: By the function requirements, the name does not change during the call.
        let name = unsafe { bytes_of(raw::vfs_ext_helper_dentry_name(dentry)) };
        if name.len() > NAME_BYTES_MAX {
            return ENAMETOOLONG.to_ptr();
        }
        // Before the server is asked: its answer may be under way for long.
        // SAFETY: The function has no requirements.
        let asked = unsafe { raw::vfs_ext_helper_now() };
        // SAFETY: By the function requirements, the caller keeps the directory.
        match T::lookup(unsafe { Inode::from_raw(dir) }, name) {
            Ok(found) => {
                let inode = found.map_or(ptr::null_mut(), super::InodeRef::into_raw);
                // SAFETY: By the function requirements; the second function takes the reference to
                // the inode, or gets none for a name that does not exist.
                unsafe {
                    raw::vfs_ext_helper_dentry_renew(dentry, asked);
                    bindings::d_splice_alias(inode, dentry)
                }
            }
            Err(error) => error.to_ptr(),
        }
    }

    /// Returns the target of a link, which C frees when it has been followed.
    ///
    /// # Safety
    ///
    /// Must only be called by the VFS, with a symbolic link of `T`.
    unsafe extern "C" fn get_link(
        dentry: *mut bindings::dentry,
        inode: *mut bindings::inode,
        done: *mut bindings::delayed_call,
    ) -> *const c_char {
        if dentry.is_null() {
            return ECHILD.to_ptr();
        }
        // SAFETY: By the function requirements; the caller keeps the inode, as it may sleep.
        match target::<T>(unsafe { Inode::from_raw(inode) }) {
            Ok(text) => {
                let (text, _, _) = text.into_raw_parts();
                // SAFETY: By the function requirements, C passes a value to write to. The memory is
                // one of kmalloc, which the function frees.
                unsafe {
                    (*done).fn_ = Some(bindings::kfree_link);
                    (*done).arg = text.cast();
                }
                text.cast()
            }
            Err(error) => error.to_ptr(),
        }
    }
}

/// Returns the target of a link with a NUL at its end.
fn target<T: FileSystem>(inode: &Inode<T>) -> Result<KVec<u8>> {
    let mut text = T::read_link(inode)?;
    if text.is_empty() || text.contains(&0) {
        return Err(EIO);
    }
    if text.len() > TARGET_BYTES_MAX {
        return Err(ENAMETOOLONG);
    }
    text.push(0, GFP_KERNEL)?;
    Ok(text)
}

/// The operations of a name of `T`.
pub(super) struct DentryOps<T: FileSystem>(PhantomData<T>);

impl<T: FileSystem> DentryOps<T> {
    const OPS: bindings::dentry_operations = {
        // SAFETY: All zeroes is a valid value, without functions.
        let mut ops: bindings::dentry_operations = unsafe { core::mem::zeroed() };
        ops.d_revalidate = Some(Self::revalidate);
        ops
    };

    /// Returns the operations, or null if `T` has none.
    pub(super) fn get() -> *const bindings::dentry_operations {
        if T::HAS_REVALIDATE {
            &Self::OPS
        } else {
            ptr::null()
        }
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with a directory of `T` and a dentry in it of that name.
    unsafe extern "C" fn revalidate(
        dir: *mut bindings::inode,
        name: *const bindings::qstr,
        dentry: *mut bindings::dentry,
        flags: c_uint,
    ) -> c_int {
        if flags & raw::VFS_EXT_LOOKUP_RCU != 0 {
            // SAFETY: By the function requirements: the VFS walks under RCU.
            return match unsafe { rcu_walk::holds::<T>(dentry, flags) } {
                true => 1,
                false => ECHILD.to_errno(),
            };
        }
        // SAFETY: By the function requirements; without RCU the caller keeps the directory and the
        // dentry, and a dentry that is in use keeps its inode. The name is the caller's own.
        let (dir, name) = unsafe {
            let inode = raw::vfs_ext_helper_dentry_inode(dentry);
            let name = Name {
                bytes: bytes_of(name),
                inode: (!inode.is_null()).then(|| Inode::from_raw(inode)),
                age_ms: raw::vfs_ext_helper_dentry_age_ms(dentry),
                is_forced: flags & raw::VFS_EXT_LOOKUP_REVAL != 0,
                is_opened: flags & raw::VFS_EXT_LOOKUP_OPEN != 0,
                user: raw::vfs_ext_helper_fsuid((*dentry).d_sb),
            };
            (Inode::<T>::from_raw(dir), name)
        };
        // SAFETY: The function has no requirements.
        let asked = unsafe { raw::vfs_ext_helper_now() };
        match T::revalidate(dir, &name) {
            Ok(Validity::Assumed) => 1,
            Ok(Validity::Confirmed) => {
                // SAFETY: As above.
                unsafe { raw::vfs_ext_helper_dentry_renew(dentry, asked) };
                1
            }
            Ok(Validity::Gone) => 0,
            Err(error) => error.to_errno(),
        }
    }
}

/// Returns the bytes of a name.
///
/// # Safety
///
/// The caller must ensure that `name` is valid, and does not change, during `'a`.
pub(super) unsafe fn bytes_of<'a>(name: *const bindings::qstr) -> &'a [u8] {
    let mut bytes = ptr::null();
    // SAFETY: By the function requirements.
    unsafe {
        let len = raw::vfs_ext_helper_name(name, &mut bytes);
        // CAST: From 32 bits to 64.
        slice::from_raw_parts(bytes, len as usize)
    }
}
