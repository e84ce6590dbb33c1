// SPDX-License-Identifier: GPL-2.0

//! Disks that a module provides.
//!
//! The type of a [`Disk`] says whether user space sees it. [`New`]: it does not yet.
//! [`Disk::add`] makes a [`Live`] one of it, and [`Disk::remove`] takes that away. What needs the
//! disk's folder in sysfs (its files, links to it, events) borrows a live disk, so the removal
//! cannot run at the same time. What any thread may do in any state (quiesce its queue, forbid its
//! opening, read its size) is done with a [`DiskRef`], which is counted.
//!
//! C headers: [`include/linux/blkdev.h`](srctree/include/linux/blkdev.h),
//! [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h)

mod fops;
mod gendisk;
mod holder;
mod limits;
mod quiesce;
mod wwid;

use super::{
    bdev::BlockDevice,
    limits::Limits,
    major::Major,
    mq::{
        Operations,
        TagSet, //
    }, //
};
use core::{
    marker::PhantomData,
    ops::Deref,
    ptr, //
};
pub(crate) use fops::drain;
pub use gendisk::GenDisk;
use kernel::{
    bindings,
    fmt,
    prelude::*,
    str::CStr,
    sync::Arc, //
};
use kernel_ext::{
    memory,
    sysfs::{
        AsKobject,
        HasFolder, //
    }, //
};
use quiesce::Quiesce;
pub use quiesce::Quiesced;

/// The size of the largest disk in sectors (`BLK_DEV_MAX_SECTORS` in `block/blk.h`).
pub const CAPACITY_SECTORS_MAX: u64 = i64::MAX as u64 >> 9;

/// The variables of an event, and the null behind them.
const VARIABLES_MAX: usize = 8;

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
    /// A property of the disk has changed.
    Change,
    /// The disk is available again.
    Online,
    /// The disk is temporarily unavailable.
    Offline,
}

/// The states of a [`Disk`].
pub trait State: private::Sealed {
    /// Whether user space sees the disk.
    const IS_LIVE: bool;
}

/// The state of a disk that was not added yet.
pub enum New {}

/// The state of a disk that was added.
pub enum Live {}

mod private {
    pub trait Sealed {}

    impl Sealed for super::New {}
    impl Sealed for super::Live {}
}

impl State for New {
    const IS_LIVE: bool = false;
}

impl State for Live {
    const IS_LIVE: bool = true;
}

/// A disk with requests of `T`, and its owner's right to add or to remove it.
///
/// Dereferences to [`DiskRef`], which has the operations of any state. Dropping a live disk removes
/// it; see [`Disk::remove`].
///
/// # Invariants
///
/// The disk was added, and its removal has not begun, exactly if `S` is [`Live`]. There is one
/// `Disk` for each [`Shared`]. The devices in `made_of` are linked to the disk, which is live then.
pub struct Disk<T: Operations, S: State = Live> {
    shared: DiskRef<T>,
    made_of: KVec<Arc<BlockDevice>>,
    _state: PhantomData<S>,
}

impl<T: Operations> Disk<T, New> {
    /// Allocates a disk.
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
        // SAFETY: The tag set and the data of the queue live as long as the disk, in the struct
        // below; the operations of the set expect `T::Queue` as the queue's data.
        let disk = unsafe { GenDisk::new(set.as_raw(), module, config, data, token) }?;
        // INVARIANT: Both were given to `GenDisk::new`.
        let shared = Shared {
            quiesce: KBox::pin_init(Quiesce::new(), GFP_KERNEL)?,
            disk,
            queue,
            set: set.clone(),
        };
        // INVARIANT: The disk is new, and so is `Shared`.
        Ok(Self {
            shared: DiskRef(Arc::new(shared, GFP_KERNEL)?),
            made_of: KVec::new(),
            _state: PhantomData,
        })
    }

    /// Makes the disk visible to user space, without its partitions: no IO is needed, and the
    /// driver can remove the disk while [`GenDisk::scan_partitions`] waits for IO.
    ///
    /// Errors are those of `device_add_disk` (name or number in use, no memory).
    pub fn add(self) -> Result<Disk<T>> {
        // SAFETY: By the type invariants, the disk was not added; this is done once, as the call
        // takes its owner.
        unsafe { self.shared.add() }?;
        // INVARIANT: The disk has been added, and `self`, which is dropped without effect, was the
        // one `Disk` of it.
        Ok(Disk {
            shared: (*self).clone(),
            made_of: KVec::new(),
            _state: PhantomData,
        })
    }
}

impl<T: Operations> Disk<T> {
    /// Removes the disk: writes back dirty data if possible, removes its files, waits for all
    /// requests in flight, and fails new ones. Users that have it open get errors from now on.
    ///
    /// Waits until the driver has ended its requests. Unquiesces the disk for good: its requests
    /// reach the driver, which has to end them. After the return no function of the driver runs for
    /// the disk any more. Sleeps.
    pub fn remove(self) {
        drop(self);
    }

    /// Sets the size, and sends an event with `RESIZE=1` to user space if both sizes are not 0.
    /// Returns whether the size has changed. Sleeps, but waits for no IO, as for
    /// [`uevent`](Self::uevent).
    ///
    /// Returns `EINVAL` beyond [`CAPACITY_SECTORS_MAX`].
    pub fn set_capacity_and_notify(&self, sectors: u64) -> Result<bool> {
        gendisk::check_capacity(sectors)?;
        let changed = self.capacity_sectors() != sectors;
        memory::without_io(|| {
            // SAFETY: By the type invariants, the disk is live, and stays so while `self` is
            // borrowed, as its kobject; the function locks the size.
            unsafe { bindings::set_capacity_and_notify(self.as_raw(), sectors) };
        });
        Ok(changed)
    }

    /// Sends an event about the disk to user space; an error is ignored. Sleeps, but its memory
    /// waits for no IO: that of this disk may wait for the caller.
    pub fn uevent(&self, event: Uevent) {
        self.uevent_with(event, &[None; 0]);
    }

    /// Sends an event as [`uevent`](Self::uevent) does, with variables of the form `NAME=value`.
    pub fn uevent_with<const N: usize>(&self, event: Uevent, variables: &[Option<&CStr>; N]) {
        const { assert!(N < VARIABLES_MAX, "the list ends with null") };
        let mut list = [ptr::null_mut(); VARIABLES_MAX];
        for (to, variable) in list.iter_mut().zip(variables.iter().flatten()) {
            // CAST: The function reads them only.
            *to = variable.as_char_ptr().cast_mut();
        }
        let action = match event {
            Uevent::Change => bindings::kobject_action_KOBJ_CHANGE,
            Uevent::Online => bindings::kobject_action_KOBJ_ONLINE,
            Uevent::Offline => bindings::kobject_action_KOBJ_OFFLINE,
        };
        memory::without_io(|| {
            // SAFETY: By the type invariants, the kobject of the disk is in sysfs, where it keeps
            // its parents, until the disk is removed, which borrows `self` exclusively. The list
            // ends with null, and it and its strings live until the call returns.
            unsafe { bindings::kobject_uevent_env(self.as_kobject(), action, list.as_mut_ptr()) };
        });
    }
}

impl<T: Operations, S: State> Deref for Disk<T, S> {
    type Target = DiskRef<T>;

    fn deref(&self) -> &DiskRef<T> {
        &self.shared
    }
}

impl<T: Operations, S: State> Drop for Disk<T, S> {
    fn drop(&mut self) {
        if S::IS_LIVE {
            self.unlink_all();
            self.shared.unquiesce_for_good();
            // SAFETY: By the type invariants, the disk is live, and this is the end of its only
            // owner.
            unsafe { self.shared.delete() };
        }
    }
}

// SAFETY: The kobject is that of the disk's device, which lives as long as the disk.
unsafe impl<T: Operations> AsKobject for Disk<T> {
    fn as_kobject(&self) -> *mut bindings::kobject {
        // SAFETY: The disk and its whole-disk device live.
        unsafe { &raw mut (*(*self.as_raw()).part0).bd_device.kobj }
    }
}

// SAFETY: By the type invariants, the disk was added; only the drop removes it.
unsafe impl<T: Operations> HasFolder for Disk<T> {}

/// A disk in any state, and what its requests refer to.
///
/// # Invariants
///
/// The disk's queue belongs to `set`, and its `queuedata` points to `queue`.
struct Shared<T: Operations> {
    // Fields are dropped in declaration order, so no request and no callback exists any more when
    // the others are dropped.
    disk: GenDisk,
    quiesce: Pin<KBox<Quiesce>>,
    queue: Arc<T::Queue>,
    set: Arc<TagSet<T>>,
}

/// A counted reference to a disk, which may be new, live or removed.
///
/// Dereferences to [`GenDisk`]. Dropping the last one frees the disk, unless it is open: process
/// context, sleeps.
pub struct DiskRef<T: Operations>(Arc<Shared<T>>);

impl<T: Operations> Clone for DiskRef<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: Operations> Deref for DiskRef<T> {
    type Target = GenDisk;

    fn deref(&self) -> &GenDisk {
        &self.0.disk
    }
}

impl<T: Operations> DiskRef<T> {
    /// Returns the driver's data of the disk.
    pub fn queue(&self) -> &Arc<T::Queue> {
        &self.0.queue
    }

    /// Returns the tag set of the disk.
    pub fn tag_set(&self) -> &Arc<TagSet<T>> {
        &self.0.set
    }

    /// Makes opens of the disk fail (`ENXIO`) as long as the result lives. Existing and concurrent
    /// opens keep it. Any context.
    pub fn forbid_open(&self) -> OpensForbidden<T> {
        self.forbid();
        // INVARIANT: It was counted just now.
        OpensForbidden(self.clone())
    }

    /// Makes opens fail as [`Self::forbid_open`] does, if the disk is not open. No open can succeed
    /// between the check and a subsequent removal.
    ///
    /// Returns `EBUSY` if the disk is open, or if a task opens, closes or scans it now. Does not
    /// wait for that task, which may be waiting for IO.
    pub fn forbid_open_if_idle(&self) -> Result<OpensForbidden<T>> {
        self.forbid_if_idle()?;
        // INVARIANT: It was counted just now.
        Ok(OpensForbidden(self.clone()))
    }
}

/// Opens of a disk fail as long as this lives.
///
/// # Invariants
///
/// It is one of those that [`GenDisk`] counts.
#[must_use = "opens are permitted again when it is dropped"]
pub struct OpensForbidden<T: Operations>(DiskRef<T>);

impl<T: Operations> Drop for OpensForbidden<T> {
    fn drop(&mut self) {
        self.0.permit();
    }
}
