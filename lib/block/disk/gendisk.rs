// SPDX-License-Identifier: GPL-2.0

//! The `struct gendisk` behind a disk in any state.

use super::{
    fops::DiskFops,
    wwid,
    DiskConfig,
    CAPACITY_SECTORS_MAX, //
};
use block_ext_sys as raw;
use core::ptr::{
    self,
    NonNull, //
};
use kernel::{
    bindings,
    error::{
        from_err_ptr,
        to_result, //
    },
    fmt::Write,
    prelude::*,
    str::NullTerminatedFormatter, //
};
use kernel_ext::sync::atomic::lkmm;

/// The flag of a disk whose partition table is not read.
const SUPPRESS_PART_SCAN: usize = 1 << bindings::GD_SUPPRESS_PART_SCAN;

/// The flag of a disk whose partition table is read by the next open.
const NEED_PART_SCAN: usize = 1 << bindings::GD_NEED_PART_SCAN;

/// The operations of a disk in any state: new, live or removed.
///
/// # Invariants
///
/// `raw` is a disk with its own queue and operations made by [`DiskFops`]. This value owns a
/// reference to it.
pub struct GenDisk {
    raw: NonNull<bindings::gendisk>,
}

// SAFETY: A disk is not tied to a task, and its reference may be put by any.
unsafe impl Send for GenDisk {}

// SAFETY: Of a `gendisk` that other threads have, too, the methods with a shared reference read the
// size, the number of opens and flags of inodes, which are words; change the size and the
// partitions, under the locks of the block layer, and the state, by atomic operations; and access
// the `DiskFops`, which are `Sync`. All else is unsafe, or needs a `super::Disk`.
unsafe impl Sync for GenDisk {}

impl GenDisk {
    /// Allocates a disk.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `set` and `data` live until the disk is dropped, and `data` is
    /// what the operations of the set expect as `queuedata`.
    pub(super) unsafe fn new<R: Send + 'static>(
        set: *mut bindings::blk_mq_tag_set,
        module: &'static ThisModule,
        config: DiskConfig<'_>,
        data: *mut c_void,
        token: R,
    ) -> Result<Self> {
        check_range(&config)?;
        let mut limits = config.limits.to_raw()?;
        let fops = DiskFops::new(module, token)?;
        let key = kernel::static_lock_class!().as_ptr();
        // SAFETY: The set is allocated, the limits are valid for the call, the key is static.
        let raw = unsafe { bindings::__blk_mq_alloc_disk(set, &mut limits, data, key) };
        let raw = NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?;
        // SAFETY: The disk was just allocated. Its queue and its block device refer to it already,
        // but nothing reads the operations before it is added, so only the field is written.
        unsafe { (*raw.as_ptr()).fops = fops.into_raw() };
        // INVARIANT: The operations are set, and the allocation gave the reference.
        let this = GenDisk { raw };
        if let Some(minors) = config.minors {
            let major = minors.major.number().try_into()?;
            let (first, count) = (minors.first.try_into()?, minors.count.try_into()?);
            // SAFETY: As for the operations, the block layer reads these fields from the addition
            // on.
            unsafe {
                (*raw.as_ptr()).major = major;
                (*raw.as_ptr()).first_minor = first;
                (*raw.as_ptr()).minors = count;
            }
        }
        // SAFETY: The field lives as long as the disk, and the block layer reads it from the
        // addition on; no other reference to it exists.
        let name = unsafe { &mut (*raw.as_ptr()).disk_name };
        NullTerminatedFormatter::new(name)
            .ok_or(EINVAL)?
            .write_fmt(config.name)?;
        this.suppress_scan();
        this.set_naa(config.naa);
        this.set_capacity(config.capacity_sectors)?;
        if config.read_only {
            // SAFETY: By the type invariants, the disk lives. It was not added, so no event is
            // sent.
            unsafe { bindings::set_disk_ro(this.as_raw(), true) };
        }
        Ok(this)
    }

    /// Adds the disk; see [`Disk::add`](super::Disk::add).
    ///
    /// # Safety
    ///
    /// The caller must ensure that the disk was not added before, nor is being added.
    pub(super) unsafe fn add(&self) -> Result {
        let groups = match self.fops().naa() {
            0 => core::ptr::null_mut(),
            _ => wwid::groups(),
        };
        let none = core::ptr::null_mut();
        // SAFETY: By the type invariants, the disk is complete; by the function requirements, it
        // was not added. The attributes are static, and fit the operations of the disk.
        to_result(unsafe { bindings::device_add_disk(none, self.as_raw(), groups) })
    }

    /// Deletes the disk; see [`Disk::remove`](super::Disk::remove).
    ///
    /// # Safety
    ///
    /// The caller must ensure that the disk was added, and was not deleted before, nor is being
    /// deleted.
    pub(super) unsafe fn delete(&self) {
        // SAFETY: By the function requirements.
        unsafe { bindings::del_gendisk(self.as_raw()) };
        // Every request has ended, but the driver's call that dispatched the last one may not have
        // returned yet. It runs under RCU.
        // SAFETY: This is process context, and no RCU read lock is held: the call above sleeps.
        unsafe { bindings::synchronize_rcu() };
    }

    /// Keeps the addition from reading the partition table, as multipath disks of nvme do: it would
    /// return to the driver when the IO has ended.
    fn suppress_scan(&self) {
        self.change_state(|state| state | SUPPRESS_PART_SCAN);
    }

    /// Reads the partition table, and adds the partitions. Sleeps until the IO has ended, with the
    /// lock under which the disk is opened, closed and removed; the caller must not hold a lock
    /// that IO needs. Once, after the addition: later, user space asks for it (`BLKRRPART`).
    ///
    /// As the addition does it, by an open and a close: the first open sets the size of the blocks,
    /// and the last close leaves nothing that was read in the page cache, where a file system that
    /// is mounted after another machine has used the disk would find it.
    ///
    /// # Errors
    ///
    /// `ENXIO` if the disk was not added, is being removed or must not be opened. An error of the
    /// IO is in the log.
    pub fn scan_partitions(&self) -> Result {
        self.change_state(|state| state & !SUPPRESS_PART_SCAN | NEED_PART_SCAN);
        // SAFETY: By the type invariants, the disk lives, and with it its whole-disk device.
        let number = unsafe { (*(*self.as_raw()).part0).bd_dev };
        let mode = raw::BLOCK_EXT_BLK_OPEN_READ;
        // SAFETY: There is no holder, and there are no operations of one.
        let file = from_err_ptr(unsafe {
            bindings::bdev_file_open_by_dev(number, mode, ptr::null_mut(), ptr::null())
        });
        let scanned = file.map(|file| {
            // At once: a close that is put off keeps the disk from being unmapped.
            // SAFETY: The file was opened above, and is not used any more.
            unsafe { bindings::__fput_sync(file) };
        });
        // An open that has failed has not looked.
        self.change_state(|state| state & !NEED_PART_SCAN);
        scanned
    }

    /// Changes the word of the disk's state, in one atomic operation.
    fn change_state(&self, change: impl Fn(usize) -> usize) {
        // SAFETY: By the type invariants, the disk lives.
        let state = unsafe { &raw mut (*self.as_raw()).state };
        // SAFETY: The word is aligned, and the block layer changes it by atomic operations only.
        let state = unsafe { lkmm::Atomic::from_ptr(state) };
        let mut old = state.load(lkmm::Relaxed);
        while let Err(now) = state.cmpxchg(old, change(old), lkmm::Full) {
            old = now;
        }
    }

    /// Counts one more reason to make opens fail.
    pub(super) fn forbid(&self) {
        self.fops().forbid();
    }

    /// Does [`Self::forbid`] if the disk is not open, see
    /// [`DiskRef::forbid_open_if_idle`](super::DiskRef::forbid_open_if_idle).
    pub(super) fn forbid_if_idle(&self) -> Result {
        let _guard = OpenMutex::try_lock(self).ok_or(EBUSY)?;
        if self.open_count() != 0 {
            return Err(EBUSY);
        }
        self.forbid();
        Ok(())
    }

    /// Reverts one [`Self::forbid`].
    pub(super) fn permit(&self) {
        self.fops().permit();
    }

    /// Returns the number of opens of the disk; every open partition counts once. Any context; the
    /// number may change at any time.
    pub fn open_count(&self) -> u32 {
        // SAFETY: By the type invariants, the disk lives, and its whole-disk device with it.
        let openers = unsafe { &raw mut (*(*self.as_raw()).part0).bd_openers.counter };
        // SAFETY: The counter is an aligned integer that the block layer changes by atomic
        // operations.
        let openers = unsafe { lkmm::Atomic::from_ptr(openers) };
        openers.load(lkmm::Relaxed).unsigned_abs()
    }

    /// Returns whether the disk or a partition of it is in use as swap. Swap on what lies on it (a
    /// file, a device) does not count: its requests have [`Flags::SWAP`](crate::Flags::SWAP). Any
    /// context; that may change at any time.
    pub fn is_swapped_to(&self) -> bool {
        // SAFETY: By the type invariants, the disk lives, and its table of partitions with it.
        unsafe { raw::block_ext_helper_is_swapped_to(self.as_raw()) }
    }

    /// Returns the size in sectors. Any context.
    pub fn capacity_sectors(&self) -> u64 {
        // SAFETY: By the type invariants, the disk lives, and its whole-disk device with it; the
        // field is one word, which the block layer writes under a lock.
        unsafe { core::ptr::read_volatile(&raw const (*(*self.as_raw()).part0).bd_nr_sectors) }
    }

    /// Sets the size, without an event to user space. Returns whether the size has changed. Any
    /// context.
    ///
    /// Returns `EINVAL` beyond [`CAPACITY_SECTORS_MAX`].
    pub fn set_capacity(&self, sectors: u64) -> Result<bool> {
        check_capacity(sectors)?;
        let changed = self.capacity_sectors() != sectors;
        // SAFETY: By the type invariants, the disk lives; the function locks the size.
        unsafe { bindings::set_capacity(self.as_raw(), sectors) };
        Ok(changed)
    }

    /// Changes the NAA identifier of the disk. Any context; user space reads it after a
    /// [`Uevent::Change`](super::Uevent::Change). A disk without an identifier at its addition
    /// shows none in sysfs.
    pub fn set_naa(&self, naa: Option<u64>) {
        self.fops().set_naa(naa.unwrap_or(0));
    }

    fn fops(&self) -> &DiskFops {
        // SAFETY: By the type invariants, the operations are a `DiskFops`, which lives at least as
        // long as the disk.
        unsafe { &*(*self.as_raw()).fops.cast::<DiskFops>() }
    }

    /// Returns the C object.
    pub(super) fn as_raw(&self) -> *mut bindings::gendisk {
        self.raw.as_ptr()
    }

    /// Returns the disk's queue, which lives as long as the disk.
    pub(super) fn as_raw_queue(&self) -> *mut bindings::request_queue {
        // SAFETY: By the type invariants, the disk lives; the field does not change while it does.
        unsafe { (*self.as_raw()).queue }
    }
}

/// Returns `EINVAL` for a size that no disk can have.
pub(super) fn check_capacity(sectors: u64) -> Result {
    if sectors > CAPACITY_SECTORS_MAX {
        Err(EINVAL)
    } else {
        Ok(())
    }
}

/// Checks the values for which the block layer prints a kernel warning, or which it does not check.
fn check_range(config: &DiskConfig<'_>) -> Result {
    if let Some(minors) = config.minors {
        let end = minors.first.checked_add(minors.count).ok_or(EINVAL)?;
        if !(1..=bindings::DISK_MAX_PARTS).contains(&minors.count) || end > 1 << bindings::MINORBITS
        {
            return Err(EINVAL);
        }
    }
    Ok(())
}

impl Drop for GenDisk {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the disk lives; the word is changed by atomic operations
        // only.
        let state = unsafe { core::ptr::read_volatile(&raw const (*self.as_raw()).state) };
        let was_added = state & (1 << bindings::GD_ADDED) != 0;
        let fops = self.fops() as *const DiskFops;
        let freed = was_added.then(|| self.fops().outlive_driver()).flatten();
        // SAFETY: By the type invariants, this value owns the reference. Its owner has deleted a
        // disk that was added.
        unsafe { bindings::put_disk(self.as_raw()) };
        if !was_added {
            // SAFETY: The block layer frees (by `free_disk`) only the operations of disks with
            // `GD_ADDED`; no other reference to these exists.
            unsafe { DiskFops::free(fops) };
        }
        if let Some(freed) = freed {
            freed.wait();
        }
    }
}

/// The lock under which the block layer opens and closes a disk.
struct OpenMutex<'a>(&'a GenDisk);

impl<'a> OpenMutex<'a> {
    fn try_lock(disk: &'a GenDisk) -> Option<Self> {
        // SAFETY: The mutex of a disk is initialized when it is allocated.
        let locked = unsafe { bindings::mutex_trylock(&raw mut (*disk.as_raw()).open_mutex) };
        // Lazily: the end of a guard that was made for nothing would unlock it.
        (locked != 0).then(|| OpenMutex(disk))
    }
}

impl Drop for OpenMutex<'_> {
    fn drop(&mut self) {
        // SAFETY: This task locked the mutex when it created this guard.
        unsafe { bindings::mutex_unlock(&raw mut (*self.0.as_raw()).open_mutex) };
    }
}
