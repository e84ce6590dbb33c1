// SPDX-License-Identifier: GPL-2.0

//! Reads with O_DIRECT of tasks that wait for them, and can be killed while they do.
//!
//! netfs waits for such a read itself, and takes no signal. As asynchronous ones, of parts, they
//! are waited for here. When the task is killed, the reads go on without it: netfs has pinned the
//! pages of its buffer, and unpins them at their end.
//!
//! A part is as long as a subrequest at most: of an asynchronous read with several of them netfs
//! collects the first ones in one thread while another one adds more to the same list.

use super::FileSystem;
use core::cell::UnsafeCell;
use kernel::{
    bindings,
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::sync::{
    atomic::{
        AtomicI32,
        Ordering, //
    },
    Completion, //
};
use vfs_ext_sys as raw;

/// The number of parts that are read at the same time.
const PARTS_MAX: usize = 8;

/// Returns the maximum length of a subrequest of a file, in bytes.
pub(super) fn subrequest_bytes<T: FileSystem>(file: &T::File) -> u32 {
    // CAST: The size of a page is below 2^32.
    T::read_bytes_max(file).max(PAGE_SIZE as u32)
}

/// A part that is read: of who waits, and of netfs.
#[pin_data]
#[repr(C)]
struct DirectRead {
    /// The `kiocb` that netfs is given, and owns until the end.
    kiocb: UnsafeCell<bindings::kiocb>,
    /// The bytes that were read, or an error.
    result: AtomicI32,
    #[pin]
    end: Completion,
}

// SAFETY: netfs alone accesses the `kiocb`. The other fields are for several threads.
unsafe impl Send for DirectRead {}
// SAFETY: As above.
unsafe impl Sync for DirectRead {}

impl DirectRead {
    fn finish(&self, result: isize) {
        let result = i32::try_from(result).unwrap_or(i32::MAX);
        self.result.store(result, Ordering::Release);
        self.end.complete_all();
    }

    /// Returns the bytes that were read, after the end.
    fn bytes(&self) -> Result<usize> {
        let result = self.result.load(Ordering::Acquire);
        usize::try_from(result).map_err(|_| Error::from_errno(result))
    }
}

/// A part of the buffer.
struct Part {
    read: Arc<DirectRead>,
    /// Its length.
    bytes: usize,
    /// netfs has taken less of the buffer than it was given: nothing is to follow.
    is_last: bool,
}

/// Reads. Sleeps, killable.
///
/// # Safety
///
/// The caller must ensure that `iocb` is a read of the VFS with O_DIRECT from an open file of
/// netfs, for which the caller waits, whose subrequests have at most `part_bytes` bytes, and `to`
/// memory of a user.
pub(super) unsafe fn read(
    iocb: *mut bindings::kiocb,
    to: *mut bindings::iov_iter,
    part_bytes: usize,
) -> isize {
    let mut total = 0usize;
    let result = loop {
        // SAFETY: By the function requirements.
        match unsafe { read_parts(iocb, to, part_bytes, &mut total) } {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    // SAFETY: By the function requirements. CAST: At most `MAX_RW_COUNT`.
    unsafe { (*iocb).ki_pos += total as bindings::loff_t };
    match result {
        // CAST: As above; from 32 bits to 64.
        Err(error) if total == 0 => error.to_errno() as isize,
        _ => total as isize,
    }
}

/// Reads some parts behind the first `total` bytes, and adds what has come. Returns whether there
/// may be more.
///
/// # Safety
///
/// As of [`read`].
unsafe fn read_parts(
    iocb: *mut bindings::kiocb,
    to: *mut bindings::iov_iter,
    part_bytes: usize,
    total: &mut usize,
) -> Result<bool> {
    let mut parts: [Option<Part>; PARTS_MAX] = [const { None }; PARTS_MAX];
    let (mut position, mut refused) = (*total, None);
    for place in &mut parts {
        // SAFETY: By the function requirements.
        match unsafe { start(iocb, to, position, part_bytes) } {
            Ok(None) => break,
            Ok(Some(part)) => {
                position = position.wrapping_add(part.bytes);
                if place.insert(part).is_last {
                    break;
                }
            }
            Err(error) => {
                refused = Some(error);
                break;
            }
        }
    }
    // All of them: until its end a part writes to the buffer.
    for part in parts.iter().flatten() {
        part.read.end.wait_killable()?;
    }
    let mut is_more = false;
    for part in parts.iter().flatten() {
        let bytes = part.read.bytes()?;
        *total = total.wrapping_add(bytes);
        is_more = bytes == part.bytes && !part.is_last;
        if !is_more {
            return Ok(false);
        }
    }
    refused.map_or(Ok(is_more), Err)
}

/// Starts to read a part into the next bytes of the buffer; `None` if there are none.
///
/// # Safety
///
/// As of [`read`].
unsafe fn start(
    iocb: *mut bindings::kiocb,
    to: *mut bindings::iov_iter,
    position: usize,
    part_bytes: usize,
) -> Result<Option<Part>> {
    // SAFETY: By the function requirements.
    let mut kiocb = unsafe { iocb.read() };
    kiocb.ki_complete = Some(complete);
    // CAST: At most `MAX_RW_COUNT`.
    kiocb.ki_pos += position as bindings::loff_t;
    let read = Arc::pin_init(
        pin_init!(DirectRead {
            kiocb: UnsafeCell::new(kiocb),
            result: AtomicI32::new(0),
            end <- Completion::new(),
        }),
        GFP_KERNEL,
    )?;
    // SAFETY: By the function requirements.
    let (rest, wanted) = unsafe {
        let rest = raw::vfs_ext_helper_iter_truncate(to, part_bytes);
        (rest, raw::vfs_ext_helper_iter_count(to))
    };
    if wanted == 0 {
        return Ok(None);
    }
    // netfs has a reference of its own until the end.
    let of_netfs = Arc::into_raw(read.clone());
    // SAFETY: By the function requirements; the file of the copy is that of `iocb`.
    let result = unsafe { raw::netfs_file_read_iter(read.kiocb.get(), to) };
    // SAFETY: By the function requirements; so many bytes were cut off.
    let left = unsafe { raw::vfs_ext_helper_iter_expand(to, rest) };
    // CAST: From 32 bits to 64.
    if result != EIOCBQUEUED.to_errno() as isize {
        // SAFETY: `complete` is not called for a read that has ended in the call, so its reference
        // is taken back once, here.
        drop(unsafe { Arc::from_raw(of_netfs) });
        read.finish(result);
    }
    Ok(Some(Part {
        read,
        bytes: wanted.saturating_sub(left),
        is_last: left != 0,
    }))
}

/// # Safety
///
/// Must only be called by netfs, once, at the end of a read of [`start`] that it has queued.
unsafe extern "C" fn complete(iocb: *mut bindings::kiocb, result: c_long) {
    // SAFETY: The `kiocb` is at the begin of the value, whose reference of netfs is taken back.
    let read = unsafe { Arc::from_raw(iocb.cast::<DirectRead>()) };
    read.finish(result);
}
