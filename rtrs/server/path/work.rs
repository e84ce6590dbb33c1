// SPDX-License-Identifier: GPL-2.0

//! The work items of a path: set-up and teardown, ticks, deferred requests, answers to fence
//! messages. Each has one work queue only: see [`ModuleState`](crate::server::module::ModuleState).

use kernel::{
    sync::Arc,
    workqueue::WorkItem, //
};
use kernel_ext::workqueue::{
    self,
    DelayedItem,
    WorkQueue, //
};
use rtrs_core::proto::path::{
    record::Operation,
    ServerState, //
};

use crate::server::path::{
    fence,
    fence_message,
    heartbeat,
    info,
    teardown,
    Path, //
};

impl WorkItem<0> for Path {
    type Pointer = Arc<Path>;

    fn run(this: Arc<Path>) {
        match this.state() {
            ServerState::Connecting if this.info.is_received() => {
                info::establish(&this);
            }
            ServerState::Closing => teardown::tear_down(&this),
            _ => {}
        }
    }
}

impl DelayedItem<1> for Path {
    fn wq(&self) -> &WorkQueue {
        self.session.ticks()
    }
}

impl WorkItem<1> for Path {
    type Pointer = Arc<Path>;

    fn run(this: Arc<Path>) {
        if let Some(delay_ms) = heartbeat::tick(&this) {
            // Fails if the teardown waits for this tick, or another thread has set its time since.
            let _ = workqueue::queue_delayed::<_, 1>(this, delay_ms);
        }
    }
}

impl WorkItem<2> for Path {
    type Pointer = Arc<Path>;

    fn run(this: Arc<Path>) {
        fence::resume(&this);
    }
}

impl WorkItem<3> for Path {
    type Pointer = Arc<Path>;

    fn run(this: Arc<Path>) {
        fence_message::answer(&this);
    }
}

impl Path {
    pub(super) fn queue_tear_down(self: &Arc<Self>) {
        self.did(Operation::QueueTearDown);
        self.queue_work();
    }

    pub(super) fn queue_work(self: &Arc<Self>) {
        // If it is queued already, that run sees the new state.
        let _ = self.session.queue().enqueue::<Arc<Path>, 0>(self.clone());
    }

    /// Schedules the next tick in `delay_ms`. The caller ensures that the path is not being torn
    /// down.
    pub(crate) fn tick_in(self: &Arc<Self>, delay_ms: u32) {
        workqueue::mod_delayed::<Path, 1>(self.clone(), delay_ms);
    }

    /// Queues the work item that checks deferred requests again, and serves those that need not
    /// wait any more. Not with the ticks: a disk may not take a request. Any context.
    pub(crate) fn queue_resume(self: &Arc<Self>) {
        // If it runs already it will run once more.
        let _ = self.session.queue().enqueue::<Arc<Path>, 2>(self.clone());
    }

    /// Queues the work item that looks again whether a fence message can be answered. Any context.
    pub(super) fn queue_fence_answer(self: &Arc<Self>) {
        // If it runs already it will run once more.
        let _ = self.session.ticks().enqueue::<Arc<Path>, 3>(self.clone());
    }

    /// Cancels the work item of [`Self::queue_resume`], and waits for one that runs.
    pub(crate) fn stop_resume(self: &Arc<Self>) {
        drop(workqueue::cancel_sync::<Path, 2>(self));
    }

    /// Cancels the ticks, and waits for one that runs.
    pub(crate) fn stop_ticks(self: &Arc<Self>) {
        drop(workqueue::cancel_delayed_sync::<Path, 1>(self));
    }
}
