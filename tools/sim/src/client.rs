// SPDX-License-Identifier: GPL-2.0

//! The client's requests: how they are sent, and how they end.
//!
//! Stands for `rtrs/client/{session,io}` and `rnbd/client/{queue,retry}.rs`. The decisions are the
//! drivers' own code: `proto::{policy,permit,geometry,imm,failover}` and `rnbd`'s `retry`. A
//! request is known by its tag, which is the number of a chunk: the one that it uses unless
//! `client_chunks` gives it another.

use std::collections::VecDeque;

use proto::common::errno::Errno;
use proto::rnbd::{
    admin_lock::{
        LockState, //
        LostCloses,
    },
    cache::Note,
    retry::NotSent,
};
use proto::rtrs::{
    availability::Availability,
    failover::Resent,
    fence::{
        Fences,
        Place, //
    },
    imm::Imm,
    permit::Partition,
    policy::{
        PathLoad,
        Policy,
        Tried, //
    },
    quarantine::{
        Chunk,
        Quarantine,
        Ticket, //
    },
    shortage::Shortage,
    PATHS_MAX, //
};

use crate::{
    app::Answer,
    check::Kind,
    client_chunks::AGAIN_US,
    client_path::ClientPath,
    device::Device,
    event::Event,
    message::{
        Body,
        Deed,
        Message,
        Side, //
    },
    network::ConnId,
    settings::Mutation,
    tasks::Tasks,
    trace::note,
    world::World,
};

/// The request that uses a chunk.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) body: Body,
    /// The path and connection on which it is in flight; `None`: it waits.
    pub(crate) on: Option<(usize, ConnId)>,
    /// The chunk that it was last sent in.
    pub(crate) chunk: u16,
    /// Number of its last sending.
    pub(crate) send: u64,
    /// The ticket of the quarantine, since it was lost on a path.
    pub(crate) ticket: Option<Ticket>,
    /// The times that it came back since it was answered last.
    pub(crate) lost: u8,
    /// Since when it was lost first, or waits for its chunk.
    pub(crate) since_us: Option<u64>,
    pub(crate) resent: Resent,
    /// Resendings since it was submitted, as the check counts them.
    pub(crate) resendings: u32,
    /// The meaning of its acknowledgement for the server's cache.
    pub(crate) note: Note,
    /// The task that waits for the answer, if this is an admin message.
    pub(crate) task: Option<u64>,
}

/// A client with one session.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) paths: Vec<ClientPath>,
    pub(crate) availability: Availability,
    /// The lives of paths of which the server may still execute a request.
    pub(crate) fences: Fences<Vec<Option<Place>>>,
    pub(crate) devices: Vec<Device>,
    pub(crate) tasks: Tasks,
    pub(crate) admin_lock: LockState,
    pub(crate) lost_closes: LostCloses,
    pub(crate) policy: Policy,
    last: Option<usize>,
    pub(crate) slots: Vec<Option<Slot>>,
    /// Tags whose requests the block layer keeps.
    pub(crate) waiting: VecDeque<u16>,
    /// Tags whose requests wait for their chunks.
    pub(crate) refused: Vec<u16>,
    /// [`Event::TryAgain`] is on its way.
    pub(crate) tries_again: bool,
    pub(crate) quarantine: Quarantine<Vec<Chunk>>,
    pub(crate) shortage: Shortage,
    /// The time until which no path connects.
    pub(crate) away_until_us: u64,
    /// The failed request without an answer, for each chunk that is held because of it.
    pub(crate) failed: Vec<Option<Body>>,
    pub(crate) frozen: bool,
    /// The events for a frozen client when it runs again.
    pub(crate) backlog: VecDeque<Event>,
}

impl Client {
    pub(crate) fn new(queue_depth: u16, policy: Policy, devices: usize) -> Self {
        Self {
            paths: Vec::new(),
            availability: Availability::NEW,
            fences: Fences::new(vec![None; PATHS_MAX]),
            devices: (0..devices).map(|_| Device::new()).collect(),
            tasks: Tasks::default(),
            admin_lock: LockState::NONE,
            lost_closes: LostCloses::NONE,
            policy,
            last: None,
            slots: vec![None; queue_depth.into()],
            waiting: VecDeque::new(),
            refused: Vec::new(),
            tries_again: false,
            quarantine: Quarantine::new(vec![Chunk::default(); queue_depth.into()]),
            shortage: Shortage::NONE,
            away_until_us: 0,
            failed: vec![None; queue_depth.into()],
            frozen: false,
            backlog: VecDeque::new(),
        }
    }

    fn loads(&self) -> Vec<PathLoad> {
        let load = |(i, p): (usize, &ClientPath)| PathLoad {
            connected: p.is_live && p.state().carries_io(),
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
        let tag = self.clients[self.at].free(self.partition().io_ids())?;
        let request = self.take(tag, deed, None);
        self.submit(tag);
        Some(request)
    }

    /// Puts a request or a task's message into a tag.
    pub(crate) fn take(&mut self, tag: u16, deed: Deed, task: Option<u64>) -> u64 {
        self.requests += 1;
        let request = self.requests;
        match deed {
            Deed::Write { block, .. } => self.check.write_begins(block, request),
            Deed::Read { block } => self.check.read_begins(block),
            _ => {}
        }
        let body = Body {
            request,
            deed,
            number: 0,
        };
        self.clients[self.at].slots[usize::from(tag)] = Some(Slot {
            body,
            on: None,
            chunk: tag,
            send: 0,
            ticket: None,
            lost: 0,
            since_us: None,
            resent: Resent::NEVER,
            resendings: 0,
            note: Note::Nothing,
            task,
        });
        note!(self, Client, "r{request} {deed:?} takes tag {tag}");
        request
    }

    /// Sends a tag's request on the path that the policy chooses, or lets it wait, or fails it:
    /// `queue_rq` of `rnbd/client/queue.rs`.
    pub(crate) fn submit(&mut self, tag: u16) {
        let Some(slot) = self.clients[self.at].slots[usize::from(tag)].clone() else {
            return;
        };
        let Some(index) = slot.body.deed.device(self.settings.volatile.len()) else {
            return;
        };
        let Some(number) = self.clients[self.at].devices[index].io_state.remote_id() else {
            return self.not_sent(tag, Errno::ECONNABORTED);
        };
        if slot.ticket.is_some_and(|t| t.is_paused(self.now_ms())) {
            return self.paused(tag);
        }
        if !self.may_take(tag, slot.ticket) {
            return self.not_sent(tag, Errno::EALREADY);
        }
        let Ok(note) = self.clients[self.at].devices[index].send(slot.body.deed) else {
            self.trace.reached("a flush fails for a lost cache");
            return self.end_io(tag, Answer::Refused);
        };
        let mut slot = slot;
        slot.note = note;
        slot.body.number = number;
        let Some(place) = self.place_for(tag) else {
            return self.not_sent(tag, Errno::EALREADY);
        };
        slot.resent = match place.is_again {
            true => Resent::REMADE,
            false => Resent::NEVER,
        };
        slot.resendings = 0;
        self.clients[self.at].slots[usize::from(tag)] = Some(slot.clone());
        if !self.send_on_any_path(tag, &slot, place.chunk) {
            if place.is_again {
                self.clients[self.at].quarantine.given_back(place.chunk);
            }
            self.not_sent(tag, Errno::ECONNABORTED);
        }
    }

    /// Handles a request that was not sent: `take_back` of `rnbd/client/retry.rs`.
    fn not_sent(&mut self, tag: u16, errno: Errno) {
        match NotSent::new(errno, self.may_recover(tag)) {
            NotSent::Requeue => self.keep(tag),
            NotSent::WaitForChunk => self.refused(tag),
            NotSent::Fail => self.end_io(tag, Answer::Unknown),
        }
    }

    /// The block layer keeps a request until its queue runs again.
    pub(crate) fn keep(&mut self, tag: u16) {
        self.clients[self.at].waiting.push_back(tag);
        if !self.is_quiesced(tag) {
            self.try_again_later();
        }
    }

    pub(crate) fn try_again_later(&mut self) {
        let client = &mut self.clients[self.at];
        if !std::mem::replace(&mut client.tries_again, true) {
            self.after(AGAIN_US, Event::TryAgain);
        }
    }

    /// Sends a request in a chunk; `false` if no path takes it.
    pub(crate) fn send_on_any_path(&mut self, tag: u16, slot: &Slot, chunk: u16) -> bool {
        let mut tried = Tried::NONE;
        let mut seen = Vec::new();
        let loads = self.clients[self.at].loads();
        let policy = self.clients[self.at].policy;
        let last = self.clients[self.at].last;
        while let Some(path) = policy.choose(last, &tried, loads.iter().copied()) {
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
            self.clients[self.at].last = Some(path);
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

    /// Sends a request on a path.
    pub(crate) fn send(&mut self, tag: u16, slot: &Slot, chunk: u16, path: usize) -> bool {
        let p = &self.clients[self.at].paths[path];
        let lane = match slot.body.deed.is_admin() {
            true => 0,
            false => 1 + usize::from(tag) % (p.conns.len() - 1),
        };
        let conn = p.conns[lane];
        let key = p.keys[usize::from(chunk)];
        let Some(payload) = self.geometry.join(chunk, 0) else {
            self.check
                .fail(Kind::ChunkTwice, format!("no chunk {chunk}"));
            return true;
        };
        self.sends += 1;
        let send = self.sends;
        let message = Message::Request {
            imm: Imm::Request { payload }.encode(),
            key,
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
        if let Some(slot) = &mut self.clients[self.at].slots[usize::from(tag)] {
            slot.on = Some((path, conn));
            (slot.chunk, slot.send) = (chunk, send);
        }
        if !self.settings.broken(Mutation::NoRequestTimeout) {
            let timeout = self.settings.request_timeout_us;
            self.after(timeout, Event::RequestTimeout { tag, send });
        }
        true
    }

    /// Handles the timeout of a request: the path recovers, and the request is sent on another one.
    pub(crate) fn request_timeout(&mut self, tag: u16, send: u64) {
        let Some(slot) = &self.clients[self.at].slots[usize::from(tag)] else {
            return;
        };
        if let (Some((path, _)), true) = (slot.on, slot.send == send) {
            note!(self, Client, "tag {tag} unanswered on p{path}: time-out");
            self.trace.reached("a request times out");
            self.path_failed(path);
        }
    }
}
