// SPDX-License-Identifier: GPL-2.0

//! Parameters that are one of a few words, which the administrator may change while the module is
//! loaded.

use crate::sync::atomic::{
    AtomicU32,
    Ordering::Relaxed, //
};
use kernel::{
    bindings,
    error::from_result,
    ffi::{
        c_char,
        c_int,
        c_void, //
    },
    prelude::*, //
};

/// A parameter that is one of `words`, mode 0644. A write of another word fails with `EINVAL` and
/// leaves the value unchanged. Users of the value read it each time.
pub struct WordParam {
    value: AtomicU32,
    words: &'static [&'static CStr],
}

impl WordParam {
    const OPS: bindings::kernel_param_ops = bindings::kernel_param_ops {
        flags: 0,
        set: Some(Self::set_text),
        get: Some(Self::get_text),
        free: None,
    };

    /// Creates a parameter from its words; the first one is the default.
    #[doc(hidden)]
    pub const fn new(words: &'static [&'static CStr]) -> Self {
        Self {
            value: AtomicU32::new(0),
            words,
        }
    }

    /// Returns the index of the current word. Any context.
    #[inline]
    pub fn get(&self) -> u32 {
        self.value.load(Relaxed)
    }

    /// Returns the functions that C calls when the value is set or read.
    #[doc(hidden)]
    pub const fn ops(&self) -> *const bindings::kernel_param_ops {
        &Self::OPS
    }

    /// Returns the argument of these functions.
    #[doc(hidden)]
    pub const fn arg(&self) -> *mut c_void {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    /// # Safety
    ///
    /// Must be called by the module loader or sysfs only, with an entry of this type.
    unsafe extern "C" fn set_text(
        text: *const c_char,
        entry: *const bindings::kernel_param,
    ) -> c_int {
        from_result(|| {
            if text.is_null() {
                return Err(EINVAL);
            }
            // SAFETY: By the function requirements, `arg` is that of `Self::arg`, which points to a
            // static.
            let this = unsafe { &*(*entry).__bindgen_anon_1.arg.cast::<Self>() };
            // SAFETY: The module loader and sysfs pass a NUL-terminated string.
            let text = unsafe { CStr::from_char_ptr(text) }.to_bytes();
            let text = text.strip_suffix(b"\n").unwrap_or(text);
            let index = this.words.iter().position(|word| word.to_bytes() == text);
            // CAST: There are few words.
            this.value.store(index.ok_or(EINVAL)? as u32, Relaxed);
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Must be called by sysfs only, with an entry of this type and a page for the text.
    unsafe extern "C" fn get_text(
        page: *mut c_char,
        entry: *const bindings::kernel_param,
    ) -> c_int {
        // SAFETY: By the function requirements, `arg` is that of `Self::arg`, which points to a
        // static.
        let this = unsafe { &*(*entry).__bindgen_anon_1.arg.cast::<Self>() };
        let word = this.words.get(this.get() as usize).copied();
        let word = word.unwrap_or(c"").to_bytes();
        // SAFETY: The word and its end are shorter than a page.
        unsafe {
            core::ptr::copy_nonoverlapping(word.as_ptr(), page.cast(), word.len());
            page.add(word.len()).write(b'\n');
        }
        // CAST: Shorter than a page.
        word.len() as c_int + 1
    }
}
