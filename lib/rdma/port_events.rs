// SPDX-License-Identifier: GPL-2.0

//! Port events: ports that become active or inactive, new devices, and devices that fail.
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

/// The device of an event. Two are equal if they name the same device while that is registered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DeviceId(usize);

impl Device {
    /// Returns the identifier of the device in events.
    pub fn id(&self) -> DeviceId {
        DeviceId(self.as_raw() as usize)
    }
}

/// Handles port events. The methods are called in process context and may sleep briefly, but must
/// not wait for anything that waits for the removal of a device.
pub trait PortEvents: Send + Sync {
    /// Handles a port (from 1) of the device that became active.
    fn port_up(&self, _device: DeviceId, _port: u32) {}
    /// Handles a port (from 1) of the device that became inactive.
    fn port_down(&self, _device: DeviceId, _port: u32) {}
    /// Handles a new device, whose port states are not known.
    fn device_added(&self, _device: DeviceId) {}
    /// Handles a device that has failed (`IB_EVENT_DEVICE_FATAL`): it executes nothing any more.
    /// Most drivers remove it later, and add it again.
    fn device_failed(&self, _device: DeviceId) {}
    /// Handles a port (from 1) of the device whose identifiers or partitions may have changed: the
    /// local one, or the tables of global ones and of partition keys, in which each may have
    /// another index; or whose subnet manager has clients register anew.
    fn addresses_changed(&self, _device: DeviceId, _port: u32) {}
    /// Handles the removal of a device, which waits until all objects on it are dropped.
    fn device_removed(&self, _device: DeviceId) {}
}

static LISTENERS: Global<KVec<Arc<dyn PortEvents>>> = Global::new(KVec::new());

/// The devices that are registered.
static DEVICES: Global<KVec<DeviceId>> = Global::new(KVec::new());

impl Device {
    /// Returns the device of this name. Process context, sleeps.
    pub fn find(name: &CStr) -> Option<Self> {
        Self::find_by(|device| *device.name() == *name)
    }

    /// Returns the first device for which `is_it`; [`None`] also without memory for the list of all
    /// devices. Process context, sleeps.
    pub fn find_by(is_it: impl Fn(&Self) -> bool) -> Option<Self> {
        let mut all = KVec::new();
        for id in DEVICES.lock().iter() {
            // SAFETY: `remove` takes a device off the list, under its lock, before the memory is
            // freed.
            let device = unsafe { Self::try_get(id.0 as *mut sys::ib_device) };
            if let Some(device) = device {
                all.push(device, GFP_KERNEL).ok()?;
            }
        }
        // Not under the lock: a look at a port takes locks of the network.
        all.into_iter().find(is_it)
    }
}

fn tell(event: impl Fn(&dyn PortEvents)) {
    for listener in LISTENERS.lock().iter() {
        event(&**listener);
    }
}

/// The registration of a listener. After the drop no call runs any more.
pub struct PortWatch(Arc<dyn PortEvents>);

impl PortWatch {
    /// Registers `listener` for the events of all devices. Existing devices are not reported as
    /// new.
    ///
    /// Returns `ENOMEM` if an allocation fails. Process context, sleeps.
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
            // A static is not dropped when its module is unloaded, so the vector is freed here.
            *listeners = KVec::new();
        }
        drop(listeners);
        drop(removed);
    }
}

/// The event handler of one device.
#[repr(C)]
struct Handler {
    raw: sys::ib_event_handler,
}

/// # Safety
///
/// Must only be called by `ib_core`, with the `raw` of a registered [`Handler`] and an event of its
/// device.
unsafe extern "C" fn handle(_raw: *mut sys::ib_event_handler, event: *mut sys::ib_event) {
    // SAFETY: By the function requirements; the union holds the port number for the events below,
    // and an integer for all others.
    let (kind, device, port) =
        unsafe { ((*event).event, (*event).device, (*event).element.port_num) };
    let device = DeviceId(device as usize);
    match kind {
        sys::ib_event_type_IB_EVENT_PORT_ACTIVE => tell(|l| l.port_up(device, port)),
        sys::ib_event_type_IB_EVENT_PORT_ERR => tell(|l| l.port_down(device, port)),
        sys::ib_event_type_IB_EVENT_GID_CHANGE
        | sys::ib_event_type_IB_EVENT_LID_CHANGE
        | sys::ib_event_type_IB_EVENT_PKEY_CHANGE
        | sys::ib_event_type_IB_EVENT_CLIENT_REREGISTER => {
            tell(|l| l.addresses_changed(device, port));
        }
        sys::ib_event_type_IB_EVENT_DEVICE_FATAL => tell(|l| l.device_failed(device)),
        _ => {}
    }
}

/// # Safety
///
/// Must only be called by `ib_core`, for a device that is being registered.
unsafe extern "C" fn add(device: *mut sys::ib_device) -> c_int {
    let raw = sys::ib_event_handler {
        device,
        handler: Some(handle),
        ..Default::default()
    };
    let Ok(handler) = KBox::new(Handler { raw }, GFP_KERNEL) else {
        return ENOMEM.to_errno();
    };
    let id = DeviceId(device as usize);
    if DEVICES.lock().push(id, GFP_KERNEL).is_err() {
        return ENOMEM.to_errno();
    }
    let handler = KBox::into_raw(handler);
    // SAFETY: The handler is complete, and stays where it is until `remove` has unregistered it.
    unsafe { sys::ib_register_event_handler(&raw mut (*handler).raw) };
    // SAFETY: The client is being added to the device.
    unsafe { sys::ib_set_client_data(device, CLIENT.get(), handler.cast()) };
    tell(|l| l.device_added(id));
    0
}

/// # Safety
///
/// Must only be called by `ib_core`, for a device that is being unregistered, with what [`add`] has
/// set.
unsafe extern "C" fn remove(device: *mut sys::ib_device, data: *mut c_void) {
    let id = DeviceId(device as usize);
    let mut devices = DEVICES.lock();
    devices.retain(|other| *other != id);
    if devices.is_empty() {
        // As in the drop of `PortWatch`.
        *devices = KVec::new();
    }
    drop(devices);
    tell(|l| l.device_removed(id));
    let handler: *mut Handler = data.cast();
    // SAFETY: `add` has registered the handler, and this is called once. The function waits for
    // running calls.
    unsafe { sys::ib_unregister_event_handler(&raw mut (*handler).raw) };
    // SAFETY: `handler` comes from `KBox::into_raw`, and `ib_core` does not refer to it any more.
    drop(unsafe { KBox::from_raw(handler) });
}

/// The client of this module.
struct Client(UnsafeCell<sys::ib_client>);

// SAFETY: Only `ib_core` writes to the client, under its locks.
unsafe impl Sync for Client {}

impl Client {
    const fn get(&self) -> *mut sys::ib_client {
        self.0.get()
    }
}

static CLIENT: Client = Client(UnsafeCell::new({
    // SAFETY: All zeroes is a valid value of this C struct, as in a static of C.
    let mut client: sys::ib_client = unsafe { core::mem::zeroed() };
    client.name = crate::CALLER.to_bytes_with_nul().as_ptr().cast();
    client.add = Some(add);
    client.remove = Some(remove);
    client
}));

/// The registration of this module with `ib_core`.
pub(crate) struct Registration(());

impl Registration {
    /// Registers the client, which adds all devices. Called once, by the module's init. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of `ib_register_client()`.
    pub(crate) fn new() -> Result<Self> {
        // SAFETY: The client is static and complete; the module's exit unregisters it.
        to_result(unsafe { sys::ib_register_client(CLIENT.get()) })?;
        Ok(Self(()))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: `new` has registered the client. The function waits until every device is removed
        // from it.
        unsafe { sys::ib_unregister_client(CLIENT.get()) };
    }
}
