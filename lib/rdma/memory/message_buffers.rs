// SPDX-License-Identifier: GPL-2.0

//! Message buffers: an array of slots of equal size that the device may access.
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
use core::{
    mem::ManuallyDrop,
    ptr::{self, NonNull}, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};

/// Slots begin at multiples of a cache line.
const SLOT_ALIGN: usize = 64;

/// Slots share allocations of this size, or have one each if they are larger.
const BLOCK_BYTES: usize = 16 * 1024;

/// An array of message buffers, zeroed at first.
///
/// The memory is coherent: writes of the CPU are visible to the device without explicit
/// synchronisation, and vice versa. As the device may access it at any time, the type gives copies
/// and no slices; a copy made while the device writes may mix old and new bytes.
///
/// # Invariants
///
/// Every place is inside a block of `memory` and has `size` bytes, which do not overlap with
/// another place.
pub struct MessageBuffers {
    places: KVVec<Place>,
    pd: Arc<Pd>,
    local_key: u32,
    size: u32,
    memory: ManuallyDrop<SlotMemory>,
}

/// The memory of the slots, which may outlive their handle.
///
/// # Invariants
///
/// Every block has `block_bytes` bytes that were allocated for `device`.
pub(crate) struct SlotMemory {
    device: Device,
    block_bytes: usize,
    blocks: KVVec<Place>,
}

/// The addresses of some memory, for the CPU and for the device.
#[derive(Clone, Copy)]
struct Place {
    cpu: NonNull<u8>,
    dma: u64,
}

// SAFETY: The memory is not tied to a thread.
unsafe impl Send for Place {}
// SAFETY: The bytes are accessed by copies through raw pointers only.
unsafe impl Sync for Place {}

impl MessageBuffers {
    /// Allocates `count` slots of `size` bytes each. Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if either is zero or a slot is larger than 1 MiB; `ENOMEM`.
    pub fn new(pd: &Arc<Pd>, count: u32, size: u32) -> Result<Self> {
        Self::aligned(pd, count, size, SLOT_ALIGN)
    }

    /// Allocates slots that share cache lines, for small messages that one CPU handles
    /// sequentially; else as [`new`](Self::new), with its errors. Sleeps.
    pub fn packed(pd: &Arc<Pd>, count: u32, size: u32) -> Result<Self> {
        Self::aligned(pd, count, size, align_of::<u64>())
    }

    fn aligned(pd: &Arc<Pd>, count: u32, size: u32, align: usize) -> Result<Self> {
        if count == 0 || size == 0 || size > 1 << 20 {
            return Err(EINVAL);
        }
        let count = count as usize;
        let stride = (size as usize)
            .checked_next_multiple_of(align)
            .ok_or(EINVAL)?;
        let in_block = BLOCK_BYTES.checked_div(stride).unwrap_or(1).max(1);
        let block_bytes = stride.saturating_mul(in_block).max(BLOCK_BYTES);
        // Rounds up.
        let blocks = count
            .wrapping_sub(1)
            .checked_div(in_block)
            .ok_or(EINVAL)?
            .wrapping_add(1);
        let mut memory = SlotMemory {
            device: pd.device().clone(),
            block_bytes,
            blocks: KVVec::with_capacity(blocks, GFP_KERNEL)?,
        };
        let mut places = KVVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..blocks {
            let block = memory.add()?;
            let rest = count.saturating_sub(places.len());
            for index in 0..rest.min(in_block) {
                let start = index.wrapping_mul(stride);
                // INVARIANT: `in_block` strides fit into a block.
                // SAFETY: By the invariant above, the offset is within the block, which is one
                // allocation.
                let cpu = unsafe { block.cpu.add(start) };
                let dma = block.dma.wrapping_add(start as u64);
                places.push(Place { cpu, dma }, GFP_KERNEL)?;
            }
        }
        pd.add_handle()?;
        Ok(Self {
            places,
            pd: pd.clone(),
            local_key: pd.local_dma_key(),
            size,
            memory: ManuallyDrop::new(memory),
        })
    }

    /// Returns the size of a slot in bytes.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Copies `bytes` into slot `buffer`, from `offset` on. Returns `EINVAL` if they do not fit.
    /// Any context.
    #[inline(always)]
    pub fn write(&self, buffer: u32, offset: u32, bytes: &[u8]) -> Result {
        let length = u32::try_from(bytes.len()).map_err(|_| EINVAL)?;
        let cpu = self.locate(buffer, offset, length).ok_or(EINVAL)?;
        // SAFETY: `locate` returns a place of at least `length` bytes, to which no reference
        // exists. A concurrent access by the device is not a data race between threads.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), cpu, bytes.len()) };
        Ok(())
    }

    /// Copies from slot `buffer`, from `offset` on. Returns `EINVAL` if that is beyond its end. Any
    /// context.
    #[inline(always)]
    pub fn read(&self, buffer: u32, offset: u32, into: &mut [u8]) -> Result {
        let length = u32::try_from(into.len()).map_err(|_| EINVAL)?;
        let cpu = self.locate(buffer, offset, length).ok_or(EINVAL)?;
        // SAFETY: As in `write()`.
        unsafe { ptr::copy_nonoverlapping(cpu.cast_const(), into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    /// Returns the first `length` bytes of slot `buffer`, for several accesses; [`None`] if there
    /// is no such slot, or it is smaller.
    #[inline(always)]
    pub fn buffer(&self, buffer: u32, length: u32) -> Option<MessageBuffer<'_>> {
        let place = *self.places.get(buffer as usize)?;
        // INVARIANT: The length was checked.
        (length <= self.size).then_some(MessageBuffer {
            buffers: self,
            place,
            length,
        })
    }

    /// Returns a part of slot `buffer` for a work request.
    #[inline(always)]
    pub fn segment(&self, buffer: u32, offset: u32, length: u32) -> Segment<'_> {
        let (dma, good) = match self.places.get(buffer as usize) {
            Some(place) => (place.dma, fits(offset, length, self.size)),
            None => (0, false),
        };
        let addr = dma.wrapping_add(u64::from(offset));
        // SAFETY: The slots belong to `pd`, are retired to `pd` when dropped, and cover the part if
        // `good` is true.
        unsafe { Segment::new(&self.pd, addr, length, self.local_key) }.or_invalid(good)
    }

    /// Returns whether queue pairs of `pd` may use the slots.
    pub(crate) fn belongs_to(&self, pd: &Arc<Pd>) -> bool {
        Arc::ptr_eq(&self.pd, pd)
    }

    /// Returns the CPU address of `length` bytes at `offset` of a slot, if they are inside the
    /// slot.
    #[inline(always)]
    fn locate(&self, buffer: u32, offset: u32, length: u32) -> Option<*mut u8> {
        let place = self.places.get(buffer as usize)?;
        if !fits(offset, length, self.size) {
            return None;
        }
        // SAFETY: By the type invariants, the place has `size` bytes.
        Some(unsafe { place.cpu.as_ptr().add(offset as usize) })
    }
}

/// The start of one of [`MessageBuffers`].
///
/// # Invariants
///
/// `place` is one of `buffers.places`, and `length` is not above `buffers.size`.
#[derive(Clone, Copy)]
pub struct MessageBuffer<'a> {
    buffers: &'a MessageBuffers,
    place: Place,
    length: u32,
}

impl<'a> MessageBuffer<'a> {
    /// Copies `bytes` into the slot, from `offset` on. Returns `EINVAL` if they do not fit. Any
    /// context.
    #[inline(always)]
    pub fn write(&self, offset: u32, bytes: &[u8]) -> Result {
        let length = u32::try_from(bytes.len()).map_err(|_| EINVAL)?;
        if !fits(offset, length, self.length) {
            return Err(EINVAL);
        }
        // SAFETY: By the type invariants, the place has `length` bytes, to which no reference
        // exists. A concurrent access by the device is not a data race between threads.
        unsafe {
            let to = self.place.cpu.as_ptr().add(offset as usize);
            ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        Ok(())
    }

    /// Returns it all for a work request.
    #[inline(always)]
    pub fn segment(&self) -> Segment<'a> {
        let MessageBuffers { pd, local_key, .. } = self.buffers;
        // SAFETY: As in `MessageBuffers::segment`; by the type invariants, the slot covers it.
        unsafe { Segment::new(pd, self.place.dma, self.length, *local_key) }
    }
}

impl Drop for MessageBuffers {
    fn drop(&mut self) {
        // SAFETY: `self.memory` is not used after this.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        self.pd.retire(Retired::Slots(memory));
    }
}

impl SlotMemory {
    fn add(&mut self) -> Result<Place> {
        let mut dma = 0;
        // SAFETY: The device is valid; sleeping is allowed.
        let cpu = unsafe {
            sys::rdma_helper_alloc_coherent(self.device.as_raw(), self.block_bytes, &mut dma)
        };
        let cpu = NonNull::new(cpu.cast()).ok_or(ENOMEM)?;
        let block = Place { cpu, dma };
        // INVARIANT: The block was just allocated for the device. The list has capacity for it.
        let _ = self.blocks.push_within_capacity(block);
        Ok(block)
    }
}

impl Drop for SlotMemory {
    fn drop(&mut self) {
        for block in &self.blocks {
            // SAFETY: By the type invariants, the block was allocated for the device; no work
            // request uses it any more.
            unsafe {
                sys::rdma_helper_free_coherent(
                    self.device.as_raw(),
                    self.block_bytes,
                    block.cpu.as_ptr().cast(),
                    block.dma,
                )
            };
        }
    }
}
