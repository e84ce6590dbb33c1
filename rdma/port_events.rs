// SPDX-License-Identifier: GPL-2.0

//! Ports that come and go: links that carry again, cables that were pulled, new devices.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h), `struct ib_client` and
//! `struct ib_event_handler`

use crate::{
    sys,
    Device, //
};
use core::cell::UnsafeCell;
use kernel::{
    error::to_result,
    ffi::c_int,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::sync::Global;

/// Which device an event is about. Two are the same as long as the device is registered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DeviceId(usize);

impl Device {
    /// Returns what events call the device.
    pub fn id(&self) -> DeviceId {
        DeviceId(self.as_raw() as usize)
    }
}

/// Hears of ports. The functions are called in process context and may sleep for a short while, but
/// must not wait for anything that a device's removal waits for.
pub trait PortEvents: Send + Sync {
    /// The port of the device (from 1) carries packets now.
    fn port_up(&self, device: DeviceId, port: u32);
    /// The port of the device (from 1) carries nothing any more.
    fn port_down(&self, device: DeviceId, port: u32);
    /// A device is new; how its ports are is not known.
    fn device_added(&self, device: DeviceId);
    /// A device is about to go, and waits until no object of it is left.
    fn device_removed(&self, _device: DeviceId) {}
}

static LISTENERS: Global<KVec<Arc<dyn PortEvents>>> = Global::new(KVec::new());

fn tell(event: impl Fn(&dyn PortEvents)) {
    for listener in LISTENERS.lock().iter() {
        event(&**listener);
    }
}

/// A listener's registration, until it is dropped; then no call is running any more.
pub struct PortWatch(Arc<dyn PortEvents>);

impl PortWatch {
    /// Lets `listener` hear of all devices. It does not hear of those that are there already.
    ///
    /// `ENOMEM`. Process context, sleeps.
    pub fn new(listener: Arc<dyn PortEvents>) -> Result<Self> {
        LISTENERS.lock().push(listener.clone(), GFP_KERNEL)?;
        Ok(Self(listener))
    }
}

impl Drop for PortWatch {
    fn drop(&mut self) {
        let mut listeners = LISTENERS.lock();
        let index = listeners.iter().position(|l| Arc::ptr_eq(l, &self.0));
        let removed = index.map(|index| listeners.remove(index));
        if listeners.is_empty() {
            // A static is not dropped when its module goes: nothing of it may be left on the heap.
            *listeners = KVec::new();
        }
        drop(listeners);
        drop(removed);
    }
}

/// What one device's events are heard by.
#[repr(C)]
struct Handler {
    raw: sys::ib_event_handler,
}

/// # Safety
///
/// Called by `ib_core` with the `raw` of a registered [`Handler`] and an event of its device.
unsafe extern "C" fn handle(_raw: *mut sys::ib_event_handler, event: *mut sys::ib_event) {
    // SAFETY: By the requirement; the union holds the port's number for the events that are looked
    // at, and a number in any case.
    let (kind, device, port) =
        unsafe { ((*event).event, (*event).device, (*event).element.port_num) };
    let device = DeviceId(device as usize);
    match kind {
        sys::ib_event_type_IB_EVENT_PORT_ACTIVE => tell(|l| l.port_up(device, port)),
        sys::ib_event_type_IB_EVENT_PORT_ERR => tell(|l| l.port_down(device, port)),
        _ => {}
    }
}

/// # Safety
///
/// Called by `ib_core` for a device that is being registered.
unsafe extern "C" fn add(device: *mut sys::ib_device) -> c_int {
    let raw = sys::ib_event_handler {
        device,
        handler: Some(handle),
        ..Default::default()
    };
    let Ok(handler) = KBox::new(Handler { raw }, GFP_KERNEL) else {
        return ENOMEM.to_errno();
    };
    let handler = KBox::into_raw(handler);
    // SAFETY: The handler is complete, and stays where it is until `remove` has unregistered it.
    unsafe { sys::ib_register_event_handler(&raw mut (*handler).raw) };
    // SAFETY: The client is being added to the device.
    unsafe { sys::ib_set_client_data(device, CLIENT.get(), handler.cast()) };
    tell(|l| l.device_added(DeviceId(device as usize)));
    0
}

/// # Safety
///
/// Called by `ib_core` for a device that is being unregistered, with what [`add`] has set.
unsafe extern "C" fn remove(device: *mut sys::ib_device, data: *mut c_void) {
    tell(|l| l.device_removed(DeviceId(device as usize)));
    let handler: *mut Handler = data.cast();
    // SAFETY: `add` has registered it, and this is called once. It waits for calls that are
    // running.
    unsafe { sys::ib_unregister_event_handler(&raw mut (*handler).raw) };
    // SAFETY: From `KBox::into_raw`, and nobody knows it any more.
    drop(unsafe { KBox::from_raw(handler) });
}

/// The client of this module.
struct Client(UnsafeCell<sys::ib_client>);

// SAFETY: Only `ib_core` writes to it, and locks it.
unsafe impl Sync for Client {}

impl Client {
    const fn get(&self) -> *mut sys::ib_client {
        self.0.get()
    }
}

static CLIENT: Client = Client(UnsafeCell::new({
    // SAFETY: All zeroes is what C leaves in the fields that nobody initialises.
    let mut client: sys::ib_client = unsafe { core::mem::zeroed() };
    client.name = crate::CALLER.to_bytes_with_nul().as_ptr().cast();
    client.add = Some(add);
    client.remove = Some(remove);
    client
}));

/// The registration of this module with `ib_core`.
pub(crate) struct Registration(());

impl Registration {
    /// Registers; all devices are added. Once, by the module's init.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: The client is static and complete; the module's exit unregisters it.
        to_result(unsafe { sys::ib_register_client(CLIENT.get()) })?;
        Ok(Self(()))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: Registered by `new`. It waits until every device is removed from the client.
        unsafe { sys::ib_unregister_client(CLIENT.get()) };
    }
}
