// SPDX-License-Identifier: GPL-2.0

//! The client's requests: the choice of a path, waiting for one, sending again, and the end.
//!
//! Stands for `rtrs/client/{session,io}` and `rnbd/client`. The decisions are the drivers' own
//! code: `proto::policy`, `proto::outage`, `proto::permit`, `proto::geometry` and `proto::imm`. A
//! request is known by its tag, which is the number of a chunk: the one that it uses unless
//! `client_chunks` gives it another.

use std::collections::VecDeque;

use proto::rtrs::{
    geometry::Geometry,
    imm::{
        Imm,
        Response, //
    },
    outage::{self, Outage},
    permit::Partition,
    policy::{
        PathLoad,
        Policy,
        Tried, //
    },
    quarantine::{
        outage_setting,
        Chunk,
        Quarantine,
        Shortage,
        Ticket, //
    },
};

use crate::{
    check::Kind,
    client_chunks::AGAIN_US,
    client_path::ClientPath,
    event::{
        Event,
        MS, //
    },
    message::{
        Body,
        Deed,
        Message,
        Side, //
    },
    network::ConnId,
    settings::Mutation,
    trace::note,
    world::World,
};

/// What a chunk is used for.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) body: Body,
    /// The path and connection on which it is in flight; `None`: it waits.
    pub(crate) on: Option<(usize, ConnId)>,
    /// The chunk that it was last sent in.
    pub(crate) chunk: u16,
    /// Number of its last sending.
    send: u64,
    /// It was lost on a path.
    pub(crate) ticket: Option<Ticket>,
    /// Since when it waits for its chunk.
    pub(crate) since_us: Option<u64>,
    /// Of an open message: the client's count when it was made.
    epoch: u64,
}

/// A client with one session and one device.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) paths: Vec<ClientPath>,
    pub(crate) outage: Outage,
    pub(crate) policy: Policy,
    last: Option<usize>,
    pub(crate) slots: Vec<Option<Slot>>,
    /// Chunks whose requests wait for a path.
    pub(crate) waiting: VecDeque<u16>,
    /// Tags whose requests wait for their chunks.
    pub(crate) refused: Vec<u16>,
    pub(crate) quarantine: Quarantine<Vec<Chunk>>,
    pub(crate) shortage: Shortage,
    /// Until when no path connects.
    pub(crate) away_until_us: u64,
    /// The failed request without an answer, for each chunk that is held because of it.
    pub(crate) failed: Vec<Option<Body>>,
    /// The device is open on the server that the connected paths lead to.
    pub(crate) opened: bool,
    /// Counts the times that the device had to be opened.
    epoch: u64,
    sends: u64,
    requests: u64,
    pub(crate) frozen: bool,
    /// The events for a frozen client when it runs again.
    pub(crate) backlog: VecDeque<Event>,
}

impl Client {
    pub(crate) fn new(queue_depth: u16, policy: Policy) -> Self {
        Self {
            paths: Vec::new(),
            outage: Outage::Up,
            policy,
            last: None,
            slots: vec![None; queue_depth.into()],
            waiting: VecDeque::new(),
            refused: Vec::new(),
            quarantine: Quarantine::new(vec![Chunk::default(); queue_depth.into()]),
            shortage: Shortage::NONE,
            away_until_us: 0,
            failed: vec![None; queue_depth.into()],
            opened: false,
            epoch: 0,
            sends: 0,
            requests: 0,
            frozen: false,
            backlog: VecDeque::new(),
        }
    }

    fn loads(&self) -> Vec<PathLoad> {
        let load = |(i, p): (usize, &ClientPath)| PathLoad {
            connected: p.state().carries_io(),
            inflight: self.in_flight(i).count().try_into().unwrap_or(u32::MAX),
            latency_ns: p.latency_ns,
        };
        self.paths.iter().enumerate().map(load).collect()
    }

    /// The tags in flight on a path.
    pub(crate) fn in_flight(&self, path: usize) -> impl Iterator<Item = u16> + '_ {
        let on = move |s: &Option<Slot>| {
            let on = s.as_ref().and_then(|s| s.on);
            on.is_some_and(|(p, _)| p == path)
        };
        (0u16..)
            .zip(&self.slots)
            .filter(move |(_, s)| on(s))
            .map(|(id, _)| id)
    }

    /// A tag that nothing uses, out of a range.
    pub(crate) fn free(&self, mut ids: std::ops::Range<u16>) -> Option<u16> {
        ids.find(|id| self.slots[usize::from(*id)].is_none())
    }
}

impl World {
    pub(crate) fn partition(&self) -> Partition {
        Partition::new(self.settings.queue_depth)
    }

    /// Takes a request from the application; `None` if every tag is taken.
    pub(crate) fn take_io(&mut self, deed: Deed) -> Option<u64> {
        let chunk = self.client.free(self.partition().io_ids())?;
        Some(self.take(chunk, deed))
    }

    fn take(&mut self, chunk: u16, deed: Deed) -> u64 {
        self.client.requests += 1;
        let request = self.client.requests;
        match deed {
            Deed::Write { block } => self.check.write_begins(block, request),
            Deed::Read { block } => self.check.read_begins(block),
            Deed::Open => {}
        }
        self.client.slots[usize::from(chunk)] = Some(Slot {
            body: Body { request, deed },
            on: None,
            chunk,
            send: 0,
            ticket: None,
            since_us: None,
            epoch: self.client.epoch,
        });
        note!(self, Client, "r{request} {deed:?} takes chunk {chunk}");
        self.submit(chunk);
        request
    }

    /// Sends a tag's request on the path that the policy chooses, or lets it wait, or fails it.
    pub(crate) fn submit(&mut self, tag: u16) {
        let Some(slot) = self.client.slots[usize::from(tag)].clone() else {
            return;
        };
        let is_open = slot.body.deed == Deed::Open;
        if !is_open && !self.client.opened {
            self.wait_or_fail(tag);
            return;
        }
        let Some(place) = self.place_for(tag) else {
            self.refused(tag);
            return;
        };
        if !self.send_on_any_path(tag, &slot, place.chunk) {
            if place.is_again {
                self.client.quarantine.given_back(place.chunk);
            }
            if is_open {
                // It is opened when a path comes up.
                self.client.slots[usize::from(tag)] = None;
            } else {
                self.wait_or_fail(tag);
            }
        }
    }

    /// Handles a request without a path, as rnbd's `client/io_state.rs`: it waits unless its time
    /// limit is over.
    fn wait_or_fail(&mut self, tag: u16) {
        match self.client.outage {
            Outage::Up | Outage::Queueing { .. } => self.client.waiting.push_back(tag),
            Outage::Failing { .. } | Outage::Closed => self.end_io(tag, None),
        }
    }

    /// Sends a request in a chunk; `false` if no path takes it.
    fn send_on_any_path(&mut self, tag: u16, slot: &Slot, chunk: u16) -> bool {
        let mut tried = Tried::NONE;
        let mut seen = Vec::new();
        let loads = self.client.loads();
        let policy = self.client.policy;
        while let Some(path) = policy.choose(self.client.last, &tried, loads.iter().copied()) {
            if seen.contains(&path) {
                let request = slot.body.request;
                let what = format!("r{request} tried path {path} twice");
                self.check.fail(Kind::TriedTwice, what);
                return true;
            }
            seen.push(path);
            if !self.settings.broken(Mutation::LoseTried) {
                tried.insert(path);
            }
            self.client.last = Some(path);
            if seen.len() > 1 {
                self.trace.reached("a request tries a second path");
            }
            if self.send(tag, slot, chunk, path) {
                return true;
            }
        }
        if !seen.is_empty() {
            self.trace.reached("every path refuses a request");
        }
        false
    }

    fn send(&mut self, tag: u16, slot: &Slot, chunk: u16, path: usize) -> bool {
        let conns = &self.client.paths[path].conns;
        let lane = match slot.body.deed {
            Deed::Open => 0,
            _ => 1 + usize::from(tag) % (conns.len() - 1),
        };
        let conn = conns[lane];
        let Some(payload) = self.geometry.join(chunk, 0) else {
            self.check
                .fail(Kind::ChunkTwice, format!("no chunk {chunk}"));
            return true;
        };
        self.client.sends += 1;
        let send = self.client.sends;
        let message = Message::Request {
            imm: Imm::Request { payload }.encode(),
            body: slot.body,
            send,
        };
        if !self.post(conn, Side::Client, message) {
            return false;
        }
        let request = slot.body.request;
        note!(
            self,
            Client,
            "r{request} chunk {chunk} sent on p{path} c{conn}"
        );
        if let Some(slot) = &mut self.client.slots[usize::from(tag)] {
            slot.on = Some((path, conn));
            (slot.chunk, slot.send, slot.since_us) = (chunk, send, None);
        }
        if !self.settings.broken(Mutation::NoRequestTimeout) {
            let timeout = self.settings.request_timeout_us;
            self.after(timeout, Event::RequestTimeout { tag, send });
        }
        true
    }

    /// Handles the timeout of a request: the path recovers, and the request is sent on another one.
    pub(crate) fn request_timeout(&mut self, tag: u16, send: u64) {
        let Some(slot) = &self.client.slots[usize::from(tag)] else {
            return;
        };
        if let (Some((path, _)), true) = (slot.on, slot.send == send) {
            note!(self, Client, "tag {tag} unanswered on p{path}: time-out");
            self.trace.reached("a request times out");
            self.path_failed(path);
        }
    }

    /// Handles a response on a connection of a path.
    pub(crate) fn response(&mut self, at: (usize, ConnId), r: Response, content: u64, truth: u64) {
        let geometry: Geometry = self.geometry;
        let chunk = geometry.chunk_id(r.msg_id);
        let found = chunk.and_then(|c| self.client.user_of(c));
        let (Some(chunk), Some((tag, slot))) = (chunk, found) else {
            let what = format!("answer to r{truth} in a free chunk, p{}", at.0);
            self.check.fail(Kind::WrongReply, what);
            return;
        };
        let request = slot.body.request;
        if slot.on != Some(at) || request != truth {
            let what = format!("answer to r{truth} taken for r{request}, p{}", at.0);
            self.check.fail(Kind::WrongReply, what);
            return;
        }
        note!(
            self,
            Client,
            "r{request} chunk {chunk} answered on p{}",
            at.0
        );
        if r.errno != 0 {
            let what = format!("r{request} answered with error {}", r.errno);
            self.check.fail(Kind::Refused, what);
            return;
        }
        if slot.ticket.is_some() {
            self.client.quarantine.answered(chunk);
            self.settle();
        }
        if slot.body.deed == Deed::Open {
            self.client.slots[usize::from(tag)] = None;
            self.opened(slot.epoch);
        } else {
            self.end_io(tag, Some(content));
        }
    }

    /// Ends a request of the application; `None` is an error.
    pub(crate) fn end_io(&mut self, tag: u16, answer: Option<u64>) {
        let Some(slot) = self.client.slots[usize::from(tag)].take() else {
            return;
        };
        let unanswered = slot.ticket.filter(|_| answer.is_none());
        self.io_done(slot.body, answer, unanswered.is_some());
        if unanswered.is_some() {
            self.client.failed[usize::from(slot.chunk)] = Some(slot.body);
            self.settle();
        }
    }

    /// Handles that a path's queue pairs are drained: requests in flight are sent again, or given
    /// back.
    pub(crate) fn fail_over(&mut self, path: usize) {
        let tags: Vec<u16> = self.client.in_flight(path).collect();
        for mut tag in tags {
            if self.settings.broken(Mutation::NoFailOver) {
                continue;
            }
            let Some(mut slot) = self.client.slots[usize::from(tag)].take() else {
                continue;
            };
            self.trace.reached("a request fails over");
            let request = slot.body.request;
            note!(self, Client, "r{request} fails over from p{path}");
            let mut chunk = slot.chunk;
            slot.ticket = Some(self.lost(chunk, path));
            slot.on = None;
            if self.settings.broken(Mutation::ReuseChunkEarly) {
                if let Some(other) = self.client.free(self.partition().io_ids()) {
                    (tag, chunk) = (other, other);
                }
            }
            self.client.slots[usize::from(tag)] = Some(slot.clone());
            // As the driver: requests lost with the last path are given back, and submitted again.
            let is_open = slot.body.deed == Deed::Open;
            let may_go = is_open || self.client.opened;
            if !may_go || !self.send_on_any_path(tag, &slot, chunk) {
                self.client.quarantine.given_back(chunk);
                if is_open {
                    self.client.slots[usize::from(tag)] = None;
                } else {
                    self.client.waiting.push_back(tag);
                }
            }
        }
        if matches!(self.client.outage, Outage::Failing { .. } | Outage::Closed) {
            self.flush();
        }
    }

    /// Sends the waiting requests, as far as possible.
    pub(crate) fn flush(&mut self) {
        for tag in std::mem::take(&mut self.client.waiting) {
            let tag = self.another_tag(tag);
            self.submit(tag);
        }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.now_us / MS
    }

    /// Handles an event of the session.
    pub(crate) fn outage(&mut self, event: outage::Event) {
        let (next, effect) = self.client.outage.step(event);
        if next != self.client.outage {
            note!(self, Client, "session: {event:?}: {next:?}");
        }
        self.client.outage = next;
        match effect {
            outage::Effect::Ignore => {}
            outage::Effect::Queue { until_ms: None } => {}
            outage::Effect::Queue {
                until_ms: Some(until_ms),
            } => {
                let event = Event::OutageDeadline { until_ms };
                self.agenda.push(self.now_us.max(until_ms * MS), event);
            }
            // The path that connected opens the device, after which the waiting requests are sent.
            outage::Effect::Resume => self.trace.reached("a session is back"),
            outage::Effect::FailQueued => {
                self.trace.reached("what waits is failed");
                self.client.opened = false;
                self.flush();
                self.try_refused();
            }
        }
    }

    /// Handles a path that connected. It may lead to a restarted server, or to a session whose
    /// devices were closed, while another path still looks connected: no IO is sent, on any path,
    /// until the device was opened after this.
    pub(crate) fn path_up(&mut self) {
        let first = self.client.outage != Outage::Up;
        self.outage(outage::Event::PathUp);
        if (!first && self.settings.broken(Mutation::ReopenAfterOutageOnly))
            || (self.client.opened && self.settings.broken(Mutation::NoReopen))
        {
            self.flush();
            return;
        }
        self.client.opened = false;
        self.client.epoch += 1;
        self.open();
    }

    /// Opens the device, unless an open is in flight.
    pub(crate) fn open(&mut self) {
        let mut slots = self.client.slots.iter().flatten();
        if slots.any(|s| s.body.deed == Deed::Open) {
            self.flush();
        } else if let Some(id) = self.free_admin_id() {
            self.take(id, Deed::Open);
        } else {
            let now_ms = self.now_ms();
            self.client.shortage.refused(now_ms);
            self.after(AGAIN_US, Event::TryAgain);
        }
    }

    /// Handles the answer to an open message.
    fn opened(&mut self, epoch: u64) {
        if epoch == self.client.epoch {
            self.client.opened = true;
            note!(self, Client, "device open");
            self.flush();
        } else {
            // The answer may be that of a crashed server.
            self.trace.reached("an open is answered too late");
            self.open();
        }
    }

    pub(crate) fn path_down(&mut self) {
        if self.client.paths.iter().any(|p| p.state().carries_io()) {
            return;
        }
        let is_away = self.now_us < self.client.away_until_us;
        let setting = outage_setting(self.settings.fast_io_fail, is_away);
        let now_ms = self.now_ms();
        self.outage(outage::Event::LastPathDown { now_ms, setting });
    }

    pub(crate) fn outage_deadline(&mut self, until_ms: u64) {
        let now_ms = self.now_ms();
        // A replaced timer counts as cancelled.
        if matches!(self.client.outage, Outage::Queueing { until_ms: Some(u), .. } if u == until_ms)
        {
            self.outage(outage::Event::DeadlinePassed { now_ms });
        }
    }

    pub(crate) fn change_outage_setting(&mut self) {
        let (now_ms, setting) = (self.now_ms(), self.settings.fast_io_fail);
        self.outage(outage::Event::SettingChanged { now_ms, setting });
    }
}
