// SPDX-License-Identifier: GPL-2.0

//! Classes and their devices.

use super::{
    attribute::Attribute,
    directory::check_name,
    node::Node,
    AsKobject,
    HasFolder, //
};
use core::{
    marker::PhantomData,
    ptr::{self, NonNull},
};
use kernel::{
    bindings,
    error::from_err_ptr,
    prelude::*,
    str::CStr,
    sync::Arc, //
};

/// # Invariants
///
/// `raw` is a class of `class_create` that this value owns.
struct Raw {
    raw: NonNull<bindings::class>,
}

// SAFETY: A class is not tied to a thread.
unsafe impl Send for Raw {}
// SAFETY: Devices of a class are created and removed under the driver core's own locks.
unsafe impl Sync for Raw {}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, this value owns the class. The driver core frees the
        // memory.
        unsafe { bindings::class_destroy(self.raw.as_ptr()) };
    }
}

/// A directory in `/sys/class`. It exists until the last of its clones and devices is dropped.
#[derive(Clone)]
pub struct Class(Arc<Raw>);

impl Class {
    /// Creates the class `name`. May sleep.
    ///
    /// # Errors
    ///
    /// Returns `EEXIST` if there is one of that name (the kernel logs that), `ENOMEM` if an
    /// allocation fails.
    pub fn register(name: &'static CStr) -> Result<Self> {
        // SAFETY: The name is static.
        let raw = from_err_ptr(unsafe { bindings::class_create(name.as_char_ptr()) })?;
        // INVARIANT: `raw` was just created.
        let raw = Raw {
            raw: NonNull::new(raw).ok_or(ENOMEM)?,
        };
        Ok(Self(Arc::new(raw, GFP_KERNEL)?))
    }
}

/// The tables that the driver core reads while a device exists.
struct Tables {
    node: Node,
    /// Ends in null.
    attributes: KVec<*const bindings::attribute>,
    group: bindings::attribute_group,
    /// Ends in null.
    groups: [*const bindings::attribute_group; 2],
}

/// A device of a class, without a device number, with the attributes of a `T`.
///
/// Its attributes exist before the uevent is sent. Dropping it removes the device and waits for
/// running functions of its attributes. The drop sleeps.
///
/// # Invariants
///
/// `device` is a device of `device_create_with_groups`; its driver data is the node of `tables`,
/// which is of `T`.
pub struct ClassDevice<T: Send + Sync + 'static> {
    device: NonNull<bindings::device>,
    tables: KBox<Tables>,
    _class: Class,
    _data: PhantomData<Arc<T>>,
}

// SAFETY: A device is not tied to a thread, and its data is `Send` and `Sync`.
unsafe impl<T: Send + Sync> Send for ClassDevice<T> {}
// SAFETY: A shared device is a place in sysfs for entries, which sysfs locks; the data is `Sync`.
unsafe impl<T: Send + Sync> Sync for ClassDevice<T> {}

impl<T: Send + Sync> ClassDevice<T> {
    /// Creates the device `name` of `class`. The kernel turns a slash in the name into `!`. May
    /// sleep.
    ///
    /// # Errors
    ///
    /// Returns `EEXIST` if the name is in use (the kernel logs that), `EINVAL` for the names `""`,
    /// `.` and `..`, `ENOMEM` if an allocation fails.
    pub fn new(
        class: &Class,
        name: &CStr,
        attributes: &'static [Attribute<T>],
        data: Arc<T>,
    ) -> Result<Self> {
        check_name(name)?;
        let tables = tables(attributes, data)?;
        // SAFETY: The class lives, as it is borrowed; there is no parent; the node and the groups
        // live until the device is removed; the format takes one string.
        let device = from_err_ptr(unsafe {
            bindings::device_create_with_groups(
                class.0.raw.as_ptr(),
                ptr::null_mut(),
                0,
                ptr::from_ref(&tables.node).cast_mut().cast(),
                tables.groups.as_ptr().cast_mut(),
                c"%s".as_char_ptr(),
                name.as_char_ptr(),
            )
        });
        let device = device.and_then(|device| NonNull::new(device).ok_or(ENOMEM));
        if device.is_err() {
            // SAFETY: The node is of `T`, and no device refers to it.
            unsafe { tables.node.release::<T>() };
        }
        // INVARIANT: `raw` was just created.
        Ok(Self {
            device: device?,
            tables,
            _class: class.clone(),
            _data: PhantomData,
        })
    }
}

/// Allocates the tables of a device with these attributes.
fn tables<T: Send + Sync + 'static>(
    attributes: &'static [Attribute<T>],
    data: Arc<T>,
) -> Result<KBox<Tables>> {
    let mut table = KVec::with_capacity(attributes.len().saturating_add(1), GFP_KERNEL)?;
    for attribute in attributes {
        table.push(attribute.as_raw(), GFP_KERNEL)?;
    }
    table.push(ptr::null(), GFP_KERNEL)?;
    let tables = KBox::<Tables>::new_uninit(GFP_KERNEL)?;
    // No step fails from here on, as dropping the node does not drop its reference.
    let mut tables = KBox::write(
        tables,
        Tables {
            node: Node::new(data),
            attributes: table,
            group: pin_init::zeroed(),
            groups: [ptr::null(); 2],
        },
    );
    tables.group.__bindgen_anon_2.attrs = tables.attributes.as_mut_ptr().cast();
    tables.groups[0] = &raw const tables.group;
    Ok(tables)
}

// SAFETY: The device exists by the invariant.
unsafe impl<T: Send + Sync> AsKobject for ClassDevice<T> {
    fn as_kobject(&self) -> *mut bindings::kobject {
        // SAFETY: The device exists by the type invariants; only an address is computed.
        unsafe { &raw mut (*self.device.as_ptr()).kobj }
    }
}

// SAFETY: By the type invariants, the device was added; only the drop removes it.
unsafe impl<T: Send + Sync> HasFolder for ClassDevice<T> {}

impl<T: Send + Sync> Drop for ClassDevice<T> {
    fn drop(&mut self) {
        self.tables.node.begin_removal();
        // SAFETY: By the type invariants, the device exists; it is unregistered once, and the
        // driver core frees it. Afterwards no function of an attribute runs, except a store that
        // called `remove_self`, which holds its own reference to the data.
        unsafe { bindings::device_unregister(self.device.as_ptr()) };
        // SAFETY: By the type invariants, the node is of `T`; no attribute function refers to it
        // any more.
        unsafe { self.tables.node.release::<T>() };
    }
}
