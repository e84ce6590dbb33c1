// SPDX-License-Identifier: GPL-2.0

//! A transfer that was received: what has come is put at its place, and given to its owner.

use crate::{
    active::QueueBox,
    proto::layout::{
        Fragment,
        Layout,
        PAGE_LEN, //
    },
    receiving::{
        Places,
        ReceiveEvents,
        ReceiveQp,
        Slots,
        LEAD,
        TAIL, //
    },
};
use core::ops::Range;
use kernel::{
    alloc::KVVec,
    prelude::*, //
};
use kernel_ext::{
    crc,
    scatterlist::{
        Lender,
        Loan, //
    },
    sync::atomic::{
        AtomicU32,
        Ordering, //
    }, //
};

/// The slots into which a whole fragment has come.
pub(super) struct Arrived(KVVec<AtomicU32>);

impl Arrived {
    /// Returns the set without a slot. Sleeps.
    pub(super) fn new(slots: u16) -> Result<Self> {
        let words = usize::from(slots).div_ceil(u32::BITS as usize);
        let mut all = KVVec::with_capacity(words, GFP_KERNEL)?;
        for _ in 0..words {
            all.push(AtomicU32::new(0), GFP_KERNEL)?;
        }
        Ok(Self(all))
    }

    /// Empties the set.
    pub(super) fn clear(&self) {
        for word in self.0.iter() {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn place(&self, slot: u16) -> Option<(&AtomicU32, u32)> {
        let word = self.0.get(usize::from(slot) / u32::BITS as usize)?;
        Some((word, 1u32.wrapping_shl(slot.into())))
    }

    /// Adds a slot. Any context.
    pub(super) fn add(&self, slot: u16) {
        if let Some((word, bit)) = self.place(slot) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Returns whether the slot is in the set.
    fn contains(&self, slot: u16) -> bool {
        self.place(slot)
            .is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }
}

/// The place of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Its slot: the memory of the fragment of this number.
    Slot(u16),
    /// A buffer for one fragment.
    Spare,
}

/// A transfer that has ended: no device uses the memory any more.
pub struct Received<H: ReceiveEvents, L: Lender> {
    queue: QueueBox<Slots<H>>,
    loan: Loan<L>,
    places: KBox<Places>,
    layout: Layout,
    fragments_max: u16,
    has_spare: bool,
}

impl<H: ReceiveEvents, L: Lender> Received<H, L> {
    pub(super) fn new(
        queue: QueueBox<Slots<H>>,
        loan: Loan<L>,
        places: KBox<Places>,
        layout: Layout,
        fragments_max: u16,
    ) -> Self {
        Self {
            queue,
            loan,
            places,
            layout,
            fragments_max,
            has_spare: false,
        }
    }

    /// Returns the handler.
    pub fn handler(&self) -> &H {
        self.queue.qp().handler().events()
    }

    /// Returns whether a fragment is in the slot, of any number: one that has come, or that
    /// was copied.
    pub fn has(&self, slot: u16) -> bool {
        slot < self.layout.count() && self.queue.qp().handler().arrived().contains(slot)
    }

    /// Returns the [CRC-32C](crc::crc32c) of the first `len` bytes of a page of the transfer.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if there is no such page, or if a part of it has not come.
    pub fn crc32c(&mut self, page: u16, len: usize) -> Result<u32> {
        let (slots, _) = self
            .layout
            .pages(page..page.saturating_add(1))
            .ok_or(EINVAL)?;
        let (mut crc, mut left) = (0, len);
        for slot in slots {
            let bytes = self.gather(slot)?;
            let part = bytes.get(..left.min(bytes.len())).unwrap_or_default();
            crc = crc::crc32c(crc, part);
            left = left.saturating_sub(part.len());
        }
        Ok(crc)
    }

    /// Copies the fragment of a slot out; returns it.
    fn gather(&mut self, slot: u16) -> Result<&mut [u8]> {
        // CAST: At most the size of a page.
        let len = self.layout.fragment_len() as usize;
        let Places { copies, around, .. } = &mut *self.places;
        let moving = copies.get_mut(..len).ok_or(EINVAL)?;
        let fragment = self.layout.fragment(slot).ok_or(EINVAL)?;
        if !self.queue.qp().handler().arrived().contains(slot) {
            return Err(EINVAL);
        }
        let (lead, memory, tail) = split(moving, &fragment)?;
        around.read(LEAD, fragment.lead.start, lead)?;
        around.read(TAIL, fragment.tail.start, tail)?;
        let count = self.loan.copy_out(fragment.memory.start as usize, memory);
        if count != memory.len() {
            return Err(EINVAL);
        }
        Ok(moving)
    }

    /// Copies a fragment from one place to another, which loses what it had.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if there is no fragment, or no such place.
    pub fn copy(&mut self, from: Place, to: Place) -> Result {
        if let Place::Slot(slot) = from {
            self.gather(slot)?;
        }
        // CAST: At most the size of a page, of which there are two.
        let len = self.layout.fragment_len() as usize;
        let Places { copies, around, .. } = &mut *self.places;
        let (moving, spare) = copies.split_at_mut(PAGE_LEN as usize);
        let moving = moving.get_mut(..len).ok_or(EINVAL)?;
        let spare = spare.get_mut(..len).ok_or(EINVAL)?;
        match from {
            Place::Slot(_) => {}
            Place::Spare if self.has_spare => moving.copy_from_slice(spare),
            Place::Spare => return Err(EINVAL),
        }
        match to {
            Place::Slot(slot) => {
                let fragment = self.layout.fragment(slot).ok_or(EINVAL)?;
                let (lead, memory, tail) = split(moving, &fragment)?;
                around.write(LEAD, fragment.lead.start, lead)?;
                around.write(TAIL, fragment.tail.start, tail)?;
                let count = self.loan.copy_in(fragment.memory.start as usize, memory)?;
                if count != memory.len() {
                    return Err(EINVAL);
                }
                self.queue.qp().handler().arrived().add(slot);
            }
            Place::Spare => {
                spare.copy_from_slice(moving);
                self.has_spare = true;
            }
        }
        Ok(())
    }

    /// Gives pages of the transfer that follow each other to the owner of the memory: the caller
    /// knows that the fragments at their places are those of the pages.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL`, and gives none, if there is no such page, or if a part of one has not
    /// come.
    pub fn deliver(&mut self, pages: Range<u16>) -> Result {
        let (mut fragments, memory) = self.layout.pages(pages).ok_or(EINVAL)?;
        let arrived = self.queue.qp().handler().arrived();
        if !fragments.all(|slot| arrived.contains(slot)) {
            return Err(EINVAL);
        }
        let len = memory.end.saturating_sub(memory.start);
        // SAFETY: The device, or a copy, has written each fragment of the pages since the transfer
        // began. The transfer has ended.
        unsafe { self.loan.filled(memory.start as usize, len as usize) }
    }

    /// Returns the queue pair, for the next transfer, and the owner of the memory.
    pub fn into_parts(self) -> (ReceiveQp<H>, L) {
        let mut queue = self.queue;
        let lender = queue.take_back(self.loan);
        let qp = ReceiveQp::from_parts(queue, self.places, self.fragments_max);
        (qp, lender)
    }
}

/// The bytes of a fragment: lead, memory and tail.
type Parts<'a> = (&'a mut [u8], &'a mut [u8], &'a mut [u8]);

fn split<'a>(bytes: &'a mut [u8], fragment: &Fragment) -> Result<Parts<'a>> {
    let len = |range: &Range<u32>| range.end.saturating_sub(range.start) as usize;
    let (lead, rest) = bytes
        .split_at_mut_checked(len(&fragment.lead))
        .ok_or(EINVAL)?;
    let (memory, tail) = rest
        .split_at_mut_checked(len(&fragment.memory))
        .ok_or(EINVAL)?;
    Ok((lead, memory, tail))
}
