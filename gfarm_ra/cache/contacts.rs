// SPDX-License-Identifier: GPL-2.0

//! How fast each peer answers, and how many requests it has of this node.

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
#[pin_data]
pub(super) struct Contacts {
    #[pin]
    list: Mutex<KVec<Contact>>,
    timeout_us_max: u32,
}

impl Contacts {
    /// Allocates the empty list; no answer is going to be waited for longer than `timeout_us_max`.
    /// Sleeps.
    pub(super) fn new(timeout_us_max: u32) -> Result<Arc<Self>> {
        let list = KVec::with_capacity(CONTACTS_MAX, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                list <- new_mutex!(list, "Contacts::list"),
                timeout_us_max,
            }),
            GFP_KERNEL,
        )
    }

    /// Counts a request to a peer, and returns how long to wait for its answer; `None` if too many
    /// are under way there.
    pub(super) fn take(&self, node: NodeId) -> Option<Timing> {
        let mut list = self.list.lock();
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
        self.with(node, |contact| contact.credits.give_back());
    }

    /// A peer tells how many requests it takes.
    pub(super) fn granted(&self, node: NodeId, credits: u16) {
        self.with(node, |contact| contact.credits.granted(credits));
    }

    /// Takes note of an answer, or that there was none.
    pub(super) fn heard(&self, node: NodeId, heard: Heard) {
        self.with(node, |contact| match heard {
            Heard::Answer { rtt_us } => contact.rtt.answered(rtt_us),
            Heard::Silence => contact.rtt.silent(now_us()),
            Heard::Kept => contact.rtt.kept(now_us()),
        });
    }

    /// Returns peers that a read is better off without, see [`Rtt::is_lost`].
    pub(super) fn lost(&self) -> [Option<NodeId>; EXCLUDED_MAX] {
        let (list, now_us) = (self.list.lock(), now_us());
        let mut lost = list.iter().filter(|contact| contact.rtt.is_lost(now_us));
        [(); EXCLUDED_MAX].map(|()| lost.next().map(|contact| contact.node))
    }

    fn with(&self, node: NodeId, work: impl FnOnce(&mut Contact)) {
        let mut list = self.list.lock();
        if let Some(contact) = list.iter_mut().find(|contact| contact.node == node) {
            work(contact);
        }
    }
}
