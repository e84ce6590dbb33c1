// SPDX-License-Identifier: GPL-2.0

//! Pre-posted receives.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{
    memory::message_buffers::MessageBuffers,
    qp::{
        Qp,
        QpHandler, //
    },
    sys, //
};
use core::ptr;
use kernel::prelude::*;
use kernel_ext::sync::atomic::{AtomicU32, Ordering};

/// The receives of a queue pair, which are reposted after use, one batch at a time.
///
/// The work requests are written once and linked within their batch, so that posting a batch is one
/// call. A queue pair uses its receives in the order in which they were posted, so a counter tells
/// which ones have been used.
///
/// # Invariants
///
/// - `requests` is a whole number of batches of `batch` requests; those of a batch are linked, the
///   last one to none. Neither `requests` nor `segments` ever moves.
/// - The completion entries of the requests are in `table`, which is a queue pair's table of tags;
///   their segments are in `segments` and name memory of `messages`, which belongs to that queue
///   pair's protection domain.
pub struct RecvRing {
    requests: KVVec<sys::ib_recv_wr>,
    segments: KVVec<sys::ib_sge>,
    messages: Option<MessageBuffers>,
    table: *const sys::ib_cqe,
    batch: u32,
    count: u32,
    /// Index in `requests` of the batch that is in use.
    used: AtomicU32,
    /// Receives of it that are left.
    left: AtomicU32,
}

// SAFETY: The pointers refer to memory that the object owns, and to entries that are only compared.
unsafe impl Send for RecvRing {}
// SAFETY: As above; requests and segments are not changed once they are written.
unsafe impl Sync for RecvRing {}

impl RecvRing {
    /// Creates `count` receives for `qp` of messages of `len` bytes, with the tags `0..count`,
    /// without posting them. Sleeps.
    ///
    /// With `len` 0 they are for RDMA writes with immediate data and empty messages, and all have
    /// the tag 0. `count` is rounded down to a multiple of `batch`. Returns `EINVAL` if that is 0,
    /// if the queue pair has fewer tags, or if `batch` is not a power of two.
    pub fn new<H: QpHandler>(qp: &Qp<H>, count: u32, batch: u32, len: u32) -> Result<Self> {
        let batches = count.checked_div(batch).ok_or(EINVAL)?;
        let count = batches.saturating_mul(batch);
        if count == 0 || !batch.is_power_of_two() {
            return Err(EINVAL);
        }
        let messages = match len {
            0 => None,
            len => Some(MessageBuffers::packed(qp.pd(), count, len)?),
        };
        // Without buffers all batches are identical.
        let made = if messages.is_some() { count } else { batch };
        let mut this = Self {
            requests: KVVec::with_capacity(made as usize, GFP_KERNEL)?,
            segments: KVVec::with_capacity(made as usize, GFP_KERNEL)?,
            messages,
            table: qp.entry(0).ok_or(EINVAL)?,
            batch,
            count,
            used: AtomicU32::new(0),
            left: AtomicU32::new(batch),
        };
        for n in 0..made {
            this.add(qp, n, len)?;
        }
        Ok(this)
    }

    /// Writes request `n`.
    fn add<H: QpHandler>(&mut self, qp: &Qp<H>, n: u32, len: u32) -> Result {
        let (mut tag, mut list) = (0, ptr::null_mut());
        if let Some(messages) = &self.messages {
            // INVARIANT: The capacity suffices, so nothing moves.
            self.segments
                .push_within_capacity(messages.segment(n, 0, len).as_raw())
                .map_err(|_| EINVAL)?;
            tag = n;
            list = self
                .segments
                .last_mut()
                .map_or(ptr::null_mut(), ptr::from_mut);
        }
        let cqe = qp.entry(tag).ok_or(EINVAL)?;
        let last = n.wrapping_add(1).checked_rem(self.batch) == Some(0);
        let place = self.requests.as_mut_ptr().wrapping_add(n as usize);
        let request = sys::ib_recv_wr {
            next: if last {
                ptr::null_mut()
            } else {
                place.wrapping_add(1)
            },
            __bindgen_anon_1: sys::ib_recv_wr__bindgen_ty_1 { wr_cqe: cqe },
            sg_list: list,
            num_sge: (!list.is_null()).into(),
        };
        // INVARIANT: As above; the next request is written before the first is posted.
        self.requests
            .push_within_capacity(request)
            .map_err(|_| EINVAL)
    }

    /// Posts all receives. Called once, before the first is used, and once after each
    /// [restart](crate::OwnedQp::restart) of the queue pair. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if `qp` is not the queue pair of the ring, and those of a post; some receives may
    /// be posted then.
    pub fn post<H: QpHandler>(&self, qp: &Qp<H>) -> Result {
        self.used.store(0, Ordering::Relaxed);
        self.left.store(self.batch, Ordering::Relaxed);
        let mut posted = 0;
        while posted < self.count {
            let index = posted.checked_rem(self.requests.len() as u32);
            self.post_batch(qp, index.unwrap_or(0))?;
            posted = posted.saturating_add(self.batch);
        }
        Ok(())
    }

    /// Counts a used receive, whose message was read. Reposts the used ones when a batch is
    /// complete, and returns whether it did.
    ///
    /// Called by the completion handler only, which runs on one CPU at a time.
    ///
    /// # Errors
    ///
    /// As for [`post`](Self::post); the batch is not posted again then.
    #[inline(always)]
    pub fn consumed<H: QpHandler>(&self, qp: &Qp<H>) -> Result<bool> {
        let left = self.left.load(Ordering::Relaxed).wrapping_sub(1);
        self.left.store(left, Ordering::Relaxed);
        if left != 0 {
            return Ok(false);
        }
        self.batch_used(qp)?;
        Ok(true)
    }

    #[inline(never)]
    fn batch_used<H: QpHandler>(&self, qp: &Qp<H>) -> Result {
        let index = self.used.load(Ordering::Relaxed);
        // A whole number of batches.
        let next = index.wrapping_add(self.batch);
        let is_last = next as usize >= self.requests.len();
        self.used
            .store(if is_last { 0 } else { next }, Ordering::Relaxed);
        self.left.store(self.batch, Ordering::Relaxed);
        self.post_batch(qp, index)
    }

    /// Posts the batch that begins at `index`.
    fn post_batch<H: QpHandler>(&self, qp: &Qp<H>, index: u32) -> Result {
        let first = self.requests.get(index as usize).ok_or(EINVAL)?;
        if !self.is_for(qp) {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariants, this is a chain to the end of its batch, whose entries
        // are in the table of `qp`, as checked, and whose memory belongs to `qp`'s domain.
        unsafe { qp.post_receive_chain(first) }
    }

    /// Returns whether the requests were created for `qp`, and not for another queue pair at the
    /// same address.
    fn is_for<H: QpHandler>(&self, qp: &Qp<H>) -> bool {
        let same_table = qp.entry(0).map(<*mut _>::cast_const) == Some(self.table);
        let last_tag = self.segments.len().saturating_sub(1) as u32;
        let same_domain = self.messages.as_ref().is_none_or(|m| m.belongs_to(qp.pd()));
        same_table && same_domain && qp.entry(last_tag).is_some()
    }

    /// Copies the start of the message of receive `tag`. Returns `EINVAL` if there is no such
    /// receive, or if it is shorter than `into`. Any context.
    #[inline(always)]
    pub fn read(&self, tag: u32, into: &mut [u8]) -> Result {
        match &self.messages {
            Some(messages) => messages.read(tag, 0, into),
            None => Err(EINVAL),
        }
    }

    /// Returns the number of batches.
    #[inline]
    pub fn batches(&self) -> u32 {
        // A power of two.
        self.count.checked_div(self.batch).unwrap_or(0)
    }
}
