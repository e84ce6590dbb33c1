// SPDX-License-Identifier: GPL-2.0

//! Directories (kobjects) in sysfs.

use super::{
    attribute::Attribute,
    node::{
        Node,
        Object,
        TYPE, //
    },
    AsKobject,
    HasFolder, //
};
use core::{
    marker::PhantomData,
    ptr::{self, NonNull},
};
use kernel::{
    bindings,
    error::to_result,
    prelude::*,
    str::CStr,
    sync::Arc, //
};

/// A directory of sysfs with the attributes of a `T`.
///
/// Dropping it removes the directory with its contents, and waits for running functions of its
/// attributes. The drop sleeps. The removal of a parent removes the entries of its children as
/// well; these may be dropped later.
///
/// # Invariants
///
/// `object` is a kobject that was added and of which this value owns a reference; its node is of
/// `T`.
pub struct Directory<T: Send + Sync + 'static> {
    object: NonNull<Object>,
    _data: PhantomData<Arc<T>>,
}

// SAFETY: A directory is not tied to a thread, and its data is `Send` and `Sync`.
unsafe impl<T: Send + Sync> Send for Directory<T> {}
// SAFETY: A shared directory is a place in sysfs for entries, which sysfs locks; the data is
// `Sync`.
unsafe impl<T: Send + Sync> Sync for Directory<T> {}

impl<T: Send + Sync> Directory<T> {
    /// Creates the directory `name` in that of `parent`. The kernel turns a slash in the name into
    /// `!`. May sleep.
    ///
    /// # Errors
    ///
    /// Returns `EEXIST` if the name is in use (the kernel logs that), `EINVAL` for the names `""`,
    /// `.` and `..`, `ENOMEM` if an allocation fails.
    pub fn new(
        parent: &(impl HasFolder + ?Sized),
        name: &CStr,
        attributes: &'static [Attribute<T>],
        data: Arc<T>,
    ) -> Result<Self> {
        check_name(name)?;
        let object = KBox::<Object>::new_uninit(GFP_KERNEL)?;
        // An error from here on drops `this`, which drops the data.
        let object = KBox::write(object, Object::new(Node::new(data)));
        let object = NonNull::from(KBox::leak(object));
        // INVARIANT: The kobject has one reference after `kobject_init_and_add`, also if that
        // fails; `kobject_del` of a kobject that was not added has no effect.
        let this = Self {
            object,
            _data: PhantomData,
        };
        // SAFETY: The kobject is zeroed memory that stays until its release; the type is static,
        // the parent lives, in sysfs, by the contract of `HasFolder`, and the format takes one
        // string.
        to_result(unsafe {
            bindings::kobject_init_and_add(
                this.as_kobject(),
                TYPE.as_raw(),
                parent.as_kobject(),
                c"%s".as_char_ptr(),
                name.as_char_ptr(),
            )
        })?;
        for attribute in attributes {
            // SAFETY: The kobject was added; the attribute is static and of the type of the node.
            to_result(unsafe {
                bindings::sysfs_create_file_ns(
                    this.as_kobject(),
                    attribute.as_raw(),
                    ptr::null_mut(),
                )
            })?;
        }
        Ok(this)
    }
}

/// Returns `EINVAL` for a name that is not valid.
pub(super) fn check_name(name: &CStr) -> Result {
    if name.is_empty() || name == c"." || name == c".." {
        Err(EINVAL)
    } else {
        Ok(())
    }
}

// SAFETY: The kobject is initialised by the invariant.
unsafe impl<T: Send + Sync> AsKobject for Directory<T> {
    fn as_kobject(&self) -> *mut bindings::kobject {
        // SAFETY: The object exists by the invariant.
        unsafe { self.object.as_ref() }.as_kobject()
    }
}

// SAFETY: By the type invariants, the kobject was added; only the drop removes it.
unsafe impl<T: Send + Sync> HasFolder for Directory<T> {}

impl<T: Send + Sync> Drop for Directory<T> {
    fn drop(&mut self) {
        let kobject = self.as_kobject();
        // SAFETY: The object exists until the reference is put below.
        unsafe { self.object.as_ref().node().begin_removal() };
        // SAFETY: By the type invariants, the kobject is initialised. Afterwards no function of an
        // attribute runs, except a store that called `remove_self`, which holds its own reference
        // to the data.
        unsafe { bindings::kobject_del(kobject) };
        // SAFETY: The object exists until the reference is put below; the node is of `T`, and no
        // attribute function refers to it any more.
        unsafe { self.object.as_ref().node().release::<T>() };
        // SAFETY: By the type invariants, this value owns the reference.
        unsafe { bindings::kobject_put(kobject) };
    }
}
