// SPDX-License-Identifier: GPL-2.0

//! Active references to a mount, for threads that the kernel has not called through the mount.

use super::{
    FileSystem,
    SuperBlock, //
};
use core::{
    marker::PhantomData,
    ptr, //
};
use kernel::{
    bindings,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use kernel_ext::sync::atomic::{
    AtomicPtr,
    AtomicU32,
    Ordering, //
};

/// The bit that says that no more references are given; the others count the references.
const CLOSED: u32 = 1 << 31;

/// The time after which an unmount looks again whether references are left.
const LOOK_TIME: Delta = Delta::from_millis(1);

/// Gives threads of the file system active references to a mount: from the time when it has a root
/// until its inodes are evicted. It is a part of the data of the mount
/// ([`FileSystem::active_refs`]).
///
/// An unmount waits for the references, so nothing borrowed through one outlives the mount.
///
/// # Invariants
///
/// While `state` counts a reference that was taken when it was not closed, `sb` is a super block
/// of `T` with a root, whose inodes are not evicted.
pub struct ActiveRefs<T: FileSystem> {
    sb: AtomicPtr<bindings::super_block>,
    state: AtomicU32,
    _type: PhantomData<fn(T)>,
}

impl<T: FileSystem> Default for ActiveRefs<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: FileSystem> ActiveRefs<T> {
    /// Returns a value that is closed: it gives no references.
    pub const fn new() -> Self {
        Self {
            sb: AtomicPtr::new(ptr::null_mut()),
            state: AtomicU32::new(CLOSED),
            _type: PhantomData,
        }
    }

    /// Calls `visit` with the mount, and returns its result; [`None`] if the mount is not there
    /// yet, or not any more. An unmount waits until `visit` returns, which should not take long.
    /// Any context that `visit` allows.
    pub fn with<R>(&self, visit: impl FnOnce(&SuperBlock<T>) -> R) -> Option<R> {
        // There are far fewer than 2^31 threads.
        let before = self.state.fetch_add(1, Ordering::Acquire);
        let _reference = ActiveRef(&self.state);
        if before & CLOSED != 0 {
            return None;
        }
        // SAFETY: By the type invariants, as this reference is counted, and was not closed before.
        let sb = unsafe { SuperBlock::from_raw(self.sb.load(Ordering::Relaxed)) };
        Some(visit(sb))
    }

    /// Starts to give references. Any context.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `sb` is a super block of `T` with a root, which is closed before
    /// its inodes are evicted.
    pub(super) unsafe fn open(&self, sb: *mut bindings::super_block) {
        self.sb.store(sb, Ordering::Relaxed);
        // INVARIANT: By the function requirements.
        self.state.fetch_and(!CLOSED, Ordering::Release);
    }

    /// Gives no more references, and waits until those that were given are dropped. Sleeps.
    pub(super) fn close(&self) {
        self.state.fetch_or(CLOSED, Ordering::AcqRel);
        while self.state.load(Ordering::Acquire) & !CLOSED != 0 {
            fsleep(LOOK_TIME);
        }
    }
}

struct ActiveRef<'a>(&'a AtomicU32);

impl Drop for ActiveRef<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}
