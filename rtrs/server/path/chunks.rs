// SPDX-License-Identifier: GPL-2.0

//! Registration of a session's chunks for one path: what the client is given keys for.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    DmaDirection,
    Mr,
    PageMapping,
    Pd, //
};
use rtrs_core::proto::wire::Descriptor;

use crate::server::{
    io::request::{
        Place,
        Slot, //
    }, //
    path::connections::Connections,
    session::Session,
};

/// Maps and registers all chunks of `session` and makes their slots.
///
/// With `always_invalidate` each slot has the registration of its chunk, else the registrations
/// that are returned have several chunks each.
pub(crate) fn register(
    session: &Session,
    pd: &Arc<Pd>,
    connections: &Arc<Connections>,
) -> Result<(KVVec<Place>, KVVec<Mr>)> {
    let depth = session.geometry().queue_depth();
    let mut mappings = KVVec::with_capacity(depth.into(), GFP_KERNEL)?;
    for chunk in session.chunks() {
        let mapping = PageMapping::new(pd, chunk.clone(), DmaDirection::Bidirectional)?;
        mappings.push(mapping, GFP_KERNEL)?;
    }

    let mut places = KVVec::with_capacity(depth.into(), GFP_KERNEL)?;
    for (id, mapping) in (0..depth).zip(&mappings) {
        let region = if session.always_invalidate() {
            Some(map(pd, session, id, core::slice::from_ref(mapping))?)
        } else {
            None
        };
        let place = Place::new();
        let slot = Slot::new(id, mapping.clone(), region, connections.clone())?;
        place.idle.put(slot).map_err(|_| EINVAL)?;
        places.push(place, GFP_KERNEL)?;
    }

    let mut regions = KVVec::new();
    if !session.always_invalidate() {
        let count = chunks_per_region(depth, pd.device().max_fast_reg_pages());
        for (first, run) in (0..depth)
            .step_by(count.into())
            .zip(mappings.chunks(count.into()))
        {
            regions.push(map(pd, session, first, run)?, GFP_KERNEL)?;
        }
    }
    Ok((places, regions))
}

/// Registers a run of chunks, `first` on, under a key that is not in use yet.
fn map(pd: &Arc<Pd>, session: &Session, first: u16, run: &[Arc<PageMapping>]) -> Result<Mr> {
    let chunk_size = session.geometry().chunk_size();
    let pages = u32::try_from(run.len()).map_err(|_| EINVAL)?;
    let mut region = Mr::new(pd, pages, false)?;
    // The client learns this address: it says nothing about where the memory is (D27), and no two
    // chunks of the path overlap.
    let iova = (u64::from(first) + 1).saturating_mul(chunk_size.into());
    region.set_iova_base(iova, chunk_size)?;
    region.map_blocks(run, chunk_size)?;
    region.bump_key();
    Ok(region)
}

/// Returns how many chunks go into one registration of at most `max`: as many as possible, such
/// that all registrations have equally many, for the client insists on that.
fn chunks_per_region(depth: u16, max: u32) -> u16 {
    (1..=depth)
        .rev()
        .find(|n| u32::from(*n) <= max && depth.checked_rem(*n) == Some(0))
        .unwrap_or(1)
}

/// What the info response says about a registration.
pub(crate) fn descriptor(region: &Mr) -> Result<Descriptor> {
    let len = u32::try_from(region.len()).map_err(|_| EMSGSIZE)?;
    Ok(Descriptor::new(region.iova(), region.key(), len))
}
