// SPDX-License-Identifier: GPL-2.0

//! Numbers in a range that the administrator may change while the module runs.

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

/// A `u32` parameter of a range, mode 0644.
///
/// A number out of the range is refused with `ERANGE`, what is no number with `EINVAL`; the value
/// stays as it was then. Whoever uses the value reads it anew each time.
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

    /// A parameter, its default, and the least and the greatest value that it can be given.
    #[doc(hidden)]
    pub const fn new(default: u32, min: u32, max: u32) -> Self {
        Self {
            value: AtomicU32::new(default),
            min,
            max,
        }
    }

    /// The value as of now. Any context.
    #[inline]
    pub fn get(&self) -> u32 {
        self.value.load(Relaxed)
    }

    /// Sets the value, whatever the range: for a default that is known only at run time.
    pub fn set(&self, value: u32) {
        self.value.store(value, Relaxed);
    }

    /// What C calls when the value is set or read.
    #[doc(hidden)]
    pub const fn ops(&self) -> *const bindings::kernel_param_ops {
        &Self::OPS
    }

    /// What C hands to these functions.
    #[doc(hidden)]
    pub const fn arg(&self) -> *mut c_void {
        core::ptr::from_ref(self).cast_mut().cast()
    }

    /// # Safety
    ///
    /// To be called by the module loader or sysfs only, with an entry of this type.
    unsafe extern "C" fn set_text(
        text: *const c_char,
        entry: *const bindings::kernel_param,
    ) -> c_int {
        from_result(|| {
            if text.is_null() {
                return Err(EINVAL);
            }
            let mut value = 0;
            // SAFETY: the caller passes a string that ends in NUL.
            to_result(unsafe { bindings::kstrtouint(text, 0, &mut value) })?;
            // SAFETY: `arg` is the one of `Self::arg`, of a static.
            let this = unsafe { &*(*entry).__bindgen_anon_1.arg.cast::<Self>() };
            if !(this.min..=this.max).contains(&value) {
                return Err(ERANGE);
            }
            this.set(value);
            Ok(0)
        })
    }
}
