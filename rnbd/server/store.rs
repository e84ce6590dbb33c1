// SPDX-License-Identifier: GPL-2.0

//! Plain devices with a sidecar: protection information on the device itself, in mode store.
//!
//! ```text
//! VolumeTable ── Volume (one per device with a sidecar that sessions have open)
//!                  ├── Engine (requests, PI blocks, journal; used by one thread at a time)
//!                  └── ClientQueue (one per mapping: its requests)
//! ```
//!
//! What may be done when is decided by [`sidecar`](crate::sidecar), which is pure code. A request
//! thread verifies a request and queues it; the work item of the device carries it out, or that
//! thread itself if it comes alone; a completion handler only says what has ended.
//!
//! All memory of a device, about 1.3 MiB, is allocated when it is opened; the replay of a journal
//! of 1023 slots needs 10 MiB more while it runs. Nothing is allocated for a request but bios,
//! which have a reserve.

mod blocks;
mod claim;
mod client_queue;
mod disk;
mod ended;
mod engine;
mod files;
mod growth;
mod job;
mod lease;
mod mend;
mod pages;
mod scrub;
mod sector;
mod volume;
mod writes;

use block_ext::{
    bdev::{
        BlockDevice,
        Holder,
        Mode, //
    },
    bio::BioPool, //
};
use kernel::{
    prelude::*,
    str::{
        CStr,
        CString, //
    },
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    crc,
    module_param_word,
    sync::Completion,
    sysfs::Directory,
    workqueue::{
        Flags,
        WorkQueue, //
    }, //
};

use self::{
    claim::Keeper,
    disk::Disk,
    volume::{
        StoreIo, //
        Volume,
    },
};
use super::{
    io::{
        protection::Protection,
        BIOS_RESERVED, //
    },
    log_limit::LOG_LIMIT, //
};
use crate::{
    pi_stats::PiStats,
    proto::boot::Boot,
    sidecar::{
        self,
        BLOCK_BYTES,
        BLOCK_SECTORS, //
    },
};

pub(crate) use self::client_queue::ClientQueue;

module_param_word!(
    SIDECAR,
    "sidecar",
    [c"auto", c"off"],
    "Whether devices are looked at for a sidecar when they are opened: auto uses those that have \
     one through it, off reads nothing, and exports all as they are (default: auto)"
);

/// The number of `off`.
const OFF: u32 = 1;

/// The size of a block, as the block layer has it.
pub(super) const BLOCK_SIZE: u32 = BLOCK_BYTES as u32;

/// The maximum number of sectors of one discard, or write of zeroes, of a client: 128 MiB.
pub(super) const DISCARD_SECTORS_MAX: u32 = 1 << 18;

/// The checksum of the sidecar, by the kernel.
struct Crc;

impl sidecar::Checksum for Crc {
    fn crc64(&self, bytes: &[u8]) -> u64 {
        crc::crc64_nvme(0, bytes)
    }
}

/// A device with a sidecar that sessions have open.
struct OpenVolume {
    /// None until they are made. Dropped first: no task reads or writes a file of a device that is
    /// being closed.
    files: Option<Directory<Volume>>,
    volume: Arc<Volume>,
    keeper: Arc<Keeper>,
    /// Completes when no reference to `volume` is left.
    gone: Arc<Completion>,
    // Dropped last, and never by a completion handler.
    _device: Arc<BlockDevice>,
}

/// The place of a device while mappings use it, are about to, or have just ended.
///
/// Locking: `open` is held while the device is opened, its journal is replayed, and while it is
/// closed: a session that opens or closes the same device meanwhile waits, others do not. No other
/// lock of the server is held then.
#[pin_data]
struct VolumeSlot {
    #[pin]
    open: Mutex<Option<OpenVolume>>,
}

/// The slot of a device.
struct TableEntry {
    /// The device number.
    number: u32,
    /// The mappings that were attached or wait for that, and have not ended. There is one slot
    /// for a device: two of them would write different tuples.
    users: usize,
    slot: Arc<VolumeSlot>,
}

/// The devices with a sidecar that sessions have open.
///
/// Locking: nothing is waited for under `list`.
#[pin_data]
pub(crate) struct VolumeTable {
    #[pin]
    list: Mutex<KVec<TableEntry>>,
    bios: Arc<BioPool<StoreIo>>,
    queue: Arc<WorkQueue>,
    /// Has each device that is open.
    holder: Holder,
}

/// A mapping of a device with a sidecar, to be attached.
pub(super) struct Request<'a> {
    /// The path of the device.
    pub(super) path: &'a CStr,
    /// The folder of the export.
    pub(super) export: &'a Directory<()>,
    /// Session and device, for the log.
    pub(super) label: CString,
    /// The protection information of the client's requests.
    pub(super) protection: Option<Arc<Protection>>,
    /// The protocol version of the session.
    pub(super) version: u8,
    /// The boot of this machine.
    pub(super) boot: Boot,
}

impl VolumeTable {
    /// Creates an empty list.
    pub(super) fn new() -> Result<Arc<Self>> {
        let bios = Arc::new(BioPool::new(BIOS_RESERVED)?, GFP_KERNEL)?;
        let flags = Flags::UNBOUND | Flags::MEM_RECLAIM;
        let queue = Arc::new(WorkQueue::new(c"rnbd_server_pi", flags, 0)?, GFP_KERNEL)?;
        let holder = Holder::new()?;
        Arc::pin_init(
            pin_init!(Self {
                list <- new_mutex!(KVec::new()),
                bios,
                queue,
                holder,
            }),
            GFP_KERNEL,
        )
    }

    /// Returns whether `device` has a sidecar, and is to be used through it. Sleeps.
    ///
    /// # Errors
    ///
    /// `EUCLEAN` if it has one that cannot be used; `ENXIO` if it has no blocks at all now, and
    /// that of the device if it cannot be read, as it may have one then; with a log line. `ENOMEM`.
    pub(super) fn has_sidecar(&self, device: &Arc<BlockDevice>, label: &CStr) -> Result<bool> {
        if device.capacity_sectors() == 0 {
            if LOG_LIMIT.allow().is_some() {
                pr_err!("{label}: not opened: it has no size\n");
            }
            return Err(ENXIO);
        }
        if SIDECAR.get() == OFF {
            return Ok(false);
        }
        let Some(mut disk) = Disk::of_blocks(device.clone())? else {
            return Ok(false);
        };
        Ok(disk.superblock(label)?.is_some())
    }

    /// Adds the requests of a mapping of `device`, which is opened, and its journal replayed, if no
    /// mapping has it open. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if another user of this machine has the device for itself, or another server has it
    /// open; `EUCLEAN` if its sidecar cannot be used; those of the device and of the allocator. The
    /// reason is in the log.
    pub(super) fn attach(
        self: &Arc<Self>,
        device: &BlockDevice,
        request: Request<'_>,
    ) -> Result<Attachment> {
        let number = device.number();
        let slot = self.enter(number)?;
        let attached = self.attach_at(&slot, number, request);
        if attached.is_err() {
            self.leave(&slot, number);
        }
        attached
    }

    fn attach_at(
        self: &Arc<Self>,
        slot: &Arc<VolumeSlot>,
        number: u32,
        request: Request<'_>,
    ) -> Result<Attachment> {
        let mut open = slot.open.lock();
        let volume = match &*open {
            Some(open) if open.volume.lease().is_lost() => {
                let label = &*request.label;
                if LOG_LIMIT.allow().is_some() {
                    pr_err!(
                        "{label}: not opened: another server has taken the device: unmap it here \
                         in all sessions first\n"
                    );
                }
                return Err(EBUSY);
            }
            Some(open) => open.volume.clone(),
            None => {
                let opened = self.open(number, &request)?;
                open.insert(opened).volume.clone()
            }
        };
        let client_queue = ClientQueue::new(volume.clone(), request)?;
        volume.add_client_queue(client_queue.clone())?;
        Ok(Attachment {
            volumes: self.clone(),
            number,
            stats: client_queue.stats().clone(),
            client_queue: Some(client_queue),
            slot: slot.clone(),
        })
    }

    /// Counts a user of a device; returns its slot.
    fn enter(&self, number: u32) -> Result<Arc<VolumeSlot>> {
        let mut list = self.list.lock();
        if let Some(entry) = list.iter_mut().find(|entry| entry.number == number) {
            entry.users = entry.users.saturating_add(1);
            return Ok(entry.slot.clone());
        }
        let slot = Arc::pin_init(
            pin_init!(VolumeSlot {
                open <- new_mutex!(None, "rnbd_server::VolumeSlot::open"),
            }),
            GFP_KERNEL,
        )?;
        let entry = TableEntry {
            number,
            users: 1,
            slot: slot.clone(),
        };
        list.push(entry, GFP_KERNEL)?;
        Ok(slot)
    }

    /// Ends the use of a device, which is closed if no mapping uses it any more. Sleeps.
    fn leave(&self, slot: &VolumeSlot, number: u32) {
        let mut open = slot.open.lock();
        if let Some(unused) = open.take_if(|open| !open.volume.has_client_queues()) {
            unused.close();
        }
        drop(open);
        let mut list = self.list.lock();
        let index = list.iter().position(|entry| entry.number == number);
        let mut removed = None;
        if let Some((index, entry)) = index.and_then(|index| Some((index, list.get_mut(index)?))) {
            entry.users = entry.users.saturating_sub(1);
            if entry.users == 0 {
                removed = list.remove(index).ok();
            }
        }
        drop(list);
        drop(removed);
    }

    fn open(&self, number: u32, request: &Request<'_>) -> Result<OpenVolume> {
        let (path, label) = (request.path, &*request.label);
        let device = BlockDevice::open_exclusively(path, Mode::ReadWrite, &self.holder);
        let device = device.inspect_err(|error| {
            if LOG_LIMIT.allow().is_some() {
                pr_err!(
                    "{label}: it has a sidecar, but cannot be opened for this server alone: \
                     {error:?}\n"
                );
            }
        })?;
        if device.number() != number {
            if LOG_LIMIT.allow().is_some() {
                pr_err!("{label}: '{path}' is another device now\n");
            }
            return Err(EBUSY);
        }
        let device = Arc::new(device, GFP_KERNEL)?;
        let disk = Disk::of_blocks(device.clone())?.ok_or(EINVAL)?;
        let keeper = Keeper::take(device.clone(), label.try_into()?, request.boot)?;
        let (volume, gone) = match self.recover(&device, disk, &keeper, label) {
            Ok(recovered) => recovered,
            Err(error) => {
                keeper.stop();
                return Err(error);
            }
        };
        let mut opened = OpenVolume {
            files: None,
            volume,
            keeper,
            gone,
            _device: device,
        };
        match opened.show(request.export) {
            Ok(()) => Ok(opened),
            Err(error) => {
                opened.close();
                Err(error)
            }
        }
    }

    /// Replays the journal of a device that is marked as in use by this server.
    fn recover(
        &self,
        device: &Arc<BlockDevice>,
        disk: Disk,
        keeper: &Keeper,
        label: &CStr,
    ) -> Result<(Arc<Volume>, Arc<Completion>)> {
        let lease = keeper.lease().clone();
        let (superblock, ring) = disk.under(lease.clone()).recover(label)?;
        let gone = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        let (bios, queue) = (self.bios.clone(), self.queue.clone());
        let volume = Volume::new(
            (device.clone(), bios, queue, lease),
            (superblock, keeper.holder()),
            ring,
            gone.clone(),
        )?;
        Ok((volume, gone))
    }
}

impl OpenVolume {
    /// Makes the files of the device in the folder of its export.
    fn show(&mut self, export: &Directory<()>) -> Result {
        // Before the file that begins a growth.
        self.keeper.tell(self.volume.clone());
        self.files = Some(files::files(export, self.volume.clone())?);
        Ok(())
    }

    /// Writes the tuples back, empties the journal, and closes the device.
    fn close(self) {
        drop(self.files);
        growth::stop(&self.volume, " by the last unmap");
        self.volume.drain();
        self.keeper.stop();
        drop(self.volume);
        self.gone.wait();
    }
}

/// The use of a device with a sidecar by one mapping. Dropping it waits for the mapping's requests;
/// that of the last one closes the device. Sleeps.
pub(crate) struct Attachment {
    volumes: Arc<VolumeTable>,
    number: u32,
    stats: Arc<PiStats>,
    client_queue: Option<Arc<ClientQueue>>,
    slot: Arc<VolumeSlot>,
}

impl Attachment {
    /// Returns where requests go.
    pub(super) fn client_queue(&self) -> Option<&Arc<ClientQueue>> {
        self.client_queue.as_ref()
    }

    /// Returns the UUID of the sidecar.
    pub(super) fn uuid(&self) -> Option<[u8; 16]> {
        self.client_queue().map(|client_queue| client_queue.uuid())
    }

    /// Returns what was seen of the requests.
    pub(super) fn stats(&self) -> &Arc<PiStats> {
        &self.stats
    }

    /// Returns the number of sectors that clients see, when they open the device.
    pub(super) fn sectors(&self) -> u64 {
        let data_blocks = self
            .client_queue()
            .map_or(0, |client_queue| client_queue.data_blocks());
        data_blocks.saturating_mul(BLOCK_SECTORS.into())
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        // The device is closed when nothing refers to it any more.
        if let Some(client_queue) = self.client_queue.take() {
            client_queue.wait_idle();
            client_queue.detach();
        }
        self.volumes.leave(&self.slot, self.number);
    }
}
