// SPDX-License-Identifier: GPL-2.0

//! The operations of a disk's device file.

use block_ext_sys as raw;
use core::ptr;
use kernel::{
    bindings,
    prelude::*, //
};
use kernel_ext::sync::atomic::{
    AtomicBool,
    Ordering::Relaxed, //
};

/// `struct block_device_operations` of one disk.
///
/// It lies on the heap because it names the driver's module, and because it is read once more
/// after the last close has let that module go: [`free_disk`] frees it and is code of this crate.
#[repr(C)]
pub(super) struct DiskFops {
    table: bindings::block_device_operations,
    closed: AtomicBool,
}

// SAFETY: The table is never written to after it was made.
unsafe impl Send for DiskFops {}

// SAFETY: As for `Send`; the flag is atomic.
unsafe impl Sync for DiskFops {}

impl DiskFops {
    /// Operations that belong to `module`.
    pub(super) fn new(module: &'static ThisModule) -> Result<KBox<Self>> {
        let mut table: bindings::block_device_operations = pin_init::zeroed();
        table.owner = module.as_ptr();
        table.open = Some(open);
        table.getgeo = Some(getgeo);
        table.free_disk = Some(free_disk);
        let closed = AtomicBool::new(false);
        Ok(KBox::new(DiskFops { table, closed }, GFP_KERNEL)?)
    }

    /// Gives the operations to a disk.
    pub(super) fn into_raw(self: KBox<Self>) -> *const bindings::block_device_operations {
        KBox::into_raw(self).cast_const().cast()
    }

    /// Takes the operations back.
    ///
    /// # Safety
    ///
    /// `this` came from [`Self::into_raw`], and the disk is gone.
    pub(super) unsafe fn from_raw(this: *const Self) -> KBox<Self> {
        // SAFETY: By the requirement.
        unsafe { KBox::from_raw(this.cast_mut()) }
    }

    /// Refuses or allows to open the disk; under the disk's `open_mutex`.
    pub(super) fn set_closed(&self, closed: bool) {
        self.closed.store(closed, Relaxed);
    }
}

/// Opens a disk; called under its `open_mutex`.
///
/// # Safety
///
/// The operations of `disk`, which is live, are a [`DiskFops`].
unsafe extern "C" fn open(disk: *mut bindings::gendisk, mode: bindings::blk_mode_t) -> c_int {
    // SAFETY: By the requirement; they live as long as the disk.
    let fops = unsafe { &*(*disk).fops.cast::<DiskFops>() };
    if fops.closed.load(Relaxed) {
        return ENXIO.to_errno();
    }
    // SAFETY: By the requirement; the word is changed by atomic operations only.
    let state = unsafe { ptr::read_volatile(&raw const (*disk).state) };
    let read_only = state & (1 << bindings::GD_READ_ONLY) != 0;
    if read_only && mode & raw::BLOCK_EXT_BLK_OPEN_WRITE != 0 {
        return EPERM.to_errno();
    }
    0
}

/// Answers `HDIO_GETGEO`, which old partitioning tools ask, with a geometry of 4 heads and 16
/// sectors a track.
///
/// # Safety
///
/// `disk` is live and `geometry` valid for writes.
unsafe extern "C" fn getgeo(
    disk: *mut bindings::gendisk,
    geometry: *mut bindings::hd_geometry,
) -> c_int {
    // SAFETY: By the requirement; the field is one word.
    let sectors = unsafe { ptr::read_volatile(&raw const (*(*disk).part0).bd_nr_sectors) };
    // SAFETY: By the requirement. The block layer sets the start itself.
    let geometry = unsafe { &mut *geometry.cast::<raw::hd_geometry>() };
    geometry.heads = 4;
    geometry.sectors = 16;
    // Large disks overflow the field, as with every driver.
    geometry.cylinders = (sectors / (4 * 16)) as u16;
    0
}

/// Called when the last reference to a disk that was added is dropped.
///
/// # Safety
///
/// The operations of `disk` are a [`DiskFops`], and nobody reads them any more.
unsafe extern "C" fn free_disk(disk: *mut bindings::gendisk) {
    // SAFETY: By the requirement.
    drop(unsafe { DiskFops::from_raw((*disk).fops.cast()) });
}
