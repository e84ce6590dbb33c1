// SPDX-License-Identifier: GPL-2.0

//! Misc devices whose module stays while one is open.
//!
//! `kernel::miscdevice` of 7.2 names no owner in its operations, so that a module could be unloaded
//! while a program has its file open. It replaces this when it does.
//!
//! C header: [`include/linux/miscdevice.h`](srctree/include/linux/miscdevice.h)

use kernel::{
    bindings,
    error::to_result,
    miscdevice::{
        MiscDevice,
        MiscDeviceOptions, //
    },
    prelude::*,
    str::CStr,
    types::Opaque, //
};

/// A file of `/dev`, whose operations are those of `T`. Its drop removes it.
///
/// The module that is loaded registers it last, as a program that opens it must find all that it
/// uses, and does not remove it before it is loaded.
///
/// # Invariants
///
/// `inner` is registered, and never moves. Its operations are never freed: files that are open use
/// them, also when it has been removed.
#[pin_data(PinnedDrop)]
pub struct OwnedMiscDevice {
    #[pin]
    inner: Opaque<bindings::miscdevice>,
}

// SAFETY: A device may be removed by another thread than the one that has registered it.
unsafe impl Send for OwnedMiscDevice {}
// SAFETY: There are no methods.
unsafe impl Sync for OwnedMiscDevice {}

impl OwnedMiscDevice {
    /// Registers `/dev/<name>`, with a minor number of its own, and takes some hundred bytes for
    /// good. May sleep.
    ///
    /// # Errors
    ///
    /// `EEXIST`, `EBUSY` without a free number, `ENOMEM`.
    pub fn register<T: MiscDevice>(
        name: &'static CStr,
        module: &'static ThisModule,
    ) -> Result<Pin<KBox<Self>>> {
        let mut raw = MiscDeviceOptions { name }.into_raw::<T>();
        // SAFETY: `into_raw` has set a pointer to static operations.
        let operations = KBox::leak(KBox::new(unsafe { *raw.fops }, GFP_KERNEL)?);
        operations.owner = module.as_ptr();
        raw.fops = &raw const *operations;
        KBox::try_pin_init(
            try_pin_init!(Self {
                inner <- Opaque::try_ffi_init(move |slot: *mut bindings::miscdevice| {
                    // SAFETY: The slot is writable memory for a device.
                    unsafe { slot.write(raw) };
                    // SAFETY: The device was just written, does not move, and is removed before its
                    // memory is freed. A `MiscDeviceRegistration`, as which the operations of `T`
                    // see it, is transparent.
                    to_result(unsafe { bindings::misc_register(slot) })
                }),
            }? Error),
            GFP_KERNEL,
        )
    }
}

#[pinned_drop]
impl PinnedDrop for OwnedMiscDevice {
    fn drop(self: Pin<&mut Self>) {
        // SAFETY: By the type invariants, the device is registered.
        unsafe { bindings::misc_deregister(self.inner.get()) };
    }
}
