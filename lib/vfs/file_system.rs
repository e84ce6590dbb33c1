// SPDX-License-Identifier: GPL-2.0

//! The trait of a file system, and its registration with the kernel.
//!
//! C header: [`include/linux/fs.h`](srctree/include/linux/fs.h)

use super::{
    context::ContextOps,
    inode::Cache,
    super_block::SuperOps,
    Access,
    ActiveRefs,
    Entries,
    Freshness,
    Inode,
    InodeRef,
    Judge,
    Met,
    MountContext,
    Name,
    OpenedName,
    OptionError,
    ShownOptions,
    Statistics,
    Subrequest,
    SuperBlock,
    Validity, //
};
use core::marker::PhantomData;
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    str::CStr,
    sync::{
        Arc,
        ArcBorrow, //
    },
    types::Opaque, //
};
use kernel_ext::sysfs::check_owner;

/// A network file system that is read and not written.
///
/// Functions run in the task that asks, in process context, and may sleep, if not said otherwise.
/// What they allocate should not wait for the file system's own IO in reclaim.
///
/// An unmount ends the parts of a mount in this order: open files and directories; references
/// through its [`ActiveRefs`]; requests; inodes; the reference to the data of the mount. Path walks
/// under RCU come to [`holds`](Self::holds) and [`judge`](Self::judge) only.
#[vtable]
pub trait FileSystem: Sized + Send + Sync + 'static {
    /// The name of the type, the argument of `mount -t`; no dots.
    const NAME: &'static CStr;

    /// The number of the type in `statfs(2)`.
    const MAGIC: u32;

    /// The options of a mount while they are collected.
    type Options: Default + Send;

    /// The data of a mount.
    type Super: Send + Sync + 'static;

    /// The data of an inode. It is dropped by any task that reclaims memory, so its drop should not
    /// wait for the network.
    type Inode: Send + Sync + 'static;

    /// The data of an open regular file. Requests keep it after the file is closed.
    type File: Send + Sync + 'static;

    /// The data of an open directory.
    type Directory: Send + Sync + 'static;

    /// Takes one option; without a value if it is a flag.
    fn set_option(
        context: &MountContext<'_>,
        options: &mut Self::Options,
        name: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), OptionError>;

    /// Makes the data of a mount, with the options of its user.
    fn mount(context: &MountContext<'_>, options: Self::Options) -> Result<Arc<Self::Super>>;

    /// Returns the root of a new mount.
    fn root(sb: &SuperBlock<Self>) -> Result<InodeRef<'_, Self>>;

    /// Changes a mount: `options` are those of `mount -o remount`.
    fn reconfigure(
        _sb: &SuperBlock<Self>,
        _context: &MountContext<'_>,
        _options: Self::Options,
    ) -> Result {
        Err(EINVAL)
    }

    /// Returns the active references to the mount, if other threads need them. The same value each
    /// time.
    fn active_refs(_data: &Self::Super) -> Option<&ActiveRefs<Self>> {
        None
    }

    /// Returns how many pages are read ahead at most, when a mount is made.
    fn readahead_pages(data: &Self::Super) -> u32;

    /// Returns what `statfs(2)` shows.
    fn statistics(sb: &SuperBlock<Self>) -> Result<Statistics>;

    /// Shows the options that are in force.
    fn show_options(_sb: &SuperBlock<Self>, _shown: &mut ShownOptions<'_>) -> Result {
        Ok(())
    }

    /// Makes requests fail, as `umount -f` asks. The mount may stay: another task may be in it.
    fn umount_begin(_sb: &SuperBlock<Self>) {
        build_error!(kernel::error::VTABLE_DEFAULT_ERROR)
    }

    /// Called when a mount ends, before the reads are awaited that are under way. Sleeps.
    fn ending(_data: &Self::Super) {}

    /// Looks up a name that the kernel does not know; `None` if there is no such entry, which the
    /// kernel remembers too.
    fn lookup<'a>(dir: &'a Inode<Self>, name: &[u8]) -> Result<Option<InodeRef<'a, Self>>>;

    /// Returns whether what the kernel remembers of a name still holds. Without this function it
    /// always does.
    fn revalidate(_dir: &Inode<Self>, _name: &Name<'_, Self>) -> Result<Validity> {
        build_error!(kernel::error::VTABLE_DEFAULT_ERROR)
    }

    /// Returns whether a name is taken to hold that a path walk meets under RCU. If not, it comes
    /// again to [`revalidate`](Self::revalidate). Does not sleep.
    fn holds(_mount: &Self::Super, _name: &Met) -> bool {
        false
    }

    /// Returns by what is decided whether a task of `user` may walk through a directory under RCU,
    /// whose attributes were told `age_ms` ago. If `None`, or the directory refuses it, the walk
    /// comes again to [`permission`](Self::permission). Does not sleep.
    fn judge(_mount: &Self::Super, _user: u32, _age_ms: u64) -> Option<Judge> {
        None
    }

    /// Refreshes the attributes of an inode before they are shown or permissions are checked, if
    /// they are too old. Returns whether the server was asked.
    fn refresh(_inode: &Inode<Self>, _freshness: Freshness) -> Result<bool> {
        Ok(false)
    }

    /// Returns by what is decided whether the current task may use the inode like this, or an error
    /// if it may not in any case.
    fn permission(_inode: &Inode<Self>, _access: Access) -> Result<Judge> {
        Ok(Judge::Attributes)
    }

    /// Returns the target of a symbolic link: 1 to 4095 bytes without NUL.
    fn read_link(inode: &Inode<Self>) -> Result<KVec<u8>>;

    /// Opens a directory.
    fn open_directory(inode: &Inode<Self>) -> Result<Self::Directory>;

    /// Emits the entries from [`Entries::position`] on, as long as there is room.
    fn read_directory(
        inode: &Inode<Self>,
        directory: &Self::Directory,
        entries: &mut Entries<'_, Self>,
    ) -> Result;

    /// Opens a regular file for reading, by this name. After `ESTALE` the path is walked once more,
    /// and each name on it is [revalidated](Self::revalidate).
    ///
    /// The VFS checks the opening task before the call by attributes of any age, and after it by
    /// those that the call has [set](Inode::set_attributes), as it asks the server.
    fn open(inode: &Inode<Self>, name: &OpenedName<'_, Self>) -> Result<Arc<Self::File>>;

    /// Called when a task is about to read from an open file, before it locks a page: what was
    /// found to be out of date can be dropped here ([`Inode::drop_cached_data`]).
    ///
    /// Page faults of a mapping do not come here.
    fn before_read(_inode: &Inode<Self>, _file: ArcBorrow<'_, Self::File>) -> Result {
        build_error!(kernel::error::VTABLE_DEFAULT_ERROR)
    }

    /// Returns the data of the open file on whose behalf a request reads. The kernel may read
    /// without an open file, into the page cache.
    fn file_of_request(
        _inode: &Inode<Self>,
        open: Option<ArcBorrow<'_, Self::File>>,
    ) -> Result<Arc<Self::File>> {
        open.map(Into::into).ok_or(EIO)
    }

    /// Returns the bytes that one subrequest reads at most. Less than a page counts as a page.
    fn read_bytes_max(file: &Self::File) -> u32;

    /// Reads a part of a file: now, or later in another thread.
    ///
    /// Called by tasks and by workers; several may run at a time for one file.
    fn read(subrequest: Subrequest<Self>);
}

/// The type of a file system for C, and the cache of its inodes.
#[repr(C)]
pub(super) struct Type {
    raw: bindings::file_system_type,
    cache: Cache,
}

impl Type {
    /// Calls `what` for each key that lockdep has for the locks of the file system.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `this` is valid.
    unsafe fn for_each_key(this: *mut Self, mut what: impl FnMut(*mut bindings::lock_class_key)) {
        // SAFETY: By the function requirements.
        let (keys, levels) = unsafe {
            let raw = &raw mut (*this).raw;
            let keys = [
                &raw mut (*raw).s_lock_key,
                &raw mut (*raw).s_umount_key,
                &raw mut (*raw).s_vfs_rename_key,
                &raw mut (*raw).i_lock_key,
                &raw mut (*raw).i_mutex_key,
                &raw mut (*raw).invalidate_lock_key,
                &raw mut (*raw).i_mutex_dir_key,
            ];
            (keys, &mut (*raw).s_writers_key)
        };
        keys.into_iter().for_each(&mut what);
        levels.iter_mut().for_each(|key| what(key));
    }

    pub(super) fn cache(&self) -> &Cache {
        &self.cache
    }
}

/// A file system that can be mounted. Dropping it ends that.
///
/// # Invariants
///
/// `kind` is registered, and so are its keys of lockdep, which are on the heap therefore: lockdep
/// wants no others registered.
pub struct Registration<T: FileSystem> {
    kind: Pin<KBox<Opaque<Type>>>,
    _type: PhantomData<T>,
}

// SAFETY: A registration is not tied to a thread.
unsafe impl<T: FileSystem> Send for Registration<T> {}
// SAFETY: A shared reference gives no access.
unsafe impl<T: FileSystem> Sync for Registration<T> {}

impl<T: FileSystem> Registration<T> {
    /// Registers the file system, whose code is that of `module`. May sleep.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the code of `T` is not part of `module`, `EBUSY` if there is a file
    /// system of this name, `ENOMEM` if an allocation fails.
    pub fn new(module: &'static ThisModule) -> Result<Self> {
        // A mount keeps the module of its type: its code must be there.
        check_owner(module, ContextOps::<T>::init as usize)?;
        let mut kind = Type {
            raw: pin_init::zeroed(),
            cache: Cache::new::<T>()?,
        };
        kind.raw.name = T::NAME.as_char_ptr();
        kind.raw.owner = module.as_ptr();
        kind.raw.init_fs_context = Some(ContextOps::<T>::init);
        kind.raw.kill_sb = Some(SuperOps::<T>::kill_sb);
        let kind = KBox::into_pin(KBox::new(Opaque::new(kind), GFP_KERNEL)?);
        let registration = Self {
            kind,
            _type: PhantomData,
        };
        let kind = registration.kind.get();
        // INVARIANT: The keys are registered first; if the type cannot be, the drop that follows
        // unregisters them, and a type that C does not know is no harm to it.
        // SAFETY: The value is initialised, on the heap, and does not move while it is registered.
        unsafe {
            Type::for_each_key(kind, |key| bindings::lockdep_register_key(key));
            to_result(bindings::register_filesystem(&raw mut (*kind).raw))?;
        }
        Ok(registration)
    }
}

impl<T: FileSystem> Drop for Registration<T> {
    fn drop(&mut self) {
        let kind = self.kind.get();
        // Fails if it could not be registered.
        // SAFETY: The value is valid. No mount exists, as each keeps the module whose code has
        // registered it.
        unsafe { bindings::unregister_filesystem(&raw mut (*kind).raw) };
        // Two things of an unmounted file system may be left: inodes that wait for a grace period,
        // and requests that netfs frees in a worker. The worker lets the inode go, and with it the
        // unmount, before it calls `call_rcu`, whose callback reads the table of operations in this
        // module. The first line waits until no task is between the two, as none sleeps there.
        // SAFETY: This is process context, and no lock is held.
        unsafe {
            bindings::synchronize_rcu_tasks();
            bindings::rcu_barrier();
        }
        // SAFETY: By the type invariants, the keys are registered, and no lock has them any more.
        // Nothing else refers to the value, which is dropped once, here.
        unsafe {
            Type::for_each_key(kind, |key| bindings::lockdep_unregister_key(key));
            kind.drop_in_place();
        }
    }
}
