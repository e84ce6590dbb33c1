// SPDX-License-Identifier: GPL-2.0

//! How a device gets its disk, and how it is taken away again.

use block_ext::disk::Disk;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    errno,
    sysfs::{
        Directory,
        Link, //
    }, //
};

use super::Device;
use crate::{
    client::{
        admin,
        front::Front,
        io_state::Reach,
        queue::Queue, //
    },
    proto::control::{
        DeviceState,
        Unmap, //
    },
};

/// What a device was before it was unmapped.
pub(crate) struct Ending {
    state: DeviceState,
    /// Its number on the server, if it was open there.
    remote_id: Option<u32>,
    /// The outages before.
    losses: u32,
}

impl Device {
    /// Keeps the disk, which user space does not see yet, until the device is unmapped. From now on
    /// an outage holds it.
    pub(crate) fn attach(&self, disk: Arc<Disk<Queue>>) {
        let mut inner = self.lock();
        if self.reach() == Reach::Waiting {
            disk.hold();
        }
        inner.front = Some(Front::new(disk));
    }

    /// Keeps the files of the disk as well: the device is mapped, and may be unmapped by its file.
    pub(crate) fn show(self: &Arc<Self>, link: Link, files: Directory<Device>) {
        let mut inner = self.lock();
        if let Some(front) = &mut inner.front {
            front.show(link, files);
        }
        self.begin_following(&inner);
    }

    /// Whether the device is mapped, not just being mapped.
    pub(crate) fn is_shown(&self) -> bool {
        self.lock().front.as_ref().is_some_and(Front::is_shown)
    }

    /// Takes the device out of use: with `Ok` nobody else unmaps it. Requests fail from now on,
    /// those that wait as well.
    ///
    /// Does not wait for those who open, close or scan the disk: they may be waiting for requests
    /// of this device.
    ///
    /// # Errors
    ///
    /// `EALREADY` if somebody else unmaps it, `EBUSY` if the disk is open and `how` is normal.
    pub(crate) fn begin_unmap(&self, how: Unmap) -> Result<Ending> {
        let mut inner = self.lock();
        if inner.state == DeviceState::Unmapped {
            pr_info!("{self}: is being unmapped already\n");
            return Err(errno::EALREADY);
        }
        let disk = inner.front.as_ref().map(Front::disk);
        match (disk, how) {
            (Some(disk), Unmap::Normal) => disk.forbid_open_if_idle().inspect_err(|_| {
                pr_err!(
                    "{self}: not unmapped, it is open {} times\n",
                    disk.open_count()
                );
            })?,
            (Some(disk), Unmap::Force) => disk.forbid_open(),
            (None, _) => {}
        }
        let ending = Ending {
            state: inner.state,
            remote_id: self.reach().remote_id(),
            losses: inner.losses,
        };
        inner.state = DeviceState::Unmapped;
        self.reach.set(Reach::NotOpen);
        if let Some(front) = &inner.front {
            // What waits for the server fails, and with it ends who waits for that.
            front.disk().let_go();
        }
        Ok(ending)
    }

    /// Takes `begin_unmap` back, for somebody else who will unmap the device. Requests go on to
    /// fail.
    pub(crate) fn cancel_unmap(&self, ending: Ending) {
        let mut inner = self.lock();
        inner.state = match ending.state {
            DeviceState::Mapped => DeviceState::Fenced,
            state => state,
        };
        if let Some(front) = &inner.front {
            front.disk().allow_open();
        }
    }

    /// Removes the disk and tells the server. Sleeps until the disk's requests have ended.
    pub(crate) fn finish_unmap(self: &Arc<Self>, ending: Ending) {
        self.session().forget(self);
        let front = self.lock().front.take();
        // Not under the lock: requests that end want it, and so do those who change the limits.
        if let Some(front) = front {
            front.remove();
        }
        // After an outage the number is another device's.
        let is_known = self.lock().losses == ending.losses;
        if let (true, Some(remote_id)) = (is_known, ending.remote_id) {
            admin::close(&*self.rtrs, remote_id);
        }
    }
}
