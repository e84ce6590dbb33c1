// SPDX-License-Identifier: GPL-2.0

//! Classes, devices, directories, attributes and links in sysfs.
//!
//! An [`Attribute`] is a static: a name and functions that print or parse the state of a `T`. A
//! [`ClassDevice`] or a [`Directory`] holds an `Arc<T>` and shows its attributes. Dropping it
//! removes them and waits until no show or store function runs any more. Afterwards what these
//! functions use may be freed, and the module unloaded.
//!
//! A store function that removes *its own* directory would wait for itself. It first calls
//! [`StoreContext::remove_self`], and no other function may remove its own directory.
//!
//! Not supported: binary attributes, namespaces, symbolic links between class devices made by the
//! driver core.
//!
//! C headers: [`include/linux/kobject.h`](srctree/include/linux/kobject.h),
//! [`include/linux/sysfs.h`](srctree/include/linux/sysfs.h),
//! [`include/linux/device/class.h`](srctree/include/linux/device/class.h)
//!
//! # Examples
//!
//! ```
//! use kernel::sync::{Arc, ArcBorrow};
//! use kernel_ext::sysfs::{Attribute, Class, ClassDevice, Directory, ShowBuffer, StoreContext};
//!
//! struct Control;
//!
//! fn usage(_this: &Control, page: &mut ShowBuffer<'_>) -> Result {
//!     writeln!(page, "Usage: echo <name>")
//! }
//!
//! fn map(_this: ArcBorrow<'_, Control>, _context: &StoreContext<'_>, text: &str) -> Result {
//!     pr_info!("map '{}'\n", text);
//!     Ok(())
//! }
//!
//! static ATTRIBUTES: [Attribute<Control>; 1] = [Attribute::rw(c"map_device", usage, map)];
//!
//! let class = Class::register(c"demo-client")?;
//! let data = Arc::new(Control, GFP_KERNEL)?;
//! let device = ClassDevice::new(&class, c"ctl", &ATTRIBUTES, data)?;
//! let devices = Directory::new(&device, c"devices", &[], Arc::new((), GFP_KERNEL)?)?;
//! # Ok::<(), Error>(())
//! ```

mod attribute;
mod class;
mod directory;
mod link;
mod node;

use kernel::bindings;

pub use attribute::{
    Attribute,
    ShowBuffer,
    ShowFn,
    StoreContext,
    StoreFn, //
};
pub use class::{
    Class,
    ClassDevice, //
};
pub use directory::Directory;
pub use link::Link;
pub use node::check_owner;
pub(crate) use node::wait_for_releases;

/// An object with a kobject, to which links can refer, even if another thread removes it from
/// sysfs meanwhile.
///
/// # Safety
///
/// Implementers must ensure that [`AsKobject::as_kobject`] returns a kobject that stays initialised
/// while `self` lives.
pub unsafe trait AsKobject {
    /// Returns the kobject.
    fn as_kobject(&self) -> *mut bindings::kobject;
}

/// An object with a folder in sysfs, in which entries can be made.
///
/// The kernel leaves it to the owner of a kobject that nothing is made in its folder while that is
/// removed (`sysfs_remove_dir()`). Here the owner is borrowed meanwhile.
///
/// # Safety
///
/// Implementers must ensure that the kobject was added to sysfs, and is removed only by what
/// borrows `self` exclusively or takes it. (If a parent is removed first, its entries become
/// inactive, and nothing can be made in them any more.)
pub unsafe trait HasFolder: AsKobject {}
