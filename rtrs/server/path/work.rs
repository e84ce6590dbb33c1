// SPDX-License-Identifier: GPL-2.0

//! The work items of a path: set-up and teardown, ticks, deferred requests.

use kernel::{
    sync::Arc,
    workqueue::WorkItem, //
};
use kernel_ext::workqueue::{
    self,
    DelayedItem,
    WorkQueue, //
};
use rtrs_core::proto::path::ServerState;

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
            // Fails if the teardown waits for this tick.
            let _ = workqueue::queue_delayed::<_, 1>(this, delay_ms);
        }
    }
}

impl WorkItem<2> for Path {
    type Pointer = Arc<Path>;

    fn run(this: Arc<Path>) {
        fence::resume(&this);
        fence_message::answer(&this);
    }
}
