// SPDX-License-Identifier: GPL-2.0

//! Notes on each peer: how fast it answers, how many requests it has of this node; and whether any
//! is asked.

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

/// The peers that are remembered; the one that was asked longest ago is forgotten for another.
const CONTACTS_MAX: usize = 256;

struct Contact {
    node: NodeId,
    rtt: Rtt,
    credits: Credits,
}

/// The peers that were asked, the last one last.
struct Known {
    list: KVec<Contact>,
    breaker: Breaker,
}

impl Known {
    fn with(&mut self, node: NodeId, work: impl FnOnce(&mut Contact)) {
        if let Some(contact) = self.list.iter_mut().find(|contact| contact.node == node) {
            work(contact);
        }
    }
}

/// Whom a read asks.
pub(super) enum Asked {
    /// The node that is the nearest to the pages, but these, see [`Rtt::is_lost`].
    All([Option<NodeId>; EXCLUDED_MAX]),
    /// None: this node is cut off from them.
    None,
}

/// Notes on the peers that were asked.
#[pin_data]
pub(super) struct Contacts {
    #[pin]
    known: Mutex<Known>,
    timeout_us_max: u32,
}

impl Contacts {
    /// Allocates the empty list; no answer is going to be waited for longer than `timeout_us_max`.
    /// Sleeps.
    pub(super) fn new(timeout_us_max: u32) -> Result<Arc<Self>> {
        let list = KVec::with_capacity(CONTACTS_MAX, GFP_KERNEL)?;
        let known = Known {
            list,
            breaker: Breaker::NEW,
        };
        Arc::pin_init(
            pin_init!(Self {
                known <- new_mutex!(known, "Contacts::known"),
                timeout_us_max,
            }),
            GFP_KERNEL,
        )
    }

    /// Counts a request to a peer, and returns how long to wait for its answer; `None` if too many
    /// are under way there.
    pub(super) fn take(&self, node: NodeId) -> Option<Timing> {
        let mut known = self.known.lock();
        let list = &mut known.list;
        let mut contact = match list.iter().position(|contact| contact.node == node) {
            Some(place) => list.remove(place).ok()?,
            None => Contact {
                node,
                rtt: Rtt::NEW,
                credits: Credits::NEW,
            },
        };
        let within = || contact.rtt.timing_within(self.timeout_us_max);
        let timing = contact.credits.take().then(within);
        if list.len() >= CONTACTS_MAX {
            let _ = list.remove(0);
        }
        // There is room.
        let _ = list.push_within_capacity(contact);
        timing
    }

    /// A request that was counted has ended.
    pub(super) fn give_back(&self, node: NodeId) {
        let mut known = self.known.lock();
        known.with(node, |contact| contact.credits.give_back());
    }

    /// A peer tells how many requests it takes.
    pub(super) fn granted(&self, node: NodeId, credits: u16) {
        let mut known = self.known.lock();
        known.with(node, |contact| contact.credits.granted(credits));
    }

    /// Takes note of an answer to a request, or that there was none. Returns what changes by it.
    pub(super) fn heard(&self, node: NodeId, heard: Heard) -> Option<Change> {
        let (mut known, now_us) = (self.known.lock(), now_us());
        known.with(node, |contact| match heard {
            Heard::Answer { rtt_us } => contact.rtt.answered(rtt_us),
            Heard::Silence => contact.rtt.silent(now_us),
            Heard::Kept => contact.rtt.kept(now_us),
        });
        match heard {
            Heard::Answer { .. } | Heard::Kept => known.breaker.answered(now_us),
            Heard::Silence => known.breaker.silent(now_us),
        }
    }

    /// Takes note of an answer to a probe. Returns what changes by it.
    pub(super) fn answered(&self) -> Option<Change> {
        self.known.lock().breaker.answered(now_us())
    }

    /// Takes note of the state of the port. Returns what changes by it.
    pub(super) fn port(&self, is_down: bool) -> Option<Change> {
        self.known.lock().breaker.port(is_down)
    }

    /// Takes note that the device has failed. Returns what changes by it.
    pub(super) fn device_failed(&self) -> Option<Change> {
        self.known.lock().breaker.device_failed()
    }

    /// Returns why no peer is asked; `None` if they are.
    pub(super) fn cut(&self) -> Option<Cut> {
        self.known.lock().breaker.cut()
    }

    /// Returns whom a read that begins asks, and what changes by that.
    pub(super) fn begin(&self) -> (Asked, Option<Change>) {
        let (mut known, now_us) = (self.known.lock(), now_us());
        let change = known.breaker.look(now_us);
        if known.breaker.cut().is_some() {
            return (Asked::None, change);
        }
        let mut lost = known.list.iter().filter(|c| c.rtt.is_lost(now_us));
        let lost = [(); EXCLUDED_MAX].map(|()| lost.next().map(|contact| contact.node));
        (Asked::All(lost), change)
    }
}
