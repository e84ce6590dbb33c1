// SPDX-License-Identifier: GPL-2.0

//! Names, and the reading of directories.
//!
//! C headers: [`include/linux/fs.h`](srctree/include/linux/fs.h),
//! [`include/linux/dcache.h`](srctree/include/linux/dcache.h)

use super::{
    FileSystem,
    Inode,
    InodeRef,
    Kind,
    NAME_BYTES_MAX, //
};
use core::{
    marker::PhantomData,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::{
        from_result,
        to_result, //
    },
    prelude::*, //
};
use kernel_ext::errno::ENAMETOOLONG;
use vfs_ext_sys as raw;

/// A name in a directory, as the kernel remembers it.
pub struct Name<'a, T: FileSystem> {
    /// The bytes of the name.
    pub bytes: &'a [u8],
    /// The inode that it names; `None` if there was no such entry.
    pub inode: Option<&'a Inode<T>>,
    /// The time since the server was asked who said so, in milliseconds.
    pub age_ms: u64,
    /// Whether the server must be asked, as a path walk has met a file that is gone (`ESTALE`).
    pub is_forced: bool,
    /// Whether what it names is opened next. If that fails with `ESTALE`, the path walk comes again
    /// with `is_forced`.
    pub is_opened: bool,
    /// The user of the task, as [`Access::user`](super::Access::user).
    pub user: u32,
}

/// Whether what the kernel remembers of a name holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validity {
    /// The name is taken to hold; its age counts on.
    Assumed,
    /// The server has said that it holds; its age counts from before it was asked.
    Confirmed,
    /// The name does not hold, and is looked up again.
    Gone,
}

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// Its name: 1 to 255 bytes without `/` and NUL.
    pub name: &'a [u8],
    /// The number of its inode.
    pub number: u64,
    /// The kind of the entry.
    pub kind: Kind,
    /// The position after it, which is not 0; at most [`Entries::POSITION_MAX`].
    pub next: u64,
}

/// The reader of a directory of the file system `T`.
///
/// # Invariants
///
/// `file` is an open directory of `T`, locked by the current task.
pub struct Entries<'a, T: FileSystem> {
    raw: &'a mut bindings::dir_context,
    file: NonNull<bindings::file>,
    _type: PhantomData<T>,
}

impl<T: FileSystem> Entries<'_, T> {
    /// The largest position. `.` and `..` take the first two.
    pub const POSITION_MAX: u64 = i64::MAX as u64 - DOTS;

    /// Returns where to go on: 0 at the begin, else the `next` of the last entry that was read, or
    /// what a user sets by `lseek(2)`.
    pub fn position(&self) -> u64 {
        u64::try_from(self.raw.pos)
            .unwrap_or(0)
            .saturating_sub(DOTS)
    }

    /// Emits an entry. Returns whether there was room for it; if not, the reader comes again.
    ///
    /// # Errors
    ///
    /// Returns `ENAMETOOLONG`, `EINVAL` for an empty name, or `EOVERFLOW` for a position out of
    /// range.
    pub fn emit(&mut self, entry: Entry<'_>) -> Result<bool> {
        if entry.name.is_empty() {
            return Err(EINVAL);
        }
        if entry.name.len() > NAME_BYTES_MAX {
            return Err(ENAMETOOLONG);
        }
        if entry.next == 0 || entry.next > Self::POSITION_MAX {
            return Err(EOVERFLOW);
        }
        // SAFETY: The context is that of a reader. The name is readable for its length, and the
        // reader checks its bytes.
        let has_room = unsafe {
            raw::vfs_ext_helper_emit(
                self.raw,
                entry.name.as_ptr().cast(),
                // CAST: At most 255.
                entry.name.len() as c_int,
                entry.number,
                entry.kind.mode(),
                // CAST: In range by the check above.
                (entry.next + DOTS) as bindings::loff_t,
            )
        };
        Ok(has_room)
    }

    /// Makes the kernel know what a name of this directory names, so that it need not be looked up;
    /// the server was asked so many milliseconds ago. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` for a name that is empty, too long, has a `/` or a NUL in it, or is `.` or
    /// `..`; `EXDEV` for an inode of another mount; `ENOMEM`; or `ELOOP` for a directory that the
    /// kernel knows above this one.
    pub fn remember(&self, name: &[u8], inode: InodeRef<'_, T>, age_ms: u64) -> Result {
        let is_byte = |c: &u8| !matches!(*c, b'/' | 0);
        if name.is_empty() || name == b"." || name == b".." || !name.iter().all(is_byte) {
            return Err(EINVAL);
        }
        let len = u32::try_from(name.len()).map_err(|_| EINVAL)?;
        if name.len() > NAME_BYTES_MAX {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariants, the file is a locked directory of `T`. The name is
        // readable for its length. The function takes the reference to the inode.
        to_result(unsafe {
            raw::vfs_ext_helper_remember(
                self.file.as_ptr(),
                name.as_ptr().cast(),
                len,
                inode.into_raw(),
                age_ms,
            )
        })
    }
}

/// The positions of `.` and `..`.
const DOTS: u64 = 2;

/// The operations of an open directory of `T`.
///
/// `private_data` of such a file is a `KBox<T::Directory>`.
pub(super) struct DirectoryOps<T: FileSystem>(PhantomData<T>);

impl<T: FileSystem> DirectoryOps<T> {
    const OPS: bindings::file_operations = {
        // SAFETY: All zeroes is a valid value, without functions.
        let mut ops: bindings::file_operations = unsafe { core::mem::zeroed() };
        ops.open = Some(Self::open);
        ops.release = Some(Self::release);
        ops.iterate_shared = Some(Self::iterate);
        ops.llseek = Some(bindings::generic_file_llseek);
        ops.read = Some(bindings::generic_read_dir);
        ops
    };

    pub(super) fn get() -> &'static bindings::file_operations {
        &Self::OPS
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with a directory of `T` and a file of it that is new.
    unsafe extern "C" fn open(inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        from_result(|| {
            // SAFETY: By the function requirements, the file keeps the inode.
            let directory = T::open_directory(unsafe { Inode::from_raw(inode) })?;
            let directory = KBox::new(directory, GFP_KERNEL)?;
            // SAFETY: By the function requirements, the file is not shared yet.
            unsafe { set_private_data(file, KBox::into_raw(directory).cast()) };
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with a file that `open` has seen, at its end.
    unsafe extern "C" fn release(_inode: *mut bindings::inode, file: *mut bindings::file) -> c_int {
        // SAFETY: By the function requirements, the field comes from `open`, and nothing uses it
        // any more.
        drop(unsafe { KBox::<T::Directory>::from_raw(private_data(file).cast()) });
        0
    }

    /// # Safety
    ///
    /// Must only be called by the VFS, with a file that `open` has seen, whose inode is locked, and
    /// a reader.
    unsafe extern "C" fn iterate(
        file: *mut bindings::file,
        context: *mut bindings::dir_context,
    ) -> c_int {
        from_result(|| {
            // SAFETY: By the function requirements.
            if !unsafe { raw::vfs_ext_helper_emit_dots(file, context) } {
                return Ok(0);
            }
            // SAFETY: By the function requirements, the file keeps the inode, and its private data
            // comes from `open`.
            let (inode, directory) = unsafe {
                (
                    Inode::<T>::from_raw((*file).f_inode),
                    &*private_data(file).cast::<T::Directory>(),
                )
            };
            // SAFETY: By the function requirements, only this call uses the reader.
            let raw = unsafe { &mut *context };
            // INVARIANT: By the function requirements.
            let mut entries = Entries::<T> {
                raw,
                file: NonNull::new(file).ok_or(EINVAL)?,
                _type: PhantomData,
            };
            T::read_directory(inode, directory, &mut entries)?;
            Ok(0)
        })
    }
}

/// # Safety
///
/// The caller must ensure that `file` is valid.
pub(super) unsafe fn private_data(file: *mut bindings::file) -> *mut c_void {
    // SAFETY: By the function requirements.
    unsafe { (*file).private_data }
}

/// # Safety
///
/// The caller must ensure that `file` is valid and not shared.
pub(super) unsafe fn set_private_data(file: *mut bindings::file, data: *mut c_void) {
    // SAFETY: By the function requirements.
    unsafe { (*file).private_data = data };
}
