// SPDX-License-Identifier: GPL-2.0

//! DMA mapping of scatterlists.
//!
//! A list records the device and the direction of its mapping: regions and work requests of another
//! device refuse it, and a list that the device may only read is not registered for writing, as
//! only an [`Unmapper`] maps it with a region.
//!
//! The pages belong to the owner of the list, for instance a block request, which does not give
//! them back while the list is mapped: a request that would end then stays, and a table leaks its
//! pages. Only [`unmap`] ends the mapping, on behalf of an [`Unmapper`], which has promised to know
//! that the device is done with the list (decision 0014).
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{
    device::Device,
    memory::page_mapping::DmaDirection,
    sys, //
};
use kernel::prelude::*;
use kernel_ext::scatterlist::{
    DmaMapping,
    SgList, //
};

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
    let mapping = DmaMapping {
        device: device_raw as usize,
        direction: direction.as_raw(),
    };
    // SAFETY: The DMA layer has just mapped the list to `mapped` entries, for this.
    unsafe { list.set_mapped(mapped, mapping) };
    Ok(mapped)
}

/// Returns whether `list` is mapped for `device`.
#[inline(always)]
pub(crate) fn is_mapped_for(list: &SgList, device: &Device) -> bool {
    let mapping = list.mapping();
    mapping.is_some_and(|mapping| mapping.device == device.as_raw() as usize)
}

/// A type that follows its mapped lists, and the regions for them, from the first work request to
/// the last.
///
/// Only unsafe code can promise that:
///
/// ```compile_fail,E0200
/// use rdma::{sg::Unmapper, Device};
///
/// struct Promise(Device);
///
/// impl Unmapper for Promise {
///     fn device(&self) -> &Device {
///         &self.0
///     }
/// }
/// ```
///
/// # Safety
///
/// The implementation calls [`unmap`] for a list only when
///
/// - every work request that was posted with a segment of the list has completed, or will never be
///   posted;
/// - every key under which a region of the list was registered is invalid, or gives local access
///   only and is named by no work request that is posted or may be posted;
/// - no region that still [maps](crate::Mr::map) the list is registered afterwards;
///
/// or when all queue pairs of the domain are [drained](crate::Drained), every region of the domain
/// that was registered for the list is [renewed](crate::Mr::renew) before the domain gets another
/// queue pair, and the third holds.
///
/// It [maps](crate::Mr::map) a list with a region only when
///
/// - every work request that was posted and that registers the region, or names its key, has
///   completed, and no other will be posted;
/// - the key under which the region was last registered is invalid, or lets only the device itself
///   read.
pub unsafe trait Unmapper {
    /// Returns the device for which the lists are mapped.
    fn device(&self) -> &Device;
}

/// Undoes [`map`] (`ib_dma_unmap_sg()`), on behalf of `unmapper`. Does nothing for a list that is
/// not mapped for its device: it stays mapped for another one. Any context.
#[inline(always)]
pub fn unmap(unmapper: &impl Unmapper, list: &mut SgList) {
    let device = unmapper.device();
    let Some(mapping) = list.mapping() else {
        return;
    };
    if mapping.device != device.as_raw() as usize {
        return;
    }
    if !device.virt_dma() {
        // SAFETY: The device is valid, and the list is mapped for it, in this direction.
        unsafe {
            sys::rdma_helper_unmap_sg(
                device.as_raw(),
                list.as_raw(),
                list.nents() as i32,
                mapping.direction,
            )
        };
    }
    // SAFETY: The list was unmapped above.
    unsafe { list.set_unmapped() };
}
