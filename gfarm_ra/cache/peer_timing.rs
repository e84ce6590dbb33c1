// SPDX-License-Identifier: GPL-2.0

//! The round trip time of each peer and the credits that it grants, and whether this node asks any
//! peer.

use kernel::{
    alloc::KVVec,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};

use super::now_us;
use crate::proto::cache::{
    address::NodeId,
    breaker::{
        Breaker,
        Change,
        Cut, //
    },
    excluded::EXCLUDED_MAX,
    requester::event::Heard,
    rtt::Timing,
    timings::{
        PeerTiming,
        Timings,
        PLACES, //
    }, //
};

/// The peers that were asked.
struct Known {
    timings: Timings<KVVec<Option<PeerTiming>>>,
    breaker: Breaker,
}

/// The nodes that a read asks.
pub(super) enum Asked {
    /// The node nearest to the pages, except these, which are lost: see
    /// [`Timings::lost`].
    All([Option<NodeId>; EXCLUDED_MAX]),
    /// No node: this one is cut off from all.
    None,
}

/// The timing of the peers that were asked.
#[pin_data]
pub(super) struct PeerTimings {
    #[pin]
    known: Mutex<Known>,
    timeout_us_max: u32,
}

impl PeerTimings {
    /// Allocates the empty list; no answer will be waited for longer than `timeout_us_max`
    /// microseconds. Sleeps.
    pub(super) fn new(timeout_us_max: u32) -> Result<Arc<Self>> {
        let places = KVVec::from_elem(None, PLACES, GFP_KERNEL)?;
        let known = Known {
            timings: Timings::new(places),
            breaker: Breaker::NEW,
        };
        Arc::pin_init(
            pin_init!(Self {
                known <- new_mutex!(known, "PeerTimings::known"),
                timeout_us_max,
            }),
            GFP_KERNEL,
        )
    }

    /// Counts a request to a peer, and returns how long to wait for its answer; `None` if the peer
    /// has no credit left. Sleeps for a lock, as all methods.
    pub(super) fn take(&self, node: NodeId) -> Option<Timing> {
        let mut known = self.known.lock();
        known.timings.take(node, self.timeout_us_max)
    }

    /// Returns the credit of a request that has ended.
    pub(super) fn give_back(&self, node: NodeId) {
        self.known.lock().timings.give_back(node);
    }

    /// Notes the number of requests that a peer serves at a time.
    pub(super) fn granted(&self, node: NodeId, credits: u16) {
        self.known.lock().timings.granted(node, credits);
    }

    /// Notes the answer to a request, or that there was none. Returns the change of the breaker.
    pub(super) fn heard(&self, node: NodeId, heard: Heard) -> Option<Change> {
        let (mut known, now_us) = (self.known.lock(), now_us());
        known.timings.heard(node, heard, now_us);
        match heard {
            Heard::Answer { .. } | Heard::Kept => known.breaker.replied(now_us),
            Heard::Silence => known.breaker.silent(now_us),
        }
    }

    /// Notes an answer to a probe. Returns the change of the breaker.
    pub(super) fn answered(&self) -> Option<Change> {
        self.known.lock().breaker.answered(now_us())
    }

    /// Notes the state of the port. Returns the change of the breaker.
    pub(super) fn port(&self, is_down: bool) -> Option<Change> {
        self.known.lock().breaker.port(is_down)
    }

    /// Notes that the device has failed. Returns the change of the breaker.
    pub(super) fn device_failed(&self) -> Option<Change> {
        self.known.lock().breaker.device_failed()
    }

    /// Returns the reason why no peer is asked; `None` if peers are asked.
    pub(super) fn cut(&self) -> Option<Cut> {
        self.known.lock().breaker.cut()
    }

    /// Returns the nodes that a new read asks, and the change of the breaker.
    pub(super) fn begin(&self) -> (Asked, Option<Change>) {
        let (mut known, now_us) = (self.known.lock(), now_us());
        let change = known.breaker.look(now_us);
        if known.breaker.cut().is_some() {
            return (Asked::None, change);
        }
        (Asked::All(known.timings.lost(now_us)), change)
    }
}
