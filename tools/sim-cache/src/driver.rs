// SPDX-License-Identifier: GPL-2.0

//! Carries out what the machine of a read decides, as the kernel's driver does, and checks what
//! must hold of any read.

use proto::gfarm::cache::{
    address::NodeId,
    breaker::Change,
    excluded::Reason,
    fragment::FragmentId,
    pages::PageSet,
    reply::{
        Answer,
        Reply,
        Sums, //
    }, //
    request::{
        Ask,
        Landing,
        Request,
        RequestId,
        Role,
        Wanted, //
    },
    requester::{
        event::{
            Asking,
            Effect,
            Event as Told,
            Heard,
            Landed,
            Step,
            Whom, //
        },
        ASKS_MAX, //
    },
    tags::Tags,
};

use crate::{
    faults::LANES,
    message::{
        Event,
        Fragment,
        Transfer, //
    },
    scenario::{
        Mutation,
        US, //
    },
    world::World, //
};

/// The time after which a request is sent for which its peer had no room, in microseconds.
const ROOM_US: u32 = 2_000;

/// The time that it takes to take the completions of a queue pair that has received all.
const STOP_NS: u64 = 5 * US;

/// The commands that start a queue pair again which was stopped with receives left: from its reset
/// to its key.
const START_COMMANDS: u64 = 4;

impl World {
    /// Gives an event to the machine of a lane, and does what it says.
    pub(crate) fn tell(&mut self, n: usize, lane: usize, event: Told<'_>) {
        let effect = self.step(n, lane, event).effect;
        self.carry_out(n, lane, effect);
    }

    fn step(&mut self, n: usize, lane: usize, event: Told<'_>) -> Step {
        let now_us = self.now_us();
        let forgets = self.s.mutation == Some(Mutation::ForgetsItsEnd);
        let Some(machine) = &mut self.nodes[n].lanes[lane].machine else {
            return Step {
                effect: Effect::Wait,
                note: None,
            };
        };
        let before = forgets.then(|| machine.clone());
        let step = machine.step(event, now_us);
        if let (Some(before), Effect::Over { .. }) = (before, step.effect) {
            *machine = before;
        }
        if let Some((node, heard)) = step.note {
            let contact = self.nodes[n].contacts.entry(self.by_id[&node]).or_default();
            match heard {
                Heard::Answer { rtt_us } => contact.rtt.answered(rtt_us),
                Heard::Silence => contact.rtt.silent(now_us),
                Heard::Kept => contact.rtt.kept(now_us),
            }
            if heard == Heard::Silence {
                self.tally.timeouts += 1;
                self.unheard(n);
                if let Some(members) = &mut self.nodes[n].members {
                    members.unanswered(node, now_us);
                    self.poll(n);
                }
            } else {
                self.has_reply(n);
            }
        }
        step
    }

    /// Any node has replied to one.
    fn has_reply(&mut self, n: usize) {
        let now_us = self.now_us();
        let change = self.nodes[n].breaker.replied(now_us);
        self.changed(n, change);
    }

    /// Any node has answered a probe of one.
    pub(crate) fn heard(&mut self, n: usize) {
        let now_us = self.now_us();
        let change = self.nodes[n].breaker.answered(now_us);
        self.changed(n, change);
    }

    /// A node has not answered.
    fn unheard(&mut self, n: usize) {
        // Without members it is known who lives.
        if self.nodes[n].members.is_some() {
            let now_us = self.now_us();
            let change = self.nodes[n].breaker.silent(now_us);
            self.changed(n, change);
        }
    }

    /// Returns whether a node asks no other one.
    pub(crate) fn is_cut(&mut self, n: usize) -> bool {
        let now_us = self.now_us();
        let change = self.nodes[n].breaker.look(now_us);
        self.changed(n, change);
        let asks = self.s.mutation == Some(Mutation::AsksWhoIsSilent);
        !asks && self.nodes[n].breaker.cut().is_some()
    }

    fn changed(&mut self, n: usize, change: Option<Change>) {
        let (now_us, life) = (self.now_us(), self.nodes[n].life);
        match change {
            Some(Change::Doubted) => {
                if let Some(members) = &mut self.nodes[n].members {
                    members.doubt(now_us);
                    self.poll(n);
                }
            }
            Some(Change::Cut(_)) => {
                self.tally.cuts += 1;
                self.after(0, Event::CutOff { node: n, life });
            }
            // No port goes down here: the network loses what is sent.
            Some(Change::Joined | Change::PortDoubted) | None => {}
        }
    }

    /// A node is cut off from the others: its reads wait for none.
    pub(crate) fn cut_off(&mut self, n: usize) {
        if self.s.mutation == Some(Mutation::AsksWhoIsSilent) {
            return;
        }
        for at in 0..self.nodes[n].lanes.len() {
            if !self.nodes[n].lanes[at].is_over {
                self.tell(n, at, Told::Cancel);
            }
        }
    }

    fn carry_out(&mut self, n: usize, at: usize, effect: Effect) {
        let (mut effect, len) = (effect, self.fragment_len);
        loop {
            let lane = &mut self.nodes[n].lanes[at];
            if lane.is_over && effect != Effect::Wait {
                self.tally.violate("a read that has ended goes on");
                return;
            }
            match effect {
                Effect::Wait => return,
                Effect::Timer { at_us } => return self.set_timer(n, at, at_us),
                Effect::Again { at_us } => {
                    self.set_timer(n, at, at_us);
                    return self.send_again(n, at);
                }
                Effect::Ask(asking) => effect = self.ask(n, at, &asking),
                Effect::Stop => {
                    lane.round += 1;
                    let is_used_up = lane.posted.as_ref().is_none_or(|r| r.used == r.slots.len());
                    let stop_ns = if is_used_up {
                        STOP_NS
                    } else {
                        lane.commands = START_COMMANDS;
                        self.s.command_ns
                    };
                    let life = self.nodes[n].life;
                    let (node, lane) = (n, at);
                    return self.after(stop_ns, Event::Stopped { node, life, lane });
                }
                Effect::Settle { complete } => {
                    let skips = self.s.mutation == Some(Mutation::LeavesFragments);
                    lane.settle(len, skips);
                    let damaged = match self.s.mutation {
                        Some(Mutation::TakesDamagedPages) => PageSet::EMPTY,
                        _ => lane.damaged(complete, len),
                    };
                    self.tally.damaged += damaged.len() as u64;
                    effect = self.step(n, at, Told::Settled { damaged }).effect;
                }
                Effect::Over { got } => {
                    lane.round += 1;
                    lane.is_over = true;
                    lane.holder = None;
                    if lane.posted.is_some() || lane.stopped.is_some() {
                        self.tally
                            .violate("a read has ended, and the device has its pages");
                    }
                    if let Err(what) = self.nodes[n].lanes[at].check(got, len) {
                        self.tally.violate(what);
                    }
                    self.give_credit_back(n, at);
                    self.prepare_key(n, at);
                    return self.piece_over(n, at, got);
                }
            }
        }
    }

    /// The worker of a node prepares the queue pair of a lane for its next request.
    fn prepare_key(&mut self, n: usize, at: usize) {
        let (now_ns, command_ns) = (self.now_ns, self.s.command_ns);
        let node = &mut self.nodes[n];
        let lane = &mut node.lanes[at];
        node.keys_free_ns = node.keys_free_ns.max(now_ns) + lane.commands * command_ns;
        (lane.commands, lane.keyed_ns) = (1, node.keys_free_ns.max(1));
    }

    fn give_credit_back(&mut self, n: usize, lane: usize) {
        let node = &mut self.nodes[n];
        if let Some(peer) = node.lanes[lane].credit.take() {
            node.contacts.entry(peer).or_default().credits.give_back();
        }
    }

    /// Sets the timer of a lane; one that was set before is void.
    fn set_timer(&mut self, n: usize, at: usize, at_us: u64) {
        let (node, now_ns) = (&mut self.nodes[n], self.now_ns);
        let (life, lane) = (node.life, &mut node.lanes[at]);
        if at_us > lane.began_us + self.s.read_us {
            self.tally.violate("a read takes longer than it may");
        }
        lane.round += 1;
        let (node, round, lane) = (n, lane.round, at);
        if self.s.mutation == Some(Mutation::WaitsForEver) {
            return;
        }
        let event = Event::Timer {
            node,
            life,
            lane,
            round,
        };
        self.agenda.push((at_us * US).max(now_ns), event);
    }

    pub(crate) fn timer(&mut self, n: usize, lane: usize, round: u32) {
        if self.nodes[n].lanes[lane].round == round {
            self.tell(n, lane, Told::TimerFired);
        }
    }

    /// The device writes to the pages of a lane no more.
    pub(crate) fn stopped(&mut self, n: usize, at: usize) {
        let len = self.fragment_len;
        let lane = &mut self.nodes[n].lanes[at];
        lane.stopped = lane.posted.take();
        let effect = self.step(n, at, Told::Stopped).effect;
        if !matches!(effect, Effect::Settle { .. }) {
            let lane = &mut self.nodes[n].lanes[at];
            if let Some(receives) = lane.stopped.take() {
                lane.write(&receives, len);
            }
        }
        self.carry_out(n, at, effect);
    }

    /// Returns the node to ask.
    fn whom(&mut self, n: usize, chunk: u64, asking: &Asking) -> NodeId {
        match asking.whom {
            Whom::Named(holder) => holder.node,
            Whom::Owner => {
                let is_lost = |id| asking.excluded.reason(id) == Some(Reason::NoAnswer);
                let owners = self.owners(n, chunk, n, is_lost);
                self.nodes[owners.0].id
            }
        }
    }

    /// Sends a request, or asks the own directory.
    fn ask(&mut self, n: usize, at: usize, asking: &Asking) -> Effect {
        self.give_credit_back(n, at);
        let lane = &mut self.nodes[n].lanes[at];
        lane.round += 1;
        lane.asks += 1;
        (lane.holder, lane.told_depth) = (None, 0);
        if lane.asks > u32::from(ASKS_MAX) {
            self.tally.violate("a read asks more often than it may");
        }
        let Some(wanted) = lane.wanted.and_then(|w| w.part(asking.pages)) else {
            self.tally.violate("a read asks for what it does not want");
            return Effect::Wait;
        };
        if lane.posted.is_some() {
            self.tally
                .violate("a read asks while the device has its pages");
        }
        let node = self.whom(n, wanted.chunk(), asking);
        let machine = self.nodes[n].lanes[at].machine.as_ref();
        let Some(ask) = machine.map(|machine| machine.ask_of(node)) else {
            return Effect::Wait;
        };
        let to = self.by_id[&node];
        if to == n {
            let answer = self.ask_owner(n, n, &wanted, &ask);
            return self.step(n, at, Told::Answered(answer)).effect;
        }
        let contact = self.nodes[n].contacts.entry(to).or_default();
        if !contact.credits.take() {
            let retry_us = Some(ROOM_US);
            return self.step(n, at, Told::Unsent { retry_us }).effect;
        }
        self.nodes[n].lanes[at].credit = Some(to);
        if ask.role != Role::Holder {
            return self.request(n, at, to, wanted, ask);
        }
        let (now_ns, command_ns) = (self.now_ns, self.s.command_ns);
        let lane = &mut self.nodes[n].lanes[at];
        lane.unsent = Some((to, wanted, ask));
        let (delay_ns, round) = (lane.key(now_ns, command_ns), lane.round);
        let event = Event::Keyed {
            node: n,
            life: self.nodes[n].life,
            lane: at,
            round,
        };
        self.after(delay_ns, event);
        Effect::Wait
    }

    /// The queue pair of a lane has a key: the request is sent for which it waits.
    pub(crate) fn keyed(&mut self, n: usize, at: usize, round: u32) {
        let lane = &mut self.nodes[n].lanes[at];
        if lane.round != round || lane.is_over {
            return;
        }
        if let Some((to, wanted, ask)) = lane.unsent.take() {
            let effect = self.request(n, at, to, wanted, ask);
            self.carry_out(n, at, effect);
        }
    }

    /// Sends a request; if it is to a holder, receives are posted before.
    fn request(&mut self, n: usize, at: usize, to: usize, wanted: Wanted, ask: Ask) -> Effect {
        let (node, len) = (self.nodes[to].id, self.fragment_len);
        let timing = self.nodes[n].contacts.entry(to).or_default().rtt.timing();
        // CAST: At most 15.
        let number = at as u16;
        let tag = match self.s.mutation {
            Some(Mutation::TakesAnyFragment) => number,
            _ => self.nodes[n].lanes[at].tags.take(),
        };
        let (qkey, cookie) = (self.rng.u32(1..=i32::MAX as u32), self.rng.u64(..));
        let lane = &mut self.nodes[n].lanes[at];
        let landing = (ask.role == Role::Holder).then(|| {
            lane.post(qkey, wanted.pages(), len);
            lane.holder = Some(node);
            Landing::new(0x100 + u32::from(number), qkey, len).ok()
        });
        let id = RequestId { tag, cookie };
        // CAST: At most 200.
        let timeout_ms = timing.timeout_us.div_ceil(1000) as u16;
        let last = landing.is_none().then_some((to, id, wanted, timeout_ms));
        self.nodes[n].lanes[at].last = last;
        let queues = (landing.flatten(), self.nodes[n].replies);
        let request = Request::new(id, wanted, queues, ask, timeout_ms);
        let effect = self.step(n, at, Told::Sending { node, id, timing }).effect;
        self.introduce(n, node);
        match request {
            Ok(request) => self.send_request(n, to, &request),
            Err(_) => self.tally.violate("a request that no node would accept"),
        }
        effect
    }

    fn send_request(&mut self, n: usize, to: usize, request: &Request) {
        let (me, node) = (self.nodes[n].id, self.nodes[to].id);
        let sequence = self.next_sequence(n, to);
        match request.seal(me, node, sequence, &self.key) {
            Some(bytes) => self.send_bytes(n, to, 0, &bytes),
            None => self.tally.violate("a request that cannot be sealed"),
        }
    }

    /// Sends the last request to an owner once more.
    fn send_again(&mut self, n: usize, at: usize) {
        let lane = &self.nodes[n].lanes[at];
        let (Some((to, id, wanted, timeout_ms)), Some(machine)) = (lane.last, &lane.machine) else {
            self.tally.violate("a request to a holder is sent again");
            return;
        };
        let ask = machine.ask_of(self.nodes[to].id);
        let queues = (None, self.nodes[n].replies);
        match Request::new(id, wanted, queues, ask, timeout_ms) {
            Ok(request) => self.send_request(n, to, &request),
            Err(_) => self.tally.violate("a request that no node would accept"),
        }
    }

    /// A reply has come.
    pub(crate) fn replied(&mut self, n: usize, from: usize, reply: &Reply, sums: Sums<'_>) {
        let at = usize::from(Tags::qp_index(reply.id.tag, LANES));
        let id = self.nodes[from].id;
        let told = Told::Replied {
            from: id,
            reply,
            sums,
        };
        let step = self.step(n, at, told);
        if step.note.is_some() {
            let contact = self.nodes[n].contacts.entry(from).or_default();
            contact.credits.granted(reply.credits);
            match reply.answer {
                Answer::Wait { depth, .. } => {
                    self.tally.waits += 1;
                    self.nodes[n].lanes[at].told_depth = depth;
                }
                Answer::Busy { .. } => self.tally.busy += 1,
                Answer::Miss => self.tally.misses += 1,
                Answer::OtherOwner(_) => self.tally.forwards += 1,
                _ => {}
            }
        }
        self.carry_out(n, at, step.effect);
    }

    /// Fragments arrive: each is written to the next slot of the queue pair, if it has its key.
    pub(crate) fn fragments(&mut self, transfer: &Transfer, numbers: &[u8]) {
        let (n, at, len) = (transfer.to, transfer.lane, self.fragment_len);
        let takes_any = matches!(
            self.s.mutation,
            Some(Mutation::TakesAnyKey | Mutation::TakesAnyFragment)
        );
        let by_arrival = self.s.mutation == Some(Mutation::PlacesByArrival);
        for number in numbers {
            let posted = self.nodes[n].lanes[at].posted.as_mut();
            let posted = posted.filter(|r| r.qkey == transfer.qkey || takes_any);
            let Some(receives) = posted.filter(|r| r.used < r.slots.len()) else {
                self.tally.late += 1;
                continue;
            };
            let (rank, part) = (
                usize::from(*number) / len.per_page(),
                usize::from(*number) % len.per_page(),
            );
            let slot = receives.used;
            receives.used += 1;
            receives.slots[slot] = Some(Fragment {
                gen: transfer.gen,
                chunk: transfer.chunk as u32,
                page: transfer.pages[rank],
                part: part as u8,
                is_damaged: transfer.damaged.contains(transfer.pages[rank]),
            });
            let index = if by_arrival {
                slot
            } else {
                usize::from(*number)
            };
            // CAST: Both are below 256.
            let (slot, index) = (slot as u8, index as u16);
            let tag = transfer.tag;
            let imm = Some(FragmentId { tag, index }.to_imm());
            let len_bytes = len.bytes();
            let arrived = Told::Arrived(Landed {
                slot,
                imm,
                len_bytes,
            });
            self.tell(n, at, arrived);
        }
    }
}
