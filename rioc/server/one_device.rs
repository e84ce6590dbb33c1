// SPDX-License-Identifier: GPL-2.0

//! A device of which one IO after the other is done: at an assembly, and by what may wait.

use block_ext::{
    bdev::BlockDevice,
    blocking::{
        Blocking,
        Limit, //
    },
    Flags,
    SECTOR_BYTES, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    pages::PageBlock,
    workqueue::{
        Flags as QueueFlags,
        WorkQueue, //
    },
};
use seglog::{
    devices::Devices,
    layout::{
        COLUMN_BYTES_MAX,
        SLOT_BYTES, //
    },
    superblock::SUPERBLOCK_BYTES,
};

/// The time that an IO is waited for, in milliseconds.
const TIMEOUT_MS: u32 = 30_000;

/// The error of a device, as pure code prints it.
#[derive(Clone, Copy)]
pub(super) struct Failed(pub(super) Error);

impl core::fmt::Display for Failed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "error {}", self.0.to_errno())
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

/// A device, with memory for one IO.
pub(super) struct OneDevice {
    device: Blocking,
    /// A superblock and what fills its slot.
    slot: KVec<u8>,
}

impl OneDevice {
    /// Takes a device. Sleeps.
    pub(super) fn new(device: Arc<BlockDevice>) -> Result<Self> {
        // What is read need not begin at a block of the device.
        let order = PageBlock::order_for(COLUMN_BYTES_MAX + 2 * SLOT_BYTES as usize);
        let flags = QueueFlags::UNBOUND | QueueFlags::MEM_RECLAIM;
        let queue = WorkQueue::new(c"rioc_one_device", flags, 0)?;
        let limit = Limit {
            timeout_ms: TIMEOUT_MS,
            queue: Arc::new(queue, GFP_KERNEL)?,
        };
        Ok(Self {
            device: Blocking::new(device, order, (), Some(limit))?,
            slot: KVec::from_elem(0, SLOT_BYTES as usize, GFP_KERNEL)?,
        })
    }
}

impl Devices for OneDevice {
    type Error = Failed;

    fn bytes(&self, member: usize) -> u64 {
        let sectors = self.device.device().capacity_sectors();
        match member {
            0 => sectors.saturating_mul(SECTOR_BYTES.into()),
            _ => 0,
        }
    }

    #[inline(never)]
    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), Failed> {
        match member {
            0 => Ok(self.device.read(at, to)?),
            _ => Err(Failed(ENODEV)),
        }
    }

    #[inline(never)]
    fn write(&mut self, member: usize, at: u64, from: &[u8], fua: bool) -> Result<(), Failed> {
        let flags = if fua { Flags::FUA } else { Flags::NONE };
        if member > 0 {
            return Err(Failed(ENODEV));
        }
        if from.len() != SUPERBLOCK_BYTES {
            return Ok(self.device.write(at, from, flags)?);
        }
        // Its slot is as long as the longest block of a device.
        let to = self.slot.get_mut(..SUPERBLOCK_BYTES).ok_or(EINVAL)?;
        to.copy_from_slice(from);
        Ok(self.device.write(at, &self.slot, flags)?)
    }

    fn flush(&mut self, member: usize) -> Result<(), Failed> {
        match member {
            0 => Ok(self.device.flush()?),
            _ => Err(Failed(ENODEV)),
        }
    }
}
