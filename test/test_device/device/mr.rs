// SPDX-License-Identifier: GPL-2.0

//! Memory regions.

use super::network::{
    Memory,
    Network, //
};
use crate::proto::{
    gather::TooLong,
    key::{
        Extent,
        Refusal,
        Region,
        LOCAL_DMA_KEY, //
    },
    message::Status,
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::sync::{
    new_irq_lock,
    IrqLock, //
};
use verbs_provider::DmaRange;

/// A region as the consumer has it.
#[pin_data]
pub(crate) struct Mr {
    network: Arc<Network>,
    pub(super) index: u32,
    max_pages: usize,
    /// The pages of the next registration, with room for `max_pages`.
    #[pin]
    pub(super) pages: IrqLock<KVec<DmaRange>>,
}

/// A region as the device has it: what is registered.
struct Registered {
    region: Region,
    pages: KVec<DmaRange>,
}

/// The regions of the device by number.
pub(crate) struct Regions {
    places: KVec<Option<Registered>>,
}

impl Mr {
    pub(super) fn new(network: &Arc<Network>, domain: u32, pages: u32) -> Result<(Arc<Self>, u32)> {
        let max_pages = usize::try_from(pages).map_err(|_| EINVAL)?;
        let registered = KVec::with_capacity(max_pages, GFP_KERNEL)?;
        let (index, key) = network.tables.write().regions.add(domain, registered)?;
        let room = KVec::with_capacity(max_pages, GFP_KERNEL);
        let room = room.inspect_err(|_| network.tables.write().regions.remove(index))?;
        let mr = Arc::pin_init(
            pin_init!(Self {
                network: network.clone(),
                index,
                max_pages,
                pages <- new_irq_lock!(room),
            }),
            GFP_KERNEL,
        );
        let mr = mr.inspect_err(|_| network.tables.write().regions.remove(index))?;
        Ok((mr, key))
    }

    pub(super) fn clear(&self) {
        self.pages.lock().clear();
    }

    pub(super) fn push(&self, page: DmaRange) -> Result {
        let mut pages = self.pages.lock();
        if pages.len() >= self.max_pages {
            return Err(ENOMEM);
        }
        pages.push_within_capacity(page).map_err(|_| ENOMEM)
    }

    /// Ends the registration.
    pub(super) fn close(&self) {
        self.network.tables.write().regions.remove(self.index);
    }
}

impl Regions {
    pub(super) fn new() -> Result<Self> {
        let mut places = KVec::new();
        // The key of all memory names no region.
        places.push(None, GFP_KERNEL)?;
        Ok(Self { places })
    }

    /// Adds a region that is not registered; returns its number and its first key.
    pub(super) fn add(&mut self, domain: u32, pages: KVec<DmaRange>) -> Result<(u32, u32)> {
        let free = self.places.iter().skip(1).position(Option::is_none);
        let place = match free {
            Some(place) => place + 1,
            None => {
                self.places.push(None, GFP_KERNEL)?;
                self.places.len() - 1
            }
        };
        let index = u32::try_from(place).map_err(|_| ENOMEM)?;
        let key = Region::first_key(index).ok_or(ENOMEM)?;
        let entry = self.places.get_mut(place).ok_or(ENOMEM)?;
        *entry = Some(Registered {
            region: Region::new(domain, index),
            pages,
        });
        Ok((index, key))
    }

    pub(super) fn remove(&mut self, index: u32) {
        if let Some(entry) = self.place(index) {
            *entry = None;
        }
    }

    fn place(&mut self, index: u32) -> Option<&mut Option<Registered>> {
        self.places.get_mut(usize::try_from(index).ok()?)
    }

    /// Returns the region number `index`.
    fn get_mut(&mut self, index: u32) -> Option<&mut Registered> {
        self.place(index)?.as_mut()
    }

    fn get(&self, key: u32) -> Option<&Registered> {
        let place = usize::try_from(Region::index_of(key)).ok()?;
        self.places.get(place)?.as_ref()
    }

    /// Registers the pages of `mr` under `key`; returns whether that was invalidated before.
    pub(super) fn register(
        &mut self,
        domain: u32,
        mr: &Mr,
        key: u32,
        access: u32,
        extent: Extent,
    ) -> Result<bool, Refusal> {
        let known = self.get_mut(mr.index).ok_or(Refusal::NoKey)?;
        let pages = mr.pages.lock();
        known
            .region
            .register(domain, key, access, extent, pages.len())?;
        // The consumer may register them again, under another key, without naming them anew.
        known.pages.clear();
        for page in pages.iter() {
            known
                .pages
                .push_within_capacity(*page)
                .map_err(|_| Refusal::OutOfRange)?;
        }
        Ok(known.region.is_late())
    }

    /// Ends the registration under `key`.
    pub(super) fn invalidate(&mut self, domain: u32, key: u32) -> Result<(), Refusal> {
        let known = self.get_mut(Region::index_of(key)).ok_or(Refusal::NoKey)?;
        let result = known.region.invalidate(domain, key);
        match crate::CHECK_INVALIDATIONS.get() {
            0 if result == Err(Refusal::NoKey) => known.region.invalidate_early(domain, key),
            _ => result,
        }
    }

    /// Adds to `to` the memory that `key` gives for an access of `len` bytes at `addr`.
    pub(super) fn append(
        &self,
        to: &mut Memory,
        domain: u32,
        (key, wanted): (u32, u32),
        addr: u64,
        len: u64,
    ) -> Result<(), Refusal> {
        let known = self.get(key).ok_or(Refusal::NoKey)?;
        let (start, page_bytes) = known.region.access(domain, key, wanted, addr, len)?;
        to.push_pages(&known.pages, page_bytes, start, len)
            .map_err(|TooLong| Refusal::OutOfRange)
    }

    /// Puts the local memory of a work request into `to`.
    pub(super) fn gather(
        &self,
        to: &mut Memory,
        domain: u32,
        wanted: u32,
        segments: impl Iterator<Item = (DmaRange, u32)>,
    ) -> Result<(), Status> {
        to.clear();
        for (range, key) in segments {
            if range.bytes() == 0 {
                continue;
            }
            if key == LOCAL_DMA_KEY {
                to.push(range).map_err(|TooLong| Status::LocalLength)?;
            } else {
                self.append(to, domain, (key, wanted), range.addr(), range.bytes())
                    .map_err(|_| Status::LocalProtection)?;
            }
        }
        Ok(())
    }
}
