// SPDX-License-Identifier: GPL-2.0

//! The data of the attributes of one directory, and the functions that C calls.
//!
//! The functions that C calls are not generic and lie in this module, as does the function that
//! frees a kobject. Code of a user runs only between the creation of its directory and the end of
//! the removal, or under the module reference of [`StoreContext::remove_self`]. After the unload of
//! the user's module no pointer to its text is left.

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
    time::{
        delay::fsleep,
        Delta, //
    },
    types::Opaque, //
};

use crate::sync::atomic::{
    AtomicU8,
    AtomicUsize,
    Ordering, //
};

/// The type-specific half of a show: data, attribute, page.
type Show = unsafe fn(*const c_void, *const bindings::attribute, &mut ShowBuffer<'_>) -> Result;
/// The type-specific half of a store: data, attribute, context, text.
type Store =
    unsafe fn(*const c_void, *const bindings::attribute, &StoreContext<'_>, &str) -> Result;

/// The part of a directory that is being removed. A store function that removes its own file and
/// the end of the directory take turns: the kernel finds the file by a pointer of the kobject,
/// which it clears before it waits for store functions.
pub(super) struct Removal(AtomicU8);

impl Removal {
    const NOTHING: u8 = 0;
    const FILE: u8 = 1;
    const DIRECTORY: u8 = 2;

    fn take(&self, what: u8) -> bool {
        let taken =
            self.0
                .compare_exchange(Self::NOTHING, what, Ordering::Acquire, Ordering::Relaxed);
        taken.is_ok()
    }

    /// Begins the removal of a file by its writer; `false` if another one is being removed, or the
    /// directory.
    pub(super) fn begin_file(&self) -> bool {
        self.take(Self::FILE)
    }

    /// Ends the removal of a file. The directory, and this value, may be gone at any time after it.
    pub(super) fn end_file(&self) {
        self.0.store(Self::NOTHING, Ordering::Release);
    }

    /// Begins the removal of the directory: from here on no file removes itself. Sleeps.
    fn begin_directory(&self) {
        while !self.take(Self::DIRECTORY) {
            fsleep(Delta::from_millis(1));
        }
    }
}

/// The data of a directory, and its typed show and store functions.
///
/// # Invariants
///
/// `data` comes from `Arc::<T>::into_raw`, and `show` and `store` are those of that `T`.
/// [`Node::release`] drops the reference, after the removal of the directory.
pub(super) struct Node {
    data: *const c_void,
    show: Show,
    store: Store,
    removal: Removal,
}

impl Node {
    pub(super) fn new<T: Send + Sync + 'static>(data: Arc<T>) -> Self {
        // INVARIANT: All three fields are those of `T`.
        Self {
            data: Arc::into_raw(data).cast(),
            show: show_of::<T>,
            store: store_of::<T>,
            removal: Removal(AtomicU8::new(Removal::NOTHING)),
        }
    }

    /// Says that the directory is about to be removed. Sleeps, while a file of it removes itself.
    pub(super) fn begin_removal(&self) {
        self.removal.begin_directory();
    }

    /// Drops the reference to the data.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `T` is that of `new`, that no function of an attribute refers to
    /// the node any more, and that this is called once.
    pub(super) unsafe fn release<T>(&self) {
        // SAFETY: By the type invariants, `data` comes from `into_raw`; by the function
        // requirements, the reference is dropped once.
        drop(unsafe { Arc::from_raw(self.data.cast::<T>()) });
    }
}

/// # Safety
///
/// The caller must ensure that `data` is that of a `Node` of `T` whose directory exists, and that
/// `attribute` is one of its attributes.
unsafe fn show_of<T>(
    data: *const c_void,
    attribute: *const bindings::attribute,
    page: &mut ShowBuffer<'_>,
) -> Result {
    // SAFETY: The raw attribute is the first field of an `Attribute<T>`, which is static.
    let attribute = unsafe { &*attribute.cast::<Attribute<T>>() };
    let show = attribute.show.ok_or(EIO)?;
    // SAFETY: The `Arc` lives until the directory is removed, which waits for this function.
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
    // SAFETY: The raw attribute is the first field of an `Attribute<T>`, which is static.
    let attribute = unsafe { &*attribute.cast::<Attribute<T>>() };
    let store = attribute.store.ok_or(EIO)?;
    // SAFETY: The `Arc` lives until the directory is removed; that has not happened yet.
    let borrowed = unsafe { ArcBorrow::<'_, T>::from_raw(data.cast()) };
    // The function may remove its directory, and with it the reference behind the borrow.
    let kept = Arc::<T>::from(borrowed);
    store(kept.as_arc_borrow(), context, text)
}

/// # Safety
///
/// The caller must ensure that the arguments are those of a show function of sysfs, and that `node`
/// belongs to the kobject.
unsafe fn show(
    node: *const Node,
    attribute: *const bindings::attribute,
    page: *mut c_char,
) -> isize {
    // SAFETY: Sysfs passes a page.
    let mut buffer = unsafe { ShowBuffer::new(page.cast()) };
    // SAFETY: The node exists while its directory does, and the removal waits for this function.
    let result = unsafe { ((*node).show)((*node).data, attribute, &mut buffer) };
    match result {
        // CAST: The length is at most a page.
        Ok(()) => buffer.len() as isize,
        Err(error) => error.to_errno() as isize,
    }
}

/// # Safety
///
/// The caller must ensure that the arguments are those of a store function of sysfs, and that
/// `node` belongs to the kobject.
unsafe fn store(
    node: *const Node,
    kobject: *mut bindings::kobject,
    attribute: *const bindings::attribute,
    page: *const c_char,
    len: usize,
) -> isize {
    // SAFETY: Sysfs passes `len` readable bytes.
    let text = unsafe { slice::from_raw_parts(page.cast::<u8>(), len) };
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let Ok(text) = str::from_utf8(text) else {
        return EINVAL.to_errno() as isize;
    };
    // SAFETY: By the function requirements, the node belongs to the kobject whose attribute is
    // being written, so it exists now. It may be gone after the call.
    let (data, function, removal) =
        unsafe { ((*node).data, (*node).store, &raw const (*node).removal) };
    // INVARIANT: These are the arguments of the running function.
    let context = StoreContext {
        kobject,
        attribute,
        removal,
        text: function as usize,
        owner: Cell::new(ptr::null_mut()),
        _call: PhantomData,
    };
    // SAFETY: Data, function and attribute belong together.
    let result = unsafe { function(data, attribute, &context, text) };
    let owner = context.owner.get();
    if !owner.is_null() {
        // SAFETY: This call owns the reference to `owner`. No code of that module runs in this call
        // any more.
        unsafe { bindings::module_put(owner) };
    }
    match result {
        // CAST: The length is at most a page.
        Ok(()) => len as isize,
        Err(error) => error.to_errno() as isize,
    }
}

/// Checks that `address` lies in the text of `module`, so that a stored function pointer is valid
/// while the module is loaded. Returns `EINVAL` if it does not.
pub fn check_owner(module: &'static ThisModule, address: usize) -> Result {
    // SAFETY: The module exists as long as its `ThisModule`.
    let memory = unsafe { &raw const (*module.as_ptr()).mem };
    // SAFETY: The module exists; the description of its text does not change while it is loaded.
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
/// Must only be called by the driver core, for a device of `ClassDevice`, whose driver data is its
/// node.
pub(super) unsafe extern "C" fn device_show(
    device: *mut bindings::device,
    attribute: *mut bindings::device_attribute,
    page: *mut c_char,
) -> isize {
    // SAFETY: The device exists; the node by the function requirements.
    unsafe { show((*device).driver_data.cast(), attribute.cast(), page) }
}

/// # Safety
///
/// Must only be called by the driver core, for a device of `ClassDevice`, whose driver data is its
/// node.
pub(super) unsafe extern "C" fn device_store(
    device: *mut bindings::device,
    attribute: *mut bindings::device_attribute,
    page: *const c_char,
    len: usize,
) -> isize {
    // SAFETY: The device exists; the node by the function requirements.
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

/// A kobject with its node. The release function of the kobject frees the memory.
///
/// # Invariants
///
/// `node` is null or points at the node of the `Directory` that owns the kobject.
#[repr(C)]
pub(super) struct Object {
    kobject: Opaque<bindings::kobject>,
    node: Node,
}

/// The objects whose memory the kobject core has not given back yet.
static OBJECTS: AtomicUsize = AtomicUsize::new(0);

/// Waits until the kobject core has released every object. Sleeps.
///
/// This crate's module must stay until then, as [`kobject_release`] is in it. A reference is put
/// late if a part of the kernel still has one, and with `CONFIG_DEBUG_KOBJECT_RELEASE` up to 4 s
/// after the last one. What is left of that function after it has counted is a return, which is
/// over when the module's memory is freed: that waits for RCU.
pub(crate) fn wait_for_releases() {
    while OBJECTS.load(Ordering::Acquire) != 0 {
        fsleep(Delta::from_millis(10));
    }
}

impl Object {
    pub(super) fn new(node: Node) -> Self {
        OBJECTS.fetch_add(1, Ordering::Relaxed);
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

/// Returns the object around a kobject.
///
/// # Safety
///
/// The caller must ensure that the kobject lies in an `Object`.
unsafe fn object_of(kobject: *mut bindings::kobject) -> *mut Object {
    let kobject: *mut Opaque<bindings::kobject> = kobject.cast();
    // SAFETY: By the function requirements.
    unsafe { container_of!(kobject, Object, kobject) }
}

/// # Safety
///
/// Must only be called by sysfs, for a kobject of type [`TYPE`].
unsafe extern "C" fn kobject_show(
    kobject: *mut bindings::kobject,
    attribute: *mut bindings::attribute,
    page: *mut c_char,
) -> isize {
    // SAFETY: All kobjects of this type lie in an `Object`.
    let object = unsafe { object_of(kobject) };
    // SAFETY: The object exists, as its attribute is being read.
    unsafe { show(&raw const (*object).node, attribute, page) }
}

/// # Safety
///
/// Must only be called by sysfs, for a kobject of type [`TYPE`].
unsafe extern "C" fn kobject_store(
    kobject: *mut bindings::kobject,
    attribute: *mut bindings::attribute,
    page: *const c_char,
    len: usize,
) -> isize {
    // SAFETY: All kobjects of this type lie in an `Object`.
    let object = unsafe { object_of(kobject) };
    // SAFETY: The object exists, as its attribute is being written.
    unsafe { store(&raw const (*object).node, kobject, attribute, page, len) }
}

/// # Safety
///
/// Must only be called by the kobject core, when the last reference to a kobject of type [`TYPE`]
/// is dropped.
unsafe extern "C" fn kobject_release(kobject: *mut bindings::kobject) {
    // SAFETY: All kobjects of this type lie in an `Object` that was a `KBox`, and this is the one
    // place that frees it. [`Node::release`] has dropped the data of the node before.
    drop(unsafe { KBox::from_raw(object_of(kobject)) });
    OBJECTS.fetch_sub(1, Ordering::Release);
}

static OPERATIONS: bindings::sysfs_ops = bindings::sysfs_ops {
    show: Some(kobject_show),
    store: Some(kobject_store),
};

/// A read-only `kobj_type`.
#[repr(transparent)]
pub(super) struct ObjectType(bindings::kobj_type);

// SAFETY: The type is only read.
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
    // SAFETY: All bytes zero is a valid value of this C struct: null pointers.
    ..unsafe { mem::zeroed() }
});
