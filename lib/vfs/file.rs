// SPDX-License-Identifier: GPL-2.0

//! The operations of regular files: what reads goes through the page cache and netfs.
//!
//! C headers: [`include/linux/fs.h`](srctree/include/linux/fs.h),
//! [`include/linux/netfs.h`](srctree/include/linux/netfs.h)

use super::{
    direct_read::{
        self,
        subrequest_bytes, //
    },
    directory::{
        private_data,
        set_private_data, //
    },
    namei::may,
    opened_name::with_name,
    Access,
    FileSystem,
    Inode, //
};
use core::marker::PhantomData;
use kernel::{
    bindings,
    error::from_result,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    }, //
};
use kernel_ext::sync::atomic::Ordering;
use vfs_ext_sys as raw;

/// Sets the operations of a new regular file.
///
/// # Safety
///
/// The caller must ensure that `inode` is a new regular file of `T`, and not shared.
pub(super) unsafe fn set_operations<T: FileSystem>(inode: *mut bindings::inode) {
    // SAFETY: By the function requirements; an inode has a mapping.
    unsafe {
        (*inode).__bindgen_anon_3.i_fop = FileOps::<T>::get();
        (*(*inode).i_mapping).a_ops = FileOps::<T>::pages();
        raw::vfs_ext_helper_inode_large_folios(inode);
    }
}

/// The operations of an open regular file of `T`.
///
/// `private_data` of such a file comes from `Arc::<T::File>::into_raw`.
struct FileOps<T: FileSystem>(PhantomData<T>);

impl<T: FileSystem> FileOps<T> {
    /// The page cache of regular files: its pages are filled by netfs and not written back.
    const PAGES: bindings::address_space_operations = {
        // SAFETY: All zeroes is a valid value, without functions.
        let mut ops: bindings::address_space_operations = unsafe { core::mem::zeroed() };
        ops.read_folio = Some(Self::read_folio);
        ops.readahead = Some(raw::netfs_readahead);
        ops.dirty_folio = Some(raw::netfs_dirty_folio);
        ops.release_folio = Some(raw::netfs_release_folio);
        ops.invalidate_folio = Some(raw::netfs_invalidate_folio);
        #[cfg(CONFIG_MIGRATION)]
        {
            ops.migrate_folio = Some(bindings::filemap_migrate_folio);
        }
        // Says that O_DIRECT is possible; netfs does it without this function.
        ops.direct_IO = Some(bindings::noop_direct_IO);
        ops
    };

    fn pages() -> &'static bindings::address_space_operations {
        &Self::PAGES
    }

    const OPS: bindings::file_operations = {
        // SAFETY: All zeroes is a valid value, without functions.
        let mut ops: bindings::file_operations = unsafe { core::mem::zeroed() };
        ops.open = Some(Self::open);
        ops.release = Some(Self::release);
        ops.llseek = Some(bindings::generic_file_llseek);
        ops.read_iter = Some(Self::read_iter);
        ops.splice_read = Some(bindings::filemap_splice_read);
        if T::HAS_BEFORE_READ {
            ops.splice_read = Some(Self::splice_read);
        }
        ops.mmap_prepare = Some(raw::vfs_ext_helper_mmap_prepare);
        ops
    };

    fn get() -> &'static bindings::file_operations {
        &Self::OPS
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with a regular file of `T` and a file of it that is new.
    unsafe extern "C" fn open(inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        from_result(|| {
            // SAFETY: By the function requirements, the file keeps the inode and the dentry.
            let data = unsafe {
                let dentry = raw::vfs_ext_helper_file_dentry(file);
                with_name(dentry, |name| T::open(Inode::from_raw(inode), name))?
            };
            // SAFETY: As above.
            unsafe { Self::check(inode, file) }?;
            // SAFETY: By the function requirements, the file is not shared yet.
            unsafe { set_private_data(file, Arc::into_raw(data).cast_mut().cast()) };
            Ok(0)
        })
    }

    /// Checks once more what the VFS has checked before an open: it may have told other attributes.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `inode` is one of `T`, and `file` a file of it that is opened.
    unsafe fn check(inode: *mut bindings::inode, file: *mut bindings::file) -> Result {
        // SAFETY: By the function requirements.
        unsafe {
            let inode = Inode::<T>::from_raw(inode);
            let mask = raw::vfs_ext_helper_open_mask(file);
            let judge = T::permission(inode, Access::new(inode, mask))?;
            may(raw::vfs_ext_helper_file_idmap(file), inode, mask, judge)
        }
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with a file that `open` has seen, at its end.
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: By the function requirements, the field comes from `open`; the reference is taken
        // back once.
        drop(unsafe { Arc::<T::File>::from_raw(private_data(file).cast()) });
        0
    }

    /// # Safety
    ///
    /// The caller must ensure that `file` is one that `open` has seen, and which it keeps.
    unsafe fn before_read(file: *mut bindings::file) -> Result {
        // SAFETY: By the function requirements, the file keeps the inode, and its private data
        // comes from `open`.
        let (inode, data) = unsafe {
            (
                Inode::from_raw((*file).f_inode),
                ArcBorrow::from_raw(private_data(file).cast()),
            )
        };
        T::before_read(inode, data)
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with a read from a file that `open` has seen, and memory to
    /// write to.
    unsafe extern "C" fn read_iter(
        iocb: *mut bindings::kiocb,
        to: *mut bindings::iov_iter,
    ) -> isize {
        // A read that must not sleep (`IOCB_NOWAIT`) does not come: the files are not open for it.
        if T::HAS_BEFORE_READ {
            // SAFETY: By the function requirements, the read keeps its file.
            if let Err(error) = unsafe { Self::before_read((*iocb).ki_filp) } {
                // CAST: From 32 bits to 64.
                return error.to_errno() as isize;
            }
        }
        // SAFETY: By the function requirements; the private data of the file comes from `open`.
        unsafe {
            if !raw::vfs_ext_helper_is_direct(iocb, to) {
                raw::vfs_ext_helper_read_window((*iocb).ki_filp);
                return raw::netfs_file_read_iter(iocb, to);
            }
            let data = ArcBorrow::<T::File>::from_raw(private_data((*iocb).ki_filp).cast());
            // CAST: From 32 bits to 64.
            direct_read::read(iocb, to, subrequest_bytes::<T>(&data) as usize)
        }
    }

    /// Reads a folio, and waits, killable.
    ///
    /// # Safety
    ///
    /// Must only be called by the VFS, with a folio of a regular file of `T`, which is locked and
    /// not up to date, and a file of it that `open` has seen, or null.
    unsafe extern "C" fn read_folio(
        file: *mut bindings::file,
        folio: *mut bindings::folio,
    ) -> c_int {
        // SAFETY: By the function requirements; the caller keeps the inode.
        unsafe {
            let inode = Inode::<T>::from_raw(raw::vfs_ext_helper_folio_inode(folio));
            // That of an earlier read is not why this one fails.
            inode.read_error().store(0, Ordering::Relaxed);
            match raw::vfs_ext_helper_read_folio(file, folio) {
                1 => match inode.read_error().load(Ordering::Relaxed) {
                    0 => EIO.to_errno(),
                    error => error,
                },
                result => result,
            }
        }
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with a file that `open` has seen, and a pipe.
    unsafe extern "C" fn splice_read(
        file: *mut bindings::file,
        position: *mut bindings::loff_t,
        pipe: *mut bindings::pipe_inode_info,
        len: usize,
        flags: c_uint,
    ) -> isize {
        // SAFETY: By the function requirements, the caller keeps the file.
        match unsafe { Self::before_read(file) } {
            // SAFETY: By the function requirements.
            Ok(()) => unsafe {
                raw::vfs_ext_helper_read_window(file);
                bindings::filemap_splice_read(file, position, pipe, len, flags)
            },
            // CAST: From 32 bits to 64.
            Err(error) => error.to_errno() as isize,
        }
    }
}
