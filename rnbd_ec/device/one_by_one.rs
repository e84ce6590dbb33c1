// SPDX-License-Identifier: GPL-2.0

//! Members of which one IO after the other is done: while an array is assembled, and by its
//! upkeep.

use block_ext::{
    bdev::BlockDevice,
    blocking::{
        Blocking,
        Limit, //
    },
    Flags, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    pages::PageBlock,
    xor::xor_into, //
};
use seglog::{
    devices::Devices,
    layout::{
        COLUMN_BYTES_MAX,
        SLOT_BYTES, //
    },
    members::MEMBERS,
    superblock::SUPERBLOCK_BYTES, //
};

use super::work_queues::ArrayQueues;
use crate::proto::command::Settings;

/// The bytes that are read at once where few are asked for: heads are looked for unit by unit.
const AHEAD_BYTES: usize = 64 << 10;
/// Reads of at most this much look ahead.
const SHORT_BYTES: usize = SLOT_BYTES as usize;

/// The error of a member, as pure code prints it.
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

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        failed.0
    }
}

/// Bytes that were read ahead.
struct Ahead {
    bytes: KVVec<u8>,
    /// Byte of the member at which it begins; `None` if there is nothing.
    at: Option<u64>,
    /// Byte at which something begins that cannot be read as a whole: each of its parts would have
    /// the device try for seconds again.
    unreadable: Option<u64>,
}

impl Ahead {
    fn forget(&mut self) {
        (self.at, self.unreadable) = (None, None);
    }

    fn get(&self, at: u64, len: usize) -> Option<&[u8]> {
        let skipped = usize::try_from(at.checked_sub(self.at?)?).ok()?;
        self.bytes.get(skipped..skipped.checked_add(len)?)
    }
}

/// A member.
pub(super) struct Member {
    device: Blocking,
    ahead: Ahead,
    /// The answer to a read is owed that was waited for briefly: who needs the member waits for it.
    is_late: bool,
}

/// The members that are there.
///
/// The drop, and the replacement of a member, wait for no device: who calls them holds up what the
/// others do.
pub(super) struct OneByOne {
    queues: Arc<ArrayQueues>,
    members: [Option<Member>; MEMBERS],
    /// A superblock and what fills its slot.
    slot: KVec<u8>,
    timeout_ms: u32,
    /// The time of reads that others do as well.
    hedge_ms: u32,
}

impl OneByOne {
    /// Takes the devices of the members that are there, each of whose IOs ends in so many
    /// milliseconds. Sleeps.
    pub(super) fn new(
        queues: &Arc<ArrayQueues>,
        devices: &[Option<Arc<BlockDevice>>; MEMBERS],
        settings: &Settings,
    ) -> Result<Self> {
        let mut this = Self {
            queues: queues.clone(),
            members: [None, None, None],
            slot: KVec::from_elem(0, SLOT_BYTES as usize, GFP_KERNEL)?,
            timeout_ms: settings.member_timeout_ms,
            hedge_ms: settings.hedge_ms,
        };
        for (member, device) in devices.iter().enumerate() {
            if let Some(device) = device {
                this.set(member, device.clone())?;
            }
        }
        Ok(this)
    }

    /// Sets the device of a member; returns the one before, for [`Self::put_back`] or
    /// [`Self::close`]. Sleeps.
    pub(super) fn set(
        &mut self,
        member: usize,
        device: Arc<BlockDevice>,
    ) -> Result<Option<Member>> {
        let order = PageBlock::order_for(COLUMN_BYTES_MAX);
        let limit = Limit {
            timeout_ms: self.timeout_ms,
            queue: self.queues.submitters.get(member).ok_or(EINVAL)?.clone(),
        };
        let new = Member {
            device: Blocking::new(device, order, (), Some(limit))?,
            ahead: Ahead {
                bytes: KVVec::from_elem(0, AHEAD_BYTES, GFP_KERNEL)?,
                at: None,
                unreadable: None,
            },
            is_late: false,
        };
        let place = self.members.get_mut(member).ok_or(EINVAL)?;
        Ok(place.replace(new))
    }

    /// Gives a member the device that it had before.
    pub(super) fn put_back(&mut self, member: usize, before: Option<Member>) {
        let place = self.members.get_mut(member);
        let replaced = place.and_then(|place| core::mem::replace(place, before));
        self.close(replaced);
    }

    /// Closes the device of a member, when it owes no answer any more.
    pub(super) fn close(&self, member: Option<Member>) {
        if let Some(member) = member.filter(|member| member.device.is_owed()) {
            // Without memory it is waited for here.
            let queue = &self.queues.shared.owed;
            let _ = queue.try_spawn(GFP_KERNEL, move || drop(member));
        }
    }

    /// Drops what was read ahead, which may have changed.
    pub(super) fn forget(&mut self) {
        for member in self.members.iter_mut().flatten() {
            member.ahead.forget();
        }
    }

    fn get(&mut self, member: usize) -> Result<&mut Member> {
        let member = self.members.get_mut(member).and_then(Option::as_mut);
        let member = member.ok_or(ENODEV)?;
        member.settle();
        Ok(member)
    }
}

impl Drop for OneByOne {
    fn drop(&mut self) {
        for member in core::mem::take(&mut self.members) {
            self.close(member);
        }
    }
}

impl Member {
    /// Waits for what was waited for briefly.
    fn settle(&mut self) {
        if core::mem::take(&mut self.is_late) {
            self.device.await_owed();
        }
    }

    /// Reads from a member, in so many milliseconds if that is said.
    fn read(&mut self, at: u64, to: &mut [u8], within_ms: Option<u32>) -> Result {
        match self.read_ahead(at, to, within_ms) {
            Some(()) => Ok(()),
            None if self.device.is_owed() => Err(ETIMEDOUT),
            None => self.read_now(at, to, within_ms),
        }
    }

    /// Reads through what was read ahead; `None` if that cannot be.
    fn read_ahead(&mut self, at: u64, to: &mut [u8], within_ms: Option<u32>) -> Option<()> {
        if to.len() > SHORT_BYTES {
            return None;
        }
        if self.ahead.get(at, to.len()).is_none() {
            let chunk = AHEAD_BYTES as u64;
            let start = at.checked_div(chunk)?.checked_mul(chunk)?;
            if self.ahead.unreadable == Some(start) {
                return None;
            }
            self.ahead.forget();
            let mut bytes = core::mem::take(&mut self.ahead.bytes);
            let read = self.read_now(start, &mut bytes, within_ms);
            self.ahead.bytes = bytes;
            match read {
                Ok(()) => self.ahead.at = Some(start),
                // It may be read whole when the device answers again.
                Err(_) if self.device.is_owed() => {}
                Err(_) => self.ahead.unreadable = Some(start),
            }
            read.ok()?;
        }
        to.copy_from_slice(self.ahead.get(at, to.len())?);
        Some(())
    }

    fn read_now(&mut self, at: u64, to: &mut [u8], within_ms: Option<u32>) -> Result {
        let Some(within_ms) = within_ms else {
            return self.device.read(at, to);
        };
        let read = self.device.read_within(at, to, within_ms);
        self.is_late |= read.is_err() && self.device.is_owed();
        read
    }
}

impl Devices for OneByOne {
    type Error = Failed;

    fn bytes(&self, member: usize) -> u64 {
        let member = self.members.get(member).and_then(Option::as_ref);
        member.map_or(0, |member| {
            let sectors = member.device.device().capacity_sectors();
            sectors.saturating_mul(block_ext::SECTOR_BYTES.into())
        })
    }

    fn read(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), Failed> {
        Ok(self.get(member)?.read(at, to, None)?)
    }

    fn read_soon(&mut self, member: usize, at: u64, to: &mut [u8]) -> Result<(), Failed> {
        let within_ms = Some(self.hedge_ms.min(self.timeout_ms));
        let member = self.members.get_mut(member).and_then(Option::as_mut);
        Ok(member.ok_or(ENODEV)?.read(at, to, within_ms)?)
    }

    fn write(&mut self, member: usize, at: u64, from: &[u8], fua: bool) -> Result<(), Failed> {
        let is_superblock = from.len() == SUPERBLOCK_BYTES;
        if is_superblock {
            // Its slot is as long as the longest block of a member.
            let to = self.slot.get_mut(..SUPERBLOCK_BYTES).ok_or(EINVAL)?;
            to.copy_from_slice(from);
        }
        let Self { members, slot, .. } = self;
        let member = members.get_mut(member).and_then(Option::as_mut);
        let member = member.ok_or(ENODEV)?;
        member.settle();
        member.ahead.forget();
        let from = if is_superblock { slot } else { from };
        let flags = if fua { Flags::FUA } else { Flags::NONE };
        Ok(member.device.write(at, from, flags)?)
    }

    fn flush(&mut self, member: usize) -> Result<(), Failed> {
        Ok(self.get(member)?.device.flush()?)
    }

    fn xor_into(&self, to: &mut [u8], from: &[u8]) {
        xor_into(to, from);
    }
}
