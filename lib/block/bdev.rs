// SPDX-License-Identifier: GPL-2.0

//! Block devices that a module opens.
//!
//! C header: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h)

use super::{
    integrity::Integrity,
    SECTOR_BYTES, //
};
use block_ext_sys as raw;
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{bindings, error::from_err_ptr, ffi::c_void, prelude::*, sync::Arc};
use kernel_ext::sysfs::AsKobject;

/// The mode in which a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Reading.
    ReadOnly,
    /// Reading and writing.
    ReadWrite,
}

/// A disk: two are equal if they are the same one, as long as one of them is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskId(usize);

/// Owner of devices that nothing else may use: a disk that is made of them, for one. Clones are the
/// same holder, of which one does not keep the other out.
#[derive(Clone)]
pub struct Holder(Arc<u8>);

impl Holder {
    /// Creates one that has no device.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new() -> Result<Self> {
        // A byte, so that its address is that of no other holder.
        Ok(Self(Arc::new(0, GFP_KERNEL)?))
    }

    /// Returns what the block layer compares.
    fn as_raw(&self) -> *mut c_void {
        Arc::as_ptr(&self.0).cast_mut().cast()
    }
}

/// An open block device; closed when its drop returns (process context, sleeps). The drop takes the
/// lock under which the disk is opened, and the last close waits for what the page cache still has
/// to write.
///
/// # Invariants
///
/// `file` is an open file of the block device `bdev`, opened for writing if `writable`, and claimed
/// by `holder` if there is one.
pub struct BlockDevice {
    file: NonNull<bindings::file>,
    bdev: NonNull<bindings::block_device>,
    writable: bool,
    // Its address is no other holder's before the device is closed.
    holder: Option<Holder>,
}

// SAFETY: An open device is not tied to a task.
unsafe impl Send for BlockDevice {}

// SAFETY: Shared references read fields that the block layer changes word by word.
unsafe impl Sync for BlockDevice {}

/// Reads one limit of a device's queue. The block layer may change it concurrently, as one word, so
/// no reference to the limits is created.
macro_rules! limit {
    ($device:ident.$field:ident) => {
        // SAFETY: By the type invariants, the device and its queue live; the field is one word.
        unsafe { ptr::read_volatile(&raw const (*(*$device.as_raw()).bd_queue).limits.$field) }
    };
}

impl BlockDevice {
    /// Opens the device file `path`, not exclusively.
    ///
    /// Process context, may sleep. The errors are those of the C function: `ENOENT`, `ENOTBLK`,
    /// `EACCES` (read-only device for writing), `ENXIO`, ...
    pub fn open(path: &CStr, mode: Mode) -> Result<Self> {
        Self::open_by(path, mode, None)
    }

    /// Opens a device as [`open`](Self::open) does, for `holder` alone: file systems, other holders
    /// and programs that open the device with `O_EXCL` are kept out.
    ///
    /// # Errors
    ///
    /// `EBUSY` if another has it for itself, and those of [`open`](Self::open).
    pub fn open_exclusively(path: &CStr, mode: Mode, holder: &Holder) -> Result<Self> {
        Self::open_by(path, mode, Some(holder.clone()))
    }

    fn open_by(path: &CStr, mode: Mode, holder: Option<Holder>) -> Result<Self> {
        let writable = mode == Mode::ReadWrite;
        let mut flags = raw::BLOCK_EXT_BLK_OPEN_READ;
        if writable {
            flags |= raw::BLOCK_EXT_BLK_OPEN_WRITE;
        }
        let claim = holder.as_ref().map_or(ptr::null_mut(), Holder::as_raw);
        // SAFETY: The path is NUL-terminated; `claim` is NULL or the address of a byte that lives
        // until the device is closed, and is not dereferenced, as there are no operations of it.
        let file = unsafe {
            bindings::bdev_file_open_by_path(path.as_char_ptr(), flags, claim, ptr::null())
        };
        let file = NonNull::new(from_err_ptr(file)?).ok_or(ENXIO)?;
        // SAFETY: The file has just been opened as that of a block device.
        let bdev = unsafe { bindings::file_bdev(file.as_ptr()) };
        // INVARIANT: The file is open, and `bdev` its device, claimed by the holder.
        Ok(BlockDevice {
            file,
            // SAFETY: The file of a block device always has one.
            bdev: unsafe { NonNull::new_unchecked(bdev) },
            writable,
            holder,
        })
    }

    /// Returns whether the device was opened for writing.
    #[inline]
    pub fn is_writable(&self) -> bool {
        self.writable
    }

    /// Returns whether the device was opened by [`Self::open_exclusively`].
    #[inline]
    pub fn is_exclusive(&self) -> bool {
        self.holder.is_some()
    }

    /// Returns the size in sectors; 0 when the medium is gone.
    #[inline]
    pub fn capacity_sectors(&self) -> u64 {
        // SAFETY: By the type invariants, the device lives; the field is one word.
        unsafe { ptr::read_volatile(&raw const (*self.as_raw()).bd_nr_sectors) }
    }

    /// Returns whether the disk is in the machine. Once it was removed it is not, also while it is
    /// open; when it is plugged in again it is another device, with this name or another one.
    pub fn is_present(&self) -> bool {
        // SAFETY: By the type invariants, the device lives, and with it its disk.
        unsafe { bindings::disk_live((*self.as_raw()).bd_disk) }
    }

    /// Returns which disk it is, or is a partition of. One that comes back under name and device
    /// number of a removed one is another.
    pub fn disk_id(&self) -> DiskId {
        // SAFETY: By the type invariants, the device lives; its disk does not change.
        DiskId(unsafe { (*self.as_raw()).bd_disk }.addr())
    }

    /// Returns whether its disk, or the one that it is a partition of, is provided by `module`.
    pub fn is_provided_by(&self, module: &ThisModule) -> bool {
        // SAFETY: By the type invariants, the device lives, and with it its disk, whose operations
        // do not change.
        let owner = unsafe { (*(*(*self.as_raw()).bd_disk).fops).owner };
        owner == module.as_ptr()
    }

    /// Returns the device number (`dev_t`), the same for all names of a device.
    pub fn number(&self) -> u32 {
        // SAFETY: By the type invariants, the device lives; its number does not change.
        unsafe { (*self.as_raw()).bd_dev }
    }

    /// Returns the name of the device or the partition as in `/sys/class/block`, `None` if it has
    /// none.
    pub fn name(&self) -> Option<&CStr> {
        // SAFETY: By the type invariants, the device lives.
        let name = unsafe { (*self.as_kobject()).name };
        if name.is_null() {
            return None;
        }
        // SAFETY: Names of objects are NUL-terminated; block devices are not renamed.
        Some(unsafe { CStr::from_char_ptr(name) })
    }

    /// Returns the smallest unit of IO in bytes, a power of two.
    #[inline]
    pub fn logical_block_bytes(&self) -> u32 {
        limit!(self.logical_block_size)
    }

    /// Returns the smallest unit written without read-modify-write, in bytes.
    pub fn physical_block_bytes(&self) -> u32 {
        limit!(self.physical_block_size)
    }

    /// Returns the maximum transfer of the hardware in sectors (longer bios are split).
    pub fn max_hw_sectors(&self) -> u32 {
        limit!(self.max_hw_sectors)
    }

    /// Returns the maximum number of segments of a request (longer bios are split).
    pub fn max_segments(&self) -> u16 {
        limit!(self.max_segments)
    }

    /// Returns the maximum discard in sectors, 0 if not supported.
    pub fn max_discard_sectors(&self) -> u32 {
        limit!(self.max_discard_sectors)
    }

    /// Returns the unit of discards in bytes.
    pub fn discard_granularity_bytes(&self) -> u32 {
        limit!(self.discard_granularity)
    }

    /// Returns the offset of the first whole unit of discards, in bytes.
    pub fn discard_alignment_bytes(&self) -> u32 {
        // SAFETY: By the type invariants, the device lives.
        unsafe { bindings::bdev_discard_alignment(self.as_raw()) }
    }

    /// Returns the maximum secure erase in sectors, 0 if not supported.
    pub fn max_secure_erase_sectors(&self) -> u32 {
        limit!(self.max_secure_erase_sectors)
    }

    /// Returns the maximum write of zeroes in sectors, 0 if not supported.
    pub fn max_write_zeroes_sectors(&self) -> u32 {
        limit!(self.max_write_zeroes_sectors)
    }

    /// Returns whether the device has an enabled volatile cache.
    pub fn has_write_cache(&self) -> bool {
        // SAFETY: By the type invariants, the device lives.
        unsafe { raw::block_ext_helper_bdev_write_cache(self.as_raw()) }
    }

    /// Returns whether the device supports writes through that cache (FUA).
    pub fn has_fua(&self) -> bool {
        limit!(self.features) & raw::BLOCK_EXT_BLK_FEAT_FUA != 0
    }

    /// Returns whether the device can refuse an IO instead of having its submitter wait
    /// ([`Flags::NOWAIT`](super::Flags::NOWAIT)). One of device-mapper may lose that with a new
    /// table.
    pub fn can_refuse(&self) -> bool {
        limit!(self.features) & raw::BLOCK_EXT_BLK_FEAT_NOWAIT != 0
    }

    /// Returns the protection information that the device stores, `None` if there is none or it is
    /// of another kind than [`Integrity`].
    pub fn integrity(&self) -> Option<Integrity> {
        Integrity::from_raw(limit!(self.integrity))
    }

    /// Returns whether a range starts and ends at logical blocks.
    #[inline]
    pub fn is_aligned(&self, sector: u64, len_bytes: u32) -> bool {
        let mask = u64::from(self.logical_block_bytes()).wrapping_sub(1);
        let start = sector.wrapping_mul(u64::from(SECTOR_BYTES));
        (start | u64::from(len_bytes)) & mask == 0
    }

    /// Returns the C structure.
    #[inline]
    pub(super) fn as_raw(&self) -> *mut bindings::block_device {
        self.bdev.as_ptr()
    }
}

impl Drop for BlockDevice {
    fn drop(&mut self) {
        // At once: a kernel thread's close is put off otherwise, and who has been told that the
        // disk is free finds it busy.
        // SAFETY: By the type invariants, the file is open, and `self` owns the reference to it.
        unsafe { bindings::__fput_sync(self.file.as_ptr()) };
    }
}

// SAFETY: The kobject is that of the device, which lives while it is open.
unsafe impl AsKobject for BlockDevice {
    fn as_kobject(&self) -> *mut bindings::kobject {
        // SAFETY: By the type invariants, the device lives.
        unsafe { &raw mut (*self.as_raw()).bd_device.kobj }
    }
}
