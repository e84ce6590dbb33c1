// SPDX-License-Identifier: GPL-2.0

//! The disk and the files of a mapped device.

use block_ext::disk::{
    Disk,
    DiskRef,
    Quiesced,
    Uevent, //
};
use kernel::prelude::*;
use kernel_ext::sysfs::{
    Directory,
    Link, //
};

use super::{
    device::Device,
    queue::Queue, //
};

/// The files of a disk, in its folder, and the link to it in `ctl/devices`.
pub(super) struct Files {
    // Dropped in declaration order.
    _link: Link<Directory<()>>,
    _directory: Directory<Device>,
}

impl Files {
    /// Takes the link and the folder.
    pub(super) fn new(link: Link<Directory<()>>, directory: Directory<Device>) -> Self {
        Self {
            _link: link,
            _directory: directory,
        }
    }
}

/// The disk, which is added later, and its files; dropped in this order.
pub(super) struct MappedDisk {
    files: Option<Files>,
    /// Set while the queue is quiesced.
    quiesced: Option<Quiesced<Queue>>,
    /// Set once it was added.
    live: Option<Disk<Queue>>,
    disk: DiskRef<Queue>,
}

impl MappedDisk {
    /// Creates one that is not added and has no files.
    pub(super) fn new(disk: DiskRef<Queue>) -> Self {
        Self {
            files: None,
            quiesced: None,
            live: None,
            disk,
        }
    }

    /// Stores the disk, which was added, and its files if they were created.
    pub(super) fn show(&mut self, live: Disk<Queue>, files: Option<Files>) {
        self.live = Some(live);
        self.files = files;
    }

    /// Returns whether it has its files.
    pub(super) fn is_shown(&self) -> bool {
        self.files.is_some()
    }

    /// Returns the disk.
    pub(super) fn disk(&self) -> &DiskRef<Queue> {
        &self.disk
    }

    /// Quiesces the queue, until [`Self::unquiesce`].
    pub(super) fn quiesce(&mut self) {
        if self.quiesced.is_none() {
            self.quiesced = Some(self.disk.quiesce());
        }
    }

    /// Unquiesces the queue.
    pub(super) fn unquiesce(&mut self) {
        self.quiesced = None;
    }

    /// Sends an event, if user space sees the disk. IO of this disk waits for the device's lock,
    /// which the caller holds, when a path is lost.
    pub(super) fn uevent(&self, event: Uevent) {
        if let Some(live) = &self.live {
            live.uevent(event);
        }
    }

    /// Changes the size, in sectors of 512 bytes; returns whether it has changed.
    ///
    /// # Errors
    ///
    /// `EINVAL` for a size that no disk can have.
    pub(super) fn set_capacity(&self, sectors: u64) -> Result<bool> {
        match &self.live {
            Some(live) => live.set_capacity_and_notify(sectors),
            None => self.disk.set_capacity(sectors),
        }
    }
}
