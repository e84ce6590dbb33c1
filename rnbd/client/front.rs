// SPDX-License-Identifier: GPL-2.0

//! What user space sees of a mapped device.

use block_ext::disk::Disk;
use kernel::sync::Arc;
use kernel_ext::sysfs::{
    Directory,
    Link, //
};

use super::{
    device::Device,
    queue::Queue, //
};

/// The disk and its files, dropped in this order.
pub(super) struct Front {
    _link: Link,
    _files: Directory<Device>,
    disk: Arc<Disk<Queue>>,
}

impl Front {
    /// Keeps the three together.
    pub(super) fn new(link: Link, files: Directory<Device>, disk: Arc<Disk<Queue>>) -> Self {
        Self {
            _link: link,
            _files: files,
            disk,
        }
    }

    /// The disk.
    pub(super) fn disk(&self) -> &Arc<Disk<Queue>> {
        &self.disk
    }

    /// Removes the files, then the disk: now, although somebody who changes its limits may have it
    /// in hand.
    pub(super) fn remove(self) {
        let disk = self.disk.clone();
        drop(self);
        disk.remove();
    }
}
