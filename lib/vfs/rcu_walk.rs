// SPDX-License-Identifier: GPL-2.0

//! Path walks under RCU, which take no reference and no lock.
//!
//! The memory of a name, an inode and a mount stays for a grace period after its end; the data of
//! an inode does not. So only what is here is looked at. Where that does not say that the walk may
//! go on, it comes again without RCU (`ECHILD`).

use super::{
    mounted::Mounted,
    FileSystem,
    Inode,
    Judge,
    Kind, //
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*, //
};
use vfs_ext_sys as raw;

/// A name that is met on a path walk under RCU, as the kernel remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Met {
    /// The kind of what it names; `None` if there was no such entry.
    pub kind: Option<Kind>,
    /// The time since the server was asked who said so, in milliseconds, as
    /// [`Name::age_ms`](super::Name::age_ms).
    pub age_ms: u64,
    /// Whether the server must be asked, as [`Name::is_forced`](super::Name::is_forced).
    pub is_forced: bool,
    /// Whether what it names is opened next, as [`Name::is_opened`](super::Name::is_opened).
    pub is_opened: bool,
    /// The user of the task, as [`Name::user`](super::Name::user).
    pub user: u32,
}

/// Returns whether the name of `dentry` holds, for `d_revalidate()`.
///
/// # Safety
///
/// Must only be called by the VFS under RCU, with a dentry of a mount of `T`.
pub(super) unsafe fn holds<T: FileSystem>(dentry: *mut bindings::dentry, flags: c_uint) -> bool {
    // SAFETY: By the function requirements, the memory stays during the call. That the dentry had
    // this inode is checked by the VFS afterwards.
    unsafe {
        let inode = raw::vfs_ext_helper_dentry_inode(dentry);
        let mode = (!inode.is_null()).then(|| (&raw const (*inode).i_mode).read_volatile());
        let met = Met {
            kind: mode.and_then(Kind::of_mode),
            age_ms: raw::vfs_ext_helper_dentry_age_ms(dentry),
            is_forced: flags & raw::VFS_EXT_LOOKUP_REVAL != 0,
            is_opened: flags & raw::VFS_EXT_LOOKUP_OPEN != 0,
            user: raw::vfs_ext_helper_fsuid((*dentry).d_sb),
        };
        let mounted = Mounted::<T>::under_rcu((*dentry).d_sb);
        mounted.is_some_and(|mounted| T::holds(&mounted.data(), &met))
    }
}

/// Returns whether the current task may walk through a directory, for `permission()`.
///
/// # Safety
///
/// Must only be called by the VFS under RCU, with an inode of `T`, and the `idmap` of its mount.
pub(super) unsafe fn may<T: FileSystem>(
    idmap: *mut bindings::mnt_idmap,
    inode: *mut bindings::inode,
    mask: c_int,
) -> bool {
    // SAFETY: By the function requirements, the memory stays during the call.
    unsafe {
        let Some(mounted) = Mounted::<T>::under_rcu((*inode).i_sb) else {
            return false;
        };
        let (user, age_ms) = (
            raw::vfs_ext_helper_fsuid((*inode).i_sb),
            raw::vfs_ext_helper_inode_age_ms(inode),
        );
        T::judge(&mounted.data(), user, age_ms).is_some_and(|judge| {
            let by_server = judge == Judge::Server;
            to_result(raw::vfs_ext_helper_may(idmap, inode, mask, by_server)).is_ok()
        })
    }
}

/// The age of the attributes, which a walk looks at.
impl<T: FileSystem> Inode<T> {
    /// Takes note that the attributes are set that the server has told, which was asked for them so
    /// many milliseconds ago: an answer may be under way for long.
    pub fn set_told(&self, age_ms: u64) {
        // SAFETY: By the type invariants, this is an inode.
        unsafe { raw::vfs_ext_helper_inode_told(self.as_raw(), age_ms) };
    }

    /// Returns the time since the server was asked for the attributes that it has told, in
    /// milliseconds; the maximum if it has told none.
    pub fn age_ms(&self) -> u64 {
        // SAFETY: By the type invariants, this is an inode.
        unsafe { raw::vfs_ext_helper_inode_age_ms(self.as_raw()) }
    }
}
