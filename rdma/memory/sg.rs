// SPDX-License-Identifier: GPL-2.0

//! Mapping of scatterlists for a device.
//!
//! The pages of a list are its owner's (a block request's, for instance): neither a mapped list nor
//! a segment or region made of it keeps them alive. The owner may get them back only after every
//! work request that names them has completed and every key to them has been invalidated.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{
    device::Device,
    memory::page_mapping::DmaDirection,
    sys, //
};
use kernel::prelude::*;
use kernel_ext::scatterlist::SgList;

/// Maps `list` for `device` (`ib_dma_map_sg()`), and returns the number of DMA segments, which may
/// be smaller than that of entries. Any context.
///
/// `EINVAL` if the list is empty or mapped already, or if the device is to write and the list is
/// not writable; `EIO` if mapping is impossible.
#[inline(always)]
pub fn map(device: &Device, list: &mut SgList, direction: DmaDirection) -> Result<u32> {
    let entries = list.nents();
    if entries == 0 || list.mapped() != 0 {
        return Err(EINVAL);
    }
    // The data of a write request may be anything, even the kernel's zero page.
    if direction != DmaDirection::ToDevice && !list.is_writable() {
        return Err(EINVAL);
    }
    let count = i32::try_from(entries).map_err(|_| EINVAL)?;
    let (device_raw, raw) = (device.as_raw(), list.as_raw());
    // SAFETY: The device is valid, and the list has `count` entries.
    let mapped = unsafe {
        if device.virt_dma() {
            sys::ib_dma_virt_map_sg(device_raw, raw, count)
        } else {
            sys::rdma_helper_map_sg(device_raw, raw, count, direction.as_raw())
        }
    };
    let mapped = u32::try_from(mapped).map_err(|_| EIO)?;
    if mapped == 0 {
        return Err(EIO);
    }
    // SAFETY: So many entries carry DMA addresses now.
    unsafe { list.set_mapped(mapped) };
    Ok(mapped)
}

/// Undoes [`map`] (`ib_dma_unmap_sg()`); `device` and `direction` must be those of the mapping.
/// Does nothing for a list that is not mapped. Any context.
#[inline(always)]
pub fn unmap(device: &Device, list: &mut SgList, direction: DmaDirection) {
    if list.mapped() == 0 {
        return;
    }
    if !device.virt_dma() {
        // SAFETY: The device is valid, and the list is mapped for it.
        unsafe {
            sys::rdma_helper_unmap_sg(
                device.as_raw(),
                list.as_raw(),
                list.nents() as i32,
                direction.as_raw(),
            )
        };
    }
    // SAFETY: Nothing is mapped any more.
    unsafe { list.set_mapped(0) };
}
