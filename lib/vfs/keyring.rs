// SPDX-License-Identifier: GPL-2.0

//! Secrets in the keyrings of the task that mounts, and later, as long as the mount has the key.
//!
//! C headers: [`include/linux/key.h`](srctree/include/linux/key.h),
//! [`include/keys/user-type.h`](srctree/include/keys/user-type.h)

use core::{
    ptr,
    ptr::NonNull,
    slice, //
};
use kernel::{
    bindings,
    error::{
        from_err_ptr,
        to_result, //
    },
    prelude::*,
    str::CStr, //
};
use vfs_ext_sys as raw;

/// A reference to a key, whose payload may be changed by `keyctl update`.
///
/// # Invariants
///
/// `raw` is a key of the type `logon` or `user`, of which this value owns a reference.
pub struct Key {
    raw: NonNull<bindings::key>,
}

// SAFETY: A key is not tied to a thread.
unsafe impl Send for Key {}
// SAFETY: The C functions take the key's lock.
unsafe impl Sync for Key {}

impl Key {
    /// Finds the key `description` of the type `logon`, or else `user`, in the keyrings of the
    /// current task. No program in user space is asked. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `ENOKEY` if there is no such key, `EKEYEXPIRED` or `EKEYREVOKED` if it is not valid
    /// any more, `EACCES` if the task may not search it.
    pub fn find(description: &CStr) -> Result<Self> {
        // SAFETY: The description is a string, which the function does not keep.
        let raw = unsafe { raw::vfs_ext_helper_key_find(description.as_char_ptr()) };
        let raw = NonNull::new(from_err_ptr(raw)?).ok_or(EINVAL)?;
        // INVARIANT: The function has returned a reference to a key of one of these types.
        Ok(Self { raw })
    }

    /// Calls `read` with the payload of the moment. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `EKEYEXPIRED` or `EKEYREVOKED` if the key is not valid any more.
    pub fn read<R>(&self, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
        let (mut bytes, mut len) = (ptr::null(), 0);
        // SAFETY: By the type invariants, the key is valid; the function writes both values.
        let locked =
            unsafe { raw::vfs_ext_helper_key_lock(self.raw.as_ptr(), &mut bytes, &mut len) };
        to_result(locked)?;
        // INVARIANT: The call has locked the key.
        let locked = Locked { key: self };
        // SAFETY: The payload has `len` bytes, which do not change while the key is locked.
        let result = read(unsafe { slice::from_raw_parts(bytes, len) });
        drop(locked);
        Ok(result)
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the reference is owned; it is given back once, here.
        unsafe { bindings::key_put(self.raw.as_ptr()) };
    }
}

/// A key whose payload does not change.
///
/// # Invariants
///
/// This value has locked `key`.
struct Locked<'a> {
    key: &'a Key,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the key is locked.
        unsafe { raw::vfs_ext_helper_key_unlock(self.key.raw.as_ptr()) };
    }
}

/// Calls `read` with the payload of a key. Sleeps.
///
/// # Errors
///
/// As [`Key::find`].
pub fn with_key<R>(description: &CStr, read: impl FnOnce(&[u8]) -> R) -> Result<R> {
    Key::find(description)?.read(read)
}

/// Clears bytes that were secret. The compiler does not omit this, as it may with a plain write to
/// memory that is freed next. Any context.
pub fn wipe(bytes: &mut [u8]) {
    // SAFETY: The bytes are writable for their length.
    unsafe { raw::vfs_ext_helper_wipe(bytes.as_mut_ptr().cast(), bytes.len()) };
}
