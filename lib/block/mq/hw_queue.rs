// SPDX-License-Identifier: GPL-2.0

//! Hardware queues.
//!
//! C header: [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h), `struct blk_mq_hw_ctx`

use super::{
    Operations,
    TagSet, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::bindings;

/// The hardware queue of a callback.
///
/// # Invariants
///
/// `raw` is a live hardware queue of a tag set [`TagSet<T>`] for the lifetime `'a`.
pub struct HwQueue<'a, T: Operations> {
    raw: NonNull<bindings::blk_mq_hw_ctx>,
    _queue: PhantomData<&'a TagSet<T>>,
}

impl<T: Operations> Clone for HwQueue<'_, T> {
    #[inline]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Operations> Copy for HwQueue<'_, T> {}

impl<'a, T: Operations> HwQueue<'a, T> {
    /// Wraps a hardware queue.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `raw` is a live hardware queue of a [`TagSet<T>`] for the
    /// lifetime `'a`.
    #[inline]
    pub(super) unsafe fn from_raw(raw: *mut bindings::blk_mq_hw_ctx) -> Self {
        // INVARIANT: By the function requirements.
        HwQueue {
            // SAFETY: A live queue is not at address 0.
            raw: unsafe { NonNull::new_unchecked(raw) },
            _queue: PhantomData,
        }
    }

    /// Returns the number among all hardware queues of the tag set: first the
    /// [`TagSetConfig::hw_queues`](super::TagSetConfig::hw_queues) ordinary ones, then the poll
    /// queues.
    #[inline]
    pub fn index(&self) -> u32 {
        // SAFETY: By the type invariants, the queue is live; the number never changes.
        unsafe { (*self.raw.as_ptr()).queue_num }
    }

    /// Returns whether this is a poll queue, whose requests end in [`Operations::poll`] only.
    #[inline]
    pub fn is_poll(&self) -> bool {
        // SAFETY: By the type invariants, the queue is live; the type is set before the first
        // request.
        let kind = unsafe { (*self.raw.as_ptr()).type_ };
        u32::from(kind) == bindings::hctx_type_HCTX_TYPE_POLL
    }

    /// Returns the number among the poll queues, `None` if this is not one.
    #[inline]
    pub fn poll_index(&self) -> Option<u32> {
        if !self.is_poll() {
            return None;
        }
        self.index().checked_sub(self.tag_set().shared_queues())
    }

    /// Returns the tag set.
    #[inline]
    pub fn tag_set(&self) -> &'a TagSet<T> {
        // SAFETY: By the type invariants, the hardware queue belongs to a queue of a `TagSet<T>`,
        // which outlives it.
        unsafe { TagSet::from_raw((*(*self.raw.as_ptr()).queue).tag_set) }
    }

    /// Returns the driver's data of the tag set.
    #[inline]
    pub fn set(&self) -> &'a T::Set {
        self.tag_set().data()
    }

    /// Returns the driver's data of the disk.
    #[inline]
    pub fn queue(&self) -> &'a T::Queue {
        // SAFETY: By the type invariants, the hardware queue is live, and so is its disk, whose
        // `queuedata` is a `T::Queue` that the disk keeps.
        unsafe { &*(*(*self.raw.as_ptr()).queue).queuedata.cast::<T::Queue>() }
    }
}
