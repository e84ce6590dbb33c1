// SPDX-License-Identifier: GPL-2.0

//! The IO of the engine: what the pure [`Store`](crate::sidecar::store::Store) wants becomes bios.

use block_ext::{
    bio::Bio,
    Flags,
    Op, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::pages::PageBlock;

use super::{
    engine::{
        Engine,
        Event, //
    },
    lease::Lease,
    sector::Sector,
    volume::{
        StoreIo, //
        Volume,
    },
    Crc,
    BLOCK_SIZE, //
};
use crate::sidecar::{
    claim::permission::Begin,
    record::Head,
    sectors::Part, //
};

/// The flag of a write that has to be durable when it ends.
pub(super) const fn durable(fua: bool) -> Flags {
    match fua {
        true => Flags::FUA,
        false => Flags::NONE,
    }
}

impl Engine {
    /// Returns whether an IO may be begun whose bio is there; one that may not is refused, and the
    /// caller drops it. The memory of the bio may have taken longer than the lease, and another
    /// server may have the device. Sleeps.
    pub(super) fn may_begin(volume: &Volume, bio: &Bio<StoreIo>) -> bool {
        loop {
            match volume.lease().state().begin() {
                Begin::Now => return true,
                Begin::Refuse => {
                    bio.data().refuse();
                    return false;
                }
                Begin::Wait => {
                    volume.lease().tell_wait(volume.device());
                    Lease::pause();
                }
            }
        }
    }

    pub(super) fn write_record(&mut self, volume: &Arc<Volume>, head: Head, fua: bool) {
        let record = self.store.fill(head, &self.pages, &mut self.record, &Crc);
        let copied = self.record_image.copy_in(0, record);
        let image = copied.is_ok().then(|| self.record_image.clone());
        // CAST: it is at most a block.
        let range = image.map(|image| (image, 0, record.len() as u32));
        let at = Sector::of(Some(self.layout.record(head.sequence)));
        let flags = Flags::META | Flags::SYNC | durable(fua);
        self.submit_range(volume, Event::Record, (Op::Write, flags, 0), at, range);
    }

    /// Writes a part of the PI block in a slot back.
    pub(super) fn write_back(
        &mut self,
        volume: &Arc<Volume>,
        slot: usize,
        (group, part): (u64, Part),
        fua: bool,
    ) {
        let bytes = part.bytes();
        // CAST: At most a block.
        let (offset, len) = (bytes.start, bytes.len() as u32);
        let image = self.pages.save(slot, bytes).ok();
        let range = image.map(|image| (image, offset, len));
        let pi_block = Sector::of(self.layout.pi_block(group));
        let at = pi_block.and_then(|pi_block| pi_block.after(part.first_sector()));
        let event = Event::WrittenBack(slot);
        let flags = Flags::META | durable(fua);
        self.submit_range(volume, event, (Op::Write, flags, 0), at, range);
    }

    /// Flushes the device's cache for requests and journal.
    pub(super) fn flush(&mut self, volume: &Arc<Volume>) {
        self.submit_flush(volume, Event::Flushed);
    }

    /// Flushes the device's cache.
    pub(super) fn submit_flush(&mut self, volume: &Arc<Volume>, event: Event) {
        self.in_flight = self.in_flight.saturating_add(1);
        let io = StoreIo::new(volume.clone(), event);
        let mut bio = Bio::new(io, Op::Flush, Flags::NONE, 0);
        // It has no data.
        if bio.set_len_bytes(0).is_ok() && Self::may_begin(volume, &bio) {
            bio.submit();
        }
    }

    /// Submits the IO of one block of the sidecar; without a place or memory it fails.
    pub(super) fn submit(
        &mut self,
        volume: &Arc<Volume>,
        event: Event,
        (op, flags): (Op, Flags),
        block: Option<u64>,
        page: Option<Arc<PageBlock>>,
    ) {
        self.submit_range(
            volume,
            event,
            (op, flags, 0),
            Sector::of(block),
            page.map(|page| (page, 0, BLOCK_SIZE)),
        );
    }

    /// Submits an IO of a range of memory from a sector of the device on.
    pub(super) fn submit_range(
        &mut self,
        volume: &Arc<Volume>,
        event: Event,
        (op, flags, prio): (Op, Flags, u16),
        sector: Option<Sector>,
        range: Option<(Arc<PageBlock>, usize, u32)>,
    ) {
        self.in_flight = self.in_flight.saturating_add(1);
        let io = StoreIo::new(volume.clone(), event);
        let mut bio = Bio::new(io, op, flags, sector.map_or(u64::MAX, Sector::number));
        // A priority that does not exist is ignored.
        let _ = bio.set_ioprio(prio);
        let added = match (sector, range) {
            _ if !Self::may_begin(volume, &bio) => Err(EIO),
            (Some(_), Some((pages, offset, len))) => bio.add_pages(pages, offset, len),
            _ => Err(EIO),
        };
        // Dropping the bio ends it with an error.
        if added.is_ok() {
            bio.submit();
        }
    }
}
