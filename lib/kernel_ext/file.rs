// SPDX-License-Identifier: GPL-2.0

//! Small text files of the kernel with values that it does not export to modules: the boot id,
//! attributes of devices of other drivers.
//!
//! C header: [`include/linux/fs.h`](srctree/include/linux/fs.h)

use core::ptr;
use kernel::{
    bindings,
    error::from_err_ptr,
    prelude::*,
    str::CStr, //
};

/// An open file.
///
/// # Invariants
///
/// `raw` is a file of `filp_open` that this value owns.
struct File {
    raw: *mut bindings::file,
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the file is open and owned; it is in no file table. An
        // error of closing a read-only file is ignored.
        unsafe { bindings::filp_close(self.raw, ptr::null_mut()) };
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
    let file = File { raw };
    let (mut len, mut position) = (0usize, 0);
    while let Some(room) = buffer.get_mut(len..).filter(|room| !room.is_empty()) {
        // SAFETY: By the type invariants, the file is open; the buffer is writable for its length.
        let read = unsafe {
            bindings::kernel_read(
                file.raw,
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
    buffer.get(..len).ok_or(EIO)
}
