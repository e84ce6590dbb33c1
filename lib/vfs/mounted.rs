// SPDX-License-Identifier: GPL-2.0

//! The mount of a super block: the data of the file system, and the count of requests.

use super::FileSystem;
use kernel::{
    bindings,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    types::Opaque, //
};
use vfs_ext_sys as raw;

/// The time between two looks of an unmount at the requests.
const LOOK_TIME: Delta = Delta::from_millis(1);

/// The mount of a super block.
#[repr(C)]
pub(super) struct Mounted<T: FileSystem> {
    /// Changed by C, which finds it by the super block.
    requests: Opaque<raw::vfs_ext_mount>,
    data: Arc<T::Super>,
}

impl<T: FileSystem> Mounted<T> {
    /// Begins, without a request. May sleep.
    pub(super) fn new(data: Arc<T::Super>) -> Result<KBox<Self>> {
        let this = Self {
            requests: Opaque::new(pin_init::zeroed()),
            data,
        };
        Ok(KBox::new(this, GFP_KERNEL)?)
    }

    /// Returns the data of the file system.
    pub(super) fn data(&self) -> ArcBorrow<'_, T::Super> {
        self.data.as_arc_borrow()
    }

    /// Waits until no request has a reference to an inode. Sleeps.
    pub(super) fn await_requests(&self) {
        // SAFETY: The count is valid as long as this value.
        while unsafe { raw::vfs_ext_helper_mount_requests(self.requests.get()) } != 0 {
            fsleep(LOOK_TIME);
        }
    }

    /// Returns it as a super block has it.
    pub(super) fn into_raw(this: KBox<Self>) -> *mut c_void {
        KBox::into_raw(this).cast()
    }

    /// # Safety
    ///
    /// The caller must ensure that `raw` comes from [`Self::into_raw`], and is not taken back
    /// during `'a`.
    pub(super) unsafe fn borrow<'a>(raw: *mut c_void) -> &'a Self {
        // SAFETY: By the function requirements.
        unsafe { &*raw.cast() }
    }

    /// Returns the mount of a super block, as long as it has one.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `sb` is one of `T`, and read-lock RCU during `'a`.
    pub(super) unsafe fn under_rcu<'a>(sb: *mut bindings::super_block) -> Option<&'a Self> {
        // SAFETY: By the function requirements, the super block stays. What is not null comes from
        // `into_raw`, and is taken back a grace period after it was replaced.
        unsafe {
            let raw = (&raw const (*sb).s_fs_info).read_volatile();
            (!raw.is_null()).then(|| Self::borrow(raw))
        }
    }

    /// # Safety
    ///
    /// The caller must ensure that `raw` comes from [`Self::into_raw`], that it is taken back once,
    /// and that nothing refers to it.
    pub(super) unsafe fn from_raw(raw: *mut c_void) -> KBox<Self> {
        // SAFETY: By the function requirements.
        unsafe { KBox::from_raw(raw.cast()) }
    }
}
