// SPDX-License-Identifier: GPL-2.0

//! Plain devices with a sidecar: protection information on the device itself, in mode store.
//!
//! ```text
//! Volumes ── Volume (one per device with a sidecar that sessions have open)
//!               └── Core ── Engine (requests, PI blocks, journal; used by one work item)
//!                     └── Port (one per mapping: its requests)
//! ```
//!
//! What may be done when is decided by [`sidecar`](crate::sidecar), which is pure code. A request
//! thread only verifies a request and queues it; the work item of the device carries it out, and a
//! completion handler only says what has ended.
//!
//! All memory of a device, about 1.3 MiB, is allocated when it is opened. Nothing is allocated for
//! a request but bios, which have a reserve.

mod blocks;
mod disk;
mod engine;
mod job;
mod pages;
mod port;
mod shared;

use block_ext::{
    bdev::{
        BlockDevice,
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
    sync::Completion,
    workqueue::{
        Flags,
        WorkQueue, //
    }, //
};

use self::{
    disk::{
        Disk,
        SyncIo, //
    },
    shared::{
        Core,
        StoreIo, //
    },
};
use super::{
    protection::Protection,
    BIOS_RESERVED, //
};
use crate::{
    pi_stats::PiStats,
    proto::SECTOR_SIZE,
    sidecar::{
        self,
        BLOCK_BYTES, //
    },
};

pub(crate) use self::port::Port;

/// The size of a block, as the block layer has it.
pub(super) const BLOCK_SIZE: u32 = BLOCK_BYTES as u32;
/// The sectors of a block.
pub(super) const BLOCK_SECTORS: u32 = BLOCK_SIZE / SECTOR_SIZE;

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
struct Volume {
    /// The device number.
    number: u32,
    core: Arc<Core>,
    /// Completes when no reference to `core` is left.
    gone: Arc<Completion>,
    // Dropped last, and never by a completion handler.
    _device: Arc<BlockDevice>,
}

/// The devices with a sidecar that sessions have open.
///
/// Locking: `list` is held while a device is opened, its journal is replayed, and while it is
/// closed: a session that opens one meanwhile waits. No other lock of the server is held then.
#[pin_data]
pub(crate) struct Volumes {
    #[pin]
    list: Mutex<KVec<Volume>>,
    bios: Arc<BioPool<StoreIo>>,
    sync_bios: Arc<BioPool<SyncIo>>,
    queue: Arc<WorkQueue>,
}

/// A mapping of a device with a sidecar, to be attached.
pub(super) struct Request<'a> {
    /// The path of the device.
    pub(super) path: &'a CStr,
    /// Session and device, for the log.
    pub(super) label: CString,
    /// The protection information of the client's requests.
    pub(super) protection: Option<Arc<Protection>>,
    /// The protocol version of the session.
    pub(super) version: u8,
}

impl Volumes {
    /// Creates an empty list.
    pub(super) fn new() -> Result<Arc<Self>> {
        let bios = Arc::new(BioPool::new(BIOS_RESERVED)?, GFP_KERNEL)?;
        let sync_bios = Arc::new(BioPool::new(1)?, GFP_KERNEL)?;
        let flags = Flags::UNBOUND | Flags::MEM_RECLAIM;
        let queue = Arc::new(WorkQueue::new(c"rnbd_server_pi", flags, 0)?, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                list <- new_mutex!(KVec::new()),
                bios,
                sync_bios,
                queue,
            }),
            GFP_KERNEL,
        )
    }

    /// Returns whether `device` has a sidecar. Sleeps.
    ///
    /// # Errors
    ///
    /// `EUCLEAN` if it has one that cannot be used, with a log line; `ENOMEM`.
    pub(super) fn has_sidecar(&self, device: &Arc<BlockDevice>, label: &CStr) -> Result<bool> {
        let Some(mut disk) = Disk::of_blocks(device.clone(), self.sync_bios.clone())? else {
            return Ok(false);
        };
        Ok(disk.superblock(label)?.is_some())
    }

    /// Adds the requests of a mapping of `device`, which is opened, and its journal replayed, if no
    /// mapping has it open. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if another user of this machine has the device for itself; `EUCLEAN` if its sidecar
    /// cannot be used; those of the device and of the allocator. The reason is in the log.
    pub(super) fn attach(
        self: &Arc<Self>,
        device: &BlockDevice,
        request: Request<'_>,
    ) -> Result<Attached> {
        let number = device.number();
        let mut list = self.list.lock();
        let known = list.iter().find(|volume| volume.number == number);
        let core = match known {
            Some(volume) => volume.core.clone(),
            None => {
                let volume = self.open(number, request.path, &request.label)?;
                let core = volume.core.clone();
                list.push(volume, GFP_KERNEL)?;
                core
            }
        };
        let port = Port::new(core.clone(), request)
            .and_then(|port| core.add_port(port.clone()).map(|()| port));
        match port {
            Ok(port) => Ok(Attached {
                volumes: self.clone(),
                number,
                stats: port.stats().clone(),
                data_blocks: core.data_blocks(),
                port: Some(port),
            }),
            Err(error) => {
                drop(core);
                drop(list);
                self.release(number);
                Err(error)
            }
        }
    }

    fn open(&self, number: u32, path: &CStr, label: &CStr) -> Result<Volume> {
        let device = BlockDevice::open_exclusively(path, Mode::ReadWrite).inspect_err(|error| {
            pr_err!(
                "{label}: it has a sidecar, but cannot be opened for this server alone: {error:?}\n"
            );
        })?;
        if device.number() != number {
            pr_err!("{label}: '{path}' is another device now\n");
            return Err(EBUSY);
        }
        let device = Arc::new(device, GFP_KERNEL)?;
        let disk = Disk::of_blocks(device.clone(), self.sync_bios.clone())?.ok_or(EINVAL)?;
        let (superblock, ring) = disk.recover(label)?;
        let gone = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        let (bios, queue) = (self.bios.clone(), self.queue.clone());
        let core = Core::new(
            (device.clone(), bios, queue),
            &superblock,
            ring,
            gone.clone(),
        )?;
        Ok(Volume {
            number,
            core,
            gone,
            _device: device,
        })
    }

    /// Closes a device that no mapping uses any more. Sleeps.
    fn release(&self, number: u32) {
        let mut list = self.list.lock();
        let unused = list
            .iter()
            .position(|volume| volume.number == number && !volume.core.has_ports());
        let Some(index) = unused else {
            return;
        };
        if let Ok(volume) = list.remove(index) {
            volume.close();
        }
    }
}

impl Volume {
    /// Writes the tuples home, empties the journal, and closes the device.
    fn close(self) {
        self.core.drain();
        drop(self.core);
        self.gone.wait();
    }
}

/// The use of a device with a sidecar by one mapping. Dropping it waits for the mapping's requests;
/// that of the last one closes the device. Sleeps.
pub(crate) struct Attached {
    volumes: Arc<Volumes>,
    number: u32,
    stats: Arc<PiStats>,
    data_blocks: u64,
    port: Option<Arc<Port>>,
}

impl Attached {
    /// Returns where requests go.
    pub(super) fn port(&self) -> Option<&Arc<Port>> {
        self.port.as_ref()
    }

    /// Returns what was seen of the requests.
    pub(super) fn stats(&self) -> &Arc<PiStats> {
        &self.stats
    }

    /// Returns the number of sectors that clients see.
    pub(super) fn sectors(&self) -> u64 {
        self.data_blocks.saturating_mul(BLOCK_SECTORS.into())
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Some(port) = self.port.take() {
            port.wait_idle();
            port.detach();
        }
        self.volumes.release(self.number);
    }
}
