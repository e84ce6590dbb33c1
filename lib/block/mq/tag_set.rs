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

/// The maximum number of poll or of ordinary hardware queues of a set.
const QUEUES_MAX: u32 = 4096;

/// The configuration of a [`TagSet`].
#[derive(Clone, Copy, Debug)]
pub struct TagSetConfig {
    /// The number of ordinary hardware queues, at least 1, for reads and writes; at most one per
    /// CPU is created.
    pub hw_queues: u32,
    /// The number of hardware queues for polled IO, none by default.
    pub poll_queues: u32,
    /// The maximum number of requests in flight, from 1 to 10240.
    pub depth: u32,
    /// The number of scatter list entries of each request; see
    /// [`Limits::segments_needed`](crate::limits::Limits::segments_needed).
    pub sg_entries: u16,
    /// The time limit of a request, after which [`Operations::timeout`] is called; 0 for the block
    /// layer's default, 30 s.
    pub timeout_ms: u32,
}

impl TagSetConfig {
    /// Creates the configuration of a set without poll queues.
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

/// Returns `BLK_MQ_MAX_DEPTH`.
const fn raw_max_depth() -> u32 {
    10240
}

/// The requests of the disks of one transport.
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
    /// The number of disks of the set created so far.
    disks: AtomicU32,
    /// A queue without a disk, from the second disk on.
    spare: AtomicPtr<bindings::request_queue>,
    #[pin]
    raw: Opaque<bindings::blk_mq_tag_set>,
}

// SAFETY: The C structure is not tied to a task and has its own locks; the data is `Send`.
unsafe impl<T: Operations> Send for TagSet<T> {}

// SAFETY: The C structure has its own locks; shared references give shared references to the data,
// which is `Sync`.
unsafe impl<T: Operations> Sync for TagSet<T> {}

impl<T: Operations> TagSet<T> {
    /// Allocates the requests. Process context, may sleep.
    ///
    /// Under memory pressure the block layer halves the depth until the memory suffices; see
    /// [`Self::depth`]. Returns `EINVAL` if a value is out of range, `ENOMEM` if an allocation
    /// fails.
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
                // Initialised last, as the block layer calls `init_request` for every request.
                raw <- Opaque::try_ffi_init(|slot: *mut bindings::blk_mq_tag_set| {
                    // SAFETY: `slot` is valid for writes, and all zeroes is a valid value.
                    unsafe { slot.write(pin_init::zeroed()) };
                    // SAFETY: The set was just initialized, and no other reference to it exists
                    // yet.
                    let set = unsafe { &mut *slot };
                    set.ops = VTable::<T>::get();
                    set.nr_hw_queues = config.hw_queues + config.poll_queues;
                    set.nr_maps = if config.poll_queues == 0 { 1 } else { 3 };
                    set.queue_depth = config.depth;
                    set.cmd_size = cmd_size;
                    // CAST: The jiffies of 2^32 ms fit.
                    set.timeout = msecs_to_jiffies(config.timeout_ms) as c_uint;
                    set.numa_node = bindings::NUMA_NO_NODE;
                    set.flags = bindings::BLK_MQ_F_TAG_HCTX_SHARED
                        | bindings::BLK_MQ_F_NO_SCHED_BY_DEFAULT;
                    set.driver_data = this.as_ptr().cast();
                    // SAFETY: The set is complete; the callbacks of this call only read fields of
                    // `this` that were initialized before `raw`.
                    kernel::error::to_result(unsafe { bindings::blk_mq_alloc_tag_set(slot) })
                }),
            }? Error),
            GFP_KERNEL,
        )
    }

    /// Counts a new disk. Process context, may sleep. Returns `ENOMEM` if an allocation fails.
    ///
    /// When the number of queues of a set drops to one, the block layer waits for all requests of
    /// the remaining queue: the removal of a disk would wait while requests of another one wait for
    /// the transport. A set that has had two disks therefore keeps a spare queue, so that the
    /// number never drops to one.
    pub(crate) fn add_disk(&self) -> Result {
        if self.disks.fetch_add(1, Relaxed) == 0 || !self.spare.load(Relaxed).is_null() {
            return Ok(());
        }
        // SAFETY: By the type invariants, the set is allocated; limits and data are optional. The
        // queue gets no requests.
        let queue = unsafe {
            bindings::blk_mq_alloc_queue(self.raw.get(), ptr::null_mut(), ptr::null_mut())
        };
        let queue = from_err_ptr(queue)?;
        // INVARIANT: The queue is of this set, and this function owns it.
        let kept = self
            .spare
            .compare_exchange(ptr::null_mut(), queue, AcqRel, Relaxed);
        if kept.is_err() {
            // SAFETY: The queue was just allocated, and this function owns it.
            unsafe { destroy(queue) };
        }
        Ok(())
    }

    /// Returns the tag set of a C tag set.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `raw` was allocated by [`Self::new`] for the same `T` and stays
    /// allocated for `'a`.
    #[inline]
    pub(super) unsafe fn from_raw<'a>(raw: *mut bindings::blk_mq_tag_set) -> &'a Self {
        // SAFETY: By the function requirements, and the type invariant.
        unsafe { &*(*raw).driver_data.cast::<Self>() }
    }

    /// Returns the numbers of scatter list entries and of poll queues of a tag set, which may be
    /// under construction.
    ///
    /// # Safety
    ///
    /// The caller must ensure that [`Self::new`] is allocating `raw`, or has done so.
    pub(super) unsafe fn shape(raw: *mut bindings::blk_mq_tag_set) -> (u16, u32) {
        // SAFETY: `driver_data` was set before the allocation.
        let this = unsafe { (*raw).driver_data }.cast::<Self>();
        // SAFETY: Both fields are initialized before the allocation. No reference to the whole
        // structure is created, as other fields may be uninitialized.
        unsafe { ((*this).sg_entries, (*this).poll_queues) }
    }

    /// Returns the driver's data.
    #[inline]
    pub fn data(&self) -> &T::Set {
        &self.data
    }

    /// Returns the maximum number of requests in flight; every tag is below it.
    pub fn depth(&self) -> u32 {
        // SAFETY: By the type invariants, the set is allocated; its depth does not change any more.
        unsafe { (*self.raw.get()).queue_depth }
    }

    /// Returns the number of ordinary hardware queues.
    pub fn shared_queues(&self) -> u32 {
        // SAFETY: By the type invariants, the set is allocated; the number of queues does not
        // change.
        let all = unsafe { (*self.raw.get()).nr_hw_queues };
        all.saturating_sub(self.poll_queues)
    }

    /// Returns the number of poll queues.
    pub fn poll_queues(&self) -> u32 {
        self.poll_queues
    }

    /// Returns the number of scatter list entries of a request.
    pub fn sg_entries(&self) -> u16 {
        self.sg_entries
    }

    /// Returns the C structure.
    pub(crate) fn as_raw(&self) -> *mut bindings::blk_mq_tag_set {
        self.raw.get()
    }
}

/// # Safety
///
/// The caller must ensure that `queue` was allocated by `blk_mq_alloc_queue`, has no disk, and is
/// not used afterwards.
unsafe fn destroy(queue: *mut bindings::request_queue) {
    // SAFETY: By the function requirements.
    unsafe { bindings::blk_mq_destroy_queue(queue) };
    // SAFETY: By the function requirements; this drops the reference of the allocation.
    unsafe { bindings::blk_put_queue(queue) };
}

#[pinned_drop]
impl<T: Operations> PinnedDrop for TagSet<T> {
    fn drop(self: Pin<&mut Self>) {
        let spare = self.spare.load(Acquire);
        if !spare.is_null() {
            // SAFETY: By the type invariants, `self` owns the queue; it is not used afterwards.
            unsafe { destroy(spare) };
        }
        // SAFETY: By the type invariants, the set is allocated. Every disk holds a reference to
        // this structure, so no queue uses it any more.
        unsafe { bindings::blk_mq_free_tag_set(self.raw.get()) };
    }
}
