// SPDX-License-Identifier: GPL-2.0

//! Blocks of pages that the device may access.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

use crate::{
    device::Device,
    memory::{
        pd::{
            Pd,
            Retired, //
        },
        segment::{
            fits,
            Segment, //
        }, //
    },
    sys, //
};
use core::mem::ManuallyDrop;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::pages::PageBlock;

/// The direction of a DMA mapping (`enum dma_data_direction`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaDirection {
    /// The CPU writes, the device reads.
    ToDevice,
    /// The device writes, the CPU reads.
    FromDevice,
    /// Both the CPU and the device write.
    Bidirectional,
}

impl DmaDirection {
    #[inline(always)]
    pub(crate) fn as_raw(self) -> kernel::bindings::dma_data_direction {
        match self {
            Self::ToDevice => kernel::bindings::dma_data_direction_DMA_TO_DEVICE,
            Self::FromDevice => kernel::bindings::dma_data_direction_DMA_FROM_DEVICE,
            Self::Bidirectional => kernel::bindings::dma_data_direction_DMA_BIDIRECTIONAL,
        }
    }
}

/// A block of pages, mapped for the device of a protection domain and kept alive.
///
/// On machines whose DMA is not coherent, or uses bounce buffers, writes of the CPU or the device
/// are visible to the other only after a synchronisation. Hence the mapping itself gives no
/// segments, and of the bytes only the [pages](Self::block): bytes are copied from a part that was
/// synchronised [for the CPU](Self::for_cpu), and work requests use a part that was synchronised
/// [for the device](Self::for_device). For a device in software the synchronisation only reads a
/// flag.
pub struct PageMapping {
    memory: ManuallyDrop<MappedMemory>,
    pd: Arc<Pd>,
    local_key: u32,
    virt_dma: bool,
}

/// The DMA mapping and its pages, which may outlive the handle.
///
/// # Invariants
///
/// `dma` is the address at which `length` bytes of `block` are mapped for `device` in `direction`.
pub(crate) struct MappedMemory {
    device: Device,
    block: Arc<PageBlock>,
    dma: u64,
    length: u32,
    direction: DmaDirection,
}

impl PageMapping {
    /// Maps the whole of `block` (`ib_dma_map_page()`). May sleep.
    ///
    /// # Errors
    ///
    /// `ENOMEM` if the device cannot reach the block and no bounce buffer is free, or an allocation
    /// fails; `EINVAL` for a block of 4 GiB or more.
    pub fn new(pd: &Arc<Pd>, block: Arc<PageBlock>, direction: DmaDirection) -> Result<Arc<Self>> {
        let length = u32::try_from(block.len_bytes()).map_err(|_| EINVAL)?;
        let device = pd.device().clone();
        // SAFETY: The device is valid, and the block has `length` bytes from its first page on.
        let dma = unsafe {
            sys::rdma_helper_ib_dma_map_page(
                device.as_raw(),
                block.as_page(),
                0,
                block.len_bytes(),
                direction.as_raw(),
            )
        };
        // SAFETY: The device is valid.
        if unsafe { sys::rdma_helper_ib_dma_mapping_error(device.as_raw(), dma) } != 0 {
            return Err(ENOMEM);
        }
        // INVARIANT: `dma` is the address of the mapping that was just made.
        let memory = MappedMemory {
            device,
            block,
            dma,
            length,
            direction,
        };
        pd.add_handle()?;
        Ok(Arc::new(
            Self {
                local_key: pd.local_dma_key(),
                virt_dma: pd.device().virt_dma(),
                memory: ManuallyDrop::new(memory),
                pd: pd.clone(),
            },
            GFP_KERNEL,
        )?)
    }

    /// Returns the number of bytes.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.memory.length
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the largest power of two that divides the DMA address of the first byte and the
    /// length, which is the largest page size of a region of the block. (A bounce buffer may be
    /// aligned to less than the pages of the block.)
    pub fn alignment(&self) -> u64 {
        let bits = self.memory.dma | u64::from(self.memory.length);
        1u64.wrapping_shl(bits.trailing_zeros())
    }

    /// Synchronises a part of the block for the CPU, which then sees what the device wrote. The
    /// part is cut at the end of the block.
    #[inline(always)]
    pub fn for_cpu(&self, offset: u32, length: u32) -> ForCpu<'_> {
        if !self.virt_dma {
            self.sync(offset, length, sys::rdma_helper_sync_for_cpu);
        }
        ForCpu {
            mapping: self,
            offset,
            length,
        }
    }

    /// Synchronises a part of the block for the device, which then sees what the CPU wrote. The
    /// part is cut at the end of the block.
    #[inline(always)]
    pub fn for_device(&self, offset: u32, length: u32) -> ForDevice<'_> {
        if !self.virt_dma {
            self.sync(offset, length, sys::rdma_helper_sync_for_device);
        }
        ForDevice {
            mapping: self,
            offset,
            length,
        }
    }

    /// Returns the pages, for a user that follows itself whose turn it is: what the device wrote is
    /// in them after [`Self::for_cpu`], and the device sees what is in them after
    /// [`Self::for_device`].
    #[inline(always)]
    pub fn block(&self) -> &Arc<PageBlock> {
        &self.memory.block
    }

    #[inline(never)]
    fn sync(&self, offset: u32, length: u32, helper: SyncHelper) {
        let memory = &*self.memory;
        let offset = offset.min(memory.length);
        let length = length.min(memory.length.saturating_sub(offset));
        if length == 0 {
            return;
        }
        // SAFETY: By the type invariants of `MappedMemory`, the mapping is valid, and the range is
        // inside it.
        unsafe {
            helper(
                memory.device.as_raw(),
                memory.dma.wrapping_add(u64::from(offset)),
                length as usize,
                memory.direction.as_raw(),
            )
        };
    }

    #[inline(always)]
    pub(crate) fn belongs_to(&self, pd: &Arc<Pd>) -> bool {
        Arc::ptr_eq(&self.pd, pd)
    }

    /// Returns whether the device may write to the block.
    pub(crate) fn is_writable(&self) -> bool {
        self.memory.direction != DmaDirection::ToDevice
    }

    pub(crate) fn dma_address(&self) -> u64 {
        self.memory.dma
    }
}

/// A part of a [`PageMapping`] that was synchronised for the CPU.
#[derive(Clone, Copy)]
pub struct ForCpu<'a> {
    mapping: &'a PageMapping,
    offset: u32,
    length: u32,
}

impl<'a> ForCpu<'a> {
    /// Copies the first bytes of the part to `target`.
    ///
    /// Returns `EINVAL` if the part is shorter than `target`.
    #[inline(always)]
    pub fn copy_out(&self, target: &mut [u8]) -> Result {
        if target.len() > self.length as usize {
            return Err(EINVAL);
        }
        let block = &self.mapping.memory.block;
        block.copy_out(self.offset as usize, target)
    }
}

impl ForCpu<'_> {
    /// Copies the part to the start of `target`. Any context.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if either is shorter than the part.
    #[inline(always)]
    pub fn copy_to_block(&self, target: &PageBlock) -> Result {
        let source = &self.mapping.memory.block;
        target.copy_from(source, self.offset as usize, self.length as usize)
    }

    /// Has `copy` copy the part: it gets the pages, and the offset in them.
    #[inline(always)]
    pub fn copy_by(&self, copy: impl FnOnce(&PageBlock, usize) -> Result) -> Result {
        copy(&self.mapping.memory.block, self.offset as usize)
    }
}

/// A part of a [`PageMapping`] that was synchronised for the device.
#[derive(Clone, Copy)]
pub struct ForDevice<'a> {
    mapping: &'a PageMapping,
    offset: u32,
    length: u32,
}

impl<'a> ForDevice<'a> {
    /// Returns the part for a work request; invalid if it reaches beyond the block's end.
    #[inline(always)]
    pub fn segment(&self) -> Segment<'a> {
        let memory = &*self.mapping.memory;
        let addr = memory.dma.wrapping_add(u64::from(self.offset));
        // SAFETY: The mapping belongs to `pd`, is retired to `pd` when dropped, and covers the part
        // if it fits.
        let segment =
            unsafe { Segment::new(&self.mapping.pd, addr, self.length, self.mapping.local_key) };
        segment.or_invalid(fits(self.offset, self.length, memory.length))
    }
}

type SyncHelper =
    unsafe extern "C" fn(*mut sys::ib_device, u64, usize, kernel::bindings::dma_data_direction);

impl Drop for PageMapping {
    fn drop(&mut self) {
        // SAFETY: `self.memory` is not used after this.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        self.pd.retire(Retired::Pages(memory));
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, `dma` is mapped for the device; no work request uses the
        // mapping any more.
        unsafe {
            sys::rdma_helper_ib_dma_unmap_page(
                self.device.as_raw(),
                self.dma,
                self.length as usize,
                self.direction.as_raw(),
            )
        };
    }
}
