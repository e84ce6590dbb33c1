// SPDX-License-Identifier: GPL-2.0

//! Datagrams and fragments on their way, and what happens to them there.

use std::rc::Rc;

use proto::gfarm::cache::{
    address::Address,
    responder::{
        open,
        receive,
        Discarded,
        Received,
        Refused, //
    },
    wire::{
        self,
        Head,
        Kind,
        QpRole,
        CODE_LEN,
        HEAD_LEN, //
    }, //
};

use crate::{
    faults::LANES,
    message::{
        Event,
        Message,
        Transfer, //
    },
    scenario::US,
    world::World, //
};

/// Returns the queue pair that a message was sent to. Who sends one follows the rule, and what is
/// changed on its way comes there nevertheless, so a message of no kind is one to the public one.
fn role_of(bytes: &[u8]) -> QpRole {
    let kind = wire::peek(bytes).map(|sealed| sealed.head().kind);
    kind.map_or(QpRole::Public, Kind::qp)
}

impl World {
    /// Returns the number of the next datagram to a node.
    pub(crate) fn next_sequence(&mut self, from: usize, to: usize) -> u64 {
        let (now_us, id) = (self.now_us(), self.nodes[to].id);
        let node = &mut self.nodes[from];
        if let Some(members) = &mut node.members {
            return members.next_sequence(Some(id), now_us);
        }
        let contact = node.contacts.entry(to).or_default();
        contact.sequence += 1;
        contact.sequence
    }

    /// Sends a message with a number.
    pub(crate) fn send_body(&mut self, from: usize, to: usize, kind: Kind, body: &[u8]) {
        if self.nodes[from].is_silent {
            return;
        }
        let head = Head {
            kind,
            from: self.nodes[from].id,
            to: Some(self.nodes[to].id),
            sequence: self.next_sequence(from, to),
        };
        self.send_sealed(from, to, &head, body);
    }

    /// Sends a message with this head.
    pub(crate) fn send_sealed(&mut self, from: usize, to: usize, head: &Head, body: &[u8]) {
        let mut bytes = vec![0; HEAD_LEN + body.len() + CODE_LEN];
        if wire::seal(head, body, &self.key, &mut bytes).is_none() {
            self.tally.violate("a message that is too long");
            return;
        }
        if matches!(head.kind, Kind::Hello | Kind::Members) {
            self.tally.gossip += 1;
            self.send(from, to, 0, Message { from, bytes });
        } else {
            self.send_bytes(from, to, 0, &bytes);
        }
    }

    /// Sends a datagram to a public queue pair, `later_ns` from now.
    pub(crate) fn send_bytes(&mut self, from: usize, to: usize, later_ns: u64, bytes: &[u8]) {
        let mut bytes = bytes.to_vec();
        if self.s.corrupt != 0.0 && self.rng.f64() < self.s.corrupt {
            let at = self.rng.usize(0..bytes.len());
            bytes[at] ^= 1 << self.rng.u8(0..8);
        }
        self.tally.datagrams += 1;
        self.send(from, to, later_ns, Message { from, bytes });
    }

    /// Sends a message to a public queue pair, `later_ns` from now.
    fn send(&mut self, from: usize, to: usize, later_ns: u64, message: Message) {
        if self.rng.f64() < self.s.loss || self.is_away(from) || self.is_away(to) {
            return;
        }
        // Datagrams that are sent at the same time arrive in any order.
        let jitter_ns = self.rng.u64(0..2_000);
        let slow_ns = if self.nodes[from].is_slow {
            50 * self.s.service_ns
        } else {
            0
        };
        let delay_ns = later_ns + self.s.latency_ns + jitter_ns + slow_ns;
        if self.has(self.s.duplicate) {
            let message = message.clone();
            let late_ns = self.late_ns();
            self.after(delay_ns + late_ns, Event::Arrive { to, message });
        }
        let late_ns = if self.has(self.s.reorder) {
            self.late_ns()
        } else {
            0
        };
        self.after(delay_ns + late_ns, Event::Arrive { to, message });
    }

    /// Returns whether the network loses all from and to a node.
    fn is_away(&self, node: usize) -> bool {
        let (from_ns, until_ns) = self.s.away_ns;
        node == 0 && (from_ns..until_ns).contains(&self.now_ns)
    }

    fn has(&mut self, part: f64) -> bool {
        part != 0.0 && self.rng.f64() < part
    }

    fn late_ns(&mut self) -> u64 {
        self.rng.u64(0..=self.s.late_ns)
    }

    /// Fragments of a transfer arrive at a time, but those that are lost, come late, or twice.
    pub(crate) fn fragments_under_way(
        &mut self,
        transfer: &Rc<Transfer>,
        numbers: &[u8],
        at_ns: u64,
    ) {
        if self.is_away(transfer.to) || self.is_away(transfer.from) {
            return;
        }
        let mut there = Vec::with_capacity(numbers.len());
        for number in numbers {
            if self.has(self.s.duplicate) {
                self.one_under_way(transfer, *number, at_ns);
            }
            if self.has(self.s.loss) {
                continue;
            }
            if self.has(self.s.reorder) {
                self.one_under_way(transfer, *number, at_ns);
            } else {
                there.push(*number);
            }
        }
        let (transfer, numbers) = (transfer.clone(), there);
        self.agenda
            .push(at_ns, Event::Fragments { transfer, numbers });
    }

    fn one_under_way(&mut self, transfer: &Rc<Transfer>, number: u8, at_ns: u64) {
        let late_ns = self.late_ns();
        let (transfer, numbers) = (transfer.clone(), vec![number]);
        let event = Event::Fragments { transfer, numbers };
        self.agenda.push(at_ns + late_ns, event);
    }

    pub(crate) fn arrive(&mut self, to: usize, message: Message) {
        let (now_ns, service_ns) = (self.now_ns, self.s.service_ns);
        let role = role_of(&message.bytes);
        let room = match role {
            QpRole::Public => self.s.receives,
            QpRole::Replies => LANES.into(),
        };
        let lost = match role {
            QpRole::Public => self.s.flood,
            QpRole::Replies => self.s.unheard,
        };
        if to == 0 && self.has(lost) {
            self.tally.overruns += 1;
            return;
        }
        let node = &mut self.nodes[to];
        if !node.alive {
            return;
        }
        let queued = node.queued(role);
        if *queued >= room {
            self.tally.overruns += 1;
            return;
        }
        *queued += 1;
        self.tally.queue_max = self.tally.queue_max.max(*queued);
        node.cpu_free_ns = node.cpu_free_ns.max(now_ns) + service_ns;
        let (at_ns, life) = (node.cpu_free_ns, node.life);
        self.agenda.push(at_ns, Event::Serve { to, life, message });
    }

    /// Takes a datagram, as the kernel's driver does.
    pub(crate) fn take(&mut self, to: usize, message: Message) {
        let Message { from, bytes } = message;
        let (me, role) = (self.nodes[to].id, role_of(&bytes));
        *self.nodes[to].queued(role) -= 1;
        let datagram = match open(&bytes, role, me, &self.key) {
            Ok(datagram) => datagram,
            Err(Refused::Rejected(_)) => {
                self.tally.rejected += 1;
                return;
            }
            Err(Refused::QueuePair | Refused::Receiver) => {
                self.tally.discarded += 1;
                return;
            }
        };
        let head = datagram.head;
        if head.from != self.nodes[from].id {
            self.tally
                .violate("a datagram of another node has the right code");
            return;
        }
        match receive(&datagram, |head| self.admit(to, from, head)) {
            Ok(Received::Hello(hello, number)) => self.greeted(to, from, &hello, number),
            Ok(Received::Members(answer)) => self.answered(to, &answer),
            Ok(Received::Reply(reply, sums)) => self.replied(to, from, &reply, sums),
            Ok(Received::Have(have)) => self.told_of(to, head.from, &have),
            Ok(Received::Request(_, Ok(request))) => self.asked(to, from, request),
            Ok(Received::Request(_, Err(_))) => self.tally.violate("a request that is invalid"),
            Err(_) => self.tally.discarded += 1,
        }
    }

    /// Looks at the sender of a request or a notice.
    fn admit(&mut self, n: usize, from: usize, head: &Head) -> Result<Address, Discarded> {
        let address = self.nodes[from].address;
        let node = &mut self.nodes[n];
        if let Some(members) = &mut node.members {
            return members.admit(head.from, address.port(), address.qpn(), head.sequence);
        }
        let contact = node.contacts.entry(from).or_default();
        match contact.window.accept(head.sequence) {
            true => Ok(address),
            false => Err(Discarded::Repeated),
        }
    }

    pub(crate) fn rate(&self, node: usize) -> u64 {
        let full = self.s.node_bytes_per_us;
        if self.nodes[node].is_slow {
            full / 20
        } else {
            full
        }
    }

    /// Sends pages to a data queue pair. Returns when the first fragment begins to arrive, and when
    /// the last one has.
    pub(crate) fn send_pages(&mut self, from: usize, to: usize, len: u64) -> (u64, u64) {
        if from % self.s.groups != to % self.s.groups {
            self.tally.far_bytes += len;
        }
        let (out, into) = (self.rate(from), self.rate(to));
        let (out_ns, in_ns) = (len * US / out, len * US / into.min(out));
        let now_ns = self.now_ns;
        let sender = &mut self.nodes[from];
        let begin_ns = sender.out_free_ns.max(now_ns);
        sender.out_free_ns = begin_ns + out_ns;
        sender.bytes_out += len;
        let receiver = &mut self.nodes[to];
        let there_ns = receiver.in_free_ns.max(begin_ns + self.s.latency_ns);
        receiver.in_free_ns = there_ns + in_ns;
        (there_ns, receiver.in_free_ns)
    }
}
