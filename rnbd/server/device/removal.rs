// SPDX-License-Identifier: GPL-2.0

//! Disks that are removed from the machine while clients have them open.
//!
//! Such a mapping is closed as by `force_close`: its client's requests are refused under its
//! number, the kernel can free the disk, and the client can open it again when it is back, also if
//! the kernel gives it another name then.
//!
//! The block layer tells it to who has the disk for itself (`mark_dead`). The server has not: what
//! it exports may be mounted or looked at here, too. So it looks, once a second.

use block_ext::bdev::BlockDevice;
use kernel::{
    prelude::*,
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
    workqueue::{
        impl_has_delayed_work,
        new_delayed_work,
        DelayedWork,
        WorkItem, //
    },
};
use kernel_ext::workqueue::{
    self,
    DelayedItem,
    Flags,
    WorkQueue, //
};

use super::mapping::Description;

/// The time between two looks.
const LOOK_MS: u32 = 1000;

/// A disk that a mapping has open.
struct Watched {
    device: Arc<BlockDevice>,
    description: Arc<Description>,
    is_logged: bool,
}

/// The disks of all mappings.
///
/// Locking: no other lock is taken under `watched`, and nothing waits for memory.
#[pin_data]
pub(crate) struct Removals {
    #[pin]
    watched: Mutex<KVec<Watched>>,
    queue: WorkQueue,
    #[pin]
    work: DelayedWork<Removals>,
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self> for Removals { self.work }
}

impl DelayedItem for Removals {
    fn wq(&self) -> &WorkQueue {
        &self.queue
    }
}

impl WorkItem for Removals {
    type Pointer = Arc<Removals>;

    fn run(removals: Arc<Removals>) {
        if removals.look() {
            let _ = workqueue::queue_delayed::<_, 0>(removals, LOOK_MS);
        }
    }
}

impl Removals {
    /// Creates an empty list.
    pub(crate) fn new() -> Result<Arc<Self>> {
        let queue = WorkQueue::new(c"rnbd_server_removals", Flags::UNBOUND, 0)?;
        Arc::pin_init(
            pin_init!(Self {
                watched <- new_mutex!(KVec::new(), "rnbd_server::Removals::watched"),
                queue,
                work <- new_delayed_work!("rnbd_server::Removals::work"),
            }),
            GFP_KERNEL,
        )
    }

    /// Closes the mapping of `description`, which has `device` open, when the disk is removed, as
    /// long as the mapping keeps the result.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if the allocation fails.
    pub(super) fn watch(
        self: &Arc<Self>,
        device: Arc<BlockDevice>,
        description: Arc<Description>,
    ) -> Result<Watch> {
        let watched = Watched {
            device,
            description: description.clone(),
            is_logged: false,
        };
        self.watched.lock().push(watched, GFP_KERNEL)?;
        // It may be pending for others.
        let _ = workqueue::queue_delayed::<_, 0>(self.clone(), LOOK_MS);
        Ok(Watch {
            removals: self.clone(),
            description,
        })
    }

    /// Closes the mappings whose disks are gone; returns whether there are others to look at.
    fn look(&self) -> bool {
        let mut watched = self.watched.lock();
        let gone = |one: &&mut Watched| !one.device.is_present();
        for one in watched.iter_mut().filter(gone) {
            if !core::mem::replace(&mut one.is_logged, true) {
                one.description.log_gone();
            }
            let description = one.description.clone();
            // Waits for the requests in flight, those of other mappings do not. It is done again as
            // long as the mapping is there: it may not have its number yet, or there is no memory.
            let _ = self.queue.try_spawn(GFP_NOWAIT, move || {
                description.session.force_close(&description);
            });
        }
        !watched.is_empty()
    }

    /// Waits for what is being closed; no mapping is left. Sleeps.
    pub(crate) fn end(self: &Arc<Self>) {
        drop(workqueue::cancel_delayed_sync::<_, 0>(self));
        self.queue.flush();
    }
}

/// A mapping whose disk is looked at. Dropping it ends that.
pub(super) struct Watch {
    removals: Arc<Removals>,
    description: Arc<Description>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut watched = self.removals.watched.lock();
        let is_ours = |one: &Watched| Arc::ptr_eq(&one.description, &self.description);
        let index = watched.iter().position(is_ours);
        let ended = index.map(|index| watched.remove(index));
        // It may close the device, which sleeps.
        drop(watched);
        drop(ended);
    }
}
