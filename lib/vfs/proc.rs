// SPDX-License-Identifier: GPL-2.0

//! Files below `/proc`, most of which are read and not written.
//!
//! C headers: [`include/linux/proc_fs.h`](srctree/include/linux/proc_fs.h),
//! [`include/linux/seq_file.h`](srctree/include/linux/seq_file.h)

use core::{
    marker::PhantomData,
    ptr,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::from_result,
    prelude::*,
    seq_file::SeqFile,
    str::CStr,
    sync::Arc, //
};
use kernel_ext::sysfs::check_owner;
use vfs_ext_sys as raw;

/// A directory below `/proc`. Dropping the last reference removes it; files of it keep it.
///
/// # Invariants
///
/// `raw` is a directory that this value owns, empty when the value is dropped.
pub struct Directory {
    raw: NonNull<bindings::proc_dir_entry>,
    /// Held for its drop only, after this directory is removed.
    _parent: Option<Arc<Directory>>,
}

// SAFETY: An entry is not tied to a thread.
unsafe impl Send for Directory {}
// SAFETY: The C functions take the locks of the entries.
unsafe impl Sync for Directory {}

impl Directory {
    /// Creates the directory `name`: below `parent`, or below `/proc`, where the name may be a path
    /// whose other parts exist. May sleep.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if there is such an entry, or if an allocation fails.
    pub fn new(name: &CStr, parent: Option<Arc<Directory>>) -> Result<Arc<Self>> {
        let above = parent
            .as_ref()
            .map_or(ptr::null_mut(), |parent| parent.raw.as_ptr());
        // SAFETY: The name is copied; the directory above exists.
        let raw = unsafe { raw::proc_mkdir(name.as_char_ptr(), above) };
        // INVARIANT: The directory was just created.
        let this = Self {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
            _parent: parent,
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the entry is owned, and removed once, here.
        unsafe { raw::proc_remove(self.raw.as_ptr()) };
    }
}

/// The content of a file below `/proc`.
pub trait Show: Send + Sync + 'static {
    /// Prints the whole file. Called again with more memory if the text was longer than expected.
    ///
    /// Runs in the task that reads, and may sleep; the file's removal waits for it.
    fn show(&self, file: &SeqFile) -> Result;
}

/// The receiver of text that is written to a file below `/proc`.
pub trait Store: Show {
    /// Takes the bytes of one write, at most 64 KiB.
    ///
    /// Runs in the task that writes, and may sleep; the file's removal waits for it.
    fn store(&self, bytes: &[u8]) -> Result;
}

/// A file below `/proc`. Dropping it removes it, and waits for its users.
///
/// # Invariants
///
/// `raw` is a file that this value owns, made with `file`, whose data comes from
/// `Arc::<S>::into_raw`.
pub struct File<S: Show> {
    raw: NonNull<bindings::proc_dir_entry>,
    file: KBox<raw::vfs_ext_proc_file>,
    /// Held for its drop only, after the file is removed.
    _directory: Arc<Directory>,
    _type: PhantomData<S>,
}

// SAFETY: An entry is not tied to a thread, and its data is `Send + Sync`.
unsafe impl<S: Show> Send for File<S> {}
// SAFETY: A shared reference gives no access.
unsafe impl<S: Show> Sync for File<S> {}

type StoreFn = unsafe extern "C" fn(*mut c_void, *const c_char, usize) -> c_int;

impl<S: Show> File<S> {
    /// Creates the file `name`, which all users may read, and which shows `data`. May sleep.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the code of `S` is not part of `module`, `ENOMEM` if there is such an
    /// entry, or if an allocation fails.
    pub fn new(
        module: &'static ThisModule,
        directory: Arc<Directory>,
        name: &CStr,
        data: Arc<S>,
    ) -> Result<Self> {
        // SAFETY: Nothing is stored.
        unsafe { Self::create(module, directory, name, data, None, false) }
    }

    /// # Safety
    ///
    /// The caller must ensure that `store` is for the data of a file of `S`.
    unsafe fn create(
        module: &'static ThisModule,
        directory: Arc<Directory>,
        name: &CStr,
        data: Arc<S>,
        store: Option<StoreFn>,
        is_private: bool,
    ) -> Result<Self> {
        check_owner(module, show::<S> as usize)?;
        let mut file = KBox::new(
            raw::vfs_ext_proc_file {
                show: Some(show::<S>),
                store,
                data: ptr::null_mut(),
                is_private,
            },
            GFP_KERNEL,
        )?;
        file.data = Arc::into_raw(data).cast_mut().cast();
        // SAFETY: The name is copied; the directory exists. `file` stays where it is until the
        // entry is removed, and so does its data, which is that of both functions.
        let raw = unsafe {
            raw::vfs_ext_helper_proc_create(name.as_char_ptr(), directory.raw.as_ptr(), &mut *file)
        };
        let Some(raw) = NonNull::new(raw) else {
            // SAFETY: The data comes from `into_raw` above, and was not passed on.
            drop(unsafe { Arc::<S>::from_raw(file.data.cast()) });
            return Err(ENOMEM);
        };
        // INVARIANT: The file was just created, with this data.
        Ok(Self {
            raw,
            file,
            _directory: directory,
            _type: PhantomData,
        })
    }
}

impl<S: Store> File<S> {
    /// Creates a file that root may write, else as [`Self::new`]. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of [`Self::new`].
    pub fn writable(
        module: &'static ThisModule,
        directory: Arc<Directory>,
        name: &CStr,
        data: Arc<S>,
    ) -> Result<Self> {
        // SAFETY: The function is that of `S`.
        unsafe { Self::create(module, directory, name, data, Some(store::<S>), false) }
    }

    /// Creates a file that root may read and write, and no one else, as [`Self::new`]. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of [`Self::new`].
    pub fn private(
        module: &'static ThisModule,
        directory: Arc<Directory>,
        name: &CStr,
        data: Arc<S>,
    ) -> Result<Self> {
        // SAFETY: The function is that of `S`.
        unsafe { Self::create(module, directory, name, data, Some(store::<S>), true) }
    }
}

impl<S: Show> Drop for File<S> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the entry is owned, and removed once, here. The function
        // waits for calls of `show` and `store` that run, and no new one begins.
        unsafe { raw::proc_remove(self.raw.as_ptr()) };
        // SAFETY: By the type invariants; the reference is taken back once.
        drop(unsafe { Arc::<S>::from_raw(self.file.data.cast()) });
    }
}

/// # Safety
///
/// Must only be called by C, with an open file that shows a value of `S`.
unsafe extern "C" fn show<S: Show>(file: *mut bindings::seq_file, _value: *mut c_void) -> c_int {
    from_result(|| {
        // SAFETY: By the function requirements; only this call uses the file, and its data lives
        // until the removal, which waits for this call.
        let (data, file) = unsafe { (&*(*file).private.cast::<S>(), SeqFile::from_raw(file)) };
        data.show(file)?;
        Ok(0)
    })
}

/// # Safety
///
/// Must only be called by C, with the data of a file of `S`, and bytes that are readable for their
/// length.
unsafe extern "C" fn store<S: Store>(data: *mut c_void, bytes: *const c_char, len: usize) -> c_int {
    from_result(|| {
        // SAFETY: By the function requirements; the data lives until the removal, which waits for
        // this call.
        let (data, bytes) = unsafe {
            (
                &*data.cast::<S>(),
                core::slice::from_raw_parts(bytes.cast::<u8>(), len),
            )
        };
        data.store(bytes)?;
        Ok(0)
    })
}
