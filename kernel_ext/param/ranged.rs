// SPDX-License-Identifier: GPL-2.0

//! Numeric parameters with a range, which the administrator may change while the module is loaded.

use crate::sync::atomic::{
    AtomicU32,
    Ordering::Relaxed, //
};
use kernel::{
    bindings,
    error::{
        from_result,
        to_result, //
    },
    ffi::{
        c_char,
        c_int,
        c_void, //
    },
    prelude::*, //
};

/// A `u32` parameter with a range, mode 0644.
///
/// A write of a number outside the range fails with `ERANGE`, a write of other text with `EINVAL`;
/// both leave the value unchanged. Users of the value read it each time.
// `value` comes first: `param_get_uint` prints what it takes `arg` to point to.
#[repr(C)]
pub struct RangedParam {
    value: AtomicU32,
    min: u32,
    max: u32,
}

impl RangedParam {
    const OPS: bindings::kernel_param_ops = bindings::kernel_param_ops {
        flags: 0,
        set: Some(Self::set_text),
        get: Some(bindings::param_get_uint),
        free: None,
    };

    /// Creates a parameter from its default, and the least and the greatest value that it accepts.
    #[doc(hidden)]
    pub const fn new(default: u32, min: u32, max: u32) -> Self {
        Self {
            value: AtomicU32::new(default),
            min,
            max,
        }
    }

    /// Returns the current value. Any context.
    #[inline]
    pub fn get(&self) -> u32 {
        self.value.load(Relaxed)
    }

    /// Sets the value without a check of the range, for a default that is known only at run time.
    pub fn set(&self, value: u32) {
        self.value.store(value, Relaxed);
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
            let mut value = 0;
            // SAFETY: The module loader and sysfs pass a NUL-terminated string.
            to_result(unsafe { bindings::kstrtouint(text, 0, &mut value) })?;
            // SAFETY: By the function requirements, `arg` is that of `Self::arg`, which points to a
            // static.
            let this = unsafe { &*(*entry).__bindgen_anon_1.arg.cast::<Self>() };
            if !(this.min..=this.max).contains(&value) {
                return Err(ERANGE);
            }
            this.set(value);
            Ok(0)
        })
    }
}
