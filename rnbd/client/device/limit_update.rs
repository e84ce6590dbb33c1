// SPDX-License-Identifier: GPL-2.0

//! Applies the limits of the server's device to the device's disk.

use block_ext::disk::Uevent;
use kernel::{
    impl_has_work,
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};

use super::{
    Device,
    Inner, //
};
use crate::client::{
    limits::LimitUpdate,
    mapped_disk::MappedDisk, //
};

/// The number of the work item among those of a device.
const ITEM: u64 = 0;

impl_has_work! {
    impl HasWork<Self, ITEM> for Device { self.limit_update }
}

impl WorkItem<ITEM> for Device {
    type Pointer = Arc<Device>;

    fn run(this: Arc<Device>) {
        this.follow_limits();
    }
}

impl Device {
    /// Queues the work item that changes the disk's limits, if there is a disk and they differ.
    pub(super) fn begin_limit_update(self: &Arc<Self>, inner: &Inner) {
        let is_shown = inner.mapped_disk.as_ref().is_some_and(MappedDisk::is_shown);
        if is_shown && inner.limits.as_ref().is_some_and(|l| l.due().is_some()) {
            // If it is queued already, that run sees what is due.
            let client = self.session().client();
            let _ = client.wq().enqueue::<_, ITEM>(self.clone());
        }
    }

    /// Changes the disk's limits to those of the server's device. Sleeps as long as requests are in
    /// flight or wait for a path.
    fn follow_limits(&self) {
        loop {
            let inner = self.lock();
            let due = inner.limits.as_ref().and_then(LimitUpdate::due);
            let (Some(limits), Some(mapped_disk)) = (due, &inner.mapped_disk) else {
                return;
            };
            let disk = mapped_disk.disk().clone();
            drop(inner);
            if let Err(error) = disk.set_limits(limits) {
                pr_err!("{self}: the disk keeps its old limits: {error:?}\n");
                return;
            }
            let mut inner = self.lock();
            if let Some(limit_update) = &mut inner.limits {
                limit_update.changed(limits);
            }
            pr_info!("{self}: the disk has the limits of the server's device now\n");
            if let Some(mapped_disk) = &inner.mapped_disk {
                mapped_disk.uevent(Uevent::Change);
            }
        }
    }
}
