// SPDX-License-Identifier: GPL-2.0

//! Attributes, and the arguments of their functions.

use super::node;
use core::{
    cell::Cell,
    marker::PhantomData,
    slice, //
};
use kernel::{
    bindings,
    fmt,
    page::PAGE_SIZE,
    prelude::*,
    str::CStr,
    sync::ArcBorrow, //
};

/// Prints the attribute of a `T` (the text with a newline at its end).
///
/// It runs in process context, may sleep, and must not remove its own directory.
pub type ShowFn<T> = fn(&T, &mut ShowBuffer<'_>) -> Result;

/// Handles a text that was written to the attribute of a `T`.
///
/// One newline at the end of the text is removed; a text that is not UTF-8 fails with `EINVAL`
/// before the call. It runs in process context, and may sleep.
pub type StoreFn<T> = fn(ArcBorrow<'_, T>, &StoreContext<'_>, &str) -> Result;

/// A file in sysfs.
///
/// # Invariants
///
/// `raw` comes first; its name is static, and its functions are those of [`node`].
#[repr(C)]
pub struct Attribute<T> {
    raw: bindings::device_attribute,
    pub(super) show: Option<ShowFn<T>>,
    pub(super) store: Option<StoreFn<T>>,
}

// SAFETY: An attribute is read-only: a static name and functions.
unsafe impl<T> Sync for Attribute<T> {}
// SAFETY: An attribute is a static name and functions, which are not tied to a thread.
unsafe impl<T> Send for Attribute<T> {}

impl<T> Attribute<T> {
    // There are more fields with CONFIG_DEBUG_LOCK_ALLOC.
    #[allow(clippy::needless_update)]
    const fn new(
        name: &'static CStr,
        mode: u16,
        show: Option<ShowFn<T>>,
        store: Option<StoreFn<T>>,
    ) -> Self {
        // INVARIANT: The name is static, the functions are those of `node`.
        Self {
            raw: bindings::device_attribute {
                attr: bindings::attribute {
                    name: kernel::str::as_char_ptr_in_const_context(name),
                    mode,
                    ..pin_init::zeroed()
                },
                __bindgen_anon_1: bindings::device_attribute__bindgen_ty_1 {
                    show: Some(node::device_show),
                },
                __bindgen_anon_2: bindings::device_attribute__bindgen_ty_2 {
                    store: Some(node::device_store),
                },
            },
            show,
            store,
        }
    }

    /// Creates a file that all users may read (mode 0444).
    pub const fn ro(name: &'static CStr, show: ShowFn<T>) -> Self {
        Self::new(name, 0o444, Some(show), None)
    }

    /// Creates a file that all users may read and root may write (mode 0644).
    pub const fn rw(name: &'static CStr, show: ShowFn<T>, store: StoreFn<T>) -> Self {
        Self::new(name, 0o644, Some(show), Some(store))
    }

    /// Creates a file that root may write (mode 0200).
    pub const fn wo(name: &'static CStr, store: StoreFn<T>) -> Self {
        Self::new(name, 0o200, None, Some(store))
    }

    /// Returns the C object.
    pub(super) fn as_raw(&'static self) -> *const bindings::attribute {
        &raw const self.raw.attr
    }
}

/// The page that a [`ShowFn`] prints to.
///
/// # Invariants
///
/// `len` is at most the length of `page`.
pub struct ShowBuffer<'a> {
    page: &'a mut [u8],
    len: usize,
}

impl ShowBuffer<'_> {
    /// # Safety
    ///
    /// The caller must ensure that `page` is the page that sysfs hands to a show function.
    pub(crate) unsafe fn new(page: *mut u8) -> Self {
        Self {
            // SAFETY: By the function requirements, `page` is a page that only this call uses.
            // Sysfs allocates it zeroed, so it is initialised.
            page: unsafe { slice::from_raw_parts_mut(page, PAGE_SIZE) },
            len: 0,
        }
    }

    /// Prints formatted text. `writeln!(page, ...)` calls it and has the result type of a show
    /// function.
    ///
    /// # Errors
    ///
    /// Returns `EMSGSIZE` when the page is full; `write!` prints what fits.
    pub fn write_fmt(&mut self, args: fmt::Arguments<'_>) -> Result {
        fmt::Write::write_fmt(self, args).map_err(|_| EMSGSIZE)
    }

    /// Appends a string.
    ///
    /// # Errors
    ///
    /// Returns `EMSGSIZE` when the page is full; what fits is appended.
    pub fn push_str(&mut self, text: &str) -> Result {
        let room = self.page.get_mut(self.len..).unwrap_or_default();
        let len = room.len().min(text.len());
        for (target, source) in room.iter_mut().zip(text.as_bytes()) {
            *target = *source;
        }
        // INVARIANT: `len` grows by at most the room left.
        self.len = self.len.saturating_add(len);
        if len < text.len() {
            return Err(EMSGSIZE);
        }
        Ok(())
    }

    /// Returns the number of bytes that were printed.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether nothing was printed.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Write for ShowBuffer<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push_str(text).map_err(|_| fmt::Error)
    }
}

/// The call of a [`StoreFn`].
///
/// # Invariants
///
/// The pointers are those of the running store function of a directory that exists until
/// `remove_self` is called. `owner` is null or a module of which this call owns a reference.
pub struct StoreContext<'a> {
    pub(super) kobject: *mut bindings::kobject,
    pub(super) attribute: *const bindings::attribute,
    pub(super) removal: *const node::Removal,
    /// An address in the module that defines the type behind the attribute.
    pub(super) text: usize,
    pub(super) owner: Cell<*mut bindings::module>,
    pub(super) _call: PhantomData<&'a ()>,
}

impl StoreContext<'_> {
    /// Removes the file that is being written, after which this call may remove its directory.
    ///
    /// Of several writers of the file exactly one gets `Ok`. The module is kept loaded until this
    /// call is over. `module` is the module to which the attribute belongs (`&crate::THIS_MODULE`).
    ///
    /// # Errors
    ///
    /// - `ENODEV` if another writer was first, another task is removing the directory, or the
    ///   module is being unloaded; the caller does not remove the directory then.
    /// - `EALREADY` (as C) if this call has removed the file already.
    /// - `EINVAL` if the attribute does not belong to `module`.
    pub fn remove_self(&self, module: &'static ThisModule) -> Result {
        if !self.owner.get().is_null() {
            return Err(crate::errno::EALREADY);
        }
        node::check_owner(module, self.text)?;
        let module = module.as_ptr();
        // SAFETY: The module exists: its attribute is being written.
        if !unsafe { bindings::try_module_get(module) } {
            return Err(ENODEV);
        }
        // INVARIANT: The reference was just taken.
        self.owner.set(module);
        // SAFETY: By the type invariants, the directory exists, as `remove_self` was not called
        // before; its end waits for this call, and from here on for `end_file`.
        let removal = unsafe { &*self.removal };
        if !removal.begin_file() {
            return Err(ENODEV);
        }
        // SAFETY: By the type invariants, the file is being written. Its directory exists and is
        // in sysfs: its end waits for `end_file` before it takes the directory out.
        let removed = unsafe { bindings::sysfs_remove_file_self(self.kobject, self.attribute) };
        removal.end_file();
        if removed {
            Ok(())
        } else {
            Err(ENODEV)
        }
    }
}
