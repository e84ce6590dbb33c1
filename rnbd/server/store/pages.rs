// SPDX-License-Identifier: GPL-2.0

//! The memory of a device with a sidecar: PI blocks, and the tuples of writes.

use core::ops::Range;

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::pages::PageBlock;

use crate::sidecar::{
    queue::Ticket,
    record::ENTRIES_MAX,
    store::Memory,
    tuple::Tuple,
    Block,
    BLOCK_BYTES, //
};

/// The number of PI blocks in memory: the tuples of 128 MiB of data.
pub(super) const SLOTS: usize = 128;

/// The number of requests that are carried out at a time.
pub(super) const REQUESTS: usize = 64;

static ZEROES: Block = [0; BLOCK_BYTES];

/// PI blocks, and the tuples of writes.
pub(super) struct Pages {
    pi_blocks: KVec<KBox<Block>>,
    /// The page of each slot that the device reads and writes.
    images: KVec<Arc<PageBlock>>,
    tuples: KVec<KVec<Tuple>>,
    /// A block for a slot that does not exist, which no caller uses.
    spare: KBox<Block>,
}

/// Allocates a block of zeroes.
pub(super) fn zeroed() -> Result<KBox<Block>> {
    KBox::init(pin_init::init_zeroed::<Block>(), GFP_KERNEL)
}

impl Pages {
    /// Allocates all memory.
    pub(super) fn new() -> Result<Self> {
        let mut pi_blocks = KVec::with_capacity(SLOTS, GFP_KERNEL)?;
        let mut images = KVec::with_capacity(SLOTS, GFP_KERNEL)?;
        for _ in 0..SLOTS {
            pi_blocks.push(zeroed()?, GFP_KERNEL)?;
            images.push(Arc::new(PageBlock::new(0)?, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        let mut tuples = KVec::with_capacity(REQUESTS, GFP_KERNEL)?;
        for _ in 0..REQUESTS {
            let of_request = KVec::from_elem(Tuple::default(), ENTRIES_MAX, GFP_KERNEL)?;
            tuples.push(of_request, GFP_KERNEL)?;
        }
        Ok(Self {
            pi_blocks,
            images,
            tuples,
            spare: zeroed()?,
        })
    }

    /// Returns what the device reads to or writes from for a slot.
    pub(super) fn image(&self, slot: usize) -> Option<&Arc<PageBlock>> {
        self.images.get(slot)
    }

    /// Copies the PI block of a slot from the page into which the device has read it. Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such slot.
    pub(super) fn load(&mut self, slot: usize) -> Result {
        let image = self.images.get(slot).ok_or(EINVAL)?;
        let pi_block = self.pi_blocks.get_mut(slot).ok_or(EINVAL)?;
        image.copy_out(0, &mut pi_block[..])
    }

    /// Copies these bytes of the PI block of a slot to the page that the device is about to write.
    /// Any context.
    ///
    /// # Errors
    ///
    /// `EINVAL` if there is no such slot, or the bytes are not in the block.
    pub(super) fn save(&self, slot: usize, bytes: Range<usize>) -> Result<Arc<PageBlock>> {
        let image = self.images.get(slot).ok_or(EINVAL)?;
        let start = bytes.start;
        image.copy_in(start, self.pi_block(slot).get(bytes).ok_or(EINVAL)?)?;
        Ok(image.clone())
    }

    /// Sets the tuple of a block of a write.
    pub(super) fn set_tuple(&mut self, ticket: Ticket, offset: u16, tuple: Tuple) {
        let tuples = self.tuples.get_mut(ticket);
        if let Some(to) = tuples.and_then(|tuples| tuples.get_mut(usize::from(offset))) {
            *to = tuple;
        }
    }
}

impl Memory for Pages {
    fn pi_block(&self, slot: usize) -> &Block {
        self.pi_blocks
            .get(slot)
            .map_or(&ZEROES, |pi_block| pi_block)
    }

    fn pi_block_mut(&mut self, slot: usize) -> &mut Block {
        match self.pi_blocks.get_mut(slot) {
            Some(pi_block) => pi_block,
            None => &mut self.spare,
        }
    }

    fn tuple(&self, ticket: Ticket, offset: u16) -> Tuple {
        let tuples = self.tuples.get(ticket);
        let tuple = tuples.and_then(|tuples| tuples.get(usize::from(offset)));
        tuple.copied().unwrap_or_default()
    }
}
