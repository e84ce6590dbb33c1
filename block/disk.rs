// SPDX-License-Identifier: GPL-2.0

//! Disks that a module provides.
//!
//! C headers: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h),
//! [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h)

mod fops;
mod limits;
mod wwid;

use super::{
    limits::Limits,
    major::Major,
    mq::{
        Operations,
        TagSet, //
    }, //
};
use core::{
    ops::Deref,
    ptr::NonNull, //
};
pub(crate) use fops::drain;
use fops::DiskFops;
use kernel::{
    bindings,
    error::{
        from_err_ptr,
        to_result, //
    },
    fmt::{
        self,
        Write, //
    },
    new_mutex,
    prelude::*,
    str::NullTerminatedFormatter,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    sync::atomic::{
        lkmm,
        AtomicU32,
        Ordering::{
            Acquire,
            Relaxed,
            Release, //
        }, //
    },
    sysfs::AsKobject, //
};

/// The size of the largest disk in sectors (`BLK_DEV_MAX_SECTORS` in `block/blk.h`).
pub const CAPACITY_SECTORS_MAX: u64 = i64::MAX as u64 >> 9;

/// Minor numbers of the driver's own major number.
#[derive(Clone, Copy)]
pub struct Minors<'a> {
    /// The major number; should outlive the disk.
    pub major: &'a Major,
    /// The number of the whole disk, below 2^20.
    pub first: u32,
    /// The number of minors of the disk and its partitions, 1 to 256; the block layer numbers
    /// further partitions.
    pub count: u32,
}

/// The configuration of a new disk.
pub struct DiskConfig<'a> {
    /// Its name in `/dev` and `/sys/block`, at most 31 bytes, not in use.
    pub name: fmt::Arguments<'a>,
    /// Its device numbers; with `None` the block layer chooses.
    pub minors: Option<Minors<'a>>,
    /// Its size in sectors.
    pub capacity_sectors: u64,
    /// Whether it can only be read.
    pub read_only: bool,
    /// Its limits.
    pub limits: Limits,
    /// Its NAA identifier of 8 bytes, if it has one: `wwid` in its folder in sysfs.
    pub naa: Option<u64>,
}

/// Events about a disk for user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uevent {
    /// Something about the disk has changed.
    Change,
    /// The disk is available again.
    Online,
    /// The disk is temporarily unavailable.
    Offline,
}

/// A disk with requests of `T`.
///
/// Dereferences to [`GenDisk`], which has all operations. Dropping it removes the disk; see
/// [`GenDisk::remove`].
///
/// # Invariants
///
/// The disk's queue belongs to `set`, and its `queuedata` points to `queue`.
pub struct Disk<T: Operations> {
    // Fields are dropped in declaration order, so no request and no callback exists any more when
    // the others are dropped.
    disk: GenDisk,
    queue: Arc<T::Queue>,
    set: Arc<TagSet<T>>,
}

impl<T: Operations> Disk<T> {
    /// Allocates a disk, which [`GenDisk::add`] makes visible.
    ///
    /// `module` is the module of the driver: it cannot be unloaded while the disk is open. `token`
    /// is dropped with the last reference to the disk, which may be long after its removal. It owns
    /// what must not be reused while a removed disk is still open, such as its number. Its code
    /// must be that of `module`.
    ///
    /// Process context, may sleep. Returns `EINVAL` if the name, the numbers, the size or the
    /// limits are out of range, if the limits permit requests of more segments than the requests of
    /// the set have entries, or if the token is of another module; `ENOMEM` if an allocation fails.
    pub fn new<R: Send + 'static>(
        set: &Arc<TagSet<T>>,
        module: &'static ThisModule,
        config: DiskConfig<'_>,
        queue: Arc<T::Queue>,
        token: R,
    ) -> Result<Self> {
        if config.limits.segments_needed() > u32::from(set.sg_entries()) {
            return Err(EINVAL);
        }
        set.add_disk()?;
        let data = Arc::as_ptr(&queue).cast_mut().cast();
        // SAFETY: The tag set and the data of the queue live as long as the disk, in this struct;
        // the operations of the set expect `T::Queue` as the queue's data.
        let disk = unsafe { GenDisk::new(set.as_raw(), module, config, data, token) }?;
        // INVARIANT: Both were given to `GenDisk::new`.
        Ok(Disk {
            disk,
            queue,
            set: set.clone(),
        })
    }

    /// Returns the driver's data of the disk.
    pub fn queue(&self) -> &Arc<T::Queue> {
        &self.queue
    }

    /// Returns the tag set of the disk.
    pub fn tag_set(&self) -> &Arc<TagSet<T>> {
        &self.set
    }
}

impl<T: Operations> Deref for Disk<T> {
    type Target = GenDisk;

    fn deref(&self) -> &GenDisk {
        &self.disk
    }
}

/// Allocated, not added yet.
const STATE_NEW: u32 = 0;
/// Being added or removed, or the addition failed.
const STATE_BUSY: u32 = 1;
/// Added: visible to user space.
const STATE_LIVE: u32 = 2;
/// Removed.
const STATE_GONE: u32 = 3;

/// The operations of a [`Disk`].
///
/// All functions are called in process context and may sleep, unless they say otherwise.
///
/// # Invariants
///
/// `raw` is a disk with its own queue and operations made by [`DiskFops`]; it is added and not yet
/// deleted exactly while `state` is `STATE_LIVE`. `state` leaves `STATE_LIVE` only while `gate` is
/// locked.
pub struct GenDisk {
    raw: NonNull<bindings::gendisk>,
    state: AtomicU32,
    /// Locked by a thread that sends an event about the disk, and by the start of the removal.
    gate: Pin<KBox<Mutex<()>>>,
    /// Whether [`GenDisk::quiesce`] has quiesced the queue: 0 or 1.
    held: AtomicU32,
}

// SAFETY: A disk is not tied to a task; the C functions called here take the locks that they need.
unsafe impl Send for GenDisk {}

// SAFETY: As for `Send`.
unsafe impl Sync for GenDisk {}

impl GenDisk {
    /// # Safety
    ///
    /// The caller must ensure that `set` and `data` live until the disk is dropped, and `data` is
    /// what the operations of the set expect as `queuedata`.
    unsafe fn new<R: Send + 'static>(
        set: *mut bindings::blk_mq_tag_set,
        module: &'static ThisModule,
        config: DiskConfig<'_>,
        data: *mut c_void,
        token: R,
    ) -> Result<Self> {
        check_range(&config)?;
        let mut limits = config.limits.to_raw()?;
        let gate = KBox::pin_init(new_mutex!(()), GFP_KERNEL)?;
        let fops = DiskFops::new(module, token)?;
        let key = kernel::static_lock_class!().as_ptr();
        // SAFETY: The set is allocated, the limits are valid for the call, the key is static.
        let raw = unsafe { bindings::__blk_mq_alloc_disk(set, &mut limits, data, key) };
        let raw = NonNull::new(from_err_ptr(raw)?).ok_or(ENOMEM)?;
        // SAFETY: The disk was just allocated, and no other reference to it exists yet.
        let disk = unsafe { &mut *raw.as_ptr() };
        disk.fops = fops.into_raw();
        // INVARIANT: The operations are set, and the disk is not added.
        let this = GenDisk {
            raw,
            state: AtomicU32::new(STATE_NEW),
            gate,
            held: AtomicU32::new(0),
        };
        if let Some(minors) = config.minors {
            disk.major = minors.major.number().try_into()?;
            disk.first_minor = minors.first.try_into()?;
            disk.minors = minors.count.try_into()?;
        }
        NullTerminatedFormatter::new(&mut disk.disk_name)
            .ok_or(EINVAL)?
            .write_fmt(config.name)?;
        this.set_naa(config.naa);
        this.set_capacity(config.capacity_sectors, false)?;
        if config.read_only {
            this.set_read_only(true);
        }
        Ok(this)
    }

    /// Makes the disk visible to user space and reads its partition table. That needs IO: the
    /// transport must work, and the caller must not hold a lock that IO needs.
    ///
    /// Called once; a further call returns `EBUSY`. Other errors are those of `device_add_disk`
    /// (name or number in use, no memory); the disk can then only be dropped.
    pub fn add(&self) -> Result {
        if self
            .state
            .compare_exchange(STATE_NEW, STATE_BUSY, Acquire, Relaxed)
            .is_err()
        {
            return Err(EBUSY);
        }
        let none = core::ptr::null_mut();
        let groups = match self.fops().naa() {
            0 => core::ptr::null_mut(),
            _ => wwid::groups(),
        };
        // SAFETY: By the type invariant the disk is complete and was not added; the state keeps
        // other threads from adding it. The attributes are static, and fit the operations of the
        // disk.
        to_result(unsafe { bindings::device_add_disk(none, self.as_raw(), groups) })?;
        // INVARIANT: The disk has been added.
        self.state.store(STATE_LIVE, Release);
        Ok(())
    }

    /// Removes the disk: writes back dirty data if possible, removes its files, waits for all
    /// requests in flight, and fails new ones. Users that have it open get errors from now on.
    ///
    /// Waits until the driver has ended its requests. Unquiesces a disk that was
    /// [quiesced](Self::quiesce): its requests reach the driver, which has to end them. After the
    /// return no function of the driver runs for the disk any more. Does nothing if the disk was
    /// not added or is being removed already.
    pub fn remove(&self) {
        self.unquiesce();
        let gate = self.gate.lock();
        let is_ours = self
            .state
            .compare_exchange(STATE_LIVE, STATE_BUSY, Acquire, Relaxed)
            .is_ok();
        // No event is sent from here on.
        drop(gate);
        if is_ours {
            // SAFETY: By the type invariants, the disk is added; the state excludes a concurrent
            // deletion.
            unsafe { bindings::del_gendisk(self.as_raw()) };
            // Every request has ended, but the driver's call that dispatched the last one may not
            // have returned yet. It runs under RCU.
            // SAFETY: The caller holds no lock that an RCU reader could take.
            unsafe { bindings::synchronize_rcu() };
            // INVARIANT: The disk has been deleted.
            self.state.store(STATE_GONE, Release);
        }
    }

    /// Returns whether user space sees the disk. Any context.
    pub fn is_live(&self) -> bool {
        self.state.load(Acquire) == STATE_LIVE
    }

    /// Makes opens of the disk fail from now on (`ENXIO`). Existing and concurrent opens keep it.
    /// Any context.
    pub fn forbid_open(&self) {
        self.fops().set_closed(true);
    }

    /// Makes opens of the disk fail from now on, if the disk is not open. No open can succeed
    /// between the check and a subsequent removal.
    ///
    /// Returns `EBUSY` and changes nothing if the disk is open, or if a task opens, closes or scans
    /// it now. Does not wait for that task, which may be waiting for IO.
    pub fn forbid_open_if_idle(&self) -> Result {
        let _guard = OpenMutex::try_lock(self).ok_or(EBUSY)?;
        if self.open_count() != 0 {
            return Err(EBUSY);
        }
        self.fops().set_closed(true);
        Ok(())
    }

    /// Permits opens again. Any context.
    pub fn allow_open(&self) {
        self.fops().set_closed(false);
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

    /// Returns the size in sectors. Any context.
    pub fn capacity_sectors(&self) -> u64 {
        // SAFETY: As in `open_count`; the field is one word.
        unsafe { core::ptr::read_volatile(&raw const (*(*self.as_raw()).part0).bd_nr_sectors) }
    }

    /// Sets the size. With `notify`, sends an event with `RESIZE=1` to user space if both sizes are
    /// not 0. Returns whether the size has changed.
    ///
    /// Returns `EINVAL` beyond [`CAPACITY_SECTORS_MAX`].
    pub fn set_capacity(&self, sectors: u64, notify: bool) -> Result<bool> {
        if sectors > CAPACITY_SECTORS_MAX {
            return Err(EINVAL);
        }
        let changed = self.capacity_sectors() != sectors;
        let _gate = self.gate.lock();
        if notify && self.is_live() {
            // SAFETY: By the type invariants, the disk is live, and stays so while the gate is
            // locked; the function locks the size.
            unsafe { bindings::set_capacity_and_notify(self.as_raw(), sectors) };
        } else {
            // SAFETY: As above.
            unsafe { bindings::set_capacity(self.as_raw(), sectors) };
        }
        Ok(changed)
    }

    /// Changes the NAA identifier of the disk. Any context; user space reads it after a
    /// [`Uevent::Change`]. A disk without an identifier at its addition shows none in sysfs.
    pub fn set_naa(&self, naa: Option<u64>) {
        self.fops().set_naa(naa.unwrap_or(0));
    }

    /// Makes the disk read-only or writable, and sends an event to user space (`DISK_RO=1`).
    pub fn set_read_only(&self, read_only: bool) {
        // SAFETY: By the type invariants, the disk lives.
        unsafe { bindings::set_disk_ro(self.as_raw(), read_only) };
    }

    /// Sends an event about the disk to user space; an error is ignored.
    pub fn uevent(&self, event: Uevent) {
        let action = match event {
            Uevent::Change => bindings::kobject_action_KOBJ_CHANGE,
            Uevent::Online => bindings::kobject_action_KOBJ_ONLINE,
            Uevent::Offline => bindings::kobject_action_KOBJ_OFFLINE,
        };
        let _gate = self.gate.lock();
        if self.is_live() {
            // SAFETY: The kobject of a disk lives as long as the disk. It is in sysfs and keeps its
            // parents until the disk is deleted, which does not start while the gate is locked.
            unsafe { bindings::kobject_uevent(self.as_kobject(), action) };
        }
    }

    /// Quiesces the queue until [`Self::unquiesce`]: new requests wait, and requests that the
    /// driver requeues by [`Request::requeue_later`](super::mq::Request::requeue_later) as well.
    /// Waits until no call of [`Operations::queue_rq`] for the disk is running.
    ///
    /// A second call has no effect; the calls are not counted.
    pub fn quiesce(&self) {
        if self.held.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
            // SAFETY: By the type invariants, the disk has a queue.
            unsafe { bindings::blk_mq_quiesce_queue((*self.as_raw()).queue) };
        }
    }

    /// Unquiesces the queue: waiting requests go to the driver. Any context, but not concurrently
    /// with [`Self::quiesce`].
    pub fn unquiesce(&self) {
        if self.held.compare_exchange(1, 0, Release, Relaxed).is_ok() {
            // SAFETY: By the type invariants, the disk has a queue, and `quiesce` has quiesced it.
            unsafe { bindings::blk_mq_unquiesce_queue((*self.as_raw()).queue) };
            // SAFETY: As above; requeued requests wait on a separate list.
            unsafe { bindings::blk_mq_kick_requeue_list((*self.as_raw()).queue) };
        }
    }

    fn fops(&self) -> &DiskFops {
        // SAFETY: By the type invariants, the operations are a `DiskFops`, which lives at least as
        // long as the disk.
        unsafe { &*(*self.as_raw()).fops.cast::<DiskFops>() }
    }

    fn as_raw(&self) -> *mut bindings::gendisk {
        self.raw.as_ptr()
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
        self.remove();
        let was_added = *self.state.get_mut() == STATE_GONE;
        let fops = self.fops() as *const DiskFops;
        let freed = was_added.then(|| self.fops().outlive_driver()).flatten();
        // SAFETY: The disk was not added, or was just deleted; `self` owns the reference of its
        // allocation.
        unsafe { bindings::put_disk(self.as_raw()) };
        if !was_added {
            // SAFETY: The block layer frees (by `free_disk`) only the operations of disks that were
            // added; no other reference to these exists.
            unsafe { DiskFops::free(fops) };
        }
        if let Some(freed) = freed {
            freed.wait();
        }
    }
}

// SAFETY: The kobject is that of the disk's device, which lives as long as the disk.
unsafe impl AsKobject for GenDisk {
    fn as_kobject(&self) -> *mut bindings::kobject {
        // SAFETY: By the type invariants, the disk and its whole-disk device live.
        unsafe { &raw mut (*(*self.as_raw()).part0).bd_device.kobj }
    }
}

/// The lock under which the block layer opens and closes a disk.
struct OpenMutex<'a>(&'a GenDisk);

impl<'a> OpenMutex<'a> {
    fn try_lock(disk: &'a GenDisk) -> Option<Self> {
        // SAFETY: The mutex of a disk is initialized when it is allocated.
        let locked = unsafe { bindings::mutex_trylock(&raw mut (*disk.as_raw()).open_mutex) };
        (locked != 0).then_some(OpenMutex(disk))
    }
}

impl Drop for OpenMutex<'_> {
    fn drop(&mut self) {
        // SAFETY: This task locked the mutex when it created this guard.
        unsafe { bindings::mutex_unlock(&raw mut (*self.0.as_raw()).open_mutex) };
    }
}
