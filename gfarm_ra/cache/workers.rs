// SPDX-License-Identifier: GPL-2.0

//! Workers for what waits long, a limited number: those who wait hold up none who do not.

use kernel::{
    alloc::flags::GFP_NOWAIT,
    new_mutex, new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    },
};
use kernel_ext::{
    memory,
    workqueue::{
        Flags,
        WorkQueue, //
    }, //
};

use crate::proto::cache::waiting::Waiting;

/// Workers with a queue of their own.
#[pin_data]
pub(super) struct Workers {
    /// The queue; `None` after [`Workers::end`].
    #[pin]
    queue: Mutex<Option<WorkQueue>>,
    #[pin]
    waiting: SpinLock<Waiting>,
}

/// A worker that is counted.
struct Counted(Arc<Workers>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.waiting.lock().end();
    }
}

impl Workers {
    /// Allocates the queue; `count_max` workers run at a time. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if an allocation fails.
    pub(super) fn new(name: &CStr, count_max: u16) -> Result<Arc<Self>> {
        let flags = Flags::UNBOUND | Flags::MEM_RECLAIM;
        let queue = WorkQueue::new(name, flags, count_max)?;
        Arc::pin_init(
            pin_init!(Self {
                queue <- new_mutex!(Some(queue), "Workers::queue"),
                waiting <- new_spinlock!(Waiting::new(count_max), "Workers::waiting"),
            }),
            GFP_KERNEL,
        )
    }

    /// Has a worker carry out `work`; drops it, and returns `false`, if all are busy, there is no
    /// memory, or they have ended. Sleeps.
    pub(super) fn spawn(self: &Arc<Self>, work: impl FnOnce() + Send + 'static) -> bool {
        if !self.waiting.lock().begin() {
            return false;
        }
        let counted = Counted(self.clone());
        let queue = self.queue.lock();
        let spawned = queue.as_ref().map(|queue| {
            queue.try_spawn(GFP_NOWAIT, move || {
                memory::without_io(work);
                drop(counted);
            })
        });
        spawned.is_some_and(|spawned| spawned.is_ok())
    }

    /// Ends them: waits for those that are busy. Sleeps.
    pub(super) fn end(&self) {
        let queue = self.queue.lock().take();
        drop(queue);
    }
}
