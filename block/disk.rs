// SPDX-License-Identifier: GPL-2.0

//! Disks that a module serves.
//!
//! C headers: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h),
//! [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h)

mod fops;
mod limits;

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

/// Largest disk in sectors (`BLK_DEV_MAX_SECTORS` in `block/blk.h`).
pub const CAPACITY_SECTORS_MAX: u64 = i64::MAX as u64 >> 9;

/// Device numbers below a major number of the driver's own.
#[derive(Clone, Copy)]
pub struct Minors<'a> {
    /// The major number; should outlive the disk.
    pub major: &'a Major,
    /// The number of the whole disk, below 2^20.
    pub first: u32,
    /// How many numbers the disk and its partitions have, 1 to 256; further partitions get
    /// numbers of the block layer.
    pub count: u32,
}

/// What a new disk is like.
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
}

/// Events about a disk for user space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uevent {
    /// Something about the disk has changed.
    Change,
    /// The disk answers again.
    Online,
    /// The disk does not answer for the time being.
    Offline,
}

/// A disk that requests of `T` are made for.
///
/// Dereferences to [`GenDisk`], which has all the operations. Dropping it removes the disk; see
/// [`GenDisk::remove`].
///
/// # Invariants
///
/// The disk's queue belongs to `set`, and its `queuedata` points to `queue`.
pub struct Disk<T: Operations> {
    // Dropped first: no request and no callback exists any more when the others go.
    disk: GenDisk,
    queue: Arc<T::Queue>,
    set: Arc<TagSet<T>>,
}

impl<T: Operations> Disk<T> {
    /// Makes a disk that nobody sees yet; [`GenDisk::add`] shows it.
    ///
    /// `module` is the module of the driver: it cannot be unloaded while the disk is open.
    /// `token` is dropped when nobody refers to the disk any more, which may be long after its
    /// removal: what must not be used again as long as somebody has the dead disk open, its number
    /// for one, belongs there. Its code must be that of `module`.
    ///
    /// Process context, may sleep. `EINVAL` if the name, the numbers, the size or the limits are
    /// out of range, the limits allow requests of more pieces than the requests of the set have
    /// entries for, or the token is of another module; `ENOMEM`.
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

    /// The driver's data of the disk.
    pub fn queue(&self) -> &Arc<T::Queue> {
        &self.queue
    }

    /// The tag set of the disk.
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

/// Made, not shown yet.
const STATE_NEW: u32 = 0;
/// Being shown or removed, or never shown because that failed.
const STATE_BUSY: u32 = 1;
/// User space sees it.
const STATE_LIVE: u32 = 2;
/// Removed.
const STATE_GONE: u32 = 3;

/// The operations of a [`Disk`].
///
/// All functions are called in process context and may sleep, unless they say otherwise.
///
/// # Invariants
///
/// `raw` is a disk with a queue of its own and operations made by [`DiskFops`]; it was added, and
/// not yet deleted, exactly while `state` is `STATE_LIVE`. `state` leaves `STATE_LIVE` only while
/// `gate` is locked.
pub struct GenDisk {
    raw: NonNull<bindings::gendisk>,
    state: AtomicU32,
    /// Held by who sends an event about the disk, and by who begins to remove it.
    gate: Pin<KBox<Mutex<()>>>,
    /// Whether [`GenDisk::hold`] has quiesced the queue: 0 or 1.
    held: AtomicU32,
}

// SAFETY: A disk is not tied to a task; the C functions called here lock what they need.
unsafe impl Send for GenDisk {}

// SAFETY: As for `Send`.
unsafe impl Sync for GenDisk {}

impl GenDisk {
    /// # Safety
    ///
    /// `set` and `data` live until the disk is dropped, and `data` is what the operations of the
    /// set expect as `queuedata`.
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
        // SAFETY: Just allocated, and nobody else knows the disk yet.
        let disk = unsafe { &mut *raw.as_ptr() };
        disk.fops = fops.into_raw();
        // INVARIANT: The operations are set, and the disk was not added.
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
        this.set_capacity(config.capacity_sectors, false)?;
        if config.read_only {
            this.set_read_only(true);
        }
        Ok(this)
    }

    /// Shows the disk to user space and reads its partition table, which takes IO: the transport
    /// must work, and no lock may be held that it needs.
    ///
    /// Once only: `EALREADY` is reported as `EBUSY` afterwards. Other errors are those of
    /// `device_add_disk` (name or number in use, no memory); the disk can then only be dropped.
    pub fn add(&self) -> Result {
        if self
            .state
            .compare_exchange(STATE_NEW, STATE_BUSY, Acquire, Relaxed)
            .is_err()
        {
            return Err(EBUSY);
        }
        let none = core::ptr::null_mut();
        // SAFETY: By the type invariant the disk is complete and was not added; nobody else adds
        // it because of the state.
        to_result(unsafe {
            bindings::device_add_disk(none, self.as_raw(), core::ptr::null_mut())
        })?;
        // INVARIANT: The disk has been added.
        self.state.store(STATE_LIVE, Release);
        Ok(())
    }

    /// Takes the disk away: writes back what it can, removes its files, waits for all requests in
    /// flight, and lets no new one in. Whoever has it open gets errors from now on.
    ///
    /// Waits for as long as the driver takes to end its requests, and lets a disk go that is
    /// [held](Self::hold): its requests reach the driver, which has to end them. When it returns,
    /// no function of the driver runs for the disk any more. Does nothing if the disk was not added
    /// or is being removed already.
    pub fn remove(&self) {
        self.let_go();
        let gate = self.gate.lock();
        let is_ours = self
            .state
            .compare_exchange(STATE_LIVE, STATE_BUSY, Acquire, Relaxed)
            .is_ok();
        // Nobody sends an event any more.
        drop(gate);
        if is_ours {
            // SAFETY: By the type invariant the disk is added, and nobody else deletes it because
            // of the state.
            unsafe { bindings::del_gendisk(self.as_raw()) };
            // Every request has ended, but the call of the driver that has dispatched the last one
            // may not have returned yet. It runs under RCU.
            // SAFETY: No lock is held that a reader could want.
            unsafe { bindings::synchronize_rcu() };
            // INVARIANT: The disk has been deleted.
            self.state.store(STATE_GONE, Release);
        }
    }

    /// Whether user space sees the disk. Any context.
    pub fn is_live(&self) -> bool {
        self.state.load(Acquire) == STATE_LIVE
    }

    /// Lets nobody open the disk from now on (`ENXIO`); who has it open, or is just opening it,
    /// keeps it. Any context.
    pub fn forbid_open(&self) {
        self.fops().set_closed(true);
    }

    /// Lets nobody open the disk from now on, if nobody has it open: no opener can slip in between
    /// the check and a removal that follows.
    ///
    /// `EBUSY`, and nothing changes, if somebody has it open, or opens, closes or scans it at this
    /// moment. Does not wait for those, who may be waiting for IO.
    pub fn forbid_open_if_idle(&self) -> Result {
        let _guard = OpenMutex::try_lock(self).ok_or(EBUSY)?;
        if self.open_count() != 0 {
            return Err(EBUSY);
        }
        self.fops().set_closed(true);
        Ok(())
    }

    /// Lets the disk be opened again after it was forbidden. Any context.
    pub fn allow_open(&self) {
        self.fops().set_closed(false);
    }

    /// How often the disk is open; every open partition counts once, however often it is open.
    /// Any context; may change at once.
    pub fn open_count(&self) -> u32 {
        // SAFETY: By the type invariant the disk lives, and its whole-disk device with it.
        let openers = unsafe { &raw mut (*(*self.as_raw()).part0).bd_openers.counter };
        // SAFETY: The counter is an aligned integer that others change by atomic operations.
        let openers = unsafe { lkmm::Atomic::from_ptr(openers) };
        openers.load(lkmm::Relaxed).unsigned_abs()
    }

    /// Size in sectors. Any context.
    pub fn capacity_sectors(&self) -> u64 {
        // SAFETY: As in `open_count`; the field is one word.
        unsafe { core::ptr::read_volatile(&raw const (*(*self.as_raw()).part0).bd_nr_sectors) }
    }

    /// Sets the size. With `notify`, user space is told by an event with `RESIZE=1` when both
    /// sizes are not 0. Returns whether the size has changed.
    ///
    /// `EINVAL` beyond [`CAPACITY_SECTORS_MAX`].
    pub fn set_capacity(&self, sectors: u64, notify: bool) -> Result<bool> {
        if sectors > CAPACITY_SECTORS_MAX {
            return Err(EINVAL);
        }
        let changed = self.capacity_sectors() != sectors;
        let _gate = self.gate.lock();
        if notify && self.is_live() {
            // SAFETY: By the type invariant the disk is live, and stays so while the gate is
            // locked; the function locks the size.
            unsafe { bindings::set_capacity_and_notify(self.as_raw(), sectors) };
        } else {
            // SAFETY: As above.
            unsafe { bindings::set_capacity(self.as_raw(), sectors) };
        }
        Ok(changed)
    }

    /// Makes the disk read-only or not; user space is told by an event (`DISK_RO=1`).
    pub fn set_read_only(&self, read_only: bool) {
        // SAFETY: By the type invariant the disk lives.
        unsafe { bindings::set_disk_ro(self.as_raw(), read_only) };
    }

    /// Sends an event about the disk to user space; the outcome does not matter to the disk.
    pub fn uevent(&self, event: Uevent) {
        let action = match event {
            Uevent::Change => bindings::kobject_action_KOBJ_CHANGE,
            Uevent::Online => bindings::kobject_action_KOBJ_ONLINE,
            Uevent::Offline => bindings::kobject_action_KOBJ_OFFLINE,
        };
        let _gate = self.gate.lock();
        if self.is_live() {
            // SAFETY: The object of a disk lives as long as the disk. It is in sysfs and keeps its
            // parents until the disk is deleted, which does not begin while the gate is locked.
            unsafe { bindings::kobject_uevent(self.as_kobject(), action) };
        }
    }

    /// Keeps requests from the driver until [`Self::let_go`]: those to come wait, those that the
    /// driver gives back by [`Request::requeue_later`](super::mq::Request::requeue_later) as well.
    /// Waits until no call of [`Operations::queue_rq`] for the disk is running.
    ///
    /// A second call changes nothing; holding is not counted.
    pub fn hold(&self) {
        if self.held.compare_exchange(0, 1, Acquire, Relaxed).is_ok() {
            // SAFETY: By the type invariant the disk has a queue.
            unsafe { bindings::blk_mq_quiesce_queue((*self.as_raw()).queue) };
        }
    }

    /// Takes [`Self::hold`] back: what has waited goes to the driver. Any context; not at the same
    /// time as `hold`.
    pub fn let_go(&self) {
        if self.held.compare_exchange(1, 0, Release, Relaxed).is_ok() {
            // SAFETY: By the type invariant the disk has a queue, and `hold` has quiesced it.
            unsafe { bindings::blk_mq_unquiesce_queue((*self.as_raw()).queue) };
            // SAFETY: As above; requests that were given back wait on a list of their own.
            unsafe { bindings::blk_mq_kick_requeue_list((*self.as_raw()).queue) };
        }
    }

    fn fops(&self) -> &DiskFops {
        // SAFETY: By the type invariant the operations are of that type; they live at least as
        // long as the disk.
        unsafe { &*(*self.as_raw()).fops.cast::<DiskFops>() }
    }

    fn as_raw(&self) -> *mut bindings::gendisk {
        self.raw.as_ptr()
    }
}

/// Checks what the block layer would answer with a kernel warning or not at all.
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
        // SAFETY: The disk was not added, or was deleted just now; this is the reference that its
        // allocation gave us.
        unsafe { bindings::put_disk(self.as_raw()) };
        if !was_added {
            // SAFETY: The block layer frees the operations (by `free_disk`) only of disks that
            // were added; nobody else knows those of this one.
            unsafe { DiskFops::free(fops) };
        }
        if let Some(freed) = freed {
            freed.wait();
        }
    }
}

// SAFETY: The object is the one of the disk's device, which lives as long as the disk.
unsafe impl AsKobject for GenDisk {
    fn as_kobject(&self) -> *mut bindings::kobject {
        // SAFETY: By the type invariant the disk and its whole-disk device live.
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
        // SAFETY: Locked when this guard was made, by this task.
        unsafe { bindings::mutex_unlock(&raw mut (*self.0.as_raw()).open_mutex) };
    }
}
