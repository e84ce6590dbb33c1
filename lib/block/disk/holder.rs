// SPDX-License-Identifier: GPL-2.0

//! Shows in sysfs which devices a disk is made of: `slaves/` of the disk, `holders/` of these.
//!
//! C header: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h)

use super::{
    Disk,
    State, //
};
use crate::{
    bdev::BlockDevice,
    mq::Operations, //
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    sync::Arc, //
};

impl<T: Operations> Disk<T> {
    /// The disk is made of these devices from now on, and of no others: keeps them open, and has
    /// links to them in sysfs until it is removed. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a device that was not opened
    /// [exclusively](BlockDevice::open_exclusively), or is the disk itself; `ENODEV` for one that
    /// was removed; `ENOMEM`. What could be linked is.
    pub fn set_made_of(&mut self, devices: &[Arc<BlockDevice>]) -> Result {
        let mut place = 0;
        while let Some(linked) = self.made_of.get(place) {
            if devices.iter().any(|device| Arc::ptr_eq(device, linked)) {
                place += 1;
            } else if let Ok(linked) = self.made_of.remove(place) {
                self.unlink(&linked);
            }
        }
        for device in devices {
            let is_linked = |linked: &Arc<BlockDevice>| Arc::ptr_eq(device, linked);
            if !self.made_of.iter().any(is_linked) {
                self.link(device)?;
            }
        }
        Ok(())
    }

    fn link(&mut self, device: &Arc<BlockDevice>) -> Result {
        if !device.is_exclusive() {
            return Err(EINVAL);
        }
        self.made_of.reserve(1, GFP_KERNEL)?;
        // SAFETY: The device is open and claimed. The disk is live, so it has its folder; by the
        // type invariant of `Disk` the link is removed before the disk is.
        to_result(unsafe { bindings::bd_link_disk_holder(device.as_raw(), self.as_raw()) })?;
        // There is room for it.
        let _ = self.made_of.push_within_capacity(device.clone());
        Ok(())
    }
}

impl<T: Operations, S: State> Disk<T, S> {
    fn unlink(&self, device: &BlockDevice) {
        // SAFETY: The device was linked, and is open; by the type invariants the disk is live.
        unsafe { bindings::bd_unlink_disk_holder(device.as_raw(), self.as_raw()) };
    }

    /// Removes all links; the disk is about to be removed.
    pub(super) fn unlink_all(&mut self) {
        while let Some(device) = self.made_of.pop() {
            self.unlink(&device);
        }
    }
}
