// SPDX-License-Identifier: GPL-2.0

//! String parameters of bounded length.

use core::{
    cell::UnsafeCell,
    ffi::CStr,
    ptr,
    slice,
    str, //
};
use kernel::{
    bindings,
    error::from_result,
    ffi::{
        c_char,
        c_int,
        c_void, //
    },
    page::PAGE_SIZE,
    prelude::*, //
};

/// The bytes of a string and their number.
struct Text<const N: usize> {
    len: usize,
    bytes: [u8; N],
}

/// A parameter that is a string of at most `N` bytes.
///
/// A newline at the end is removed (`echo path > file`, and a shell's line in modprobe.d). A longer
/// string fails with `ENOSPC`, one that is not UTF-8 with `EINVAL`.
///
/// # Invariants
///
/// The first `len` bytes are UTF-8. The text is written only by the module loader, before the
/// module's code runs.
pub struct StringParam<const N: usize> {
    text: UnsafeCell<Text<N>>,
}

// SAFETY: By the type invariants, the text is not written while Rust code can read it.
unsafe impl<const N: usize> Sync for StringParam<N> {}

impl<const N: usize> StringParam<N> {
    const OPS: bindings::kernel_param_ops = bindings::kernel_param_ops {
        flags: 0,
        set: Some(Self::set),
        get: Some(Self::print),
        free: None,
    };

    /// Creates a parameter from its default. A default that is too long does not compile.
    #[doc(hidden)]
    pub const fn new(default: &str) -> Self {
        let default = default.as_bytes();
        // Sysfs prints the text and a newline into one page.
        assert!(default.len() <= N && N < PAGE_SIZE);
        let mut bytes = [0; N];
        let mut at = 0;
        while at < default.len() {
            bytes[at] = default[at];
            at += 1;
        }
        // INVARIANT: The bytes are those of a `str`; the macro makes an entry of mode 0444, which
        // sysfs does not write.
        Self {
            text: UnsafeCell::new(Text {
                len: default.len(),
                bytes,
            }),
        }
    }

    /// Returns the value, without a newline at its end.
    pub fn get(&self) -> &str {
        // SAFETY: By the type invariants, the text is not written any more.
        let text = unsafe { &*self.text.get() };
        let bytes = text.bytes.get(..text.len).unwrap_or_default();
        // SAFETY: By the type invariants, the bytes are UTF-8.
        unsafe { str::from_utf8_unchecked(bytes) }
    }

    /// Returns the functions that C calls when the module is loaded or the value is read.
    #[doc(hidden)]
    pub const fn ops(&self) -> *const bindings::kernel_param_ops {
        &Self::OPS
    }

    /// Returns the argument of these functions.
    #[doc(hidden)]
    pub const fn arg(&self) -> *mut c_void {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// # Safety
    ///
    /// Must be called by the module loader only, with an entry of this type.
    unsafe extern "C" fn set(value: *const c_char, entry: *const bindings::kernel_param) -> c_int {
        from_result(|| {
            if value.is_null() {
                return Err(EINVAL);
            }
            // SAFETY: The module loader passes a NUL-terminated string.
            let value = unsafe { CStr::from_char_ptr(value) }
                .to_str()
                .map_err(|_| EINVAL)?;
            let value = value.strip_suffix('\n').unwrap_or(value).as_bytes();
            // SAFETY: By the function requirements, `arg` is that of `Self::arg`. No other
            // reference to the text exists, as the loader sets parameters before it runs the
            // module.
            let text = unsafe { &mut *(*(*entry).__bindgen_anon_1.arg.cast::<Self>()).text.get() };
            text.bytes
                .get_mut(..value.len())
                .ok_or(ENOSPC)?
                .copy_from_slice(value);
            // INVARIANT: The bytes copied are those of a `str`.
            text.len = value.len();
            Ok(0)
        })
    }

    /// # Safety
    ///
    /// Must be called by sysfs only, with an entry of this type and a page.
    unsafe extern "C" fn print(page: *mut c_char, entry: *const bindings::kernel_param) -> c_int {
        // SAFETY: By the function requirements, `arg` is that of `Self::arg`.
        let text = unsafe { &*(*entry).__bindgen_anon_1.arg.cast::<Self>() }.get();
        // SAFETY: Sysfs passes a page that only this call uses. The text and a newline fit in it,
        // as `N` is less than a page.
        let page = unsafe { slice::from_raw_parts_mut(page.cast::<u8>(), N + 1) };
        let (line, _) = page.split_at_mut(text.len());
        line.copy_from_slice(text.as_bytes());
        page[text.len()] = b'\n';
        // CAST: The length is at most a page.
        (text.len() + 1) as c_int
    }
}
