// SPDX-License-Identifier: GPL-2.0

//! Reads the partition table of a disk that was just added.
//!
//! The IO waits for the server, as long as an outage takes, and neither it nor the thread that
//! waits for it can be interrupted. So that is a work item, and the writer of `map_device` waits
//! for the item, killable. Meanwhile the disk has its files, and is unmapped like any other.

use kernel::{
    impl_has_work,
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};
use kernel_ext::memory;

use super::Device;
use crate::proto::control::DeviceState;

/// The number of the work item among those of a device.
pub(super) const ITEM: u64 = 1;

impl_has_work! {
    impl HasWork<Self, ITEM> for Device { self.scan }
}

impl WorkItem<ITEM> for Device {
    type Pointer = Arc<Device>;

    fn run(this: Arc<Device>) {
        let disk = this.lock().mapped_disk.as_ref().map(|m| m.disk().clone());
        if let Some(disk) = disk {
            // The block layer has logged what it could not read. A disk that is removed has none.
            let _ = memory::without_io(|| disk.scan_partitions());
        }
        this.scanned.complete_all();
    }
}

impl Device {
    /// Reads the partition table of the disk, which has its files; once. Sleeps until that has
    /// ended, killable; it goes on if the caller is killed.
    ///
    /// # Errors
    ///
    /// `EINTR` if the caller was killed, `ENODEV` if the device was unmapped meanwhile.
    pub(crate) fn await_scan(self: &Arc<Self>) -> Result {
        // It is queued once, here.
        let client = self.session().client();
        let _ = client.wq().enqueue::<_, ITEM>(self.clone());
        if self.scanned.wait_killable().is_err() {
            pr_info!("{self}: is mapped; its partition table is read when the server answers\n");
            return Err(EINTR);
        }
        if self.state() == DeviceState::Unmapped {
            pr_err!("{self}: was unmapped while its partition table was read\n");
            return Err(ENODEV);
        }
        Ok(())
    }
}
