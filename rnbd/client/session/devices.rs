// SPDX-License-Identifier: GPL-2.0

//! Lists the devices that are mapped over a session.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    Device,
    Session, //
};

impl Session {
    /// Adds a device.
    ///
    /// # Errors
    ///
    /// `EEXIST` if there is one of that name, `ENOMEM`.
    pub(in crate::client) fn add(&self, device: Arc<Device>) -> Result {
        loop {
            let mut larger = self.room_for_devices(1)?;
            let mut devices = self.devices.lock();
            if devices.iter().any(|other| other.path() == device.path()) {
                return Err(EEXIST);
            }
            if devices.len() >= larger.capacity() {
                continue;
            }
            for other in devices.drain_all() {
                let _ = larger.push_within_capacity(other);
            }
            let _ = larger.push_within_capacity(device);
            core::mem::swap(&mut *devices, &mut larger);
            return Ok(());
        }
    }

    /// Allocates an empty list for the devices that there are and `more`; others may come before it
    /// is used. Not under their lock: a path that is lost takes that, and memory may be freed only
    /// when the path is back.
    fn room_for_devices(&self, more: usize) -> Result<KVec<Arc<Device>>> {
        let count = self.devices.lock().len();
        Ok(KVec::with_capacity(count.saturating_add(more), GFP_KERNEL)?)
    }

    /// Removes a device.
    pub(in crate::client) fn forget(&self, device: &Arc<Device>) {
        let mut devices = self.devices.lock();
        let index = devices.iter().position(|other| Arc::ptr_eq(other, device));
        let removed = index.map(|index| devices.remove(index));
        // The last reference may close the session, which must not happen under the lock.
        drop(devices);
        drop(removed);
    }

    /// Returns the devices that are mapped over the session now; some may be unmapped before the
    /// caller looks at them. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(in crate::client) fn devices(&self) -> Result<KVec<Arc<Device>>> {
        loop {
            let mut copy = self.room_for_devices(0)?;
            let devices = self.devices.lock();
            if devices.len() > copy.capacity() {
                continue;
            }
            for device in devices.iter() {
                let _ = copy.push_within_capacity(device.clone());
            }
            return Ok(copy);
        }
    }

    /// Returns another device with the name of `device`, which has been removed.
    pub(in crate::client) fn namesake(&self, device: &Arc<Device>) -> Option<Arc<Device>> {
        let devices = self.devices.lock();
        let mut others = devices.iter().filter(|other| !Arc::ptr_eq(other, device));
        others.find(|other| other.path() == device.path()).cloned()
    }

    /// Returns another device than `device` whose requests are sent with a number.
    pub(super) fn other_with_number(&self, device: &Arc<Device>, id: u32) -> Option<Arc<Device>> {
        let devices = self.devices.lock();
        let mut others = devices.iter().filter(|other| !Arc::ptr_eq(other, device));
        others.find(|other| other.io_state().is_number(id)).cloned()
    }

    /// Returns any device that is mapped over the session.
    pub(in crate::client) fn first_device(&self) -> Option<Arc<Device>> {
        self.devices.lock().first().cloned()
    }
}
