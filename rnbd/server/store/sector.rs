// SPDX-License-Identifier: GPL-2.0

//! The sector at which an IO of a device with a sidecar begins.

use super::BLOCK_SECTORS;

/// A sector of the device, of 512 bytes.
#[derive(Clone, Copy)]
pub(super) struct Sector(u64);

impl Sector {
    /// Returns the first one of a block; `None` if the device has no such block.
    pub(super) fn of(block: Option<u64>) -> Option<Self> {
        block?.checked_mul(BLOCK_SECTORS.into()).map(Self)
    }

    /// Returns the sector that many behind it.
    pub(super) fn after(self, sectors: u64) -> Option<Self> {
        self.0.checked_add(sectors).map(Self)
    }

    /// Returns its number.
    pub(super) fn number(self) -> u64 {
        self.0
    }
}
