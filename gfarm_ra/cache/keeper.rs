// SPDX-License-Identifier: GPL-2.0

//! The workers with requests of others that are kept. They have a queue of their own: those who
//! wait hold up none who ask.

use kernel::{
    alloc::flags::GFP_NOWAIT,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    memory,
    sync::atomic::{
        AtomicU32,
        Ordering::Relaxed, //
    },
    workqueue::{
        Flags,
        WorkQueue, //
    }, //
};

/// The requests that are kept at a time.
const KEEPING: u16 = 64;

/// The workers.
#[pin_data]
pub(super) struct Keeper {
    /// There until [`Keeper::end`].
    #[pin]
    queue: Mutex<Option<WorkQueue>>,
    count: AtomicU32,
}

/// A request that is counted.
struct Counted(Arc<Keeper>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Relaxed);
    }
}

impl Keeper {
    /// Allocates it. Sleeps.
    pub(super) fn new() -> Result<Arc<Self>> {
        let flags = Flags::UNBOUND | Flags::MEM_RECLAIM;
        let queue = WorkQueue::new(c"gfarm_keep", flags, KEEPING)?;
        Arc::pin_init(
            pin_init!(Self {
                queue <- new_mutex!(Some(queue), "Keeper::queue"),
                count: AtomicU32::new(0),
            }),
            GFP_KERNEL,
        )
    }

    /// Has a worker carry out `work`; drops it, and returns `false`, if too many requests are kept,
    /// there is no memory, or the node has ended. Sleeps.
    pub(super) fn spawn(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) -> bool {
        let counted = Counted(self.clone());
        if self.count.fetch_add(1, Relaxed) >= KEEPING.into() {
            return false;
        }
        let queue = self.queue.lock();
        let spawned = queue.as_ref().map(|queue| {
            queue.try_spawn(GFP_NOWAIT, move || {
                memory::without_io(work);
                drop(counted);
            })
        });
        spawned.is_some_and(|spawned| spawned.is_ok())
    }

    /// Ends it: waits for the workers. Sleeps.
    pub(super) fn end(&self) {
        let queue = self.queue.lock().take();
        drop(queue);
    }
}
