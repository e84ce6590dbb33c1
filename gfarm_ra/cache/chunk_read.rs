// SPDX-License-Identifier: GPL-2.0

//! One read of pages of a chunk from other nodes, from its first request to its end.

mod settling;

use core::{
    mem,
    ops::ControlFlow::{
        self,
        Break,
        Continue, //
    }, //
};

use kernel::sync::Arc;
use kernel_ext::random;
use rdma::Cq;
use rdma_transfer::{
    ReceiveQp,
    Received,
    Receiving, //
};
use vfs_ext::{
    FileSystem,
    Lent,
    Selection, //
};

use super::{
    data_qps::new_qkey,
    endpoint::Incoming,
    inbox::{
        Inbox,
        Landed, //
    },
    now_us,
    peers::Table,
    requester::{
        IsOver,
        Requests, //
    }, //
};
use crate::proto::cache::{
    address::NodeId,
    counter::Counter,
    excluded::Reason,
    owner::ChunkKey,
    pages::{
        PageSet,
        PAGES, //
    },
    read_table::ReadId,
    reply::Holder,
    request::{
        Ask,
        Landing,
        Request,
        RequestId,
        Role,
        Wanted, //
    },
    requester::event::{
        Asking,
        Effect,
        Event,
        Whom, //
    },
    rtt::Timing, //
};

/// The time after which a read looks again that nothing wakes, in milliseconds.
const LOOK_MS: u64 = 1_000;

/// The time after which a request is sent for which its peer had no room, in microseconds.
const ROOM_US: u32 = 2_000;

/// The owner of the queue pair and the pages.
enum Hold<T: FileSystem> {
    Idle(ReceiveQp<Landed>, Lent<T>),
    Receiving(Receiving<Landed, Selection<T>>),
    Received(Received<Landed, Selection<T>>),
    /// The device has them, and has not given them back.
    Lost,
}

/// A request that no node takes.
const UNSENT: Event<'static> = Event::Unsent { retry_us: None };

/// The node that is going to be asked, for what, and how long it has.
struct Chosen {
    to: Holder,
    wanted: Wanted,
    ask: Ask,
    timing: Timing,
}

/// A read that is being carried out.
pub(super) struct ChunkRead<'a, I: Incoming, T: FileSystem> {
    requests: &'a Requests<I>,
    inbox: Arc<Inbox>,
    /// The completions of the queue pair.
    cq: Arc<Cq>,
    wanted: Wanted,
    hold: Hold<T>,
    /// The pages that are received, or were last.
    pages: PageSet,
    /// The peer at which a request is counted.
    credit: Option<NodeId>,
    timer_us: Option<u64>,
    /// The last request that has no landing, and the owner that it was sent to.
    last: Option<(Holder, RequestId, Wanted, u16)>,
    has_asked: bool,
}

impl<'a, I: Incoming, T: FileSystem> ChunkRead<'a, I, T> {
    /// Prepares to carry a read out.
    pub(super) fn new(
        requests: &'a Requests<I>,
        inbox: Arc<Inbox>,
        cq: Arc<Cq>,
        wanted: Wanted,
        (qp, lent): (ReceiveQp<Landed>, Lent<T>),
    ) -> Self {
        Self {
            requests,
            inbox,
            cq,
            wanted,
            hold: Hold::Idle(qp, lent),
            pages: PageSet::EMPTY,
            credit: None,
            timer_us: None,
            last: None,
            has_asked: false,
        }
    }

    /// Carries the read out without the peers `lost`, unless it `is_over`. Sleeps.
    pub(super) fn carry_out(
        &mut self,
        read_id: Option<ReadId>,
        lost: &[Option<NodeId>],
        is_over: IsOver<'_>,
    ) {
        if let Some(effect) = self.begin(read_id, lost, is_over) {
            self.run(effect);
        }
    }

    #[inline(never)]
    fn begin(
        &self,
        read_id: Option<ReadId>,
        lost: &[Option<NodeId>],
        is_over: IsOver<'_>,
    ) -> Option<Effect> {
        let effect = self.inbox.begin(&self.wanted, read_id, lost)?;
        // From here on it is told of an end, or that no node is asked; of one before it is not.
        let is_over = self.requests.is_over() || is_over() || self.requests.cut().is_some();
        Some(match is_over {
            true => self.step(Event::Cancel),
            false => effect,
        })
    }

    /// Returns the queue pair and the pages when the read has been carried out; `None` if the
    /// device keeps them.
    pub(super) fn into_parts(self) -> Option<(ReceiveQp<Landed>, Lent<T>)> {
        match self.hold {
            Hold::Idle(qp, lent) => Some((qp, lent)),
            _ => None,
        }
    }

    /// Does what the machine says until the read is over. What it does has frames of its own, which
    /// end before the next: a queue pair is started or drained with much of the stack left.
    #[inline(never)]
    fn run(&mut self, mut effect: Effect) {
        loop {
            effect = match effect {
                Effect::Wait => self.wait(),
                Effect::Timer { at_us } => {
                    self.timer_us = Some(at_us);
                    self.wait()
                }
                Effect::Again { at_us } => {
                    self.timer_us = Some(at_us);
                    self.send_again();
                    self.wait()
                }
                Effect::Ask(asking) => self.ask(&asking),
                Effect::Stop => self.stop(),
                Effect::Settle { complete } => self.settle(complete),
                Effect::Over { .. } => {
                    // The queue pair may have failed before the request was sent.
                    self.finish();
                    self.take_back();
                    self.give_credit_back();
                    return;
                }
            };
            if matches!(self.hold, Hold::Lost) {
                self.give_credit_back();
                return;
            }
        }
    }

    fn step(&self, event: Event<'_>) -> Effect {
        let step = self.inbox.step(event);
        self.requests.note(&step);
        step.effect
    }

    fn give_credit_back(&mut self) {
        if let Some(node) = self.credit.take() {
            self.requests.peer_timings.give_back(node);
        }
    }

    #[inline(never)]
    fn wait(&mut self) -> Effect {
        // A reply that has just come says that all fragments were sent.
        self.take_fragments();
        let left_us = self.timer_us.map(|at_us| at_us.saturating_sub(now_us()));
        let left_ms = left_us.map_or(LOOK_MS, |us| us.div_ceil(1000).min(LOOK_MS));
        // CAST: At most 1000.
        let mut effect = self.inbox.wait(left_ms as u32);
        if effect == Effect::Wait && self.timer_us.is_some_and(|at_us| at_us <= now_us()) {
            // Those that nothing has told of put the end off.
            self.cq.poll(u32::MAX);
            effect = self.inbox.take();
            if effect == Effect::Wait {
                self.timer_us = None;
                return self.step(Event::TimerFired);
            }
        }
        effect
    }

    /// Takes the fragments that have come, and has the inbox told of the next one if some are
    /// missing that were sent. Before that nothing is interrupted for a fragment.
    fn take_fragments(&self) {
        if !matches!(self.hold, Hold::Receiving(_)) {
            return;
        }
        loop {
            self.cq.poll(u32::MAX);
            if !self.inbox.misses_fragments() || !self.cq.request_notify() {
                return;
            }
        }
    }

    /// Returns the node to ask; `None` if there is no other one.
    fn whom(&self, asking: &Asking) -> Option<Holder> {
        match asking.whom {
            Whom::Named(holder) => Some(holder),
            Whom::Owner => {
                let peers = &self.requests.peers;
                let key = ChunkKey::new(self.wanted.id().file.inum, self.wanted.chunk());
                let is_lost = |node| asking.excluded.reason(node) == Some(Reason::NoAnswer);
                let owners = peers.owners(key, peers.me().node, is_lost);
                peers.holder(owners.near)
            }
        }
    }

    /// Asks a node, as far as that is possible.
    fn ask(&mut self, asking: &Asking) -> Effect {
        let chosen = match self.choose(asking) {
            Continue(chosen) => chosen,
            Break(effect) => return effect,
        };
        match asking.role {
            Role::Holder => match self.land(asking.pages) {
                Some(landing) => self.dispatch(&chosen, Some(landing)),
                None => self.step(UNSENT),
            },
            Role::Owner | Role::NamedOwner => self.dispatch(&chosen, None),
        }
    }

    /// Chooses the node to ask, and counts the request there; what comes next if none is asked.
    #[inline(never)]
    fn choose(&mut self, asking: &Asking) -> ControlFlow<Effect, Chosen> {
        self.give_credit_back();
        self.timer_us = None;
        let requests = self.requests;
        let whom = self.whom(asking);
        let (Some(to), Some(wanted)) = (whom, self.wanted.part(asking.pages)) else {
            return Break(self.step(UNSENT));
        };
        let Some(ask) = self.inbox.ask_of(to.node) else {
            return Break(self.step(UNSENT));
        };
        let me = requests.peers.me().node;
        if to.node == me {
            let answer = requests.owner.ask(me, &wanted, &ask);
            return Break(self.step(Event::Answered(answer)));
        }
        let Some(timing) = requests.peer_timings.take(to.node) else {
            let retry_us = Some(ROOM_US);
            return Break(self.step(Event::Unsent { retry_us }));
        };
        self.credit = Some(to.node);
        Continue(Chosen {
            to,
            wanted,
            ask,
            timing,
        })
    }

    /// Sends the request to the chosen node; the receives for what it has are posted.
    #[inline(never)]
    fn dispatch(&mut self, chosen: &Chosen, landing: Option<Landing>) -> Effect {
        let (requests, wanted) = (self.requests, chosen.wanted);
        let (to, timing) = (chosen.to, chosen.timing);
        // If it is a holder that waits itself, it says for how many.
        let holder = landing.is_some().then_some((to.node, 0));
        requests.waits(self.inbox.read_id(), holder);
        let id = RequestId {
            tag: self.inbox.take_tag(),
            cookie: random::number(),
        };
        // CAST: At most 2000.
        let timeout_ms = timing.timeout_us.div_ceil(1000) as u16;
        self.last = landing.is_none().then_some((to, id, wanted, timeout_ms));
        let queues = (landing, requests.endpoint.replies());
        let request = Request::new(id, wanted, queues, chosen.ask, timeout_ms).ok();
        let node = to.node;
        let effect = self.step(Event::Sending { node, id, timing });
        if let Some(request) = request {
            requests.membership.introduce(node);
            self.send(&to, &request);
        }
        effect
    }

    /// Sends a request.
    fn send(&mut self, to: &Holder, request: &Request) {
        let requests = self.requests;
        let (me, node, now_us) = (requests.peers.me().node, to.node, now_us());
        let next = |table: &mut Table| table.next_sequence(Some(node), now_us);
        let sequence = requests.peers.with(next);
        if let Some(bytes) = request.seal(me, node, sequence, requests.secret.key()) {
            let counters = requests.endpoint.counters();
            counters.add(Counter::Asked, 1);
            counters.add(
                Counter::AskedAgain,
                mem::replace(&mut self.has_asked, true).into(),
            );
            // One that cannot be sent is as good as lost: the timer expires.
            let _ = requests.endpoint.send(&to.address, &bytes);
        }
    }

    /// Sends the last request to an owner once more.
    #[inline(never)]
    fn send_again(&mut self) {
        let Some((to, id, wanted, timeout_ms)) = self.last else {
            return;
        };
        let Some(ask) = self.inbox.ask_of(to.node) else {
            return;
        };
        let queues = (None, self.requests.endpoint.replies());
        if let Ok(request) = Request::new(id, wanted, queues, ask, timeout_ms) {
            self.send(&to, &request);
        }
    }

    /// Lays receives over pages; `None` if the device cannot.
    #[inline(never)]
    fn land(&mut self, pages: PageSet) -> Option<Landing> {
        let Hold::Idle(qp, lent) = mem::replace(&mut self.hold, Hold::Lost) else {
            return None;
        };
        let first = lent.first_page();
        let chunk = self.wanted.chunk();
        let selection = lent.select(|page| {
            let page = first.saturating_add(page.into());
            // CAST: Below 256.
            page / PAGES as u64 == chunk && pages.contains((page % PAGES as u64) as u8)
        });
        let ahead = qp.prepared_key();
        let counters = self.requests.endpoint.counters();
        counters.add(Counter::KeysAhead, ahead.is_some().into());
        let qkey = ahead.unwrap_or_else(new_qkey);
        let fragment_len = self.requests.fragment_len;
        let Ok(landing) = Landing::new(qp.number(), qkey, fragment_len) else {
            self.hold = Hold::Idle(qp, selection.into_lent());
            return None;
        };
        let skip = selection.skip();
        match qp.receive(selection, skip, fragment_len.bytes(), qkey) {
            Ok(receiving) => {
                self.pages = pages;
                self.hold = Hold::Receiving(receiving);
                Some(landing)
            }
            Err(refused) => {
                let (qp, selection) = refused.parts;
                self.hold = Hold::Idle(qp, selection.into_lent());
                None
            }
        }
    }

    /// Stops the queue pair, for the machine.
    #[inline(never)]
    fn stop(&mut self) -> Effect {
        self.timer_us = None;
        self.finish();
        let effect = self.step(Event::Stopped);
        if !matches!(effect, Effect::Settle { .. }) {
            self.take_back();
        }
        effect
    }

    /// Stops the queue pair, if it receives.
    fn finish(&mut self) {
        if !matches!(self.hold, Hold::Receiving(_)) {
            return;
        }
        if let Hold::Receiving(receiving) = mem::replace(&mut self.hold, Hold::Lost) {
            // Until then the device may write to the pages: the reader waits (decision 0014).
            self.hold = Hold::Received(receiving.end());
        }
    }

    /// Takes queue pair and pages back from a transfer that has ended.
    fn take_back(&mut self) {
        match mem::replace(&mut self.hold, Hold::Lost) {
            Hold::Received(received) => {
                let (qp, selection) = received.into_parts();
                self.hold = Hold::Idle(qp, selection.into_lent());
            }
            other => self.hold = other,
        }
    }
}
