// SPDX-License-Identifier: GPL-2.0

//! DMA mapping of scatterlists.
//!
//! The pages belong to the owner of the list, for instance a block request: neither a mapped list
//! nor a segment or region of it keeps them. The list may go back to its owner only after every
//! work request that uses it has completed and every key to it has been invalidated.
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
/// Returns `EINVAL` if the list is empty or mapped already, or if the device would write and the
/// list is not writable; `EIO` if the mapping fails.
#[inline(always)]
pub fn map(device: &Device, list: &mut SgList, direction: DmaDirection) -> Result<u32> {
    let entries = list.nents();
    if entries == 0 || list.mapped() != 0 {
        return Err(EINVAL);
    }
    // The data of a write request may be the kernel's zero page.
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
    // SAFETY: The DMA layer has just mapped the list to `mapped` entries.
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
    // SAFETY: The list was unmapped above.
    unsafe { list.set_mapped(0) };
}
