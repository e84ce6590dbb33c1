// SPDX-License-Identifier: GPL-2.0

//! Registers a session's chunks for one path, whose client gets the keys.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    new_wait_queue,
    sync::{
        GraceArc,
        WaitQueue, //
    }, //
};
use rdma::{
    DmaDirection,
    MessageBuffers,
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
    io::{
        request::{
            ChunkState,
            RequestContext, //
        }, //
        send_queue::RequestList,
    },
    path::connections::{
        Connections,
        ANSWER_MESSAGE_LEN, //
    },
    session::Session,
};

/// The session's chunks on one path: registered for its device, each with a request context.
#[pin_data]
pub(crate) struct Chunks {
    /// The state of each chunk.
    chunk_states: KVVec<ChunkState>,
    /// Registrations of several chunks each; none with `always_invalidate`, where each context has
    /// the registration of its chunk.
    regions: KVVec<Mr>,
    /// The messages that bring new keys and tails, by chunk; with `always_invalidate`.
    keys: Option<MessageBuffers>,
    /// Woken when a context is released although the path is not up.
    #[pin]
    returned: WaitQueue,
}

impl Chunks {
    /// Registers the chunks of `session`, which are mapped and divided, and allocates their
    /// contexts. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of the allocator and of the device.
    pub(crate) fn new(
        session: &Session,
        pd: &Arc<Pd>,
        chunks: (&[Arc<PageMapping>], Division),
        connections: &GraceArc<Connections>,
    ) -> Result<impl PinInit<Self>> {
        let depth = session.geometry().queue_depth();
        let keys = if session.always_invalidate() {
            Some(MessageBuffers::new(pd, depth.into(), ANSWER_MESSAGE_LEN)?)
        } else {
            None
        };
        let (chunk_states, regions) = register(session, pd, chunks, connections)?;
        Ok(pin_init!(Self {
            chunk_states,
            regions,
            keys,
            returned <- new_wait_queue!("Chunks::returned"),
        }))
    }

    /// Returns the state of chunk `id`; `None` for an id that the path does not have.
    #[inline]
    pub(crate) fn chunk_state(&self, id: u16) -> Option<&ChunkState> {
        self.chunk_states.get(usize::from(id))
    }

    /// Returns the states of all chunks, by their ids.
    pub(crate) fn chunk_states(&self) -> &[ChunkState] {
        &self.chunk_states
    }

    /// Returns the registrations of several chunks each; none with `always_invalidate`.
    pub(crate) fn regions(&self) -> &[Mr] {
        &self.regions
    }

    /// Returns the messages that bring new keys; `None` without `always_invalidate`.
    #[inline]
    pub(crate) fn keys(&self) -> Option<&MessageBuffers> {
        self.keys.as_ref()
    }

    /// Releases a request context: the chunk may carry a request again. Any context.
    #[inline]
    pub(super) fn release(&self, mut context: KBox<RequestContext>) {
        if let Some(chunk_state) = self.chunk_state(context.id) {
            chunk_state.discount(&mut context);
            let released = chunk_state.free.put(context);
            debug_assert!(released.is_ok());
        }
    }

    /// Wakes the teardown, which waits in [`Self::wait_until_released`]. Any context.
    #[cold]
    pub(super) fn wake_teardown(&self) {
        self.returned.wake_all();
    }

    /// Waits until every context is released: the service has answered all requests. Sleeps.
    pub(super) fn wait_until_released(&self) {
        for chunk_state in &self.chunk_states {
            self.returned.wait_until(|| !chunk_state.free.is_empty());
        }
    }

    /// Takes all contexts, which are released. The chunks carry no request after this.
    pub(super) fn take_released(&self) -> RequestList {
        let mut contexts = RequestList::new();
        for context in self
            .chunk_states
            .iter()
            .filter_map(|chunk_state| chunk_state.free.take())
        {
            contexts.push(context);
        }
        contexts
    }
}

/// Maps all chunks of `session` for the device of `pd`.
pub(crate) fn map(session: &Session, pd: &Arc<Pd>) -> Result<KVVec<Arc<PageMapping>>> {
    let mut mappings = KVVec::with_capacity(session.chunks().len(), GFP_KERNEL)?;
    for chunk in session.chunks() {
        let mapping = PageMapping::new(pd, chunk.clone(), DmaDirection::Bidirectional)?;
        mappings.push(mapping, GFP_KERNEL)?;
    }
    Ok(mappings)
}

/// Decides how the chunks, which are mapped, are divided into regions of the device.
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

/// Registers the chunks of `session` and allocates their contexts.
///
/// With `always_invalidate` each context has the registration of its chunk, else the registrations
/// that are returned have several chunks each.
fn register(
    session: &Session,
    pd: &Arc<Pd>,
    (mappings, division): (&[Arc<PageMapping>], Division),
    connections: &GraceArc<Connections>,
) -> Result<(KVVec<ChunkState>, KVVec<Mr>)> {
    let depth = session.geometry().queue_depth();
    let register = |first, run: &[_]| register_run(pd, session, first, run, division.page_size);
    let mut chunk_states = KVVec::with_capacity(depth.into(), GFP_KERNEL)?;
    let shared = session.carriers();
    for ((id, mapping), carriers) in (0..depth).zip(mappings).zip(shared) {
        let region = if session.always_invalidate() {
            Some(register(id, core::slice::from_ref(mapping))?)
        } else {
            None
        };
        let chunk_state = ChunkState::new(carriers.clone());
        let context = RequestContext::new(
            id,
            mapping.clone(),
            region,
            session.policy,
            connections.clone(),
        )?;
        chunk_state.free.put(context).map_err(|_| EINVAL)?;
        chunk_states.push(chunk_state, GFP_KERNEL)?;
    }

    let mut regions = KVVec::new();
    if !session.always_invalidate() {
        let count = usize::from(division.chunks.max(1));
        for (first, run) in (0..depth).step_by(count).zip(mappings.chunks(count)) {
            regions.push(register(first, run)?, GFP_KERNEL)?;
        }
    }
    Ok((chunk_states, regions))
}

/// Registers a run of chunks, from `first` on, under a key that is not in use yet.
fn register_run(
    pd: &Arc<Pd>,
    session: &Session,
    first: u16,
    run: &[Arc<PageMapping>],
    page_size: u32,
) -> Result<Mr> {
    // The client gets this address: it does not reveal where the memory is (D27), and no two chunks
    // of the path overlap.
    let iova = (u64::from(first) + 1).saturating_mul(session.geometry().chunk_size().into());
    let mut region = Mr::of_blocks(pd, run, page_size, iova)?;
    region.update_key();
    Ok(region)
}

/// Returns the descriptor of a registration for the info response.
pub(crate) fn descriptor(region: &Mr) -> Result<Descriptor> {
    let len = u32::try_from(region.len()).map_err(|_| EMSGSIZE)?;
    Ok(Descriptor::new(region.iova(), region.key(), len))
}
