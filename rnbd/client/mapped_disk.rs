// SPDX-License-Identifier: GPL-2.0

//! The disk and the files of a mapped device.

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

/// The disk and, once it is shown, its files; dropped in this order.
pub(super) struct MappedDisk {
    files: Option<(Link, Directory<Device>)>,
    disk: Arc<Disk<Queue>>,
}

impl MappedDisk {
    /// Creates one without files.
    pub(super) fn new(disk: Arc<Disk<Queue>>) -> Self {
        Self { files: None, disk }
    }

    /// Stores the files.
    pub(super) fn show(&mut self, link: Link, files: Directory<Device>) {
        self.files = Some((link, files));
    }

    /// Returns whether it has its files.
    pub(super) fn is_shown(&self) -> bool {
        self.files.is_some()
    }

    /// Returns the disk.
    pub(super) fn disk(&self) -> &Arc<Disk<Queue>> {
        &self.disk
    }

    /// Removes the files, then the disk, even if a thread that changes its limits still has a
    /// reference to it.
    pub(super) fn remove(self) {
        let disk = self.disk.clone();
        drop(self);
        disk.remove();
    }
}
