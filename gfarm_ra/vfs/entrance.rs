// SPDX-License-Identifier: GPL-2.0

//! The way to a mount for threads that no task of the mount has sent.

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

/// The bit that says that the entrance is closed; the others count the visitors.
const CLOSED: u32 = 1 << 31;

/// The time between two looks of an unmount at the visitors.
const LOOK_TIME: Delta = Delta::from_millis(1);

/// Lets threads of the file system visit a mount: from the time when it has a root until its inodes
/// are evicted. It is a part of the data of the mount ([`FileSystem::entrance`]).
///
/// A visit ends before the mount does, so that what it holds of the mount does not outlive that.
///
/// # Invariants
///
/// While `state` counts visitors, `sb` is a super block of `T` with a root, whose inodes are not
/// evicted.
pub struct Entrance<T: FileSystem> {
    sb: AtomicPtr<bindings::super_block>,
    state: AtomicU32,
    _type: PhantomData<fn(T)>,
}

impl<T: FileSystem> Default for Entrance<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: FileSystem> Entrance<T> {
    /// Returns an entrance that is closed.
    pub const fn new() -> Self {
        Self {
            sb: AtomicPtr::new(ptr::null_mut()),
            state: AtomicU32::new(CLOSED),
            _type: PhantomData,
        }
    }

    /// Calls `visit` with the mount, and returns its result; [`None`] if the mount is not there
    /// yet, or not any more. An unmount waits for the visit, which should not take long. Any
    /// context that `visit` allows.
    pub fn visit<R>(&self, visit: impl FnOnce(&SuperBlock<T>) -> R) -> Option<R> {
        // There are far fewer than 2^31 threads.
        let before = self.state.fetch_add(1, Ordering::Acquire);
        let _visitor = Visitor(&self.state);
        if before & CLOSED != 0 {
            return None;
        }
        // SAFETY: By the type invariants, as this visitor is counted.
        let sb = unsafe { SuperBlock::from_raw(self.sb.load(Ordering::Relaxed)) };
        Some(visit(sb))
    }

    /// Opens it.
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

    /// Closes it, and waits for the visitors. Sleeps.
    pub(super) fn close(&self) {
        self.state.fetch_or(CLOSED, Ordering::AcqRel);
        while self.state.load(Ordering::Acquire) & !CLOSED != 0 {
            fsleep(LOOK_TIME);
        }
    }
}

struct Visitor<'a>(&'a AtomicU32);

impl Drop for Visitor<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}
