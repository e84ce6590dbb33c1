// SPDX-License-Identifier: GPL-2.0

//! Blocks of pages that the device may use.
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

/// Who writes what is mapped (`enum dma_data_direction`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DmaDirection {
    /// The CPU writes, the device reads.
    ToDevice,
    /// The device writes, the CPU reads.
    FromDevice,
    /// Both write.
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
/// On machines whose DMA is not coherent, or goes through bounce buffers, what one of CPU and
/// device writes is not seen by the other before the memory is handed over. Hence the mapping
/// itself has neither bytes nor segments: bytes are copied out of what was taken over
/// [for the CPU](Self::for_cpu), and work requests name what was handed over
/// [to the device](Self::for_device). Where both see the same memory anyway, as with devices that
/// the CPU implements, that costs a look at a flag.
pub struct PageMapping {
    memory: ManuallyDrop<MappedMemory>,
    pd: Arc<Pd>,
    local_key: u32,
    virt_dma: bool,
}

/// What remains of a mapping when its handle is dropped.
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
        // INVARIANT: Just mapped.
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

    /// The number of bytes.
    #[inline(always)]
    pub fn len(&self) -> u32 {
        self.memory.length
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The largest power of two that divides the device's address of the first byte, and the
    /// length: larger pages a region of the block cannot have. (The pages of the block are aligned
    /// better than a bounce buffer may be.)
    pub fn alignment(&self) -> u64 {
        let bits = self.memory.dma | u64::from(self.memory.length);
        1u64.wrapping_shl(bits.trailing_zeros())
    }

    /// Takes a part of the block over from the device: the CPU sees what the device wrote there
    /// until now. What is beyond the end is not part of it.
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

    /// Hands a part of the block over to the device: it sees what the CPU wrote there until now.
    /// What is beyond the end is not part of it.
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

    #[inline(never)]
    fn sync(&self, offset: u32, length: u32, helper: SyncHelper) {
        let memory = &*self.memory;
        let offset = offset.min(memory.length);
        let length = length.min(memory.length.saturating_sub(offset));
        if length == 0 {
            return;
        }
        // SAFETY: By the type invariant of `MappedMemory`, and the range is inside the mapping.
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
    pub(crate) fn is_of(&self, pd: &Arc<Pd>) -> bool {
        Arc::ptr_eq(&self.pd, pd)
    }

    pub(crate) fn dma_address(&self) -> u64 {
        self.memory.dma
    }
}

/// A part of a [`PageMapping`] that was taken over from the device.
#[derive(Clone, Copy)]
pub struct ForCpu<'a> {
    mapping: &'a PageMapping,
    offset: u32,
    length: u32,
}

impl<'a> ForCpu<'a> {
    /// Copies the first bytes of the part out, as many as `target` has.
    ///
    /// `EINVAL` if it has not so many.
    #[inline(always)]
    pub fn copy_out(&self, target: &mut [u8]) -> Result {
        if target.len() > self.length as usize {
            return Err(EINVAL);
        }
        self.block().copy_out(self.offset as usize, target)
    }

    /// The block: of its bytes the CPU may use those of the part.
    #[inline(always)]
    pub fn block(&self) -> &'a Arc<PageBlock> {
        &self.mapping.memory.block
    }
}

/// A part of a [`PageMapping`] that was handed over to the device.
#[derive(Clone, Copy)]
pub struct ForDevice<'a> {
    mapping: &'a PageMapping,
    offset: u32,
    length: u32,
}

impl<'a> ForDevice<'a> {
    /// The part, to be posted; invalid if it reaches beyond the block's end.
    #[inline(always)]
    pub fn segment(&self) -> Segment<'a> {
        let memory = &*self.mapping.memory;
        let addr = memory.dma.wrapping_add(u64::from(self.offset));
        // SAFETY: The mapping is of `pd`, is retired to `pd` when dropped, and covers the part if
        // that fits.
        let segment =
            unsafe { Segment::new(&self.mapping.pd, addr, self.length, self.mapping.local_key) };
        segment.only_if(fits(self.offset, self.length, memory.length))
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
        // SAFETY: By the type invariant; no work request uses the mapping any more.
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
