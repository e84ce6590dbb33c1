// SPDX-License-Identifier: GPL-2.0

//! Attaches the disk of a device, and removes it again.
//!
//! The removal waits for the requests of the disk, as long as an adapter may use their pages, and
//! for a server that closes the device. So what a user has asked for is a work item, and the writer
//! of `unmap_device` waits for the item, killable.

use block_ext::disk::{
    Disk,
    DiskRef,
    OpensForbidden,
    Uevent, //
};
use kernel::{
    impl_has_work,
    prelude::*,
    sync::Arc,
    workqueue::WorkItem, //
};
use kernel_ext::{
    errno,
    memory, //
};

use super::Device;
use crate::{
    client::{
        mapped_disk::{
            Files,
            MappedDisk, //
        },
        queue::Queue, //
    },
    proto::{
        control::{
            DeviceState,
            Unmap, //
        },
        doubt::Heard,
        io_state::IoState,
    },
};

/// The number of the work item among those of a device.
pub(super) const ITEM: u64 = 2;

impl_has_work! {
    impl HasWork<Self, ITEM> for Device { self.unmap }
}

impl WorkItem<ITEM> for Device {
    type Pointer = Arc<Device>;

    fn run(this: Arc<Device>) {
        let unmap_state = this.lock().unmap_state.take();
        if let Some(unmap_state) = unmap_state {
            let was_mapped = unmap_state.state != DeviceState::Init;
            memory::without_io(|| this.finish_unmap(unmap_state));
            if was_mapped {
                pr_info!("{}: unmapped\n", &*this);
            }
        }
        let unmapped = this.unmapped.clone();
        // First: the session of the last device is about to be closed when the writer goes on.
        drop(this);
        unmapped.complete_all();
    }
}

/// The state of a device before it was unmapped.
pub(crate) struct UnmapState {
    state: DeviceState,
    /// Its number on the server, if it was open there.
    remote_id: Option<u32>,
    /// The number of outages at that time.
    disconnects: u32,
    /// The disk is not opened meanwhile.
    _opens: Option<OpensForbidden<Queue>>,
}

impl Device {
    /// Stores the disk, which user space does not see yet, until the device is unmapped. From now
    /// on an outage quiesces it.
    pub(crate) fn attach(&self, disk: DiskRef<Queue>) {
        let mut inner = self.lock();
        let mut mapped_disk = MappedDisk::new(disk);
        if self.io_state() == IoState::Queueing {
            mapped_disk.quiesce();
        }
        inner.mapped_disk = Some(mapped_disk);
    }

    /// Stores the disk, which user space sees now. With its files, the device is mapped, and its
    /// file may unmap it.
    pub(crate) fn show(self: &Arc<Self>, disk: Disk<Queue>, files: Option<Files>) {
        let mut inner = self.lock();
        if let Some(mapped_disk) = &mut inner.mapped_disk {
            mapped_disk.show(disk, files);
            mapped_disk.uevent(Uevent::Online);
        }
        if let (DeviceState::Disconnected, Some(mapped_disk)) = (inner.state, &inner.mapped_disk) {
            mapped_disk.uevent(Uevent::Offline);
        }
        self.begin_limit_update(&inner);
    }

    /// Returns whether the device is mapped, not just being mapped.
    pub(crate) fn is_shown(&self) -> bool {
        self.lock()
            .mapped_disk
            .as_ref()
            .is_some_and(MappedDisk::is_shown)
    }

    /// Takes the device out of use: with `Ok` no other thread unmaps it. Requests fail from now on,
    /// queued ones as well.
    ///
    /// Does not wait for threads that open, close or scan the disk: they may wait for requests of
    /// this device.
    ///
    /// # Errors
    ///
    /// `EALREADY` if another thread unmaps it, `EBUSY` if the disk is open and `how` is normal.
    pub(crate) fn begin_unmap(&self, how: Unmap) -> Result<UnmapState> {
        let mut inner = self.lock();
        if inner.state == DeviceState::Unmapped {
            pr_info!("{self}: is being unmapped already\n");
            return Err(errno::EALREADY);
        }
        let disk = inner.mapped_disk.as_ref().map(MappedDisk::disk);
        let opens = match (disk, how) {
            (Some(disk), Unmap::Normal) => {
                let opens = disk.forbid_open_if_idle().inspect_err(|_| {
                    pr_err!(
                        "{self}: not unmapped, it is open {} times, or its partitions are read\n",
                        disk.open_count()
                    );
                })?;
                Some(opens)
            }
            (Some(disk), Unmap::Force) => Some(disk.forbid_open()),
            (None, _) => None,
        };
        let unmap_state = UnmapState {
            state: inner.state,
            remote_id: self.io_state().remote_id(),
            disconnects: inner.disconnects,
            _opens: opens,
        };
        inner.state = DeviceState::Unmapped;
        self.io_state.set(IoState::Failing);
        if let Some(mapped_disk) = &mut inner.mapped_disk {
            // Queued requests fail, and so do the threads that wait for them.
            mapped_disk.unquiesce();
        }
        Ok(unmap_state)
    }

    /// Reverts `begin_unmap`, so that another thread can unmap the device, and the disk can be
    /// opened. Requests still fail.
    pub(crate) fn cancel_unmap(&self, unmap_state: UnmapState) {
        let mut inner = self.lock();
        inner.state = match unmap_state.state {
            DeviceState::Mapped => DeviceState::Fenced,
            state => state,
        };
    }

    /// Removes the disk and closes the device on the server, once. Sleeps until that has ended,
    /// killable; it goes on if the caller is killed.
    ///
    /// # Errors
    ///
    /// `EINTR` if the caller was killed.
    pub(crate) fn await_unmap(self: &Arc<Self>, unmap_state: UnmapState) -> Result {
        // An unload, which is possible when the caller is gone, leaves it to the item.
        self.session().forget(self);
        self.lock().unmap_state = Some(unmap_state);
        // It is queued once, as `begin_unmap` has succeeded once.
        let client = self.session().client();
        let _ = client.wq().enqueue::<_, ITEM>(self.clone());
        if self.unmapped.wait_killable().is_err() {
            pr_info!("{self}: is unmapped when its requests have ended\n");
            return Err(EINTR);
        }
        Ok(())
    }

    /// Removes the disk and closes the device on the server. Sleeps until the disk's requests have
    /// ended.
    pub(crate) fn finish_unmap(self: &Arc<Self>, unmap_state: UnmapState) {
        self.session().forget(self);
        let mapped_disk = self.lock().mapped_disk.take();
        // The disk is removed, after its files. Not under the lock: requests that end take it, and
        // so do threads that change the limits.
        drop(mapped_disk);
        // After an outage another device may have the number.
        let is_known = self.lock().disconnects == unmap_state.disconnects;
        let number = unmap_state.remote_id.filter(|_| is_known);
        let closed = number.filter(|number| self.close(*number));
        let heard = Heard::after_unmap(unmap_state.state, closed);
        let user = {
            let mut inner = self.lock();
            inner.doubt.hear(heard);
            inner.user.take()
        };
        // First: the last user of a session closes it, and the server what it has open there. An
        // OPEN would open it again.
        drop(user);
        self.settle_later();
    }
}
