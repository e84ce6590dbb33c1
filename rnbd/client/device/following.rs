// SPDX-License-Identifier: GPL-2.0

//! How a device's disk follows the limits of the server's device.

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
    front::Front,
    io_state::Reach,
    limits::Following, //
};

impl_has_work! {
    impl HasWork<Self> for Device { self.following }
}

impl WorkItem for Device {
    type Pointer = Arc<Device>;

    fn run(this: Arc<Device>) {
        this.follow_limits();
    }
}

impl Device {
    /// Has the disk's limits changed, if there is a disk and they are to change.
    pub(super) fn begin_following(self: &Arc<Self>, inner: &Inner) {
        let is_shown = inner.front.as_ref().is_some_and(Front::is_shown);
        if is_shown && inner.limits.as_ref().is_some_and(|l| l.due().is_some()) {
            // If it is queued already, it will see what is due.
            let _ = self.session().client().chores().enqueue(self.clone());
        }
    }

    /// Changes the disk's limits to what they should be. Sleeps, for as long as requests are under
    /// way or wait for a path.
    fn follow_limits(&self) {
        loop {
            let inner = self.lock();
            let due = inner.limits.as_ref().and_then(Following::due);
            let (Some(limits), Some(front)) = (due, &inner.front) else {
                return;
            };
            let disk = front.disk().clone();
            drop(inner);
            if let Err(error) = disk.set_limits(limits) {
                pr_err!("{self}: the disk keeps its old limits: {error:?}\n");
                return;
            }
            let mut inner = self.lock();
            if let Some(following) = &mut inner.limits {
                following.changed(limits);
                if let (false, Reach::Forced(id)) = (following.lacks_flushes(), self.reach()) {
                    // Unless the server has closed it.
                    self.reach.change(Reach::Forced(id), Reach::Open(id));
                }
            }
            pr_info!("{self}: the disk has the limits of the server's device now\n");
            if let Some(front) = &inner.front {
                front.disk().uevent(Uevent::Change);
            }
        }
    }
}
