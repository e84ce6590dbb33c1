// SPDX-License-Identifier: GPL-2.0

//! What lies behind the attributes of one directory, and the functions that C calls.
//!
//! The functions that C calls are not generic and lie in this module, as does the function that
//! frees a kobject. Code of a user runs only between the creation of its directory and the end of
//! the removal, or under the module reference of [`StoreContext::remove_self`]: when the user's
//! module is gone, nothing refers to its text.

use super::attribute::{
    Attribute,
    ShowBuffer,
    StoreContext, //
};
use core::{
    cell::Cell,
    ffi::c_void,
    marker::PhantomData,
    mem,
    ptr,
    slice,
    str, //
};
use kernel::{
    bindings,
    container_of,
    ffi::c_char,
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
    types::Opaque, //
};

/// The type-specific half of a show: data, attribute, page.
type Show = unsafe fn(*const c_void, *const bindings::attribute, &mut ShowBuffer<'_>) -> Result;
/// The type-specific half of a store: data, attribute, context, text.
type Store =
    unsafe fn(*const c_void, *const bindings::attribute, &StoreContext<'_>, &str) -> Result;

/// The data behind a directory, and how to get at it.
///
/// # Invariants
///
/// `data` comes from `Arc::<T>::into_raw`, and `show` and `store` are those of that `T`. The
/// reference is given back by [`Node::release`], after the removal of the directory.
pub(super) struct Node {
    data: *const c_void,
    show: Show,
    store: Store,
}

impl Node {
    pub(super) fn new<T: Send + Sync + 'static>(data: Arc<T>) -> Self {
        // INVARIANT: all three belong to `T`.
        Self {
            data: Arc::into_raw(data).cast(),
            show: show_of::<T>,
            store: store_of::<T>,
        }
    }

    /// Gives the data back.
    ///
    /// # Safety
    ///
    /// `T` is that of `new`; no function of an attribute refers to the node any more; to be called
    /// once.
    pub(super) unsafe fn release<T>(&self) {
        // SAFETY: from `into_raw` by the invariant, and given back once by the requirement.
        drop(unsafe { Arc::from_raw(self.data.cast::<T>()) });
    }
}

/// # Safety
///
/// `data` is that of a `Node` of `T` whose directory exists, `attribute` one of its attributes.
unsafe fn show_of<T>(
    data: *const c_void,
    attribute: *const bindings::attribute,
    page: &mut ShowBuffer<'_>,
) -> Result {
    // SAFETY: the raw attribute is the first field of an `Attribute<T>`, which is static.
    let attribute = unsafe { &*attribute.cast::<Attribute<T>>() };
    let show = attribute.show.ok_or(EIO)?;
    // SAFETY: the `Arc` lives until the directory is removed, which waits for this function.
    show(unsafe { &*data.cast::<T>() }, page)
}

/// # Safety
///
/// As for `show_of`; the directory may be removed during the call after `remove_self`.
unsafe fn store_of<T>(
    data: *const c_void,
    attribute: *const bindings::attribute,
    context: &StoreContext<'_>,
    text: &str,
) -> Result {
    // SAFETY: the raw attribute is the first field of an `Attribute<T>`, which is static.
    let attribute = unsafe { &*attribute.cast::<Attribute<T>>() };
    let store = attribute.store.ok_or(EIO)?;
    // SAFETY: the `Arc` lives until the directory is removed; that has not happened yet.
    let borrowed = unsafe { ArcBorrow::<'_, T>::from_raw(data.cast()) };
    // The function may remove its directory, and with it the reference behind the borrow.
    let kept = Arc::<T>::from(borrowed);
    store(kept.as_arc_borrow(), context, text)
}

/// # Safety
///
/// The arguments are those of a show function of sysfs; `node` belongs to the kobject.
unsafe fn show(
    node: *const Node,
    attribute: *const bindings::attribute,
    page: *mut c_char,
) -> isize {
    // SAFETY: sysfs passes a page.
    let mut buffer = unsafe { ShowBuffer::new(page.cast()) };
    // SAFETY: the node exists while its directory does, and the removal waits for this function.
    let result = unsafe { ((*node).show)((*node).data, attribute, &mut buffer) };
    match result {
        // CAST: at most a page.
        Ok(()) => buffer.len() as isize,
        Err(error) => error.to_errno() as isize,
    }
}

/// # Safety
///
/// The arguments are those of a store function of sysfs; `node` belongs to the kobject.
unsafe fn store(
    node: *const Node,
    kobject: *mut bindings::kobject,
    attribute: *const bindings::attribute,
    page: *const c_char,
    len: usize,
) -> isize {
    // SAFETY: sysfs passes `len` readable bytes.
    let text = unsafe { slice::from_raw_parts(page.cast::<u8>(), len) };
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let Ok(text) = str::from_utf8(text) else {
        return EINVAL.to_errno() as isize;
    };
    // SAFETY: the node exists now, as above. It may be gone after the call.
    let (data, function) = unsafe { ((*node).data, (*node).store) };
    // INVARIANT: these are the arguments of the running function.
    let context = StoreContext {
        kobject,
        attribute,
        text: function as usize,
        owner: Cell::new(ptr::null_mut()),
        _call: PhantomData,
    };
    // SAFETY: data, function and attribute belong together.
    let result = unsafe { function(data, attribute, &context, text) };
    let owner = context.owner.get();
    if !owner.is_null() {
        // SAFETY: a reference of this call. No code of that module runs in this call any more.
        unsafe { bindings::module_put(owner) };
    }
    match result {
        // CAST: at most a page.
        Ok(()) => len as isize,
        Err(error) => error.to_errno() as isize,
    }
}

/// Checks that `address` lies in the text of `module`: code that is kept for later can then be run
/// while the module is. `EINVAL` if it does not.
pub fn check_owner(module: &'static ThisModule, address: usize) -> Result {
    // SAFETY: the module exists as long as its `ThisModule`.
    let memory = unsafe { &raw const (*module.as_ptr()).mem };
    // SAFETY: as above; the text of a module that is loaded does not move.
    let text = unsafe { &(*memory)[bindings::mod_mem_type_MOD_TEXT as usize] };
    let offset = address.wrapping_sub(text.base as usize);
    if offset < text.size as usize {
        Ok(())
    } else {
        Err(EINVAL)
    }
}

/// # Safety
///
/// Called by the driver core for a device of `ClassDevice`, whose driver data is its node.
pub(super) unsafe extern "C" fn device_show(
    device: *mut bindings::device,
    attribute: *mut bindings::device_attribute,
    page: *mut c_char,
) -> isize {
    // SAFETY: the device exists; the node by the requirement.
    unsafe { show((*device).driver_data.cast(), attribute.cast(), page) }
}

/// # Safety
///
/// Called by the driver core for a device of `ClassDevice`, whose driver data is its node.
pub(super) unsafe extern "C" fn device_store(
    device: *mut bindings::device,
    attribute: *mut bindings::device_attribute,
    page: *const c_char,
    len: usize,
) -> isize {
    // SAFETY: the device exists; the node by the requirement.
    unsafe {
        store(
            (*device).driver_data.cast(),
            &raw mut (*device).kobj,
            attribute.cast(),
            page,
            len,
        )
    }
}

/// A kobject with its node. Its memory belongs to the kobject and is freed by its release function.
///
/// # Invariants
///
/// `node` is null or points at the node of the `Directory` that owns the kobject.
#[repr(C)]
pub(super) struct Object {
    kobject: Opaque<bindings::kobject>,
    node: Node,
}

impl Object {
    pub(super) fn new(node: Node) -> Self {
        Self {
            kobject: Opaque::zeroed(),
            node,
        }
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    pub(super) fn as_kobject(&self) -> *mut bindings::kobject {
        self.kobject.get()
    }
}

/// The object around a kobject.
///
/// # Safety
///
/// The kobject lies in an `Object`.
unsafe fn object_of(kobject: *mut bindings::kobject) -> *mut Object {
    let kobject: *mut Opaque<bindings::kobject> = kobject.cast();
    // SAFETY: by the requirement.
    unsafe { container_of!(kobject, Object, kobject) }
}

/// # Safety
///
/// Called by sysfs for a kobject of type [`TYPE`].
unsafe extern "C" fn kobject_show(
    kobject: *mut bindings::kobject,
    attribute: *mut bindings::attribute,
    page: *mut c_char,
) -> isize {
    // SAFETY: all kobjects of this type lie in an `Object`.
    let object = unsafe { object_of(kobject) };
    // SAFETY: the object exists, as its attribute is being read.
    unsafe { show(&raw const (*object).node, attribute, page) }
}

/// # Safety
///
/// Called by sysfs for a kobject of type [`TYPE`].
unsafe extern "C" fn kobject_store(
    kobject: *mut bindings::kobject,
    attribute: *mut bindings::attribute,
    page: *const c_char,
    len: usize,
) -> isize {
    // SAFETY: all kobjects of this type lie in an `Object`.
    let object = unsafe { object_of(kobject) };
    // SAFETY: the object exists, as its attribute is being written.
    unsafe { store(&raw const (*object).node, kobject, attribute, page, len) }
}

/// # Safety
///
/// Called when nobody refers to a kobject of type [`TYPE`] any more.
unsafe extern "C" fn kobject_release(kobject: *mut bindings::kobject) {
    // SAFETY: all kobjects of this type lie in an `Object` that was a `KBox`, and this is the one
    // place that frees it. The data of the node has been given back before.
    drop(unsafe { KBox::from_raw(object_of(kobject)) });
}

static OPERATIONS: bindings::sysfs_ops = bindings::sysfs_ops {
    show: Some(kobject_show),
    store: Some(kobject_store),
};

/// A `kobj_type` that is only read.
#[repr(transparent)]
pub(super) struct ObjectType(bindings::kobj_type);

// SAFETY: the type is only read.
unsafe impl Sync for ObjectType {}

impl ObjectType {
    pub(super) fn as_raw(&'static self) -> *const bindings::kobj_type {
        &self.0
    }
}

/// The type of all kobjects of this crate.
pub(super) static TYPE: ObjectType = ObjectType(bindings::kobj_type {
    release: Some(kobject_release),
    sysfs_ops: &OPERATIONS,
    // SAFETY: all bytes zero is a valid value of this C struct: null pointers.
    ..unsafe { mem::zeroed() }
});
