// SPDX-License-Identifier: GPL-2.0

//! The operations of a disk's device file.

use block_ext_sys as raw;
use core::ptr;
use kernel::{
    bindings,
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use kernel_ext::{
    sync::{
        atomic::{
            AtomicBool,
            AtomicI32,
            Ordering::Relaxed, //
        },
        Completion, //
    },
    sysfs::check_owner, //
};

/// How many disks have a [`DiskFops`].
static ALIVE: AtomicI32 = AtomicI32::new(0);

/// Whether one ever had.
static USED: AtomicBool = AtomicBool::new(false);

/// Waits until no disk of any driver is left, and no task is inside [`free_disk`]. Sleeps.
///
/// For the end of this module. A driver's module may go when the last opener of its disk has closed
/// it, and this one with it; the closing task frees the disk after that.
pub(crate) fn drain() {
    while ALIVE.load(Relaxed) != 0 {
        fsleep(Delta::from_millis(10));
    }
    if USED.load(Relaxed) {
        // SAFETY: Process context, no lock is held. It waits for each task to leave what it runs in
        // the kernel now, or to sleep; `free_disk` does not sleep after it has counted.
        unsafe { bindings::synchronize_rcu_tasks() };
    }
}

/// A value of the driver, of a type that is forgotten here.
///
/// # Invariants
///
/// `value` comes from `KBox::<T>::into_raw`, and `release` is `release_as::<T>` for that `T`, which
/// is `Send`.
struct Token {
    value: *mut c_void,
    release: unsafe fn(*mut c_void),
}

impl Token {
    /// `EINVAL` unless the code that drops a `T` is part of `module`.
    fn new<T: Send + 'static>(value: T, module: &'static ThisModule) -> Result<Self> {
        let release: unsafe fn(*mut c_void) = release_as::<T>;
        check_owner(module, release as usize)?;
        // INVARIANT: Both belong to `T`.
        Ok(Self {
            value: KBox::into_raw(KBox::new(value, GFP_KERNEL)?).cast(),
            release,
        })
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        // SAFETY: By the type invariant; the value is dropped once, here.
        unsafe { (self.release)(self.value) };
    }
}

/// # Safety
///
/// `value` comes from `KBox::<T>::into_raw` and is not used afterwards.
unsafe fn release_as<T>(value: *mut c_void) {
    // SAFETY: By the requirement.
    drop(unsafe { KBox::from_raw(value.cast::<T>()) });
}

/// `struct block_device_operations` of one disk, and what lives as long as the disk does.
///
/// It lies on the heap because it names the driver's module, and because it is read once more
/// after the last close has let that module go: [`free_disk`] frees it and is code of this crate.
///
/// # Invariants
///
/// If `has_module` is set, this value owns a reference of the module `table.owner`.
#[repr(C)]
pub(super) struct DiskFops {
    table: bindings::block_device_operations,
    closed: AtomicBool,
    has_module: AtomicBool,
    /// Happens when the token has been dropped.
    freed: Arc<Completion>,
    /// Only dropped, for its effect.
    _token: Token,
}

// SAFETY: The table is never written to after it was made; the token is `Send` by its invariant.
unsafe impl Send for DiskFops {}

// SAFETY: As for `Send`; the flags are atomic, and a shared reference gives no access to the token.
unsafe impl Sync for DiskFops {}

impl DiskFops {
    /// Operations that belong to `module`, and a `token` that is dropped with the disk.
    pub(super) fn new<T: Send + 'static>(
        module: &'static ThisModule,
        token: T,
    ) -> Result<KBox<Self>> {
        let mut table: bindings::block_device_operations = pin_init::zeroed();
        table.owner = module.as_ptr();
        table.open = Some(open);
        table.getgeo = Some(getgeo);
        table.free_disk = Some(free_disk);
        let token = Token::new(token, module)?;
        let freed = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        // INVARIANT: No reference is owned.
        let fops = DiskFops {
            table,
            closed: AtomicBool::new(false),
            has_module: AtomicBool::new(false),
            freed,
            _token: token,
        };
        Ok(KBox::new(fops, GFP_KERNEL)?)
    }

    /// The driver is about to give up its reference to the disk, which others may keep for long:
    /// keeps the driver's module, whose code drops the token. Returns what to wait for afterwards
    /// if the module is being unloaded: such a disk is not open, so others let go of it soon.
    pub(super) fn outlive_driver(&self) -> Option<Arc<Completion>> {
        // SAFETY: The module exists: its code is running, for it owns the disk.
        if unsafe { bindings::try_module_get(self.table.owner) } {
            // INVARIANT: The reference was just taken.
            self.has_module.store(true, Relaxed);
            None
        } else {
            Some(self.freed.clone())
        }
    }

    /// Gives the operations to a disk.
    pub(super) fn into_raw(self: KBox<Self>) -> *const bindings::block_device_operations {
        USED.store(true, Relaxed);
        ALIVE.fetch_add(1, Relaxed);
        KBox::into_raw(self).cast_const().cast()
    }

    /// Drops everything, the token first and the driver's module last. Does not sleep after it has
    /// counted.
    ///
    /// # Safety
    ///
    /// `this` came from [`Self::into_raw`], and the disk is gone.
    pub(super) unsafe fn free(this: *const Self) {
        // SAFETY: By the requirement.
        let this = unsafe { KBox::from_raw(this.cast_mut()) };
        let owner = this.table.owner;
        let has_module = this.has_module.load(Relaxed);
        let freed = this.freed.clone();
        drop(this);
        freed.complete_all();
        drop(freed);
        if has_module {
            // SAFETY: The reference was owned by the invariant. No code of the module is run for
            // the disk any more.
            unsafe { bindings::module_put(owner) };
        }
        ALIVE.fetch_sub(1, Relaxed);
    }

    /// Refuses or allows to open the disk. Who holds the disk's `open_mutex` knows that nobody has
    /// passed the check and is not counted yet.
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
    unsafe { DiskFops::free((*disk).fops.cast()) };
}
