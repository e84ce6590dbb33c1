// SPDX-License-Identifier: GPL-2.0

//! A device under `ib_core`.

use crate::{
    callbacks::{
        drain,
        mem,
        port,
        post,
        queues, //
    },
    dma_device::DmaDevice,
    netdev::NetDevice,
    request::{
        Limits,
        PKEYS, //
    },
    sys,
    Provider, //
};
use core::{
    marker::PhantomData,
    mem::size_of,
    ptr::{
        self,
        null_mut,
        NonNull, //
    },
};
use kernel::{
    bindings,
    error::to_result,
    ffi::c_int,
    prelude::*,
    str::CStr,
    sync::Arc, //
};

/// The port; devices of this crate have one.
pub(crate) const PORT: u32 = 1;

/// `RDMA_NODE_IB_CA`.
const NODE_IB_CA: u8 = 1;

/// The memory of a device: `ib_core`'s part, then the provider.
#[repr(C)]
pub(crate) struct DeviceSlot<P> {
    ib: sys::ib_device,
    provider: Option<Arc<P>>,
}

/// Returns the provider of a device.
///
/// # Safety
///
/// The caller must ensure that `device` is that of a [`Registration<P>`], which outlives the
/// result.
pub(crate) unsafe fn provider_of<'a, P: Provider>(device: *const sys::ib_device) -> Result<&'a P> {
    // SAFETY: By the function requirements, the device is the first part of a slot, of which the
    // second does not change while it is registered.
    let provider = unsafe { &(*device.cast::<DeviceSlot<P>>()).provider };
    provider.as_deref().ok_or(ENODEV)
}

/// A registered device; dropping it makes all consumers leave it, waits for that, and removes it.
///
/// # Invariants
///
/// `slot` is a registered device that this value owns. `_dma_device`, if there is one, is that for
/// which its consumers map memory.
pub struct Registration<P: Provider> {
    slot: NonNull<DeviceSlot<P>>,
    /// Dropped after the device has gone.
    _dma_device: Option<DmaDevice>,
    _owner: PhantomData<Arc<P>>,
}

// SAFETY: Any thread may remove a device.
unsafe impl<P: Provider> Send for Registration<P> {}
// SAFETY: There is no method on shared references.
unsafe impl<P: Provider> Sync for Registration<P> {}

impl<P: Provider> Registration<P> {
    /// Registers a device of this name, in which `%d` stands for a number, on a network device if
    /// its port is one of RoCE.
    ///
    /// Consumers map memory for `dma_device`; without one they name it by the kernel's addresses.
    pub fn new(
        name: &CStr,
        netdev: Option<&NetDevice>,
        dma_device: Option<DmaDevice>,
        provider: Arc<P>,
        module: &'static ThisModule,
    ) -> Result<Self> {
        let limits = provider.limits();
        let ops = Self::ops(module, provider.drains());
        // SAFETY: The first namespace always exists. The memory is zeroed.
        let raw = unsafe {
            sys::_ib_alloc_device(size_of::<DeviceSlot<P>>(), &raw mut bindings::init_net)
        };
        let raw = NonNull::new(raw).ok_or(ENOMEM)?;
        let slot = raw.cast::<DeviceSlot<P>>();
        let device = raw.as_ptr();
        let dma = dma_device.as_ref().map_or(null_mut(), DmaDevice::as_raw);
        // SAFETY: The device was just allocated, with the size of a slot, and is not registered.
        let registered = unsafe {
            (&raw mut (*slot.as_ptr()).provider).write(Some(provider));
            (*device).node_type = NODE_IB_CA;
            (*device).phys_port_cnt = PORT;
            (*device).num_comp_vectors = limits.vectors as c_int;
            (*device).local_dma_lkey = 0;
            (*device).node_guid = (slot.as_ptr() as u64).to_be();
            sys::ib_set_device_ops(device, &ops);
            let set = netdev.map_or(0, |netdev| {
                sys::ib_device_set_netdev(device, netdev.as_raw(), PORT)
            });
            to_result(set)
                .and_then(|()| to_result(sys::ib_register_device(device, name.as_char_ptr(), dma)))
        };
        if let Err(error) = registered {
            // SAFETY: The device was allocated above, and is not registered.
            unsafe { Self::free(slot) };
            return Err(error);
        }
        // INVARIANT: The device was just registered.
        Ok(Self {
            slot,
            _dma_device: dma_device,
            _owner: PhantomData,
        })
    }

    /// # Safety
    ///
    /// The caller must ensure that the device is not registered, and not used afterwards.
    unsafe fn free(slot: NonNull<DeviceSlot<P>>) {
        // SAFETY: By the function requirements, only this function uses the provider's place.
        let provider = unsafe { ptr::replace(&raw mut (*slot.as_ptr()).provider, None) };
        // SAFETY: By the function requirements, the device may be freed.
        unsafe { sys::ib_dealloc_device(slot.as_ptr().cast()) };
        drop(provider);
    }

    fn ops(module: &'static ThisModule, drains: bool) -> sys::ib_device_ops {
        // SAFETY: No function and no size is a valid value for each of them.
        let mut ops: sys::ib_device_ops = unsafe { core::mem::zeroed() };
        ops.owner = module.as_ptr().cast();
        port::set::<P>(&mut ops);
        queues::set::<P>(&mut ops);
        post::set::<P>(&mut ops);
        mem::set::<P>(&mut ops);
        if drains {
            drain::set::<P>(&mut ops);
        }
        ops
    }
}

impl<P: Provider> Drop for Registration<P> {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, the device is registered. The function waits until all
        // consumers have destroyed their objects.
        unsafe { sys::ib_unregister_device(self.slot.as_ptr().cast()) };
        // SAFETY: The device was just unregistered.
        unsafe { Self::free(self.slot) };
    }
}

/// Fills the attributes that `ib_core` keeps.
pub(crate) fn write_attributes(limits: &Limits, to: &mut sys::ib_device_attr) {
    const MANY: c_int = 1 << 16;
    // CAST: The device's limits are far below those of `int`.
    let int = |value: u32| value as c_int;
    to.max_mr_size = u64::MAX;
    to.page_size_cap = limits.page_sizes;
    to.max_qp = MANY;
    to.max_qp_wr = int(limits.qp_wr);
    to.device_cap_flags = sys::ib_device_cap_flags_IB_DEVICE_MEM_MGT_EXTENSIONS as u64;
    to.kernel_cap_flags = u64::from(sys::ib_kernel_cap_flags_IBK_LOCAL_DMA_LKEY);
    to.max_send_sge = int(limits.send_sge);
    to.max_recv_sge = int(limits.recv_sge);
    to.max_sge_rd = int(limits.send_sge);
    to.max_cq = MANY;
    to.max_cqe = int(limits.cqe);
    to.max_mr = MANY;
    to.max_pd = MANY;
    to.max_qp_rd_atom = c_int::from(limits.rd_atom);
    to.max_res_rd_atom = MANY;
    to.max_qp_init_rd_atom = c_int::from(limits.rd_atom);
    to.max_ah = MANY;
    to.max_fast_reg_page_list_len = limits.fast_reg_pages;
    // CAST: A small constant.
    to.max_pkeys = PKEYS as u16;
}
