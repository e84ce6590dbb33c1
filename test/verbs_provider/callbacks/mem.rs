// SPDX-License-Identifier: GPL-2.0

//! Protection domains, memory regions, address handles.

use super::status;
use crate::{
    memory::AddressSpace,
    registration::provider_of,
    request::{
        Datagram,
        Gid, //
    },
    sys,
    Provider, //
};
use core::mem::size_of;
use kernel::{
    ffi::{
        c_int,
        c_uint, //
    },
    prelude::*,
    sync::Arc, //
};
use kernel_ext::errno::EOPNOTSUPP;
use kernel_ext::sync::atomic::{AtomicU32, Ordering};

/// A protection domain: `ib_core`'s part, then its number.
#[repr(C)]
struct PdSlot {
    ib: sys::ib_pd,
    number: u32,
}

/// An address handle: `ib_core`'s part, then the addresses.
#[repr(C)]
struct AhSlot {
    ib: sys::ib_ah,
    lid: u16,
    to: Gid,
    from: Gid,
}

/// A memory region: `ib_core`'s part, then the provider's.
#[repr(C)]
struct MrSlot<P: Provider> {
    ib: sys::ib_mr,
    mr: Arc<P::Mr>,
}

static DOMAINS: AtomicU32 = AtomicU32::new(0);

pub(crate) fn set<P: Provider>(ops: &mut sys::ib_device_ops) {
    ops.size_ib_pd = size_of::<PdSlot>();
    ops.alloc_pd = Some(alloc_pd);
    ops.dealloc_pd = Some(dealloc_pd);
    ops.size_ib_ah = size_of::<AhSlot>();
    ops.create_ah = Some(create_ah);
    ops.destroy_ah = Some(destroy_ah);
    ops.get_dma_mr = Some(get_dma_mr);
    ops.reg_user_mr = Some(reg_user_mr);
    ops.alloc_mr = Some(alloc_mr::<P>);
    ops.dereg_mr = Some(dereg_mr::<P>);
    ops.map_mr_sg = Some(map_mr_sg::<P>);
}

/// Returns the number of a protection domain.
///
/// # Safety
///
/// The caller must ensure that `pd` is a domain of a device of this crate.
pub(super) unsafe fn domain_of(pd: *const sys::ib_pd) -> u32 {
    // SAFETY: By the function requirements; the number does not change.
    unsafe { (*pd.cast::<PdSlot>()).number }
}

/// Returns the datagram that an address handle leads to.
///
/// # Safety
///
/// The caller must ensure that `ah` is a handle of a device of this crate, or null.
pub(super) unsafe fn datagram_of(
    ah: *const sys::ib_ah,
    qp_num: u32,
    qkey: u32,
) -> Result<Datagram> {
    // SAFETY: By the function requirements; the addresses do not change.
    let slot = unsafe { ah.cast::<AhSlot>().as_ref() }.ok_or(EINVAL)?;
    Ok(Datagram {
        lid: slot.lid,
        to: slot.to,
        from: slot.from,
        qp_num,
        qkey,
    })
}

/// Returns the provider's part of a memory region.
///
/// # Safety
///
/// The caller must ensure that `mr` is a region of a device of `P`, which outlives the result.
pub(super) unsafe fn mr_of<'a, P: Provider>(mr: *const sys::ib_mr) -> &'a Arc<P::Mr> {
    // SAFETY: By the function requirements; the place does not change.
    unsafe { &(*mr.cast::<MrSlot<P>>()).mr }
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.alloc_pd`.
unsafe extern "C" fn alloc_pd(pd: *mut sys::ib_pd, _udata: *mut sys::ib_udata) -> c_int {
    // SAFETY: `ib_core` has allocated a slot.
    unsafe { (*pd.cast::<PdSlot>()).number = DOMAINS.fetch_add(1, Ordering::Relaxed) };
    0
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.dealloc_pd`.
unsafe extern "C" fn dealloc_pd(_pd: *mut sys::ib_pd, _udata: *mut sys::ib_udata) -> c_int {
    0
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.create_ah`.
unsafe extern "C" fn create_ah(
    ah: *mut sys::ib_ah,
    attr: *mut sys::rdma_ah_init_attr,
    _udata: *mut sys::ib_udata,
) -> c_int {
    // SAFETY: `ib_core` has allocated a slot, and passes valid attributes, whose source address, if
    // there is one, it has a reference to. Each representation of an address is valid, and of the
    // union that of InfiniBand is, as its type says.
    unsafe {
        let slot = ah.cast::<AhSlot>();
        let to = &*(*attr).ah_attr;
        (*slot).lid = match to.type_ {
            sys::rdma_ah_attr_type_RDMA_AH_ATTR_TYPE_IB => to.__bindgen_anon_1.ib.dlid,
            _ => 0,
        };
        let route = &raw const to.grh;
        (*slot).to = (*route).dgid.raw;
        if let Some(source) = (*route).sgid_attr.as_ref() {
            (*slot).from = source.gid.raw;
        }
    }
    0
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.destroy_ah`.
unsafe extern "C" fn destroy_ah(_ah: *mut sys::ib_ah, _flags: u32) -> c_int {
    0
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.get_dma_mr`.
unsafe extern "C" fn get_dma_mr(_pd: *mut sys::ib_pd, _access: c_int) -> *mut sys::ib_mr {
    EOPNOTSUPP.to_ptr()
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.reg_user_mr`.
unsafe extern "C" fn reg_user_mr(
    _pd: *mut sys::ib_pd,
    _start: u64,
    _length: u64,
    _virt_addr: u64,
    _access: c_int,
    _dmah: *mut sys::ib_dmah,
    _udata: *mut sys::ib_udata,
) -> *mut sys::ib_mr {
    EOPNOTSUPP.to_ptr()
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.alloc_mr`.
unsafe extern "C" fn alloc_mr<P: Provider>(
    pd: *mut sys::ib_pd,
    kind: sys::ib_mr_type,
    pages: u32,
) -> *mut sys::ib_mr {
    if kind != sys::ib_mr_type_IB_MR_TYPE_MEM_REG {
        return EOPNOTSUPP.to_ptr();
    }
    // SAFETY: `ib_core` passes a domain of a device of this provider.
    let created = unsafe {
        provider_of::<P>((*pd).device).and_then(|provider| provider.create_mr(domain_of(pd), pages))
    };
    let slot = created.and_then(|(mr, key)| {
        // SAFETY: All zeroes is how C allocates a region.
        let mut ib: sys::ib_mr = unsafe { core::mem::zeroed() };
        ib.lkey = key;
        ib.rkey = key;
        Ok(KBox::new(MrSlot::<P> { ib, mr }, GFP_KERNEL)?)
    });
    match slot {
        Ok(slot) => KBox::into_raw(slot).cast(),
        Err(error) => error.to_ptr(),
    }
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.dereg_mr`.
unsafe extern "C" fn dereg_mr<P: Provider>(
    mr: *mut sys::ib_mr,
    _udata: *mut sys::ib_udata,
) -> c_int {
    // SAFETY: `alloc_mr` returned the region, and `ib_core` does not use it after this call.
    let slot = unsafe { KBox::from_raw(mr.cast::<MrSlot<P>>()) };
    P::close_mr(&slot.mr);
    0
}

/// # Safety
///
/// The caller must be `ib_core`, as `ib_device_ops.map_mr_sg`.
unsafe extern "C" fn map_mr_sg<P: Provider>(
    mr: *mut sys::ib_mr,
    sg: *mut kernel::bindings::scatterlist,
    nents: c_int,
    offset: *mut c_uint,
) -> c_int {
    // SAFETY: `ib_core` passes a region of this provider.
    P::clear_pages(unsafe { mr_of::<P>(mr) });
    // SAFETY: `ib_core` passes its arguments on; it has set the size of a page.
    unsafe { sys::ib_sg_to_pages(mr, sg.cast(), nents, offset, Some(set_page::<P>)) }
}

/// # Safety
///
/// The caller must be `ib_sg_to_pages`, for [`map_mr_sg`].
unsafe extern "C" fn set_page<P: Provider>(mr: *mut sys::ib_mr, addr: u64) -> c_int {
    // SAFETY: `map_mr_sg` passed a region of this provider, for whose next registration the
    // consumer names a page at this address.
    let (mr, page) = unsafe {
        (
            mr_of::<P>(mr),
            AddressSpace::of((*mr).device).range(addr, u64::from((*mr).page_size)),
        )
    };
    status(P::push_page(mr, page))
}
