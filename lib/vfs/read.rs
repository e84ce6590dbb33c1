// SPDX-License-Identifier: GPL-2.0

//! Requests for data of a file.
//!
//! The kernel, or a task with O_DIRECT, asks netfs for a range of a file; netfs cuts it into
//! subrequests, and the file system reads each: [`FileSystem::read`] gets a [`Subrequest`], which
//! it may pass to a thread of its own. What a subrequest has not read and asks to have retried is
//! given out again, as a new [`Subrequest`] for the rest.
//!
//! A request has a reference to its inode, as no task may have one while a server owes the answer:
//! a task that drops the last one would wait in the eviction. An unmount waits for the end of each
//! request, before it evicts inodes.
//!
//! C header: [`include/linux/netfs.h`](srctree/include/linux/netfs.h)

pub mod lent;
pub mod partial;

use super::{
    direct_read::subrequest_bytes,
    directory::private_data,
    FileSystem,
    Inode, //
};
use core::{
    marker::PhantomData,
    mem::ManuallyDrop,
    ptr::NonNull, //
};
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
use net_ext::Destination;
use vfs_ext_sys as raw;

/// The end of a subrequest. Bytes that were written to its destination count in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The destination is full; or there is more to read, and netfs asks again if something was
    /// read, else the request fails with `ENODATA`.
    Read,
    /// The file ends here. The rest of the pages is cleared.
    EndOfFile,
    /// The rest is to be read again, by another subrequest. Without any byte read this is possible
    /// 255 times, and then an `EIO`.
    Retry,
    /// The request fails.
    Failed(Error),
}

/// A part of a file that is to be read, into pages that are locked for it.
///
/// It ends once: by [`Subrequest::end`], or with `EIO` when it is dropped.
///
/// # Invariants
///
/// `raw` is a subrequest of a file of `T` that netfs has given to this value and that has not
/// ended; only this value accesses its iterator. The request has an `Arc<T::File>`.
pub struct Subrequest<T: FileSystem> {
    raw: NonNull<raw::netfs_io_subrequest>,
    _type: PhantomData<T>,
}

// SAFETY: A subrequest is not tied to a thread: its iterator is one over pages or kernel memory,
// as netfs extracts the pages of a user's buffer.
unsafe impl<T: FileSystem> Send for Subrequest<T> {}

impl<T: FileSystem> Subrequest<T> {
    fn request(&self) -> *mut raw::netfs_io_request {
        // SAFETY: By the type invariants, the subrequest is valid.
        unsafe { raw::vfs_ext_helper_sreq_request(self.raw.as_ptr()) }
    }

    /// Returns the file that is read.
    pub fn inode(&self) -> &Inode<T> {
        // SAFETY: By the type invariants, the request exists, and has a reference to its inode.
        unsafe { Inode::from_raw(raw::vfs_ext_helper_request_inode(self.request())) }
    }

    /// Returns the data of the open file.
    pub fn file(&self) -> ArcBorrow<'_, T::File> {
        // SAFETY: By the type invariants, the request has it, until it is freed.
        unsafe { ArcBorrow::from_raw(raw::vfs_ext_helper_request_data(self.request()).cast()) }
    }

    /// Returns the position in the file of the next byte to read.
    pub fn position(&self) -> u64 {
        // SAFETY: By the type invariants, the subrequest is valid, and no other thread uses it.
        unsafe {
            let written = raw::vfs_ext_helper_sreq_fresh(self.raw.as_ptr());
            // CAST: From 64 bits to 64.
            raw::vfs_ext_helper_sreq_position(self.raw.as_ptr()).wrapping_add(written as u64)
        }
    }

    /// Returns the number of bytes to read.
    pub fn len(&self) -> usize {
        // SAFETY: By the type invariants, the subrequest is valid, and no other thread uses it.
        unsafe { raw::vfs_ext_helper_sreq_left(self.raw.as_ptr()) }
    }

    /// Returns whether there is nothing left to read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns how often this part of the file was tried before.
    pub fn retries(&self) -> u8 {
        // SAFETY: By the type invariants, the subrequest is valid.
        unsafe { raw::vfs_ext_helper_sreq_retries(self.raw.as_ptr()) }
    }

    /// Returns whether the pages are in the page cache afterwards: not those of a read with
    /// `O_DIRECT`.
    pub fn is_cached(&self) -> bool {
        // SAFETY: By the type invariants, the subrequest is valid.
        unsafe { raw::vfs_ext_helper_sreq_is_cached(self.raw.as_ptr()) }
    }

    /// Returns where the bytes go.
    pub fn destination(&mut self) -> Destination<'_> {
        // SAFETY: By the type invariants, the iterator is one to write to, not that of a user, and
        // only this value, which is borrowed, accesses it.
        unsafe {
            let iter = raw::vfs_ext_helper_sreq_iter(self.raw.as_ptr());
            Destination::from_raw(NonNull::new_unchecked(iter))
        }
    }

    /// Says that pages whose bytes have all been written may be given to their readers already.
    pub fn progress(&mut self) {
        // SAFETY: By the type invariants, the subrequest is valid, and no other thread uses it.
        unsafe { raw::vfs_ext_helper_sreq_progress(self.raw.as_ptr()) };
    }

    /// Forgets what has been written since the last [`Self::progress`]: it is written again.
    pub fn rewind(&mut self) {
        // SAFETY: By the type invariants, the subrequest is valid, and only this value, which is
        // borrowed, accesses its iterator.
        unsafe { raw::vfs_ext_helper_sreq_rewind(self.raw.as_ptr()) };
    }

    /// Ends the subrequest. May sleep, in netfs.
    pub fn end(self, end: End) {
        match end {
            // Of a task that was killed: no other one is told that.
            End::Failed(ERESTARTSYS) => {}
            End::Failed(error) => {
                let number = error.to_errno();
                self.inode().read_error().store(number, Ordering::Relaxed);
            }
            _ => {}
        }
        let (how, error) = match end {
            End::Read => (raw::vfs_ext_end_VFS_EXT_END_MORE, 0),
            End::EndOfFile => (raw::vfs_ext_end_VFS_EXT_END_OF_FILE, 0),
            End::Retry => (raw::vfs_ext_end_VFS_EXT_END_RETRY, 0),
            End::Failed(error) => (raw::vfs_ext_end_VFS_EXT_END_FAILED, error.to_errno()),
        };
        let this = ManuallyDrop::new(self);
        // SAFETY: By the type invariants, the subrequest has not ended. It is not used any more.
        unsafe { raw::vfs_ext_helper_sreq_end(this.raw.as_ptr(), how, error) };
    }
}

impl<T: FileSystem> Drop for Subrequest<T> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the subrequest has not ended: `end` forgets its value.
        unsafe {
            raw::vfs_ext_helper_sreq_end(
                self.raw.as_ptr(),
                raw::vfs_ext_end_VFS_EXT_END_FAILED,
                EIO.to_errno(),
            )
        };
    }
}

/// The operations of netfs for files of `T`.
///
/// The data of a request comes from `Arc::<T::File>::into_raw`.
pub(super) struct RequestOps<T: FileSystem>(PhantomData<T>);

impl<T: FileSystem> RequestOps<T> {
    const OPS: raw::netfs_request_ops = {
        // SAFETY: All zeroes is a valid value, without functions.
        let mut ops: raw::netfs_request_ops = unsafe { core::mem::zeroed() };
        ops.init_request = Some(Self::init);
        ops.free_request = Some(Self::free);
        ops.issue_read = Some(Self::issue);
        ops
    };

    pub(super) fn get() -> &'static raw::netfs_request_ops {
        &Self::OPS
    }

    /// # Safety
    ///
    /// Must only be called by netfs, with a new request for an inode of `T`, and a file of it or
    /// null.
    unsafe extern "C" fn init(
        request: *mut raw::netfs_io_request,
        file: *mut bindings::file,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the function requirements; the private data of a file comes from
            // `into_raw`, and the file is kept by the caller.
            let (inode, open) = unsafe {
                let inode = raw::vfs_ext_helper_request_inode(request);
                let is_open = !file.is_null();
                (
                    Inode::<T>::from_raw(inode),
                    is_open.then(|| ArcBorrow::from_raw(private_data(file).cast())),
                )
            };
            let file: Arc<T::File> = T::file_of_request(inode, open)?;
            let bytes_max = subrequest_bytes::<T>(&file);
            // SAFETY: By the function requirements, the request is new, its caller has a reference
            // to the inode, and an inode of `T` is that of a slot, in a mount of `T`.
            unsafe {
                raw::vfs_ext_helper_request_init(
                    request,
                    Arc::into_raw(file).cast_mut().cast(),
                    bytes_max,
                )
            };
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Must only be called by netfs, at the end of a request that `init` has seen.
    unsafe extern "C" fn free(request: *mut raw::netfs_io_request) {
        // SAFETY: By the function requirements, the data comes from `init`; the reference is taken
        // back once.
        drop(unsafe { Arc::<T::File>::from_raw(raw::vfs_ext_helper_request_data(request).cast()) });
        // SAFETY: By the function requirements, `init` has taken what is given back here, once.
        unsafe { raw::vfs_ext_helper_request_release(request) };
    }

    /// # Safety
    ///
    /// Must only be called by netfs, with a subrequest for a file of `T`, which it passes on.
    unsafe extern "C" fn issue(subrequest: *mut raw::netfs_io_subrequest) {
        // SAFETY: By the function requirements, the subrequest has not ended.
        let request = unsafe { raw::vfs_ext_helper_sreq_request(subrequest) };
        // INVARIANT: By the function requirements.
        // SAFETY: The pointer is not null, by the function requirements.
        let raw = unsafe { NonNull::new_unchecked(subrequest) };
        T::read(Subrequest {
            raw,
            _type: PhantomData,
        });
        // SAFETY: netfs, which calls, has a reference to the request.
        unsafe { raw::vfs_ext_helper_request_issued(request) };
    }
}
