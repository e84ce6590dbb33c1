// SPDX-License-Identifier: GPL-2.0

//! The client's chunks that are held because a request was lost in them, and the requests that wait
//! for them.
//!
//! Stands for `rtrs/client/session/quarantine.rs` and `rnbd/client/retry.rs`. The decisions are
//! those of `proto::quarantine` and `proto::shortage`.

use proto::rtrs::{
    outage::FastIoFail,
    quarantine::{
        Place,
        Ticket, //
    },
    shortage::{
        away_ms,
        wait_limit_ms, //
    },
};

use crate::{
    app::Answer,
    check::Kind,
    client::{
        Client,
        Slot, //
    },
    event::MS,
    message::{
        Body,
        Deed, //
    },
    settings::Mutation,
    trace::note,
    world::World,
};

/// Pause before a request asks for its chunk again; the driver's is shorter.
pub(crate) const AGAIN_US: u64 = 100 * MS;

impl Client {
    /// The request that is in flight in a chunk.
    pub(crate) fn user_of(&self, chunk: u16) -> Option<(u16, Slot)> {
        let used = |s: &&Slot| s.on.is_some() && s.chunk == chunk;
        (0u16..)
            .zip(&self.slots)
            .find_map(|(tag, s)| s.as_ref().filter(used).map(|s| (tag, s.clone())))
    }
}

impl World {
    /// Returns whether [`Self::place_for`] has a chunk for a request: `Session::must_wait`.
    pub(crate) fn may_take(&self, tag: u16, ticket: Option<Ticket>) -> bool {
        let ticket = ticket.filter(|_| !self.settings.broken(Mutation::AnotherChunkAgain));
        let may_take = self.clients[self.at].quarantine.may_take(tag, ticket);
        may_take || self.settings.broken(Mutation::NoQuarantine)
    }

    /// Returns the chunk of a tag's request, if there is one.
    pub(crate) fn place_for(&mut self, tag: u16) -> Option<Place> {
        let own = Place {
            chunk: tag,
            is_again: false,
        };
        if self.settings.broken(Mutation::NoQuarantine) {
            return Some(own);
        }
        let slot = self.clients[self.at].slots[usize::from(tag)].as_ref()?;
        let ticket = match self.settings.broken(Mutation::AnotherChunkAgain) {
            true => None,
            false => slot.ticket,
        };
        let place = self.clients[self.at].quarantine.take(tag, ticket);
        if place.is_some_and(|p| p.chunk != tag) {
            self.trace.reached("a request goes out in another's chunk");
        }
        place
    }

    /// Handles a request whose chunk is held: it waits, and fails after its time limit.
    pub(crate) fn refused(&mut self, tag: u16) {
        let now_ms = self.now_ms();
        self.clients[self.at].shortage.refused(now_ms);
        let limit_ms = wait_limit_ms(self.fast_io_fail_ms());
        if self.waits_on(tag, limit_ms) {
            self.trace.reached("a request waits for a held chunk");
            self.try_again_later();
            self.clients[self.at].refused.push(tag);
            return;
        }
        let slot = self.clients[self.at].slots[usize::from(tag)].as_ref();
        let since_us = slot.and_then(|s| s.since_us).unwrap_or(0);
        // Faults have stopped before it began to wait: the session must have started again by then.
        // A server that always has requests may keep it for longer than three tries.
        let is_due = since_us > self.settings.calm_us && !self.settings.is_busy;
        if is_due && self.may_recover(tag) {
            let what = format!("tag {tag} has waited too long for its chunk");
            self.check.fail(Kind::Stuck, what);
        }
        self.end_io(tag, Answer::Unknown);
    }

    /// Handles a request that is paused: it fails only if its device does.
    pub(crate) fn paused(&mut self, tag: u16) {
        if self.waits_on(tag, None) {
            self.try_again_later();
            self.clients[self.at].refused.push(tag);
        } else {
            self.end_io(tag, Answer::Unknown);
        }
    }

    /// Handles [`Event::TryAgain`].
    pub(crate) fn try_again(&mut self) {
        self.clients[self.at].tries_again = false;
        self.flush();
        self.try_refused();
        self.try_messages();
    }

    /// Requests that wait for their chunks try again.
    pub(crate) fn try_refused(&mut self) {
        for tag in std::mem::take(&mut self.clients[self.at].refused) {
            self.submit(tag);
        }
    }

    /// Returns another tag for a request that is started again, if there is a scheduler.
    pub(crate) fn another_tag(&mut self, tag: u16) -> u16 {
        if !self.settings.scheduler {
            return tag;
        }
        let ids = self.partition().io_ids();
        let free: Vec<u16> = ids
            .filter(|id| self.clients[self.at].slots[usize::from(*id)].is_none())
            .collect();
        let Some(other) = free.get(self.rng.usize(0..free.len().max(1))) else {
            return tag;
        };
        let moved = self.clients[self.at].slots[usize::from(tag)].take();
        self.clients[self.at].slots[usize::from(*other)] = moved;
        *other
    }

    /// An id for an admin message.
    pub(crate) fn free_admin_id(&self) -> Option<u16> {
        let client = &self.clients[self.at];
        let broken = self.settings.broken(Mutation::NoQuarantine);
        self.partition().admin_ids().find(|id| {
            let held = !broken && client.quarantine.is_held(*id);
            client.slots[usize::from(*id)].is_none() && !held
        })
    }

    /// Handles a request in flight on a path that was drained.
    pub(crate) fn lost(&mut self, chunk: u16, path: usize) -> Ticket {
        let number = self.clients[self.at].paths[path].number;
        self.clients[self.at].quarantine.lost(chunk, number)
    }

    /// Handles the connect of a path: the server has drained its previous connections.
    pub(crate) fn end_quarantine_of(&mut self, path: usize) {
        let number = self.clients[self.at].paths[path].number;
        self.clients[self.at].quarantine.connected(number);
        if self.settings.broken(Mutation::AnyPathEndsQuarantine) {
            (0..=u8::MAX).for_each(|n| self.clients[self.at].quarantine.connected(n));
        }
        self.settle();
    }

    /// Handles the removal of a path, whose end at the server is not known.
    pub(crate) fn path_removed(&mut self, path: usize) {
        self.trace.reached("a path is removed");
        let number = self.clients[self.at].paths[path].number;
        if self.settings.broken(Mutation::RemovalEndsQuarantine) {
            self.clients[self.at].quarantine.connected(number);
        }
        self.clients[self.at].quarantine.remove_path(number);
        self.settle();
    }

    /// Handles that the server does not know the session, nor did when it was asked.
    pub(crate) fn session_forgotten(&mut self, losses: u64) {
        self.trace.reached("the server has forgotten the session");
        note!(self, Client, "the server has forgotten the session");
        self.clients[self.at].quarantine.forgotten(losses);
        self.settle();
    }

    /// A request that failed in a chunk that is not held any more must not be executed from now on.
    pub(crate) fn settle(&mut self) {
        if self.clients[self.at].quarantine.held() == 0 {
            self.clients[self.at].shortage.end();
        }
        for chunk in 0..self.settings.queue_depth {
            let held = self.clients[self.at].quarantine.is_held(chunk);
            if held || self.settings.broken(Mutation::NoQuarantine) {
                continue;
            }
            let Some(Body { request, deed, .. }) =
                self.clients[self.at].failed[usize::from(chunk)].take()
            else {
                continue;
            };
            self.trace
                .reached("a chunk is used again after its request failed");
            if let Deed::Write { block, .. } = deed {
                let content = self.disk.content(block);
                self.check.write_settled(block, request, content);
            }
        }
    }

    /// Looks which requests have had no answer since the last look: `Session::look_at_requests`.
    fn look_at_requests(&mut self) {
        let now_ms = self.now_ms();
        let client = &mut self.clients[self.at];
        let Some(look) = client.shortage.look(now_ms) else {
            return;
        };
        let is_down = |p: usize| client.paths[p].down.is_some();
        let mut in_flight = vec![false; client.slots.len()];
        // Those of a path that is down wait for the answer to a fence message.
        let mut is_any_unanswered = false;
        for slot in client.slots.iter().flatten() {
            match slot.on {
                Some((path, _)) if is_down(path) => is_any_unanswered = true,
                Some(_) => in_flight[usize::from(slot.chunk)] = true,
                None => {}
            }
        }
        for (chunk, is_in_flight) in (0u16..).zip(in_flight) {
            is_any_unanswered |= client.quarantine.look(chunk, is_in_flight);
        }
        if is_any_unanswered {
            self.trace.reached("a session is not begun anew in vain");
        }
        self.clients[self.at]
            .shortage
            .looked(look, is_any_unanswered);
    }

    /// Disconnects all paths for a short time if requests have waited too long for their chunks.
    pub(crate) fn look_after_chunks(&mut self) {
        if self.settings.broken(Mutation::NeverAskServer)
            || self.clients[self.at].quarantine.held() == 0
        {
            return;
        }
        let up = |p: usize| {
            let p = &self.clients[self.at].paths[p];
            // The requests of one that is down wait for the answer to a fence message.
            p.state().carries_io() || p.down.is_some()
        };
        let up: Vec<usize> = (0..self.clients[self.at].paths.len())
            .filter(|p| up(*p))
            .collect();
        let in_flight: usize = up
            .iter()
            .map(|p| self.clients[self.at].in_flight(*p).count())
            .sum();
        let in_flight = u32::try_from(in_flight).unwrap_or(u32::MAX);
        let (now_ms, setting) = (self.now_ms(), self.settings.fast_io_fail);
        let held_back = matches!(setting, FastIoFail::After(0..=10)) && in_flight != 0;
        if held_back && self.settings.broken(Mutation::HoldBackForEver) {
            return;
        }
        self.look_at_requests();
        let shortage = &mut self.clients[self.at].shortage;
        if shortage.is_too_long(now_ms, setting, in_flight) {
            self.trace.reached("a session is begun anew");
            note!(self, Client, "chunks are held for too long");
            let paths = 0..self.clients[self.at].paths.len();
            let connecting = |p: usize| self.clients[self.at].paths[p].state().is_connecting();
            let away_ms = away_ms(paths.clone().any(connecting));
            self.clients[self.at].away_until_us = self.now_us + u64::from(away_ms) * MS;
            paths.for_each(|path| self.path_failed(path));
        }
    }
}
