// SPDX-License-Identifier: GPL-2.0

//! Inodes.
//!
//! An inode of a file system `T` is one object of a slab: that of the VFS, what netfs adds, a
//! [`Key`] and the data of `T`.
//!
//! C headers: [`include/linux/fs.h`](srctree/include/linux/fs.h),
//! [`include/linux/netfs.h`](srctree/include/linux/netfs.h)

use super::{
    file,
    namei,
    Attributes,
    FileSystem,
    Kind,
    SuperBlock, //
};
use core::{
    marker::PhantomData,
    mem::{
        size_of,
        MaybeUninit, //
    },
    ops::Deref,
    ptr,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    types::Opaque, //
};
use kernel_ext::{
    errno::ESTALE,
    sync::atomic::AtomicI32, //
};
use vfs_ext_sys as raw;

/// The identity of an inode in a mount. An inode of another key is another inode: it has its own
/// data in the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The number of the inode, also for user space.
    pub number: u64,
    /// Its generation.
    pub generation: u64,
}

impl Key {
    /// Returns the value by which the kernel's table finds the inode.
    fn hash(self) -> u64 {
        self.number ^ self.generation.rotate_left(32)
    }
}

/// The freshness that attributes must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The freshness for `stat(2)`.
    Default,
    /// The server is to be asked (`AT_STATX_FORCE_SYNC`).
    Forced,
    /// Any age is fresh (`AT_STATX_DONT_SYNC`).
    Any,
}

/// The judge of whether a task may do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judge {
    /// The kernel, by mode, owner and group, as they are known.
    Attributes,
    /// The server, which is asked by lookups, opens and listings on behalf of this task's user.
    /// A file that is not to be run by anyone is refused nevertheless.
    Server,
}

/// The access to an inode that a task wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Read a file, or the names of a directory.
    pub read: bool,
    /// Change it. The mount refuses this in any case.
    pub write: bool,
    /// Run a file, or look up names in a directory.
    pub execute: bool,
    /// The user of the task (`setfsuid(2)`), as the user namespace of the mount numbers it; -1 if
    /// it has no number there.
    pub user: u32,
}

impl Access {
    /// Returns what the bits of a mask of the VFS ask for, on behalf of the current task.
    pub(super) fn new<T: FileSystem>(inode: &Inode<T>, mask: c_int) -> Self {
        // CAST: The bits of a mask are positive.
        let bits = mask as u32;
        Self {
            read: bits & bindings::MAY_READ != 0,
            write: bits & bindings::MAY_WRITE != 0,
            execute: bits & bindings::MAY_EXEC != 0,
            // SAFETY: By the type invariants, this is an inode, which has a super block.
            user: unsafe { raw::vfs_ext_helper_fsuid((*inode.as_raw()).i_sb) },
        }
    }
}

/// The cache of the inodes of a file system.
///
/// # Invariants
///
/// `raw` is a slab cache that this value owns.
pub(super) struct Cache {
    raw: NonNull<bindings::kmem_cache>,
}

impl Cache {
    /// Creates a cache of slots of `T`.
    pub(super) fn new<T: FileSystem>() -> Result<Self> {
        let bytes = u32::try_from(size_of::<Slot<T>>()).map_err(|_| EINVAL)?;
        // SAFETY: The name is a string that lives as long as the code of `T`.
        let raw = unsafe { raw::vfs_ext_helper_cache_create(T::NAME.as_char_ptr(), bytes) };
        // INVARIANT: The cache was just created.
        Ok(Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
        })
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the cache is owned. Its slots have been freed, as a
        // registration waits for that.
        unsafe { bindings::kmem_cache_destroy(self.raw.as_ptr()) };
    }
}

/// The memory of an inode.
///
/// # Invariants
///
/// `cache` is where the slot comes from. If `is_ready` is set, `data` is initialised; both change
/// only while no other task knows the inode.
#[repr(C)]
pub(super) struct Slot<T: FileSystem> {
    inode: raw::vfs_ext_inode,
    cache: NonNull<bindings::kmem_cache>,
    key: Key,
    /// The error that [`Inode::read_error`] returns.
    read_error: AtomicI32,
    is_ready: bool,
    data: MaybeUninit<T::Inode>,
}

impl<T: FileSystem> Slot<T> {
    /// Allocates a slot for an inode that the VFS initialises.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `cache` was made for `T`, and that `sb` is one of `T`.
    pub(super) unsafe fn alloc(
        cache: &Cache,
        sb: *mut bindings::super_block,
        ops: &'static raw::netfs_request_ops,
    ) -> *mut Self {
        // SAFETY: By the function requirements.
        let slot = unsafe { raw::vfs_ext_helper_cache_alloc(cache.raw.as_ptr(), sb) };
        let slot = slot.cast::<Self>();
        if slot.is_null() {
            return slot;
        }
        // INVARIANT: The slot comes from `cache`, and has no data yet.
        // SAFETY: The slot has room for the fields, and is not shared. The VFS initialises the
        // inode after this call; that of netfs is initialised here.
        unsafe {
            (&raw mut (*slot).cache).write(cache.raw);
            (&raw mut (*slot).key).write(Key {
                number: 0,
                generation: 0,
            });
            (&raw mut (*slot).read_error).write(AtomicI32::new(0));
            (&raw mut (*slot).is_ready).write(false);
            raw::vfs_ext_helper_inode_init(&raw mut (*slot).inode, ops);
        }
        slot
    }

    /// Drops the data of an inode.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `slot` comes from [`Self::alloc`] and that nothing refers to its
    /// data.
    pub(super) unsafe fn destroy(slot: *mut Self) {
        // SAFETY: By the function requirements.
        unsafe {
            if ptr::replace(&raw mut (*slot).is_ready, false) {
                (*slot).data.assume_init_drop();
            }
        }
    }

    /// Frees a slot.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `slot` comes from [`Self::alloc`], that its data is dropped, and
    /// that nothing refers to it.
    pub(super) unsafe fn free(slot: *mut Self) {
        // SAFETY: By the type invariants, the slot comes from its cache.
        unsafe { bindings::kmem_cache_free((*slot).cache.as_ptr(), slot.cast()) };
    }
}

/// An inode of the file system `T`: a file, a directory or a link, of which the kernel knows.
///
/// # Invariants
///
/// `slot` is initialised, with its data, and at its begin is an inode with a reference.
#[repr(transparent)]
pub struct Inode<T: FileSystem> {
    slot: Opaque<Slot<T>>,
}

// SAFETY: The C functions take the inode's locks; the data is `Send + Sync`, and the key does not
// change.
unsafe impl<T: FileSystem> Sync for Inode<T> {}

impl<T: FileSystem> Inode<T> {
    /// # Safety
    ///
    /// The caller must ensure that `inode` is one of `T` that satisfies the type invariants during
    /// `'a`.
    pub(super) unsafe fn from_raw<'a>(inode: *mut bindings::inode) -> &'a Self {
        // SAFETY: By the function requirements. The inode is at the begin of the slot.
        unsafe { &*inode.cast() }
    }

    pub(super) fn as_raw(&self) -> *mut bindings::inode {
        self.slot.get().cast()
    }

    /// Returns the key of the inode.
    pub fn key(&self) -> Key {
        // SAFETY: By the type invariants, the slot is initialised; the key does not change.
        unsafe { (*self.slot.get()).key }
    }

    /// Returns the data of the inode.
    pub fn data(&self) -> &T::Inode {
        // SAFETY: By the type invariants, the data is initialised; it is dropped when nothing
        // refers to the inode.
        unsafe { (*self.slot.get()).data.assume_init_ref() }
    }

    /// Returns why the last part of the file could not be read that could not, as a negative
    /// number; 0: none.
    pub(super) fn read_error(&self) -> &AtomicI32 {
        // SAFETY: By the type invariants, the slot is initialised.
        unsafe { &(*self.slot.get()).read_error }
    }

    /// Returns its size in bytes, as the kernel knows it. Any context.
    pub fn size(&self) -> u64 {
        // SAFETY: By the type invariants, this is an inode.
        unsafe { raw::vfs_ext_helper_inode_size(self.as_raw()) }
    }

    /// Returns what it is.
    pub fn kind(&self) -> Kind {
        // SAFETY: By the type invariants, this is an inode; the bits of the kind do not change.
        let mode = unsafe { ptr::read_volatile(&raw const (*self.as_raw()).i_mode) };
        // An inode is made with one of the kinds.
        Kind::of_mode(mode).unwrap_or(Kind::Regular)
    }

    /// Removes the inode from the cache of inodes: the next one of this key is a new one. Tasks
    /// with a reference keep it, and it is freed with the last one. Does not sleep.
    pub fn unhash(&self) {
        // SAFETY: By the type invariants, this is an inode with a reference.
        unsafe { raw::vfs_ext_helper_inode_unhash(self.as_raw()) };
    }

    /// Changes what `stat(2)` shows, and the size up to which data is read. Its cached data stays:
    /// see [`Self::drop_cached_data`].
    ///
    /// # Errors
    ///
    /// Returns `ESTALE` if the inode is of another kind.
    pub fn set_attributes(&self, attributes: &Attributes) -> Result {
        if self.kind() != attributes.kind {
            return Err(ESTALE);
        }
        // SAFETY: By the type invariants, this is an inode.
        unsafe { raw::vfs_ext_helper_inode_set(self.as_raw(), &attributes.to_raw()) };
        Ok(())
    }

    /// Changes the size in bytes up to which data is read; what is cached stays, also behind a
    /// smaller one. A larger one needs [`Self::drop_cached_data`]. Any context but one that holds a
    /// lock with interrupts off.
    pub fn set_size(&self, size: u64) {
        let size = size.min(i64::MAX as u64);
        // SAFETY: By the type invariants, this is an inode.
        unsafe { raw::vfs_ext_helper_inode_set_size(self.as_raw(), size) };
    }

    /// Drops the data of a file from the page cache, unmaps it, and sets the size; the data is read
    /// again, up to that size, when it is used. Waits for reads that run. Sleeps, killable.
    ///
    /// Needed for a larger size in any case: a page that was read up to a smaller one ends with
    /// zeroes.
    ///
    /// # Errors
    ///
    /// Returns `EBUSY` if a page could not be dropped, because a task uses it, `EINTR` when the
    /// task is killed.
    pub fn drop_cached_data(&self, size: u64) -> Result {
        let size = size.min(i64::MAX as u64);
        // SAFETY: By the type invariants, this is an inode.
        to_result(unsafe { raw::vfs_ext_helper_inode_zap(self.as_raw(), size) })
    }
}

/// A reference to an inode, which cannot outlive the mount: an inode with a reference after an
/// unmount is one whose code and memory are gone.
///
/// # Invariants
///
/// `inode` is an inode of `T` of which this value owns a reference.
pub struct InodeRef<'a, T: FileSystem> {
    inode: NonNull<bindings::inode>,
    _mount: PhantomData<&'a SuperBlock<T>>,
}

impl<T: FileSystem> InodeRef<'_, T> {
    /// Passes the reference to the caller.
    pub(super) fn into_raw(self) -> *mut bindings::inode {
        let inode = self.inode.as_ptr();
        core::mem::forget(self);
        inode
    }
}

impl<T: FileSystem> Deref for InodeRef<'_, T> {
    type Target = Inode<T>;

    fn deref(&self) -> &Inode<T> {
        // SAFETY: By the type invariants, the inode is one of `T` with a reference.
        unsafe { Inode::from_raw(self.inode.as_ptr()) }
    }
}

impl<T: FileSystem> Drop for InodeRef<'_, T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the reference is owned; it is given back once, here.
        unsafe { bindings::iput(self.inode.as_ptr()) };
    }
}

impl<T: FileSystem> SuperBlock<T> {
    /// Returns the inode of this key. If the kernel does not know it, it is made with these
    /// attributes and the data that `data` makes; that of an inode that is known stays as it is.
    /// Sleeps, also until another task has made the same inode.
    ///
    /// # Errors
    ///
    /// Returns `ESTALE` if the kernel knows an inode of this key and of another kind, `ENOMEM` if
    /// an allocation fails, or the error of `data`.
    pub fn inode(
        &self,
        key: Key,
        attributes: &Attributes,
        data: impl FnOnce() -> Result<T::Inode>,
    ) -> Result<InodeRef<'_, T>> {
        let mut wanted = key;
        // SAFETY: By the type invariants, the super block is one of `T`; the functions get
        // `wanted`, during the call only.
        let inode = unsafe {
            bindings::iget5_locked(
                self.as_raw(),
                key.hash(),
                Some(is_same::<T>),
                Some(set_key::<T>),
                (&raw mut wanted).cast(),
            )
        };
        let inode = NonNull::new(inode).ok_or(ENOMEM)?;
        // SAFETY: The inode is valid.
        if unsafe { raw::vfs_ext_helper_inode_is_new(inode.as_ptr()) } {
            // SAFETY: The inode is new, and locked for this task.
            return unsafe { Self::make(inode, attributes, data) };
        }
        // INVARIANT: The call has taken a reference. The inode has been made, as it is not new.
        let inode = InodeRef {
            inode,
            _mount: PhantomData,
        };
        if inode.kind() != attributes.kind {
            return Err(ESTALE);
        }
        Ok(inode)
    }

    /// Returns the inode of this key if the kernel knows it, and it is neither being made nor being
    /// freed. Does not wait for anything; what the caller drops may be the last reference, and then
    /// its drop evicts the inode.
    pub fn find_inode(&self, key: Key) -> Option<InodeRef<'_, T>> {
        let mut wanted = key;
        // SAFETY: By the type invariants, the super block is one of `T`; the function gets
        // `wanted`, during the call only.
        let inode = unsafe {
            raw::vfs_ext_helper_inode_find(
                self.as_raw(),
                key.hash(),
                Some(is_same::<T>),
                (&raw mut wanted).cast(),
            )
        };
        // INVARIANT: The call has taken a reference to an inode that has been made.
        Some(InodeRef {
            inode: NonNull::new(inode)?,
            _mount: PhantomData,
        })
    }

    /// Makes a new inode.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `inode` is one of `T`, with a reference that it passes on, which
    /// is new and locked for this task.
    unsafe fn make<'a>(
        inode: NonNull<bindings::inode>,
        attributes: &Attributes,
        data: impl FnOnce() -> Result<T::Inode>,
    ) -> Result<InodeRef<'a, T>> {
        let raw = inode.as_ptr();
        let slot: *mut Slot<T> = raw.cast();
        let data = data().inspect_err(|_| {
            // SAFETY: The inode is new; the function gives the reference back.
            unsafe { bindings::iget_failed(raw) };
        })?;
        // INVARIANT: The data is initialised before the flag is set, and before another task can
        // use the inode.
        // SAFETY: By the function requirements, this task alone uses the slot and the inode.
        unsafe {
            (*slot).data.write(data);
            (*slot).is_ready = true;
            raw::vfs_ext_helper_inode_set(raw, &attributes.to_raw());
            namei::set_operations::<T>(raw, attributes.kind);
            if attributes.kind == Kind::Regular {
                file::set_operations::<T>(raw);
            }
            bindings::unlock_new_inode(raw);
        }
        // INVARIANT: The inode is made, and its reference is owned.
        Ok(InodeRef {
            inode,
            _mount: PhantomData,
        })
    }
}

/// # Safety
///
/// Must only be called by the VFS, with an inode of `T` and the key of [`SuperBlock::inode`].
unsafe extern "C" fn is_same<T: FileSystem>(
    inode: *mut bindings::inode,
    wanted: *mut c_void,
) -> c_int {
    let slot: *mut Slot<T> = inode.cast();
    // SAFETY: By the function requirements; the inode is in the table, and its key was set before.
    unsafe { ((*slot).key == *wanted.cast::<Key>()).into() }
}

/// # Safety
///
/// Must only be called by the VFS, with a new inode of `T` and the key of [`SuperBlock::inode`].
unsafe extern "C" fn set_key<T: FileSystem>(
    inode: *mut bindings::inode,
    wanted: *mut c_void,
) -> c_int {
    let slot: *mut Slot<T> = inode.cast();
    // SAFETY: By the function requirements; no other task knows the inode.
    unsafe {
        let key = *wanted.cast::<Key>();
        (*slot).key = key;
        (*inode).i_ino = key.number;
        // CAST: The lower half: the field is for the export of file handles.
        (*inode).i_generation = key.generation as u32;
    }
    0
}
