// SPDX-License-Identifier: GPL-2.0

//! A mount: the super block and its operations.
//!
//! C header: [`include/linux/fs.h`](srctree/include/linux/fs.h)

use super::{
    file_system::Type,
    inode::Slot,
    mounted::Mounted,
    namei,
    read,
    FileSystem,
    Inode,
    NAME_BYTES_MAX, //
};
use core::{
    marker::PhantomData,
    ptr, //
};
use kernel::{
    bindings,
    error::{
        from_result,
        to_result, //
    },
    fmt,
    prelude::*,
    seq_file::SeqFile,
    str::{
        CStr,
        CString, //
    },
    sync::{
        Arc,
        ArcBorrow, //
    },
    types::Opaque, //
};
use kernel_ext::sync::synchronize_rcu;
use vfs_ext_sys as raw;

/// A mount of the file system `T`.
///
/// # Invariants
///
/// `raw` is a super block of `T`, whose `s_fs_info` comes from `Mounted::<T>::into_raw`.
#[repr(transparent)]
pub struct SuperBlock<T: FileSystem> {
    raw: Opaque<bindings::super_block>,
    _type: PhantomData<T>,
}

// SAFETY: The C functions take the super block's locks, and the data is `Send + Sync`.
unsafe impl<T: FileSystem> Sync for SuperBlock<T> {}

impl<T: FileSystem> SuperBlock<T> {
    /// # Safety
    ///
    /// The caller must ensure that `raw` is a super block that satisfies the type invariants during
    /// `'a`.
    pub(super) unsafe fn from_raw<'a>(raw: *mut bindings::super_block) -> &'a Self {
        // SAFETY: By the function requirements; the representations are the same.
        unsafe { &*raw.cast() }
    }

    pub(super) fn as_raw(&self) -> *mut bindings::super_block {
        self.raw.get()
    }

    /// Returns the minor number of the mount's device, which has the major number 0: `stat(2)`
    /// shows both for each file, and `/proc/self/mountinfo` for the mount.
    pub fn device_minor(&self) -> u32 {
        // SAFETY: By the type invariants, this is a super block; its number does not change.
        unsafe { raw::vfs_ext_helper_super_minor(self.as_raw()) }
    }

    /// Returns the data of the mount.
    pub fn data(&self) -> ArcBorrow<'_, T::Super> {
        // SAFETY: By the type invariants, the field comes from `into_raw`; it is changed when the
        // super block is gone.
        unsafe { Mounted::<T>::borrow((*self.as_raw()).s_fs_info) }.data()
    }
}

/// The statistics of a mount for `statfs(2)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The number of the file system, the same for each mount of it; not 0.
    pub id: u64,
    /// The bytes of a block, which the next three count; not 0.
    pub block_bytes: u32,
    /// The number of blocks.
    pub blocks: u64,
    /// The free ones.
    pub blocks_free: u64,
    /// The number of free blocks that users may have.
    pub blocks_available: u64,
    /// The number of inodes.
    pub files: u64,
    /// The free ones.
    pub files_free: u64,
}

/// The options of a mount in `/proc/mounts`.
pub struct ShownOptions<'a> {
    file: &'a mut bindings::seq_file,
}

impl ShownOptions<'_> {
    /// Shows an option without a value.
    pub fn flag(&mut self, name: &CStr) {
        self.show(name, ptr::null());
    }

    /// Shows an option with its value, in which what would be taken for another one is escaped.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if the allocation fails.
    pub fn value(&mut self, name: &CStr, value: fmt::Arguments<'_>) -> Result {
        let value = CString::try_from_fmt(value)?;
        self.show(name, value.as_char_ptr());
        Ok(())
    }

    /// Shows an option with a text as its value, as [`Self::value`] does.
    pub fn text(&mut self, name: &CStr, value: &CStr) {
        self.show(name, value.as_char_ptr());
    }

    /// Shows options as they are: each with a comma before it, and escaped.
    pub fn formatted(&mut self, options: fmt::Arguments<'_>) {
        // SAFETY: The file is that of a show, which only this value uses.
        unsafe { SeqFile::from_raw(self.file) }.call_printf(options);
    }

    fn show(&mut self, name: &CStr, value: *const c_char) {
        // SAFETY: The file is that of a show; both texts are strings, or there is no second one.
        unsafe { raw::vfs_ext_helper_show(self.file, name.as_char_ptr(), value) };
    }
}

/// Fills a new super block of `T`.
///
/// # Safety
///
/// The caller must ensure that `sb` is a super block of `T` that is new and locked.
pub(super) unsafe fn fill<T: FileSystem>(
    sb: *mut bindings::super_block,
    data: Arc<T::Super>,
) -> Result {
    // CAST: A number of pages on this architecture.
    let readahead_pages = T::readahead_pages(&data) as c_ulong;
    let dentry_ops = namei::DentryOps::<T>::get();
    let mounted = Mounted::<T>::new(data)?;
    // SAFETY: By the function requirements, the super block is not shared yet. From here on
    // `kill_sb` drops the data, as it is called after an error as well.
    unsafe {
        (*sb).s_op = &SuperOps::<T>::OPS;
        (*sb).s_magic = T::MAGIC as c_ulong;
        (*sb).s_fs_info = Mounted::into_raw(mounted);
        to_result(raw::vfs_ext_helper_super_setup(
            sb,
            dentry_ops,
            readahead_pages,
        ))?;
    }
    // SAFETY: The super block satisfies the type invariants now.
    let this = unsafe { SuperBlock::<T>::from_raw(sb) };
    let root = T::root(this)?.into_raw();
    // SAFETY: The function takes the reference to the inode, also when it fails.
    let root = unsafe { bindings::d_make_root(root) };
    if root.is_null() {
        return Err(ENOMEM);
    }
    // SAFETY: As above.
    unsafe { (*sb).s_root = root };
    if let Some(active_refs) = T::active_refs(&this.data()) {
        // SAFETY: The super block has its root. `kill_sb` closes `active_refs`.
        unsafe { active_refs.open(sb) };
    }
    Ok(())
}

/// The operations of a mount of `T`.
pub(super) struct SuperOps<T: FileSystem>(PhantomData<T>);

impl<T: FileSystem> SuperOps<T> {
    const OPS: bindings::super_operations = {
        // SAFETY: All zeroes is a valid value, without functions.
        let mut ops: bindings::super_operations = unsafe { core::mem::zeroed() };
        ops.alloc_inode = Some(Self::alloc_inode);
        ops.destroy_inode = Some(Self::destroy_inode);
        ops.free_inode = Some(Self::free_inode);
        ops.evict_inode = Some(Self::evict_inode);
        ops.statfs = Some(Self::statfs);
        ops.show_options = Some(Self::show_options);
        if T::HAS_UMOUNT_BEGIN {
            ops.umount_begin = Some(Self::umount_begin);
        }
        ops
    };

    /// Ends a mount: requests first, then inodes, the data of the mount last.
    ///
    /// # Safety
    ///
    /// Must only be called by the VFS, with a super block of `T` without users.
    pub(super) unsafe extern "C" fn kill_sb(sb: *mut bindings::super_block) {
        // SAFETY: By the function requirements.
        let mounted = unsafe { (*sb).s_fs_info };
        if !mounted.is_null() {
            // SAFETY: What is not null comes from `into_raw` in `fill`, and is taken back below.
            let mounted = unsafe { Mounted::<T>::borrow(mounted) };
            // First: a thread with a reference may evict an inode, whose reads are ended by this.
            T::ending(&mounted.data());
            if let Some(active_refs) = T::active_refs(&mounted.data()) {
                active_refs.close();
            }
            mounted.await_requests();
        }
        // SAFETY: By the function requirements. No request has a reference to an inode any more,
        // and none begins, as no file is open: each inode is evicted here.
        unsafe { bindings::kill_anon_super(sb) };
        // SAFETY: By the function requirements, no other task has a reference to the super block.
        let mounted = unsafe { (*sb).s_fs_info };
        if !mounted.is_null() {
            // SAFETY: As above; path walks under RCU may read it.
            unsafe { (&raw mut (*sb).s_fs_info).write_volatile(ptr::null_mut()) };
            synchronize_rcu();
            // SAFETY: What is not null comes from `into_raw` in `fill`, and is taken back once.
            drop(unsafe { Mounted::<T>::from_raw(mounted) });
        }
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with a super block of `T`.
    unsafe extern "C" fn alloc_inode(sb: *mut bindings::super_block) -> *mut bindings::inode {
        // SAFETY: By the function requirements, the type is that of a `Registration<T>`.
        let cache = unsafe { (*(*sb).s_type.cast::<Type>()).cache() };
        // SAFETY: As above: the cache has slots of `T`.
        unsafe { Slot::<T>::alloc(cache, sb, read::RequestOps::<T>::get()) }.cast()
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with an inode of `T` without users.
    unsafe extern "C" fn destroy_inode(inode: *mut bindings::inode) {
        // SAFETY: By the function requirements, nothing refers to the data of the inode: path walks
        // under RCU do not look at it.
        unsafe { Slot::<T>::destroy(inode.cast()) };
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, a grace period of RCU after `destroy_inode`.
    unsafe extern "C" fn free_inode(inode: *mut bindings::inode) {
        // SAFETY: By the function requirements.
        unsafe { Slot::<T>::free(inode.cast()) };
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with an inode of `T` without users.
    unsafe extern "C" fn evict_inode(inode: *mut bindings::inode) {
        // SAFETY: By the function requirements.
        unsafe { raw::vfs_ext_helper_inode_evict(inode) };
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with a dentry of a mount of `T`.
    unsafe extern "C" fn statfs(
        dentry: *mut bindings::dentry,
        to: *mut bindings::kstatfs,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the function requirements, the dentry keeps its super block.
            let sb = unsafe { SuperBlock::<T>::from_raw((*dentry).d_sb) };
            let found = T::statistics(sb)?;
            // SAFETY: By the function requirements, C passes a value to write to.
            let to = unsafe { &mut *to.cast::<raw::kstatfs>() };
            // CAST: From 32 bits to 64.
            to.f_type = T::MAGIC as c_long;
            // CAST: The halves, as C has them.
            to.f_fsid.val = [found.id as c_int, (found.id >> 32) as c_int];
            to.f_bsize = found.block_bytes.max(1) as c_long;
            to.f_frsize = to.f_bsize;
            to.f_blocks = found.blocks;
            to.f_bfree = found.blocks_free;
            to.f_bavail = found.blocks_available;
            to.f_files = found.files;
            to.f_ffree = found.files_free;
            // CAST: The constant is 255.
            to.f_namelen = NAME_BYTES_MAX as c_long;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with the root of a mount of `T`.
    unsafe extern "C" fn show_options(
        file: *mut bindings::seq_file,
        root: *mut bindings::dentry,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the function requirements, the dentry keeps its super block.
            let sb = unsafe { SuperBlock::<T>::from_raw((*root).d_sb) };
            // SAFETY: By the function requirements, only this call uses the file.
            let file = unsafe { &mut *file };
            let mut shown = ShownOptions { file };
            T::show_options(sb, &mut shown)?;
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with a mounted super block of `T`.
    unsafe extern "C" fn umount_begin(sb: *mut bindings::super_block) {
        // SAFETY: By the function requirements.
        T::umount_begin(unsafe { SuperBlock::from_raw(sb) });
    }
}

impl<T: FileSystem> Inode<T> {
    /// Returns the mount of the inode.
    pub fn super_block(&self) -> &SuperBlock<T> {
        // SAFETY: The super block of an inode of `T` is one of `T`, and outlives the inode.
        unsafe { SuperBlock::from_raw((*self.as_raw()).i_sb) }
    }
}
