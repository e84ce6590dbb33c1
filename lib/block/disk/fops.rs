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
            AtomicU32,
            AtomicU64,
            Ordering::Relaxed, //
        },
        Completion, //
    },
    sysfs::check_owner, //
};

/// The number of disks with a [`DiskFops`].
static ALIVE: AtomicI32 = AtomicI32::new(0);

/// Whether a [`DiskFops`] was ever created.
static USED: AtomicBool = AtomicBool::new(false);

/// Waits until no disk of any driver is left, and no task is inside [`free_disk`]. Sleeps.
///
/// Called at the exit of this module. A driver's module, and this one after it, can be unloaded
/// when the last opener of its disk has closed it; the closing task frees the disk after that.
pub(crate) fn drain() {
    while ALIVE.load(Relaxed) != 0 {
        fsleep(Delta::from_millis(10));
    }
    if USED.load(Relaxed) {
        // SAFETY: This is process context, and no lock is held. The function waits until each task
        // has left its current kernel function or slept; `free_disk` does not sleep after it
        // decremented `ALIVE`.
        unsafe { bindings::synchronize_rcu_tasks() };
    }
}

/// A type-erased value of the driver.
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
    /// Creates a token. Returns `EINVAL` unless the code that drops a `T` is part of `module`.
    fn new<T: Send + 'static>(value: T, module: &'static ThisModule) -> Result<Self> {
        let release: unsafe fn(*mut c_void) = release_as::<T>;
        check_owner(module, release as usize)?;
        // INVARIANT: Both fields are those of `T`.
        Ok(Self {
            value: KBox::into_raw(KBox::new(value, GFP_KERNEL)?).cast(),
            release,
        })
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, `value` is that of `release`; it is dropped once, here.
        unsafe { (self.release)(self.value) };
    }
}

/// # Safety
///
/// The caller must ensure that `value` comes from `KBox::<T>::into_raw` and is not used afterwards.
unsafe fn release_as<T>(value: *mut c_void) {
    // SAFETY: By the function requirements.
    drop(unsafe { KBox::from_raw(value.cast::<T>()) });
}

/// The `struct block_device_operations` of one disk, and the data that lives as long as the disk.
///
/// It is allocated, as it names the driver's module, and as it is read once more after the last
/// close has dropped the reference to that module: [`free_disk`], which is code of this crate,
/// frees it.
///
/// # Invariants
///
/// If `has_module` is set, this value owns a reference of the module `table.owner`.
#[repr(C)]
pub(super) struct DiskFops {
    table: bindings::block_device_operations,
    /// The number of reasons to make opens fail.
    forbidden: AtomicU32,
    has_module: AtomicBool,
    /// An NAA identifier of 8 bytes; 0 if there is none.
    naa: AtomicU64,
    /// Completed when the token has been dropped.
    freed: Arc<Completion>,
    /// Held for its drop only.
    _token: Token,
}

// SAFETY: The table is not changed after its creation; the token is `Send` by its type invariants.
unsafe impl Send for DiskFops {}

// SAFETY: The table is not changed after its creation; the other fields that change are atomic, and
// a shared reference gives no access to the token.
unsafe impl Sync for DiskFops {}

impl DiskFops {
    /// Allocates operations of `module`, with a `token` that is dropped with the disk.
    pub(super) fn new<T: Send + 'static>(
        module: &'static ThisModule,
        token: T,
    ) -> Result<KBox<Self>> {
        let mut table: bindings::block_device_operations = pin_init::zeroed();
        table.owner = module.as_ptr();
        table.open = Some(open);
        table.getgeo = Some(getgeo);
        table.get_unique_id = Some(get_unique_id);
        table.free_disk = Some(free_disk);
        let token = Token::new(token, module)?;
        let freed = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        // INVARIANT: `has_module` is not set, and no reference is owned.
        let fops = DiskFops {
            table,
            forbidden: AtomicU32::new(0),
            has_module: AtomicBool::new(false),
            naa: AtomicU64::new(0),
            freed,
            _token: token,
        };
        Ok(KBox::new(fops, GFP_KERNEL)?)
    }

    /// Takes a reference to the driver's module, whose code drops the token. Called before the
    /// driver drops its reference to the disk, which others may keep for long. If the module is
    /// being unloaded, returns a completion to wait for afterwards: such a disk is not open, so
    /// other references are short-lived.
    pub(super) fn outlive_driver(&self) -> Option<Arc<Completion>> {
        // SAFETY: The module exists, as its code owns the disk and is running.
        if unsafe { bindings::try_module_get(self.table.owner) } {
            // INVARIANT: The reference was just taken.
            self.has_module.store(true, Relaxed);
            None
        } else {
            Some(self.freed.clone())
        }
    }

    /// Passes the ownership of the operations to a disk.
    pub(super) fn into_raw(self: KBox<Self>) -> *const bindings::block_device_operations {
        USED.store(true, Relaxed);
        ALIVE.fetch_add(1, Relaxed);
        KBox::into_raw(self).cast_const().cast()
    }

    /// Drops the token first and the reference to the driver's module last. Does not sleep after it
    /// decremented `ALIVE`.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `this` comes from [`Self::into_raw`], and that the disk has been
    /// freed or was never added.
    pub(super) unsafe fn free(this: *const Self) {
        // SAFETY: By the function requirements.
        let this = unsafe { KBox::from_raw(this.cast_mut()) };
        let owner = this.table.owner;
        let has_module = this.has_module.load(Relaxed);
        let freed = this.freed.clone();
        drop(this);
        freed.complete_all();
        drop(freed);
        if has_module {
            // SAFETY: By the type invariants, the reference was owned. No code of the module runs
            // for the disk any more.
            unsafe { bindings::module_put(owner) };
        }
        ALIVE.fetch_sub(1, Relaxed);
    }

    /// Returns the disk's NAA identifier, 0 if it has none.
    pub(super) fn naa(&self) -> u64 {
        self.naa.load(Relaxed)
    }

    /// Sets or changes the disk's identifier; 0 for none.
    pub(super) fn set_naa(&self, naa: u64) {
        self.naa.store(naa, Relaxed);
    }

    /// Makes opens of the disk fail. If the caller holds the disk's `open_mutex`, every open that
    /// has passed the check is counted by the block layer.
    pub(super) fn forbid(&self) {
        self.forbidden.fetch_add(1, Relaxed);
    }

    /// Reverts one [`Self::forbid`].
    pub(super) fn permit(&self) {
        self.forbidden.fetch_sub(1, Relaxed);
    }
}

/// Opens a disk; called under its `open_mutex`.
///
/// # Safety
///
/// The caller must ensure that the operations of `disk`, which is live, are a [`DiskFops`].
unsafe extern "C" fn open(disk: *mut bindings::gendisk, mode: bindings::blk_mode_t) -> c_int {
    // SAFETY: By the function requirements; the operations live as long as the disk.
    let fops = unsafe { &*(*disk).fops.cast::<DiskFops>() };
    if fops.forbidden.load(Relaxed) != 0 {
        return ENXIO.to_errno();
    }
    // SAFETY: By the function requirements; the block layer changes the word by atomic operations
    // only.
    let state = unsafe { ptr::read_volatile(&raw const (*disk).state) };
    let read_only = state & (1 << bindings::GD_READ_ONLY) != 0;
    if read_only && mode & raw::BLOCK_EXT_BLK_OPEN_WRITE != 0 {
        return EPERM.to_errno();
    }
    0
}

/// Answers `HDIO_GETGEO` of old partitioning tools with a geometry of 4 heads and 16 sectors per
/// track.
///
/// # Safety
///
/// The caller must ensure that `disk` is live and `geometry` valid for writes.
unsafe extern "C" fn getgeo(
    disk: *mut bindings::gendisk,
    geometry: *mut bindings::hd_geometry,
) -> c_int {
    // SAFETY: By the function requirements; the field is one word.
    let sectors = unsafe { ptr::read_volatile(&raw const (*(*disk).part0).bd_nr_sectors) };
    // SAFETY: By the function requirements. The block layer sets the start itself.
    let geometry = unsafe { &mut *geometry.cast::<raw::hd_geometry>() };
    geometry.heads = 4;
    geometry.sectors = 16;
    // Large disks overflow the field, as with every driver.
    geometry.cylinders = (sectors / (4 * 16)) as u16;
    0
}

/// Returns the identifier of the disk to file systems that export its blocks, and to device-mapper.
///
/// # Safety
///
/// The caller must ensure that the operations of `disk`, which is live, are a [`DiskFops`], and
/// that `id` has room for 16 bytes.
unsafe extern "C" fn get_unique_id(
    disk: *mut bindings::gendisk,
    id: *mut u8,
    kind: bindings::blk_unique_id,
) -> c_int {
    // SAFETY: By the function requirements; the operations live as long as the disk.
    let naa = unsafe { &*(*disk).fops.cast::<DiskFops>() }.naa();
    if naa == 0 || kind != bindings::blk_unique_id_BLK_UID_NAA {
        return EINVAL.to_errno();
    }
    let bytes = naa.to_be_bytes();
    // SAFETY: By the function requirements; 8 bytes are fewer than 16.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), id, bytes.len()) };
    // CAST: The length is 8.
    bytes.len() as c_int
}

/// Frees the operations of a disk that was added, when the last reference to it is dropped.
///
/// # Safety
///
/// The caller must ensure that the operations of `disk` are a [`DiskFops`], which is not read any
/// more.
unsafe extern "C" fn free_disk(disk: *mut bindings::gendisk) {
    // SAFETY: By the function requirements.
    unsafe { DiskFops::free((*disk).fops.cast()) };
}
