// SPDX-License-Identifier: GPL-2.0

//! Identifies the device that a member is, so that the one that takes its place is not taken for
//! it, nor the old one for the new one when it comes back.

use super::{
    epoch::Epoch,
    members::{
        Members,
        MEMBERS, //
    },
    superblock::Superblock, //
};

/// The device that is a member. One that takes the place of another has another identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// 0 for those of a new array, else a random number.
    pub id: u64,
    /// The first use of a segment of which it may have columns.
    pub since: u64,
}

impl Superblock {
    /// Returns the one of a new device, to take the place of a member. `id` is a random number that
    /// is not 0. The user zeroes both slots before it writes it.
    pub fn replacement(&self, member: usize, id: u64) -> Self {
        let mut devices = self.devices;
        if let Some(device) = devices.get_mut(member) {
            *device = Device { id, since: 0 };
        }
        Self {
            member,
            // An epoch of its own, which no member is in sync with: it is stale.
            epoch: Epoch {
                id,
                parent: 0,
                failed: Members::of(member),
                ..self.epoch
            },
            devices,
            writes: 0,
            ..*self
        }
    }

    /// Returns the devices of the array when the one with this superblock is taken back; the next
    /// use of a segment is `next`. One that is not the known one has no columns before it: all
    /// members that live are told before it is written.
    pub fn devices_with(&self, returning: &Self, next: u64) -> [Device; MEMBERS] {
        let mut devices = self.devices;
        let own = returning.devices.get(returning.member);
        if let (Some(known), Some(own)) = (devices.get_mut(returning.member), own) {
            if known.id != own.id {
                *known = Device {
                    id: own.id,
                    since: next,
                };
            }
        }
        devices
    }

    /// Returns the one that this member is given next when a member is taken back. The start stays.
    pub const fn with_devices(&self, devices: [Device; MEMBERS], epoch: Epoch) -> Self {
        Self {
            devices,
            ..self.with_epoch(epoch)
        }
    }
}
