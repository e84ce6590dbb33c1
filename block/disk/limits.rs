// SPDX-License-Identifier: GPL-2.0

//! Limits of a disk that change while it is in use.
//!
//! C header: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h)

use super::{
    Disk,
    GenDisk, //
};
use crate::{
    limits::Limits,
    mq::Operations, //
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*, //
};

impl<T: Operations> Disk<T> {
    /// Gives the disk other limits. Who has the disk open goes on with them, so its logical block
    /// should not become larger.
    ///
    /// Waits until no request is in flight, and lets none in meanwhile: the driver must be able to
    /// end those that it has, and those that it gave back. Process context, no lock that ending a
    /// request needs. `EINVAL` as for [`Disk::new`]; the old limits stay then.
    pub fn set_limits(&self, limits: Limits) -> Result {
        if limits.segments_needed() > u32::from(self.tag_set().sg_entries()) {
            return Err(EINVAL);
        }
        limits.check()?;
        self.commit(limits)
    }
}

impl GenDisk {
    fn commit(&self, limits: Limits) -> Result {
        // SAFETY: By the type invariant the disk has a queue, which lives as long as the disk.
        let queue = unsafe { (*self.as_raw()).queue };
        // SAFETY: The lock of a queue is initialized with it.
        unsafe { bindings::mutex_lock(&raw mut (*queue).limits_lock) };
        // SAFETY: Nobody writes the limits while the lock is held.
        let mut raw = unsafe { (*queue).limits };
        limits.apply(&mut raw);
        // SAFETY: The limits are those of this queue, changed under the lock, which the function
        // releases.
        to_result(unsafe { bindings::queue_limits_commit_update_frozen(queue, &mut raw) })
    }
}
