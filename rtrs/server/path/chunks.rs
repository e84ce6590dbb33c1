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
use rtrs_core::{
    device::capabilities,
    proto::{
        device::{
            Division,
            Unfit, //
        },
        wire::Descriptor,
    },
};

use crate::server::{
    io::request::{
        Place,
        Slot, //
    }, //
    path::connections::Connections,
    session::Session,
};

/// Maps all chunks of `session` for the device of `pd`.
pub(crate) fn map(session: &Session, pd: &Arc<Pd>) -> Result<KVVec<Arc<PageMapping>>> {
    let mut mappings = KVVec::with_capacity(session.chunks().len(), GFP_KERNEL)?;
    for chunk in session.chunks() {
        let mapping = PageMapping::new(pd, chunk.clone(), DmaDirection::Bidirectional)?;
        mappings.push(mapping, GFP_KERNEL)?;
    }
    Ok(mappings)
}

/// Decides how the chunks, which are mapped, lie in regions of the device.
pub(crate) fn divide(
    session: &Session,
    pd: &Pd,
    mappings: &[Arc<PageMapping>],
) -> Result<Division, Unfit> {
    let geometry = session.geometry();
    let depth = geometry.queue_depth();
    let alignments = mappings.iter().map(|mapping| mapping.alignment());
    let alignment = alignments.min().unwrap_or(1);
    let chunks_max = if session.always_invalidate() {
        1
    } else {
        depth
    };
    capabilities(pd.device()).divide(depth, geometry.chunk_size(), alignment, chunks_max)
}

/// Registers the chunks of `session` and makes their slots.
///
/// With `always_invalidate` each slot has the registration of its chunk, else the registrations
/// that are returned have several chunks each.
pub(crate) fn register(
    session: &Session,
    pd: &Arc<Pd>,
    (mappings, division): (&[Arc<PageMapping>], Division),
    connections: &Arc<Connections>,
) -> Result<(KVVec<Place>, KVVec<Mr>)> {
    let depth = session.geometry().queue_depth();
    let register = |first, run: &[_]| register_run(pd, session, first, run, division.page_size);
    let mut places = KVVec::with_capacity(depth.into(), GFP_KERNEL)?;
    for (id, mapping) in (0..depth).zip(mappings) {
        let region = if session.always_invalidate() {
            Some(register(id, core::slice::from_ref(mapping))?)
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
        let count = usize::from(division.chunks.max(1));
        for (first, run) in (0..depth).step_by(count).zip(mappings.chunks(count)) {
            regions.push(register(first, run)?, GFP_KERNEL)?;
        }
    }
    Ok((places, regions))
}

/// Registers a run of chunks, `first` on, under a key that is not in use yet.
fn register_run(
    pd: &Arc<Pd>,
    session: &Session,
    first: u16,
    run: &[Arc<PageMapping>],
    page_size: u32,
) -> Result<Mr> {
    let chunk_size = session.geometry().chunk_size();
    let pages = chunk_size.checked_div(page_size).ok_or(EINVAL)?;
    let pages = u32::try_from(run.len())
        .ok()
        .and_then(|chunks| chunks.checked_mul(pages))
        .ok_or(EINVAL)?;
    let mut region = Mr::new(pd, pages, false)?;
    // The client learns this address: it says nothing about where the memory is (D27), and no two
    // chunks of the path overlap.
    let iova = (u64::from(first) + 1).saturating_mul(chunk_size.into());
    region.set_iova_base(iova, chunk_size)?;
    region.map_blocks(run, page_size)?;
    region.bump_key();
    Ok(region)
}

/// What the info response says about a registration.
pub(crate) fn descriptor(region: &Mr) -> Result<Descriptor> {
    let len = u32::try_from(region.len()).map_err(|_| EMSGSIZE)?;
    Ok(Descriptor::new(region.iova(), region.key(), len))
}
