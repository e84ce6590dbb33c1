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
pub(super) const TIMEOUT_MS: u32 = 30_000;

/// The device of a log, and the queue of those that owe an answer.
#[derive(Clone)]
pub(super) struct LogDevice {
    pub(super) device: Arc<BlockDevice>,
    /// Its items wait as long as a device hangs, so it has no rescuer. Only the unload of the
    /// module waits for them.
    pub(super) owed: Arc<WorkQueue>,
}

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

/// A device, with memory for one IO. Its drop does not wait for an answer that is owed: the device
/// is in use until that has come.
pub(super) struct OneDevice {
    /// `None` while it is dropped.
    device: Option<Blocking>,
    owed: Arc<WorkQueue>,
    /// A superblock and what fills its slot.
    slot: KVec<u8>,
}

impl OneDevice {
    /// Takes a device. Sleeps.
    pub(super) fn new(of: &LogDevice) -> Result<Self> {
        // What is read need not begin at a block of the device.
        let order = PageBlock::order_for(COLUMN_BYTES_MAX + 2 * SLOT_BYTES as usize);
        let flags = QueueFlags::UNBOUND | QueueFlags::MEM_RECLAIM;
        let queue = WorkQueue::new(c"rioc_one_device", flags, 0)?;
        let limit = Limit {
            timeout_ms: TIMEOUT_MS,
            queue: Arc::new(queue, GFP_KERNEL)?,
        };
        Ok(Self {
            device: Some(Blocking::new(of.device.clone(), order, (), Some(limit))?),
            owed: of.owed.clone(),
            slot: KVec::from_elem(0, SLOT_BYTES as usize, GFP_KERNEL)?,
        })
    }

    /// Whether it owes an answer, so that others are errors.
    pub(super) fn is_owed(&self) -> bool {
        self.device.as_ref().is_some_and(|device| device.is_owed())
    }

    fn device(&mut self) -> Result<&mut Blocking> {
        self.device.as_mut().ok_or(ENODEV)
    }
}

impl Drop for OneDevice {
    fn drop(&mut self) {
        let Some(device) = self.device.take_if(|device| device.is_owed()) else {
            return;
        };
        pr_warn!("the device of a log owes an answer, and is in use until it has given it\n");
        // Without memory it is waited for here.
        let _ = self.owed.try_spawn(GFP_KERNEL, move || drop(device));
    }
}

impl Devices for OneDevice {
    type Error = Failed;

    fn bytes(&self, member: usize) -> u64 {
        let sectors = match (member, &self.device) {
            (0, Some(device)) => device.device().capacity_sectors(),
            _ => 0,
        };
        sectors.saturating_mul(SECTOR_BYTES.into())
    }

    #[inline(never)]
    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), Failed> {
        match member {
            0 => Ok(self.device()?.read(at, to)?),
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
            return Ok(self.device()?.write(at, from, flags)?);
        }
        // Its slot is as long as the longest block of a device.
        let to = self.slot.get_mut(..SUPERBLOCK_BYTES).ok_or(EINVAL)?;
        to.copy_from_slice(from);
        let device = self.device.as_mut().ok_or(ENODEV)?;
        Ok(device.write(at, &self.slot, flags)?)
    }

    fn flush(&mut self, member: usize) -> Result<(), Failed> {
        match member {
            0 => Ok(self.device()?.flush()?),
            _ => Err(Failed(ENODEV)),
        }
    }
}
