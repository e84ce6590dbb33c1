// SPDX-License-Identifier: GPL-2.0

//! The handles of the addresses that a node sends to.

use kernel::{
    alloc::KVVec,
    prelude::*, //
};
use rdma::AddressHandle;

use crate::proto::cache::address::{
    Address,
    Port, //
};

/// The handles of addresses that are kept, and among how many an address has its place.
pub(super) const HANDLES: usize = 4096;
const WAYS: usize = 8;

/// The handles of addresses. A new one replaces the one of its group that was made first, which the
/// domain destroys when no send uses it any more.
pub(super) struct Handles {
    places: KVVec<Option<Known>>,
    made: u64,
}

pub(super) struct Known {
    port: Port,
    lid: u16,
    service_level: u8,
    handle: AddressHandle,
    order: u64,
}

impl Handles {
    pub(super) fn new() -> Result<Self> {
        let mut places = KVVec::with_capacity(HANDLES, GFP_KERNEL)?;
        for _ in 0..HANDLES {
            places.push(None, GFP_KERNEL)?;
        }
        Ok(Self { places, made: 0 })
    }

    fn group(&mut self, to: &Address) -> &mut [Option<Known>] {
        let group = to.port().hash() as usize % (HANDLES / WAYS);
        let begin = group.saturating_mul(WAYS);
        let group = self.places.get_mut(begin..begin.saturating_add(WAYS));
        group.unwrap_or_default()
    }

    fn place(&mut self, to: &Address) -> Option<&mut Option<Known>> {
        // A port of InfiniBand keeps its GID when its LID changes.
        let is_it = |known: &Known| {
            (known.port, known.lid, known.service_level) == (to.port(), to.lid(), to.sl())
        };
        let mut places = self.group(to).iter_mut();
        places.find(|place| place.as_ref().is_some_and(is_it))
    }

    pub(super) fn find(&mut self, to: &Address) -> Option<AddressHandle> {
        let known = self.place(to)?.as_ref();
        known.map(|known| known.handle.clone())
    }

    pub(super) fn remove(&mut self, to: &Address) -> Option<Known> {
        self.place(to)?.take()
    }

    /// Adds a handle, and returns the one that it replaces.
    pub(super) fn add(&mut self, to: &Address, handle: AddressHandle) -> Option<Known> {
        self.made = self.made.saturating_add(1);
        let known = Known {
            port: to.port(),
            lid: to.lid(),
            service_level: to.sl(),
            handle,
            order: self.made,
        };
        let places = self.group(to).iter_mut();
        // One that is free comes before all others.
        let place = places.min_by_key(|place| place.as_ref().map_or(0, |known| known.order));
        place.and_then(|place| place.replace(known))
    }

    /// Removes the one of a place below [`HANDLES`].
    pub(super) fn take(&mut self, place: usize) -> Option<Known> {
        self.places.get_mut(place)?.take()
    }
}
