// SPDX-License-Identifier: GPL-2.0

//! Changing the limits of a disk in use.
//!
//! C header: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h)

use super::{
    DiskRef,
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

impl<T: Operations> DiskRef<T> {
    /// Changes the limits of the disk. Users that have the disk open continue with the new limits,
    /// so its logical block should not become larger.
    ///
    /// Freezes the queue meanwhile: waits until no request is in flight, so the driver must be able
    /// to end its requests, requeued ones included. Process context; the caller must not hold a
    /// lock that ending a request needs. Returns `EINVAL` as [`Disk::new`](super::Disk::new), and
    /// keeps the old limits then.
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
        let queue = self.as_raw_queue();
        // SAFETY: The lock of a queue is initialized with the queue.
        unsafe { bindings::mutex_lock(&raw mut (*queue).limits_lock) };
        // SAFETY: The limits do not change while this task holds the lock.
        let mut raw = unsafe { (*queue).limits };
        limits.apply(&mut raw);
        // SAFETY: The limits are those of this queue, changed under the lock, which the called
        // function releases.
        to_result(unsafe { bindings::queue_limits_commit_update_frozen(queue, &mut raw) })
    }
}
