// SPDX-License-Identifier: GPL-2.0

//! Work queues that a module creates, delayed work on them, and cancelling work.
//!
//! Work items are those of [`kernel::workqueue`]. What that module has not is the creation of a
//! queue. Its `Queue::enqueue_delayed` is sound for the queues of the kernel only, which are never
//! destroyed: `destroy_workqueue()` does not wait for a delay that has not expired, and the timer
//! would queue the item on freed memory. Hence a [`WorkQueue`] does not dereference to `Queue`, and
//! a delayed item of this module keeps its queue: see [`DelayedItem`].
//!
//! C header: [`include/linux/workqueue.h`](srctree/include/linux/workqueue.h)
//!
//! # Examples
//!
//! ```
//! use kernel::{sync::Arc, workqueue::{impl_has_work, new_work, Work, WorkItem}};
//! use kernel_ext::workqueue::{self, Flags, WorkQueue};
//!
//! #[pin_data]
//! struct Path {
//!     #[pin]
//!     close: Work<Path>,
//! }
//!
//! impl_has_work! {
//!     impl HasWork<Self> for Path { self.close }
//! }
//!
//! impl WorkItem for Path {
//!     type Pointer = Arc<Path>;
//!
//!     fn run(_this: Arc<Path>) {}
//! }
//!
//! let queue = WorkQueue::new(c"paths", Flags::UNBOUND | Flags::MEM_RECLAIM, 0)?;
//! let path = Arc::pin_init(pin_init!(Path { close <- new_work!("Path::close") }), GFP_KERNEL)?;
//! let _ = queue.enqueue(path.clone());
//! workqueue::cancel_sync(&path);
//! # Ok::<(), Error>(())
//! ```

use core::{
    ops::BitOr,
    ptr::NonNull, //
};
use kernel::{
    bindings, container_of,
    ffi::c_int,
    prelude::*,
    str::CStr,
    sync::Arc,
    time::msecs_to_jiffies,
    workqueue::{
        HasDelayedWork,
        HasWork,
        Queue,
        RawWorkItem,
        Work,
        WorkItem, //
    },
};

/// The flags of a work queue.
#[derive(Clone, Copy)]
pub struct Flags(u32);

impl Flags {
    /// Work is not bound to the CPU that queues (`WQ_UNBOUND`).
    pub const UNBOUND: Self = Self(bindings::wq_flags_WQ_UNBOUND);
    /// Bound to the CPU that queues (`WQ_PERCPU`).
    pub const PERCPU: Self = Self(bindings::wq_flags_WQ_PERCPU);
    /// Makes progress under memory pressure; required on the IO path (`WQ_MEM_RECLAIM`).
    pub const MEM_RECLAIM: Self = Self(bindings::wq_flags_WQ_MEM_RECLAIM);
    /// Workers of high priority (`WQ_HIGHPRI`).
    pub const HIGHPRI: Self = Self(bindings::wq_flags_WQ_HIGHPRI);
    /// One item at a time, in the order of queueing (`alloc_ordered_workqueue`).
    pub const ORDERED: Self = Self(bindings::wq_flags_WQ_UNBOUND | bindings::wq_flags___WQ_ORDERED);
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A work queue.
///
/// Dropping it waits for all queued items; an item that runs on it and drops it waits for itself
/// without end.
///
/// # Invariants
///
/// `raw` is a work queue that this value owns.
pub struct WorkQueue {
    raw: NonNull<bindings::workqueue_struct>,
}

// SAFETY: A work queue is not tied to a thread.
unsafe impl Send for WorkQueue {}
// SAFETY: The C functions take the queue's locks.
unsafe impl Sync for WorkQueue {}

impl WorkQueue {
    /// Creates a queue. `max_active` limits how many items run at a time (per CPU, or per node for
    /// an unbound one); 0 is the default. May sleep.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if the allocation fails.
    pub fn new(name: &CStr, flags: Flags, max_active: u16) -> Result<Self> {
        let max_active = if flags.0 & bindings::wq_flags___WQ_ORDERED != 0 {
            1
        } else {
            c_int::from(max_active)
        };
        // SAFETY: The format takes one string, which is copied.
        let raw = unsafe {
            bindings::alloc_workqueue_noprof(
                c"%s".as_char_ptr(),
                flags.0,
                max_active,
                name.as_char_ptr(),
            )
        };
        // INVARIANT: `raw` was just created.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
        })
    }

    /// Queues `item`. Any context.
    ///
    /// # Errors
    ///
    /// Returns the item if it is queued already, here or elsewhere.
    pub fn enqueue<W, const ID: u64>(&self, item: W) -> W::EnqueueOutput
    where
        W: RawWorkItem<ID> + Send + 'static,
    {
        self.queue().enqueue(item)
    }

    /// Queues `item` for the CPU of this number, if there is one; else as
    /// [`enqueue`](Self::enqueue) does. A queue of [`Flags::PERCPU`] runs it there, if the CPU is
    /// online. Any context.
    ///
    /// # Errors
    ///
    /// Returns the item if it is queued already, here or elsewhere.
    pub fn enqueue_on<T, const ID: u64>(&self, cpu: u32, item: Arc<T>) -> Result<(), Arc<T>>
    where
        T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID> + Send + Sync + 'static,
    {
        // SAFETY: The called function has no safety requirements.
        let is_there = unsafe { kernel_ext_sys::kernel_ext_helper_cpu_possible(cpu) };
        // CAST: The constant is that of C, where it is an `int`, as are numbers of CPUs.
        let cpu = match is_there {
            true => cpu as c_int,
            false => bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int,
        };
        let work = raw_work::<T, ID>(&item);
        // The reference that the queue owns from now on, if it takes the item.
        let kept = Arc::into_raw(item);
        // SAFETY: By the type invariants, `raw` is a work queue; the CPU is a possible one. The
        // work was initialised for `Arc<T>` by `Work::new`. If the function returns `true`, the
        // queue owns `kept` until the item runs or is cancelled.
        if unsafe { bindings::queue_work_on(cpu, self.raw.as_ptr(), work) } {
            return Ok(());
        }
        // SAFETY: The reference was not taken, and `kept` comes from `into_raw`.
        Err(unsafe { Arc::from_raw(kept) })
    }

    /// Allocates an item that calls `func` once, and queues it.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if the allocation fails.
    pub fn try_spawn<F: FnOnce() + Send + 'static>(
        &self,
        flags: kernel::alloc::Flags,
        func: F,
    ) -> Result {
        Ok(self.queue().try_spawn(flags, func)?)
    }

    /// Returns the kernel crate's view of the queue. It is not public: see the head of this module.
    fn queue(&self) -> &Queue {
        // SAFETY: By the type invariants, `raw` is a work queue, which lives as long as `self`, and
        // whose items have run when it is destroyed. No delayed item is queued on this reference.
        unsafe { Queue::from_raw(self.raw.as_ptr()) }
    }

    /// Waits for all items that were queued before. Sleeps.
    pub fn flush(&self) {
        // SAFETY: By the type invariants, `raw` is a work queue.
        unsafe { bindings::__flush_workqueue(self.raw.as_ptr()) };
    }
}

impl Drop for WorkQueue {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, this value owns the queue. The function waits for all
        // items that are queued. None is delayed: a delayed item keeps its queue.
        unsafe { bindings::destroy_workqueue(self.raw.as_ptr()) };
    }
}

/// Returns the `work_struct` inside `item`.
fn raw_work<T, const ID: u64>(item: &Arc<T>) -> *mut bindings::work_struct
where
    T: HasWork<T, ID>,
{
    let item = Arc::as_ptr(item).cast_mut();
    // SAFETY: The item is alive, as an `Arc` refers to it; only addresses are made.
    unsafe { Work::raw_get(T::raw_get_work(item)) }
}

/// Takes back the reference that a queue owned for `item`.
///
/// # Safety
///
/// The caller must ensure that a queue has just released the item without running it.
unsafe fn reclaim<T>(item: &Arc<T>) -> Arc<T> {
    // SAFETY: Enqueueing took the reference by `Arc::into_raw`; by the function requirements it is
    // taken back once.
    unsafe { Arc::from_raw(Arc::as_ptr(item)) }
}

/// Cancels `item`, and waits until it does not run. Sleeps.
///
/// Returns the reference that the queue owned, if the item was queued and will not run. Must not
/// be called by the item itself. For an item with a delay use [`cancel_delayed_sync`].
pub fn cancel_sync<T, const ID: u64>(item: &Arc<T>) -> Option<Arc<T>>
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID>,
{
    // SAFETY: `Work::new` initialised the work, and the item is alive.
    let was_queued = unsafe { bindings::cancel_work_sync(raw_work::<T, ID>(item)) };
    // SAFETY: The item was queued, and the cancellation released it.
    was_queued.then(|| unsafe { reclaim(item) })
}

/// Waits until `item`, if it was queued before, has run. Sleeps. Returns whether it waited.
pub fn flush<T, const ID: u64>(item: &Arc<T>) -> bool
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasWork<T, ID>,
{
    // SAFETY: `Work::new` initialised the work, and the item is alive.
    unsafe { bindings::flush_work(raw_work::<T, ID>(item)) }
}

/// Returns the `delayed_work` inside `item`.
fn raw_delayed_work<T, const ID: u64>(item: &Arc<T>) -> *mut bindings::delayed_work
where
    T: HasDelayedWork<T, ID>,
{
    let work = raw_work::<T, ID>(item);
    // SAFETY: `HasDelayedWork` promises that the work is that of a `delayed_work`.
    unsafe { container_of!(work, bindings::delayed_work, work) }
}

/// Cancels the delayed `item`, and waits until it does not run. Sleeps.
///
/// Returns the reference that the queue owned, if the item was pending and will not run. Must not
/// be called by the item itself.
pub fn cancel_delayed_sync<T, const ID: u64>(item: &Arc<T>) -> Option<Arc<T>>
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID>,
{
    // SAFETY: `DelayedWork::new` initialised the work, and the item is alive.
    let was_pending =
        unsafe { bindings::cancel_delayed_work_sync(raw_delayed_work::<T, ID>(item)) };
    // SAFETY: The item was pending, and the cancellation released it.
    was_pending.then(|| unsafe { reclaim(item) })
}

/// Cancels the delayed `item`, which may still be running afterwards. Any context.
///
/// Returns the reference that the queue owned, if the item was pending and will not run.
pub fn cancel_delayed<T, const ID: u64>(item: &Arc<T>) -> Option<Arc<T>>
where
    T: WorkItem<ID, Pointer = Arc<T>> + HasDelayedWork<T, ID>,
{
    // SAFETY: `DelayedWork::new` initialised the work, and the item is alive.
    let was_pending = unsafe { bindings::cancel_delayed_work(raw_delayed_work::<T, ID>(item)) };
    // SAFETY: The item was pending, and the cancellation released it.
    was_pending.then(|| unsafe { reclaim(item) })
}

/// An item that runs on a queue of its own choice after a delay.
///
/// While the delay lasts, the timer refers to the queue. The item is kept by its `Arc` for that
/// time, and keeps the queue: what [`wq`](Self::wq) returns is borrowed from the item.
///
/// The item is code of a module: as for the kernel's own queues, a module cancels its items before
/// it is unloaded.
///
/// # Examples
///
/// The item owns a reference to its queue. A borrowed queue does not compile, as the item is
/// `'static`.
///
/// ```
/// use kernel::{sync::Arc, workqueue::{
///     impl_has_delayed_work, new_delayed_work, DelayedWork, WorkItem,
/// }};
/// use kernel_ext::workqueue::{self, DelayedItem, Flags, WorkQueue};
///
/// #[pin_data]
/// struct Beat {
///     queue: Arc<WorkQueue>,
///     #[pin]
///     work: DelayedWork<Beat>,
/// }
///
/// impl_has_delayed_work! {
///     impl HasDelayedWork<Self> for Beat { self.work }
/// }
///
/// impl WorkItem for Beat {
///     type Pointer = Arc<Beat>;
///
///     fn run(_this: Arc<Beat>) {}
/// }
///
/// impl DelayedItem for Beat {
///     fn wq(&self) -> &WorkQueue {
///         &self.queue
///     }
/// }
///
/// let queue = Arc::new(WorkQueue::new(c"beats", Flags::UNBOUND, 0)?, GFP_KERNEL)?;
/// let beat = pin_init!(Beat { queue, work <- new_delayed_work!("Beat::work") });
/// let beat = Arc::pin_init(beat, GFP_KERNEL)?;
/// workqueue::mod_delayed::<_, 0>(beat.clone(), 1000);
/// drop(workqueue::cancel_delayed_sync::<_, 0>(&beat));
/// # Ok::<(), Error>(())
/// ```
pub trait DelayedItem<const ID: u64 = 0>:
    WorkItem<ID, Pointer = Arc<Self>> + HasDelayedWork<Self, ID> + Send + Sync + Sized + 'static
{
    /// Returns the queue on which the item runs.
    fn wq(&self) -> &WorkQueue;
}

/// Queues `item` on its queue after `delay_ms` milliseconds. Any context.
///
/// # Errors
///
/// Returns the item if it is pending, or is being cancelled.
pub fn queue_delayed<T, const ID: u64>(item: Arc<T>, delay_ms: u32) -> Result<(), Arc<T>>
where
    T: DelayedItem<ID>,
{
    let queue = item.wq().raw.as_ptr();
    let work = raw_delayed_work::<T, ID>(&item);
    // The reference that the queue owns from now on, if it takes the item.
    let kept = Arc::into_raw(item);
    // SAFETY: `DelayedWork::new` initialised the work for `Arc<T>`. If the function returns `true`,
    // the timer, then the queue, owns `kept` until the item runs or is cancelled. `queue` was
    // borrowed from the item, which a shared reference, `kept`, keeps as it is for that time: so
    // the queue exists until the timer has expired, and is destroyed after it has run the item.
    let was_taken = unsafe {
        bindings::queue_delayed_work_on(
            // CAST: The constant is that of C, where it is an `int`.
            bindings::wq_misc_consts_WORK_CPU_UNBOUND as c_int,
            queue,
            work,
            msecs_to_jiffies(delay_ms),
        )
    };
    if was_taken {
        return Ok(());
    }
    // SAFETY: The reference was not taken, and `kept` comes from `into_raw`.
    Err(unsafe { Arc::from_raw(kept) })
}

/// Queues `item` on its queue after `delay_ms` milliseconds; if it is pending, its delay changes.
/// Any context.
///
/// While [`cancel_delayed_sync`] runs, the item is not queued. Returns whether the item was
/// pending.
pub fn mod_delayed<T, const ID: u64>(item: Arc<T>, delay_ms: u32) -> bool
where
    T: DelayedItem<ID>,
{
    // Not `mod_delayed_work_on`: its result does not tell an item that was queued from one that was
    // not queued because of a concurrent cancellation, so the owner of the reference would be
    // unknown.
    let was_pending = cancel_delayed::<T, ID>(&item).is_some();
    let mut next = Some(item);
    while let Some(item) = next {
        // A thread that has queued it since, with another delay, came first. If none has, another
        // thread cancels the item, or it runs at this moment.
        next = queue_delayed::<T, ID>(item, delay_ms)
            .err()
            .filter(|item| cancel_delayed::<T, ID>(item).is_some());
    }
    was_pending
}
