// SPDX-License-Identifier: GPL-2.0

//! The round trip time of each peer and the credits that it grants, and whether this node asks any
//! peer.

use kernel::{
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
    admission::Credits,
    breaker::{
        Breaker,
        Change,
        Cut, //
    },
    excluded::EXCLUDED_MAX,
    requester::event::Heard,
    rtt::{
        Rtt,
        Timing, //
    }, //
};

/// The maximum number of peers that are remembered; a further one replaces the peer that was asked
/// longest ago.
const PEERS_MAX: usize = 256;

struct PeerTiming {
    node: NodeId,
    rtt: Rtt,
    credits: Credits,
}

/// The peers that were asked, the last one last.
struct Known {
    list: KVec<PeerTiming>,
    breaker: Breaker,
}

impl Known {
    fn with(&mut self, node: NodeId, work: impl FnOnce(&mut PeerTiming)) {
        if let Some(peer) = self.list.iter_mut().find(|peer| peer.node == node) {
            work(peer);
        }
    }
}

/// The nodes that a read asks.
pub(super) enum Asked {
    /// The node nearest to the pages, except these, which are lost: see [`Rtt::is_lost`].
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
        let list = KVec::with_capacity(PEERS_MAX, GFP_KERNEL)?;
        let known = Known {
            list,
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
        let list = &mut known.list;
        let mut peer = match list.iter().position(|peer| peer.node == node) {
            Some(place) => list.remove(place).ok()?,
            None => PeerTiming {
                node,
                rtt: Rtt::NEW,
                credits: Credits::NEW,
            },
        };
        let within = || peer.rtt.timing_within(self.timeout_us_max);
        let timing = peer.credits.take().then(within);
        if list.len() >= PEERS_MAX {
            let _ = list.remove(0);
        }
        // There is room.
        let _ = list.push_within_capacity(peer);
        timing
    }

    /// Returns the credit of a request that has ended.
    pub(super) fn give_back(&self, node: NodeId) {
        let mut known = self.known.lock();
        known.with(node, |peer| peer.credits.give_back());
    }

    /// Notes the number of requests that a peer serves at a time.
    pub(super) fn granted(&self, node: NodeId, credits: u16) {
        let mut known = self.known.lock();
        known.with(node, |peer| peer.credits.granted(credits));
    }

    /// Notes the answer to a request, or that there was none. Returns the change of the breaker.
    pub(super) fn heard(&self, node: NodeId, heard: Heard) -> Option<Change> {
        let (mut known, now_us) = (self.known.lock(), now_us());
        known.with(node, |peer| match heard {
            Heard::Answer { rtt_us } => peer.rtt.answered(rtt_us),
            Heard::Silence => peer.rtt.silent(now_us),
            Heard::Kept => peer.rtt.kept(now_us),
        });
        match heard {
            Heard::Answer { .. } | Heard::Kept => known.breaker.answered(now_us),
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
        let mut lost = known.list.iter().filter(|c| c.rtt.is_lost(now_us));
        let lost = [(); EXCLUDED_MAX].map(|()| lost.next().map(|peer| peer.node));
        (Asked::All(lost), change)
    }
}
