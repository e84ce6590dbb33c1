// SPDX-License-Identifier: GPL-2.0

//! Tests of the module `workqueue`.

use super::check;
use kernel::{
    cpu::CpuId,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
    workqueue::{
        impl_has_delayed_work,
        impl_has_work,
        new_delayed_work,
        new_work,
        DelayedWork,
        Work,
        WorkItem, //
    },
};
use kernel_ext::sync::atomic::{AtomicU32, Ordering};
use kernel_ext::{
    cpu::num_online_cpus,
    sync::Completion,
    workqueue::{
        self,
        DelayedItem,
        Flags,
        WorkQueue, //
    },
};

/// A delay that is longer than any test.
const NEVER_MS: u32 = 3_600_000;

#[pin_data]
struct Item {
    queue: Arc<WorkQueue>,
    runs: AtomicU32,
    /// The item, for a thread that queues it as soon as a caller asks for its queue.
    #[pin]
    other: Mutex<Option<Arc<Item>>>,
    #[pin]
    work: Work<Item>,
    #[pin]
    later: DelayedWork<Item, 1>,
    #[pin]
    may_go: Completion,
    #[pin]
    ran: Completion,
}

impl_has_work! {
    impl HasWork<Self> for Item { self.work }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for Item { self.later }
}

impl WorkItem for Item {
    type Pointer = Arc<Item>;

    fn run(this: Arc<Item>) {
        this.may_go.wait();
        this.runs.fetch_add(1, Ordering::Relaxed);
    }
}

impl DelayedItem<1> for Item {
    fn wq(&self) -> &WorkQueue {
        let other = self.other.lock().take();
        if let Some(item) = other {
            let _ = workqueue::queue_delayed::<_, 1>(item, NEVER_MS);
        }
        &self.queue
    }
}

impl WorkItem<1> for Item {
    type Pointer = Arc<Item>;

    fn run(this: Arc<Item>) {
        this.runs.fetch_add(100, Ordering::Relaxed);
        this.ran.complete_all();
    }
}

impl Item {
    fn new(queue: &Arc<WorkQueue>) -> Result<Arc<Self>> {
        let init = pin_init!(Self {
            queue: queue.clone(),
            runs: AtomicU32::new(0),
            other <- new_mutex!(None),
            work <- new_work!("selftest"),
            later <- new_delayed_work!("selftest"),
            may_go <- Completion::new(),
            ran <- Completion::new(),
        });
        Arc::pin_init(init, GFP_KERNEL)
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::Relaxed)
    }
}

/// Returns a new queue.
fn new_queue(flags: Flags) -> Result<Arc<WorkQueue>> {
    let queue = WorkQueue::new(c"kernel_ext_test", flags, 0)?;
    Ok(Arc::new(queue, GFP_KERNEL)?)
}

/// Returns whether this is the last reference, so that no queue keeps one.
fn is_last(item: Arc<Item>) -> bool {
    Arc::into_unique_or_drop(item).is_some()
}

/// Checks that items run in order, that a queued one can be cancelled, and that dropping the queue
/// waits.
pub(super) fn queue() -> Result {
    let other = new_queue(Flags::UNBOUND)?;
    let (first, second) = (Item::new(&other)?, Item::new(&other)?);
    let queue = WorkQueue::new(c"kernel_ext_test", Flags::ORDERED | Flags::MEM_RECLAIM, 0)?;
    check(
        queue.enqueue::<_, 0>(first.clone()).is_ok(),
        "an item is queued",
    )?;
    check(
        queue.enqueue::<_, 0>(second.clone()).is_ok(),
        "another item is queued",
    )?;
    check(
        queue.enqueue::<_, 0>(second.clone()).is_err(),
        "an item is queued once",
    )?;
    let cancelled = workqueue::cancel_sync::<_, 0>(&second);
    check(cancelled.is_some(), "an item that waits is cancelled")?;
    drop(cancelled);
    check(
        workqueue::cancel_sync::<_, 0>(&second).is_none(),
        "it is cancelled once",
    )?;
    check(first.runs() == 0, "the first item waits")?;
    first.may_go.complete_all();
    workqueue::flush::<_, 0>(&first);
    check(first.runs() == 1, "a flushed item has run")?;
    second.may_go.complete_all();
    let _ = queue.enqueue::<_, 0>(second.clone());
    queue.flush();
    check(second.runs() == 1, "a flushed queue has run its items")?;
    let _ = queue.enqueue::<_, 0>(second.clone());
    drop(queue);
    check(second.runs() == 2, "a dropped queue has run its items")?;
    check(
        is_last(first) && is_last(second),
        "the queue keeps no reference",
    )
}

/// Checks that a queue runs items on the CPUs that they are queued for, one with the number of no
/// CPU, too.
pub(super) fn on_cpu() -> Result {
    #[pin_data]
    struct OnCpu {
        ran_on: AtomicU32,
        #[pin]
        work: Work<OnCpu>,
    }
    impl_has_work! {
        impl HasWork<Self> for OnCpu { self.work }
    }
    impl WorkItem for OnCpu {
        type Pointer = Arc<OnCpu>;

        fn run(this: Arc<OnCpu>) {
            this.ran_on
                .store(CpuId::current().as_u32(), Ordering::Relaxed);
        }
    }
    let queue = new_queue(Flags::PERCPU)?;
    for cpu in Iterator::chain(0..num_online_cpus(), [u32::MAX]) {
        let init = pin_init!(OnCpu {
            ran_on: AtomicU32::new(u32::MAX),
            work <- new_work!("selftest"),
        });
        let item = Arc::pin_init(init, GFP_KERNEL)?;
        let queued = queue.enqueue_on::<_, 0>(cpu, item.clone());
        check(queued.is_ok(), "an item is queued for a CPU")?;
        workqueue::flush::<_, 0>(&item);
        let ran_on = item.ran_on.load(Ordering::Relaxed);
        check(
            ran_on == cpu || cpu == u32::MAX && ran_on < num_online_cpus(),
            "an item runs on the CPU that it was queued for",
        )?;
    }
    let waits = Item::new(&queue)?;
    check(
        queue.enqueue_on::<_, 0>(0, waits.clone()).is_ok(),
        "an item that waits is queued",
    )?;
    // It has begun or not.
    let again = queue.enqueue_on::<_, 0>(0, waits.clone());
    let once = again.is_err() || queue.enqueue_on::<_, 0>(0, waits.clone()).is_err();
    check(once, "an item is queued once")?;
    drop(again);
    waits.may_go.complete_all();
    queue.flush();
    check(is_last(waits), "the queue keeps no reference")
}

/// Checks that a delayed item can be moved and cancelled.
pub(super) fn delayed() -> Result {
    let item = Item::new(&new_queue(Flags::UNBOUND)?)?;
    let is_new = !workqueue::mod_delayed::<_, 1>(item.clone(), NEVER_MS);
    check(is_new, "an item is not pending before")?;
    check(
        workqueue::mod_delayed::<_, 1>(item.clone(), NEVER_MS),
        "it is pending",
    )?;
    check(
        workqueue::queue_delayed::<_, 1>(item.clone(), 0).is_err(),
        "it is queued once",
    )?;
    let cancelled = workqueue::cancel_delayed_sync::<_, 1>(&item);
    check(cancelled.is_some(), "an item that waits is cancelled")?;
    drop(cancelled);
    check(
        workqueue::cancel_delayed_sync::<_, 1>(&item).is_none(),
        "it is cancelled once",
    )?;
    workqueue::mod_delayed::<_, 1>(item.clone(), NEVER_MS);
    workqueue::mod_delayed::<_, 1>(item.clone(), 0);
    item.ran.wait_timeout_ms(10_000)?;
    workqueue::flush::<_, 1>(&item);
    check(
        item.runs() == 100,
        "an item that was moved to now has run once",
    )?;
    check(is_last(item), "the queue keeps no reference")
}

/// Checks that an item which is moved has the new delay, also if another thread queues it just
/// then.
pub(super) fn delayed_beside_another() -> Result {
    let item = Item::new(&new_queue(Flags::UNBOUND)?)?;
    workqueue::mod_delayed::<_, 1>(item.clone(), NEVER_MS);
    *item.other.lock() = Some(item.clone());
    workqueue::mod_delayed::<_, 1>(item.clone(), 0);
    check(item.other.lock().is_none(), "another thread has queued it")?;
    let ran = item.ran.wait_timeout_ms(10_000);
    drop(workqueue::cancel_delayed_sync::<_, 1>(&item));
    check(ran.is_ok(), "an item that was moved to now has run")?;
    check(is_last(item), "the queue keeps no reference")
}

/// Checks that an item that is delayed keeps its queue: the timer queues the item on it.
pub(super) fn delayed_keeps_queue() -> Result {
    let queue = new_queue(Flags::UNBOUND)?;
    let item = Item::new(&queue)?;
    check(
        workqueue::queue_delayed::<_, 1>(item.clone(), 100).is_ok(),
        "an item is queued",
    )?;
    drop(queue);
    item.ran.wait_timeout_ms(10_000)?;
    // The item's run drops its reference before the last one, which drops the queue.
    workqueue::flush::<_, 1>(&item);
    check(
        item.runs() == 100,
        "an item runs on the queue that it keeps",
    )?;
    check(is_last(item), "the queue keeps no reference")
}
