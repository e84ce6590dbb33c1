// SPDX-License-Identifier: GPL-2.0

//! Requests that the block layer passes together.
//!
//! C header: [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h), `struct rq_list`

use super::{
    HwQueue,
    Operations,
    Request, //
};
use crate::Command;
use core::marker::PhantomData;
use kernel::bindings;

/// New requests of one disk, in the order in which they were submitted, from a task that has
/// submitted them together. They may be of several hardware queues.
///
/// # Invariants
///
/// Each request of `raw` is a new one of a queue of a [`TagSet<T>`](super::TagSet), which the block
/// layer passes to the driver; their hardware queues are live for `'a`.
pub struct RequestList<'a, T: Operations> {
    raw: &'a mut bindings::rq_list,
    _driver: PhantomData<T>,
}

/// The first request of a [`RequestList`], which the driver has not taken yet.
pub struct First<'a, T: Operations> {
    /// The hardware queue of the request.
    pub hw: HwQueue<'a, T>,
    /// Its operation.
    pub command: Command,
}

impl<'a, T: Operations> RequestList<'a, T> {
    /// Wraps a list.
    ///
    /// # Safety
    ///
    /// The caller must ensure that the block layer has passed the list to the driver of a
    /// [`TagSet<T>`](super::TagSet), by a call that lasts for `'a`.
    pub(super) unsafe fn from_raw(raw: &'a mut bindings::rq_list) -> Self {
        // INVARIANT: By the function requirements.
        Self {
            raw,
            _driver: PhantomData,
        }
    }

    /// Returns what is known of the first request; [`None`] at the end of the list.
    #[inline]
    pub fn first(&self) -> Option<First<'a, T>> {
        let first = self.raw.head;
        if first.is_null() {
            return None;
        }
        // SAFETY: By the type invariants, the request is a new one: its fields do not change.
        let (hw, flags) = unsafe { ((*first).mq_hctx, (*first).cmd_flags) };
        Some(First {
            // SAFETY: By the type invariants.
            hw: unsafe { HwQueue::from_raw(hw) },
            command: Command::from_raw(flags),
        })
    }

    /// Returns whether the list has exactly one request.
    #[inline]
    pub fn is_single(&self) -> bool {
        !self.raw.head.is_null() && core::ptr::eq(self.raw.head, self.raw.tail)
    }

    /// Takes the first request and starts it.
    #[inline]
    pub fn pop(&mut self) -> Option<Request<T>> {
        let first = self.raw.head;
        if first.is_null() {
            return None;
        }
        // SAFETY: By the type invariants, the request is a new one, and linked in this list.
        unsafe {
            self.raw.head = (*first).__bindgen_anon_1.rq_next;
            (*first).__bindgen_anon_1.rq_next = core::ptr::null_mut();
        }
        if self.raw.head.is_null() {
            self.raw.tail = core::ptr::null_mut();
        }
        // SAFETY: By the type invariants, the block layer has passed the request to the driver, and
        // it is not in the list any more.
        Some(unsafe { Request::start(first) }.0)
    }
}
