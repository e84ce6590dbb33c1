// SPDX-License-Identifier: GPL-2.0

//! Whether nodes are asked: what the driver tells the [`Breaker`](crate::proto::cache::breaker),
//! and does when that says so.

use kernel::prelude::*;
use kernel_ext::sync::atomic::Ordering::{
    AcqRel,
    Relaxed,
    Release, //
};

use super::Requests;
use crate::{
    cache::{
        endpoint::Incoming,
        now_us, //
        peer_timing::Asked,
    },
    proto::cache::{
        address::NodeId,
        breaker::{
            Change,
            Cut, //
        },
        counter::Counter,
        excluded::EXCLUDED_MAX,
        place::Unusable, //
    }, //
};

impl<I: Incoming> Requests<I> {
    /// Takes note of an answer to a probe.
    pub(in crate::cache) fn answered(&self) {
        self.changed(self.peer_timings.answered());
    }

    /// Takes note of the state of the port, as the device has it now. Sleeps, also for locks of the
    /// network.
    pub(in crate::cache) fn look_at_port(&self) {
        // Who looks last takes note last.
        let _looking = self.looking.lock();
        let seen = self.endpoint.look();
        if let Ok(Some(address)) = seen {
            pr_warn!("the address of a node is another one now: {address}\n");
            self.peers.moved(address);
        }
        // The queue pair may have to be started on another partition.
        self.membership.look();
        if !matches!(seen, Err(Unusable::NoPort(_))) {
            self.changed(self.peer_timings.port(seen.is_err()));
        }
    }

    /// Takes note that the device has failed: its driver may tell of a port that is active, take
    /// what is posted, and never end it. Sleeps.
    pub(in crate::cache) fn device_failed(&self) {
        self.changed(self.peer_timings.device_failed());
    }

    /// Returns whether something has come by a port that is down, as it seems, since the last call.
    pub(in crate::cache) fn doubts_port(&self) -> bool {
        // Each datagram asks.
        self.is_port_doubted.load(Relaxed) && self.is_port_doubted.swap(false, AcqRel)
    }

    /// Returns why no node is asked; `None` if they are.
    pub(in crate::cache) fn cut(&self) -> Option<Cut> {
        self.peer_timings.cut()
    }

    pub(super) fn asked(&self) -> Option<[Option<NodeId>; EXCLUDED_MAX]> {
        let (asked, change) = self.peer_timings.begin();
        self.changed(change);
        match asked {
            Asked::All(lost) => Some(lost),
            Asked::None => {
                self.endpoint.counters().add(Counter::NotAsked, 1);
                None
            }
        }
    }

    /// Carries out what follows from the silence or the answers of nodes. Sleeps.
    pub(super) fn changed(&self, change: Option<Change>) {
        match change {
            None => {}
            Some(Change::Doubted) => {
                self.peers.with(|table| table.doubt(now_us()));
                self.membership.look();
            }
            Some(Change::Cut(cut)) => {
                self.endpoint.counters().add(Counter::Cuts, 1);
                pr_warn!("file servers are asked for all, and no node of the cache: {cut}\n");
                self.cancel();
            }
            Some(Change::Joined) => {
                pr_info!("nodes of the cache are asked again\n");
            }
            Some(Change::PortDoubted) => self.is_port_doubted.store(true, Release),
        }
    }
}
