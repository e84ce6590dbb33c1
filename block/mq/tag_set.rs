// SPDX-License-Identifier: GPL-2.0

//! Tag sets: the requests of a transport.
//!
//! C header: [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h), `struct blk_mq_tag_set`

use super::{
    request::Payload,
    vtable::VTable,
    Operations, //
};
use core::ptr;
use kernel::{
    bindings,
    error::from_err_ptr,
    prelude::*,
    sync::Arc,
    time::msecs_to_jiffies,
    types::Opaque, //
};
use kernel_ext::sync::atomic::{
    AtomicPtr,
    AtomicU32,
    Ordering::{
        AcqRel,
        Acquire,
        Relaxed, //
    }, //
};

/// Most poll or ordinary hardware queues of a set.
const QUEUES_MAX: u32 = 4096;

/// The shape of a [`TagSet`].
#[derive(Clone, Copy, Debug)]
pub struct TagSetConfig {
    /// Ordinary hardware queues, at least 1; reads and writes share them. More than there are
    /// CPUs are not made.
    pub hw_queues: u32,
    /// Hardware queues for polled IO, none by default.
    pub poll_queues: u32,
    /// Requests in flight together, from 1 to 10240.
    pub depth: u32,
    /// Scatter list entries of each request; see
    /// [`Limits::segments_needed`](crate::limits::Limits::segments_needed).
    pub sg_entries: u16,
    /// How long a request may take before [`Operations::timeout`] is called; 0 for the block
    /// layer's default, 30 s.
    pub timeout_ms: u32,
}

impl TagSetConfig {
    /// A set without poll queues.
    pub const fn new(hw_queues: u32, depth: u32, sg_entries: u16) -> Self {
        TagSetConfig {
            hw_queues,
            poll_queues: 0,
            depth,
            sg_entries,
            timeout_ms: 0,
        }
    }

    fn check(&self) -> Result {
        let queues = 1..=QUEUES_MAX;
        if !queues.contains(&self.hw_queues)
            || self.poll_queues > QUEUES_MAX
            || !(1..=raw_max_depth()).contains(&self.depth)
        {
            return Err(EINVAL);
        }
        Ok(())
    }
}

/// `BLK_MQ_MAX_DEPTH`.
const fn raw_max_depth() -> u32 {
    10240
}

/// The requests that may be in flight together on the disks of one transport.
///
/// All hardware queues share the tags (`BLK_MQ_F_TAG_HCTX_SHARED`): a tag is unique in the set
/// and can serve as the transport's own request number, and memory does not grow with the number
/// of CPUs.
///
/// # Invariants
///
/// `raw` is an allocated tag set whose `driver_data` points to this structure; its operations are
/// those of `T`. `spare` is null or a queue of the set that this structure owns.
#[pin_data(PinnedDrop)]
pub struct TagSet<T: Operations> {
    sg_entries: u16,
    poll_queues: u32,
    data: T::Set,
    /// Disks of the set that were made so far.
    disks: AtomicU32,
    /// A queue without a disk, from the second disk on.
    spare: AtomicPtr<bindings::request_queue>,
    #[pin]
    raw: Opaque<bindings::blk_mq_tag_set>,
}

// SAFETY: The C structure is not tied to a task and locks itself; the data is `Send`.
unsafe impl<T: Operations> Send for TagSet<T> {}

// SAFETY: As for `Send`; shared references give shared references to the data, which is `Sync`.
unsafe impl<T: Operations> Sync for TagSet<T> {}

impl<T: Operations> TagSet<T> {
    /// Allocates the requests. Process context, may sleep.
    ///
    /// If memory is short the depth is halved until it suffices; see [`Self::depth`].
    /// `EINVAL` if the shape is out of range, `ENOMEM`.
    pub fn new(config: TagSetConfig, data: T::Set) -> Result<Arc<Self>> {
        config.check()?;
        let cmd_size = Payload::<T>::size(config.sg_entries).try_into()?;
        Arc::pin_init(
            try_pin_init!(&this in TagSet {
                sg_entries: config.sg_entries,
                poll_queues: config.poll_queues,
                data,
                disks: AtomicU32::new(0),
                spare: AtomicPtr::new(ptr::null_mut()),
                // The last field: its initialization calls back for every request.
                raw <- Opaque::try_ffi_init(|slot: *mut bindings::blk_mq_tag_set| {
                    // SAFETY: `slot` is valid for writes, and all zeroes is a valid value.
                    unsafe { slot.write(pin_init::zeroed()) };
                    // SAFETY: Just initialized, and nobody else knows it yet.
                    let set = unsafe { &mut *slot };
                    set.ops = VTable::<T>::get();
                    set.nr_hw_queues = config.hw_queues + config.poll_queues;
                    set.nr_maps = if config.poll_queues == 0 { 1 } else { 3 };
                    set.queue_depth = config.depth;
                    set.cmd_size = cmd_size;
                    // CAST: the jiffies of 2^32 ms fit.
                    set.timeout = msecs_to_jiffies(config.timeout_ms) as c_uint;
                    set.numa_node = bindings::NUMA_NO_NODE;
                    set.flags = bindings::BLK_MQ_F_TAG_HCTX_SHARED
                        | bindings::BLK_MQ_F_NO_SCHED_BY_DEFAULT;
                    set.driver_data = this.as_ptr().cast();
                    // SAFETY: The set is filled in; the callbacks that this makes read only fields
                    // of `this` that were initialized before `raw`.
                    kernel::error::to_result(unsafe { bindings::blk_mq_alloc_tag_set(slot) })
                }),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// One more disk is made. Process context, may sleep. `ENOMEM`.
    ///
    /// When a set of several queues comes down to one, the block layer waits for all requests of
    /// the queue that is left: a disk could not be removed as long as those of another one wait for
    /// the transport. A set that has had two disks gets a queue of its own, and never does.
    pub(crate) fn add_disk(&self) -> Result {
        if self.disks.fetch_add(1, Relaxed) == 0 || !self.spare.load(Relaxed).is_null() {
            return Ok(());
        }
        // SAFETY: By the type invariant the set is allocated; limits and data may be missing. No
        // request is made for the queue.
        let queue = unsafe {
            bindings::blk_mq_alloc_queue(self.raw.get(), ptr::null_mut(), ptr::null_mut())
        };
        let queue = from_err_ptr(queue)?;
        // INVARIANT: The queue is of this set, and is owned here.
        let kept = self
            .spare
            .compare_exchange(ptr::null_mut(), queue, AcqRel, Relaxed);
        if kept.is_err() {
            // SAFETY: Just allocated, and owned by this function.
            unsafe { destroy(queue) };
        }
        Ok(())
    }

    /// The tag set that a C tag set belongs to.
    ///
    /// # Safety
    ///
    /// `raw` was allocated by [`Self::new`] for the same `T` and stays allocated for `'a`.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(raw: *mut bindings::blk_mq_tag_set) -> &'a Self {
        // SAFETY: By the requirement and the type invariant.
        unsafe { &*(*raw).driver_data.cast::<Self>() }
    }

    /// Scatter list entries and poll queues of a tag set that is being allocated.
    ///
    /// # Safety
    ///
    /// [`Self::new`] is allocating `raw`, or has done so.
    pub(super) unsafe fn shape(raw: *mut bindings::blk_mq_tag_set) -> (u16, u32) {
        // SAFETY: `driver_data` was set before the allocation.
        let this = unsafe { (*raw).driver_data }.cast::<Self>();
        // SAFETY: Both fields are initialized before the allocation begins. No reference to the
        // whole is made, the rest may not be.
        unsafe { ((*this).sg_entries, (*this).poll_queues) }
    }

    /// The driver's data.
    #[inline]
    pub fn data(&self) -> &T::Set {
        &self.data
    }

    /// Requests that may be in flight together; every tag is below it.
    pub fn depth(&self) -> u32 {
        // SAFETY: By the type invariant the set is allocated; its depth does not change any more.
        unsafe { (*self.raw.get()).queue_depth }
    }

    /// Ordinary hardware queues.
    pub fn shared_queues(&self) -> u32 {
        // SAFETY: By the type invariant the set is allocated; nobody changes the number of queues.
        let all = unsafe { (*self.raw.get()).nr_hw_queues };
        all.saturating_sub(self.poll_queues)
    }

    /// Poll queues.
    pub fn poll_queues(&self) -> u32 {
        self.poll_queues
    }

    /// Scatter list entries of a request.
    pub fn sg_entries(&self) -> u16 {
        self.sg_entries
    }

    /// The C structure.
    pub(crate) fn as_raw(&self) -> *mut bindings::blk_mq_tag_set {
        self.raw.get()
    }
}

/// # Safety
///
/// `queue` was made by `blk_mq_alloc_queue`, has no disk, and is not used afterwards.
unsafe fn destroy(queue: *mut bindings::request_queue) {
    // SAFETY: By the requirement.
    unsafe { bindings::blk_mq_destroy_queue(queue) };
    // SAFETY: By the requirement; the reference that the allocation gave.
    unsafe { bindings::blk_put_queue(queue) };
}

#[pinned_drop]
impl<T: Operations> PinnedDrop for TagSet<T> {
    fn drop(self: Pin<&mut Self>) {
        let spare = self.spare.load(Acquire);
        if !spare.is_null() {
            // SAFETY: Owned by the type invariant, and this structure goes.
            unsafe { destroy(spare) };
        }
        // SAFETY: By the type invariant the set is allocated. Every disk holds a reference to
        // this structure, so no queue uses it any more.
        unsafe { bindings::blk_mq_free_tag_set(self.raw.get()) };
    }
}
