// SPDX-License-Identifier: GPL-2.0

//! Files: small texts of the kernel with values that it does not export to modules (the boot id,
//! attributes of devices of other drivers), and files of a folder that are read, written, synced
//! and removed.
//!
//! C headers: [`include/linux/fs.h`](srctree/include/linux/fs.h),
//! [`include/linux/namei.h`](srctree/include/linux/namei.h)

use core::{
    ops::ControlFlow,
    ptr, //
};

use kernel::{
    bindings,
    error::{
        from_err_ptr,
        to_result, //
    },
    ffi::{
        c_char,
        c_int,
        c_uchar, //
        c_uint,
    },
    fs::file::flags,
    prelude::*,
    str::CStr, //
};

/// The type bits of a mode, and those of a regular file.
const TYPE: u16 = 0o170_000;
const REGULAR: u16 = 0o100_000;
/// `DT_UNKNOWN` and `DT_REG`.
const KIND_UNKNOWN: c_uint = 0;
const KIND_REGULAR: c_uint = 8;
/// `SEEK_END`.
const SEEK_END: c_int = 2;

/// An open file.
///
/// # Invariants
///
/// `raw` is a file of `filp_open` that this value owns.
struct File {
    raw: *mut bindings::file,
}

// Not `Sync`: a file has one position, which `size` and `each_name` move.
// SAFETY: An open file may be used, and closed, by any task.
unsafe impl Send for File {}

impl File {
    /// Reads bytes from a position on until the buffer is full, or the file ends; returns how many.
    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut position = bindings::loff_t::try_from(at).map_err(|_| EFBIG)?;
        let mut len = 0usize;
        while let Some(room) = buffer.get_mut(len..).filter(|room| !room.is_empty()) {
            // SAFETY: By the type invariants, the file is open; the buffer is writable for its
            // length.
            let read = unsafe {
                bindings::kernel_read(
                    self.raw,
                    room.as_mut_ptr().cast(),
                    room.len(),
                    &mut position,
                )
            };
            match usize::try_from(read) {
                Ok(0) => break,
                Ok(more) => len = len.saturating_add(more),
                // CAST: Errors are small numbers.
                Err(_) => return Err(Error::from_errno(read as i32)),
            }
        }
        Ok(len)
    }

    fn sync(&self) -> Result {
        // SAFETY: By the type invariants, the file is open.
        to_result(unsafe { bindings::vfs_fsync(self.raw, 0) })
    }

    fn path(&self) -> *const bindings::path {
        // SAFETY: By the type invariants, the file is open: its path does not change.
        unsafe { &raw const (*self.raw).__bindgen_anon_1.f_path }
    }

    fn inode(&self) -> *mut bindings::inode {
        // SAFETY: By the type invariants, the file is open: it has an inode, which does not change.
        unsafe { (*self.raw).f_inode }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the file is open and owned; it is in no file table. What
        // has to be durable was synced, so an error of closing it is ignored. The last reference is
        // the one that is taken here: a task that is no process, or does not return to one for
        // long, has very many files open else.
        unsafe {
            bindings::get_file(self.raw);
            bindings::filp_close(self.raw, ptr::null_mut());
            bindings::__fput_sync(self.raw);
        }
    }
}

/// Reads the start of the file `path` into `buffer`, and returns the bytes read: the whole file if
/// it is shorter than the buffer.
///
/// Paths start at the root directory of the calling task, which is that of init for a work item.
/// Process context, may sleep. Errors are those of opening and reading: `ENOENT`, `EACCES`, ...
///
/// # Examples
///
/// ```
/// let mut buffer = [0; 64];
/// let boot_id = kernel_ext::file::read_start(c"/proc/sys/kernel/random/boot_id", &mut buffer)?;
/// # Ok::<(), Error>(())
/// ```
pub fn read_start<'a>(path: &CStr, buffer: &'a mut [u8]) -> Result<&'a [u8]> {
    // SAFETY: The path is NUL-terminated. 0 is `O_RDONLY`.
    let raw = from_err_ptr(unsafe { bindings::filp_open(path.as_char_ptr(), 0, 0) })?;
    // INVARIANT: The file was just opened.
    let len = File { raw }.read(0, buffer)?;
    buffer.get(..len).ok_or(EIO)
}

/// The use for which a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Reading, which a file system that is mounted for reading only has, too.
    Reading,
    /// Reading and writing.
    Writing,
    /// Reading and writing: it is made, and is an error if it is there.
    Making,
}

/// A regular file of a folder, which is read and written. Process context, may sleep.
pub struct DataFile(File);

impl DataFile {
    /// Returns its size in bytes.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn size(&self) -> Result<u64> {
        // SAFETY: By the type invariants, the file is open.
        let size = unsafe { bindings::vfs_llseek(self.0.raw, 0, SEEK_END) };
        // CAST: Errors are small numbers.
        u64::try_from(size).map_err(|_| Error::from_errno(size as i32))
    }

    /// Reads bytes from a position on until the buffer is full, or the file ends; returns how many.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn read(&self, at: u64, buffer: &mut [u8]) -> Result<usize> {
        self.0.read(at, buffer)
    }

    /// Writes all bytes, from a position on.
    ///
    /// # Errors
    ///
    /// Those of the file system, as `ENOSPC`; some of the bytes may be there then.
    pub fn write(&self, at: u64, bytes: &[u8]) -> Result {
        let mut position = bindings::loff_t::try_from(at).map_err(|_| EFBIG)?;
        let mut rest = bytes;
        while !rest.is_empty() {
            // SAFETY: By the type invariants, the file is open; the bytes are readable.
            let written = unsafe {
                bindings::kernel_write(self.0.raw, rest.as_ptr().cast(), rest.len(), &mut position)
            };
            match usize::try_from(written) {
                Ok(0) => return Err(EIO),
                Ok(bytes) => rest = rest.get(bytes..).unwrap_or_default(),
                // CAST: Errors are small numbers.
                Err(_) => return Err(Error::from_errno(written as i32)),
            }
        }
        Ok(())
    }

    /// Sets the size: what is behind it is gone, and what is new is zeroes.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn truncate(&self, size: u64) -> Result {
        let size = bindings::loff_t::try_from(size).map_err(|_| EFBIG)?;
        // SAFETY: By the type invariants, the file is open, and has a path.
        to_result(unsafe { bindings::vfs_truncate(self.0.path(), size) })
    }

    /// Makes durable what was written, and the size.
    ///
    /// # Errors
    ///
    /// Those of the file system: what was written since the last sync may be there in part.
    pub fn sync(&self) -> Result {
        self.0.sync()
    }
}

/// A folder. It keeps its file system mounted, and is found again wherever that is mounted, from
/// any task. Process context, may sleep.
pub struct Folder(File);

impl Folder {
    /// Opens the folder of a path.
    ///
    /// # Errors
    ///
    /// Those of opening: `ENOENT`, `ENOTDIR`, `EACCES`, ...
    pub fn open(path: &CStr) -> Result<Self> {
        // CAST: A flag of C.
        let flags = flags::O_DIRECTORY as c_int;
        // SAFETY: The path is NUL-terminated.
        let raw = from_err_ptr(unsafe { bindings::filp_open(path.as_char_ptr(), flags, 0) })?;
        // INVARIANT: The file was just opened.
        Ok(Self(File { raw }))
    }

    /// Returns a number that another folder does not have as long as this one is open; it is the
    /// same at whichever path.
    pub fn identity(&self) -> usize {
        self.0.inode().addr()
    }

    /// Opens a file.
    ///
    /// # Errors
    ///
    /// Those of opening; `EINVAL` if it is no regular file.
    pub fn file(&self, name: &CStr, to: Use) -> Result<DataFile> {
        let open = flags::O_LARGEFILE | flags::O_NOFOLLOW | flags::O_NONBLOCK;
        let open = match to {
            // O_RDONLY is 0.
            Use::Reading => open,
            Use::Writing => open | flags::O_RDWR,
            Use::Making => open | flags::O_RDWR | flags::O_CREAT | flags::O_EXCL,
        };
        // SAFETY: By the type invariants, the folder is open; the name is NUL-terminated. The path
        // is copied to the call, and the folder holds its references.
        let raw = unsafe {
            bindings::file_open_root(
                self.0.path(),
                name.as_char_ptr(),
                // CAST: Flags of C.
                open as c_int,
                0o600,
            )
        };
        // INVARIANT: The file was just opened.
        let file = File {
            raw: from_err_ptr(raw)?,
        };
        // SAFETY: The inode of an open file is alive, and its type does not change.
        let mode = unsafe { (*file.inode()).i_mode };
        if mode & TYPE != REGULAR {
            return Err(EINVAL);
        }
        Ok(DataFile(file))
    }

    /// Removes a file.
    ///
    /// # Errors
    ///
    /// Those of the file system; `ENOENT` if there is none.
    pub fn remove(&self, name: &CStr) -> Result {
        let path = self.0.path();
        // SAFETY: By the type invariants, the folder is open: its path has a mount and an entry.
        let (mount, folder) = unsafe { ((*path).mnt, (*path).dentry) };
        // SAFETY: The mount is that of an open file.
        to_result(unsafe { bindings::mnt_want_write(mount) })?;
        let removed = self.remove_from((mount, folder), name);
        // SAFETY: Writing was begun above.
        unsafe { bindings::mnt_drop_write(mount) };
        removed
    }

    fn remove_from(
        &self,
        (mount, folder): (*mut bindings::vfsmount, *mut bindings::dentry),
        name: &CStr,
    ) -> Result {
        let mut of = bindings::qstr {
            __bindgen_anon_1: bindings::qstr__bindgen_ty_1 { hash_len: 0 },
            name: name.as_char_ptr().cast::<c_uchar>(),
        };
        // CAST: The length of the name of a file.
        of.__bindgen_anon_1.__bindgen_anon_1.len = name.to_bytes().len() as u32;
        // SAFETY: The folder is one of an open file, the name is as long as it says. It takes the
        // lock of the folder if it finds an entry.
        let found = unsafe { kernel_ext_sys::start_removing_noperm(folder, &raw mut of) };
        let found = from_err_ptr(found)?;
        // SAFETY: The lock of the folder is held until `end_dirop`, and the entry is in it. The
        // mount has a mapping of owners as long as it is there.
        let removed = unsafe {
            bindings::vfs_unlink((*mount).mnt_idmap, self.0.inode(), found, ptr::null_mut())
        };
        // SAFETY: It was found above.
        unsafe { bindings::end_dirop(found) };
        to_result(removed)
    }

    /// Makes durable which files are in it.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn sync(&self) -> Result {
        self.0.sync()
    }

    /// Calls for each name in it, from the first one on, until that breaks, and whether it is known
    /// to be no regular file. The folder is locked meanwhile: no file of it may be opened.
    ///
    /// # Errors
    ///
    /// Those of the file system.
    pub fn each_name(&mut self, mut call: impl FnMut(&[u8], bool) -> ControlFlow<()>) -> Result {
        let mut walk = Walk {
            context: bindings::dir_context {
                actor: Some(found),
                pos: 0,
                count: c_int::MAX,
                dt_flags_mask: 0,
            },
            call: &mut call,
        };
        // SAFETY: By the type invariants, the folder is open. 0 is `SEEK_SET`.
        let first = unsafe { bindings::vfs_llseek(self.0.raw, 0, 0) };
        // CAST: Errors are small numbers.
        to_result(first as c_int)?;
        // SAFETY: By the type invariants, the folder is open; its position is this task's, which
        // has it for itself. The context is the first field of a `Walk`, which `found` needs.
        let walked = unsafe { bindings::iterate_dir(self.0.raw, (&raw mut walk).cast()) };
        to_result(walked)
    }
}

/// A walk through a folder: what its actor gets.
#[repr(C)]
struct Walk<'a> {
    context: bindings::dir_context,
    call: &'a mut dyn FnMut(&[u8], bool) -> ControlFlow<()>,
}

/// Gets a name.
///
/// # Safety
///
/// The context is that of a [`Walk`], and the name is as long as it says.
unsafe extern "C" fn found(
    context: *mut bindings::dir_context,
    name: *const c_char,
    len: c_int,
    _position: bindings::loff_t,
    _inode: u64,
    kind: c_uint,
) -> bool {
    let walk = context.cast::<Walk<'_>>();
    // CAST: The length of a name.
    // SAFETY: By the function's contract.
    let name = unsafe { core::slice::from_raw_parts(name.cast::<u8>(), len.max(0) as usize) };
    // SAFETY: By the function's contract; nothing else uses the walk during the call.
    let call = unsafe { &mut (*walk).call };
    call(name, ![KIND_UNKNOWN, KIND_REGULAR].contains(&kind)).is_continue()
}
