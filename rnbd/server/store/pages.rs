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
    homes: KVec<KBox<Block>>,
    /// For each slot what the device reads and writes.
    images: KVec<Arc<PageBlock>>,
    tuples: KVec<KVec<Tuple>>,
    /// For a slot that does not exist, which no caller uses.
    spare: KBox<Block>,
}

/// Allocates a block of zeroes.
pub(super) fn zeroed() -> Result<KBox<Block>> {
    KBox::init(pin_init::init_zeroed::<Block>(), GFP_KERNEL)
}

impl Pages {
    /// Allocates all memory.
    pub(super) fn new() -> Result<Self> {
        let mut homes = KVec::with_capacity(SLOTS, GFP_KERNEL)?;
        let mut images = KVec::with_capacity(SLOTS, GFP_KERNEL)?;
        for _ in 0..SLOTS {
            homes.push(zeroed()?, GFP_KERNEL)?;
            images.push(Arc::new(PageBlock::new(0)?, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        let mut tuples = KVec::with_capacity(REQUESTS, GFP_KERNEL)?;
        for _ in 0..REQUESTS {
            let of_request = KVec::from_elem(Tuple::default(), ENTRIES_MAX, GFP_KERNEL)?;
            tuples.push(of_request, GFP_KERNEL)?;
        }
        Ok(Self {
            homes,
            images,
            tuples,
            spare: zeroed()?,
        })
    }

    /// Returns what the device reads to or writes from for a slot.
    pub(super) fn image(&self, slot: usize) -> Option<&Arc<PageBlock>> {
        self.images.get(slot)
    }

    /// The device has read the PI block of a slot.
    pub(super) fn load(&mut self, slot: usize) -> Result {
        let image = self.images.get(slot).ok_or(EINVAL)?;
        let home = self.homes.get_mut(slot).ok_or(EINVAL)?;
        image.copy_out(0, &mut home[..])
    }

    /// The device is going to write these bytes of the PI block of a slot: it gets a copy.
    pub(super) fn save(&self, slot: usize, bytes: Range<usize>) -> Result<Arc<PageBlock>> {
        let image = self.images.get(slot).ok_or(EINVAL)?;
        let start = bytes.start;
        image.copy_in(start, self.home(slot).get(bytes).ok_or(EINVAL)?)?;
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
    fn home(&self, slot: usize) -> &Block {
        self.homes.get(slot).map_or(&ZEROES, |home| home)
    }

    fn home_mut(&mut self, slot: usize) -> &mut Block {
        match self.homes.get_mut(slot) {
            Some(home) => home,
            None => &mut self.spare,
        }
    }

    fn tuple(&self, ticket: Ticket, offset: u16) -> Tuple {
        let tuples = self.tuples.get(ticket);
        let tuple = tuples.and_then(|tuples| tuples.get(usize::from(offset)));
        tuple.copied().unwrap_or_default()
    }
}
