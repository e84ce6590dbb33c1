// SPDX-License-Identifier: GPL-2.0

//! The attribute `wwid` in the folder of a disk, as NVMe disks have it, from which udev makes names
//! in `/dev/disk/by-id`.

use super::fops::DiskFops;
use core::{
    mem,
    ptr, //
};
use kernel::{
    bindings,
    container_of,
    ffi::c_char,
    prelude::*,
    str::CStr, //
};

/// A read-only static with raw pointers.
#[repr(transparent)]
struct ReadOnly<T>(T);

// SAFETY: The values below are constants and never written; their pointers refer to statics.
unsafe impl<T> Sync for ReadOnly<T> {}

const fn attribute(name: &'static CStr, mode: u16) -> bindings::attribute {
    // SAFETY: All bytes zero is a valid value of this C struct. With lockdep it has more fields.
    let mut attribute: bindings::attribute = unsafe { mem::zeroed() };
    attribute.name = name.to_bytes_with_nul().as_ptr().cast();
    attribute.mode = mode;
    attribute
}

static WWID: ReadOnly<bindings::device_attribute> = ReadOnly(bindings::device_attribute {
    attr: attribute(c"wwid", 0o444),
    __bindgen_anon_1: bindings::device_attribute__bindgen_ty_1 { show: Some(show) },
    __bindgen_anon_2: bindings::device_attribute__bindgen_ty_2 { store: None },
});

static ATTRIBUTES: ReadOnly<[*const bindings::attribute; 2]> =
    ReadOnly([&raw const WWID.0.attr, ptr::null()]);

static GROUP: ReadOnly<bindings::attribute_group> = ReadOnly(bindings::attribute_group {
    __bindgen_anon_2: bindings::attribute_group__bindgen_ty_2 {
        attrs: (&raw const ATTRIBUTES.0).cast_mut().cast(),
    },
    // SAFETY: All bytes zero is a valid value of this C struct: null pointers.
    ..unsafe { mem::zeroed() }
});

static GROUPS: ReadOnly<[*const bindings::attribute_group; 2]> =
    ReadOnly([&raw const GROUP.0, ptr::null()]);

/// The attribute groups for `device_add_disk`; only for disks whose operations are a [`DiskFops`].
pub(super) fn groups() -> *mut *const bindings::attribute_group {
    (&raw const GROUPS.0).cast_mut().cast()
}

/// Prints `naa.` and 16 digits, the form of SCSI disks.
///
/// # Safety
///
/// Must only be called by the driver core, for the device of a whole disk whose operations are a
/// [`DiskFops`].
unsafe extern "C" fn show(
    device: *mut bindings::device,
    _attribute: *mut bindings::device_attribute,
    page: *mut c_char,
) -> isize {
    // SAFETY: By the function requirements, the device is in the block device of a whole disk.
    let bdev = unsafe { container_of!(device, bindings::block_device, bd_device) };
    // SAFETY: By the function requirements; the attribute is removed before the disk is freed.
    let fops = unsafe { &*(*(*bdev).bd_disk).fops.cast::<DiskFops>() };
    // SAFETY: Sysfs passes a page; the format takes one 64-bit number.
    let len = unsafe { bindings::sysfs_emit(page, c"naa.%016llx\n".as_char_ptr(), fops.naa()) };
    // CAST: The length is at most a page.
    len as isize
}
