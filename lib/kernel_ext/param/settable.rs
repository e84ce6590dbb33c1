// SPDX-License-Identifier: GPL-2.0

//! Parameters that the administrator may change while the module is loaded: the value, and the
//! functions that C calls. What texts stand for which value is a [`Rule`].

use crate::{
    sync::atomic::{
        AtomicU32,
        Ordering::Relaxed, //
    },
    sysfs::ShowBuffer, //
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

/// The texts that a parameter takes, and the values that they stand for.
pub trait Rule: Sync + 'static {
    /// Returns the value that `text` stands for, or the error for who writes it.
    fn parse(&self, text: &CStr) -> Result<u32>;

    /// Prints the text of a value, without a newline.
    fn show(&self, value: u32, page: &mut ShowBuffer<'_>) -> Result;
}

/// A parameter of mode 0644. A write that the rule refuses leaves the value unchanged. Users of the
/// value read it each time.
pub struct SettableParam<R: Rule> {
    value: AtomicU32,
    rule: R,
}

impl<R: Rule> SettableParam<R> {
    const OPS: bindings::kernel_param_ops = bindings::kernel_param_ops {
        flags: 0,
        set: Some(Self::set_text),
        get: Some(Self::get_text),
        free: None,
    };

    /// Creates a parameter with a value that its rule has.
    pub(super) const fn with_rule(value: u32, rule: R) -> Self {
        Self {
            value: AtomicU32::new(value),
            rule,
        }
    }

    /// Returns the current value. Any context.
    #[inline]
    pub fn get(&self) -> u32 {
        self.value.load(Relaxed)
    }

    /// Sets the value without asking the rule, for a default that is known only at run time.
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
    /// The entry must be one of this type: its `arg` is that of [`Self::arg`] of a static.
    unsafe fn of(entry: *const bindings::kernel_param) -> &'static Self {
        // SAFETY: By the function requirements.
        unsafe { &*(*entry).__bindgen_anon_1.arg.cast::<Self>() }
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
            // SAFETY: The module loader and sysfs pass a NUL-terminated string; by the function
            // requirements the entry is of this type.
            let (text, this) = unsafe { (CStr::from_char_ptr(text), Self::of(entry)) };
            this.set(this.rule.parse(text)?);
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
        from_result(|| {
            // SAFETY: By the function requirements.
            let (mut page, this) = unsafe { (ShowBuffer::new(page.cast()), Self::of(entry)) };
            this.rule.show(this.get(), &mut page)?;
            page.push_str("\n")?;
            // CAST: At most a page.
            Ok(page.len() as c_int)
        })
    }
}
