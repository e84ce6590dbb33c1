// SPDX-License-Identifier: GPL-2.0

//! The medium: a block device whose 4 KiB blocks are chunks.

use core::ops::Range;

use block_ext::{
    bdev::{
        BlockDevice,
        Mode, //
    },
    bio::{
        Bio,
        BioData,
        BioPool, //
    },
    Flags,
    Op, //
};
use chunk4k::CHUNK_LEN;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    pages::PageBlock,
    sync::{
        atomic::{
            AtomicI32,
            Ordering::Relaxed, //
        },
        Completion, //
    },
};

const SECTOR_LEN: u64 = 512;
const CHUNK_SECTORS: u64 = CHUNK_LEN as u64 / SECTOR_LEN;

/// The chunks. One user has the medium at a time ([`Self::medium`]), so that no user reads a chunk
/// that is half written.
#[pin_data]
pub(crate) struct Store {
    chunks: u64,
    #[pin]
    medium: Mutex<Medium>,
}

/// The block device, for its only user.
pub(crate) struct Medium {
    device: Arc<BlockDevice>,
    bios: Arc<BioPool<Io>>,
    end: Arc<End>,
}

/// The objects that an IO in flight keeps.
struct Io {
    device: Arc<BlockDevice>,
    bios: Arc<BioPool<Io>>,
    end: Arc<End>,
}

/// The end of an IO.
#[pin_data]
struct End {
    #[pin]
    done: Completion,
    errno: AtomicI32,
}

impl BioData for Io {
    type Tuples = ();

    fn device(&self) -> &BlockDevice {
        &self.device
    }

    fn pool(&self) -> &BioPool<Self> {
        &self.bios
    }

    fn end(self, result: Result) {
        // Before the thread that waits goes on: it has references of its own, so that the device is
        // never closed here.
        drop((self.device, self.bios));
        let errno = result.map_or_else(Error::to_errno, |()| 0);
        self.end.errno.store(errno, Relaxed);
        self.end.done.complete_all();
    }
}

impl Store {
    /// Opens the block device `path`, of which all whole blocks of 4 KiB are chunks. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`BlockDevice::open`]; `EINVAL` if its blocks are larger than a chunk,
    /// `ENOSPC` if not one chunk fits.
    pub(crate) fn open(path: &CStr) -> Result<impl PinInit<Self>> {
        let device = BlockDevice::open(path, Mode::ReadWrite)?;
        if device.logical_block_bytes() as usize > CHUNK_LEN {
            return Err(EINVAL);
        }
        let chunks = device.capacity_sectors() / CHUNK_SECTORS;
        if chunks == 0 {
            return Err(ENOSPC);
        }
        let end = pin_init!(End {
            done <- Completion::new(),
            errno: AtomicI32::new(0),
        });
        let medium = Medium {
            device: Arc::new(device, GFP_KERNEL)?,
            bios: Arc::new(BioPool::new(1)?, GFP_KERNEL)?,
            end: Arc::pin_init(end, GFP_KERNEL)?,
        };
        Ok(pin_init!(Self {
            chunks,
            medium <- new_mutex!(medium),
        }))
    }

    /// Returns the number of chunks.
    pub(crate) fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Returns the medium, which others wait for.
    pub(crate) fn medium(&self) -> impl core::ops::Deref<Target = Medium> + '_ {
        self.medium.lock()
    }
}

impl Medium {
    /// Reads chunks to the start of `pages`. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if they do not fit, and the error of the device.
    pub(crate) fn read(&self, chunks: &Range<u64>, pages: &Arc<PageBlock>) -> Result {
        self.transfer(Op::Read, Flags::SYNC, chunks, pages)
    }

    /// Writes chunks from the start of `pages`. They are on the medium when it returns. Sleeps.
    ///
    /// # Errors
    ///
    /// As for [`Self::read`].
    pub(crate) fn write(&self, chunks: &Range<u64>, pages: &Arc<PageBlock>) -> Result {
        self.transfer(Op::Write, Flags::SYNC | Flags::FUA, chunks, pages)
    }

    fn transfer(
        &self,
        op: Op,
        flags: Flags,
        chunks: &Range<u64>,
        pages: &Arc<PageBlock>,
    ) -> Result {
        let count = chunks.end.checked_sub(chunks.start).ok_or(EINVAL)?;
        let len_bytes = count.checked_mul(CHUNK_LEN as u64).ok_or(EINVAL)?;
        let sector = chunks.start.checked_mul(CHUNK_SECTORS).ok_or(EINVAL)?;
        // No other IO is in flight, as this one is waited for under the lock.
        self.end.done.reinit();
        let io = Io {
            device: self.device.clone(),
            bios: self.bios.clone(),
            end: self.end.clone(),
        };
        let mut bio = Bio::new(io, op, flags, sector);
        // A bio that is dropped ends as well.
        let filled = bio.add_pages(pages.clone(), 0, len_bytes.try_into()?);
        if filled.is_ok() {
            bio.submit();
        } else {
            drop(bio);
        }
        self.end.done.wait();
        filled?;
        match self.end.errno.load(Relaxed) {
            0 => Ok(()),
            errno => Err(Error::from_errno(errno)),
        }
    }
}
