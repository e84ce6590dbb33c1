// SPDX-License-Identifier: GPL-2.0

//! Wires, and reliable connections over them: in order, retransmitted until acknowledged, failed
//! after `RETRY_COUNT` retransmissions. An acknowledgement means that the adapter has the message,
//! not that the software will answer.
//!
//! Stands for the adapters and for `lib/rdma/qp.rs` and `lib/rdma/cm.rs`.

use std::collections::VecDeque;

use proto::rtrs::RETRY_COUNT;

use crate::{
    event::{
        Event,
        MS,
        S, //
    },
    message::{
        CmMessage,
        Message,
        Side, //
    },
    trace::note,
    world::World,
};

/// Index of a connection; never used again.
pub(crate) type ConnId = usize;

/// Pause before a packet is repeated: 4.096 us << 14.
const RETRANSMIT_US: u64 = 67 * MS;

/// A wire, with the switches on it.
#[derive(Debug, Default)]
pub(crate) struct Wire {
    pub(crate) cut: bool,
    /// Per cent of packets that are lost.
    pub(crate) loss: u32,
    /// Counts cuts and losses, so that each ends only itself.
    pub(crate) round: u64,
}

/// One direction of a connection.
#[derive(Debug, Default)]
struct Flow {
    next_seq: u64,
    /// The receiver's next sequence number.
    expected: u64,
    unacked: VecDeque<(u64, Message)>,
    retries: u8,
    /// Number of the timer that runs.
    round: u64,
    arrival_us: u64,
}

/// A connection: a queue pair on either side.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) wire: usize,
    /// The client that made it.
    pub(crate) owner: usize,
    client: End,
    server: End,
}

/// One side of a connection: its queue pair, and what it sends.
#[derive(Debug, Default)]
struct End {
    /// The queue pair works.
    open: bool,
    /// Posts fail; the owner may not have detected it.
    broken: bool,
    sends: Flow,
    /// The sendings whose completion is reported.
    signaled: VecDeque<u64>,
}

impl Conn {
    fn end(&mut self, side: Side) -> &mut End {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    pub(crate) fn is_open(&self, side: Side) -> bool {
        match side {
            Side::Client => self.client.open,
            Side::Server => self.server.open,
        }
    }
}

impl World {
    /// Makes a connection, open at the client's side.
    pub(crate) fn new_conn(&mut self, wire: usize) -> ConnId {
        let client = End {
            open: true,
            ..End::default()
        };
        self.conns.push(Conn {
            wire,
            owner: self.at,
            client,
            server: End::default(),
        });
        self.conns.len() - 1
    }

    /// The side's queue pair can receive from now on.
    pub(crate) fn open_conn(&mut self, conn: ConnId, side: Side) {
        self.conns[conn].end(side).open = true;
    }

    /// The side's queue pair goes into its error state and is drained: it sends and receives
    /// nothing from now on.
    pub(crate) fn close_conn(&mut self, conn: ConnId, side: Side) {
        let end = self.conns[conn].end(side);
        end.open = false;
        end.sends.unacked.clear();
        end.signaled.clear();
        end.sends.round += 1;
    }

    fn delay_us(&mut self) -> u64 {
        if self.rng.u32(0..50) == 0 {
            self.rng.u64(5 * MS..50 * MS)
        } else {
            self.rng.u64(20..500)
        }
    }

    /// Whether the wire swallows a packet that is put on it now.
    fn swallows(&mut self, wire: usize) -> bool {
        let Wire { cut, loss, .. } = self.wires[wire];
        cut || (loss > 0 && self.rng.u32(0..100) < loss)
    }

    /// Posts a message whose completion is reported; `false` as [`Self::post`].
    pub(crate) fn post_signaled(&mut self, conn: ConnId, from: Side, message: Message) -> bool {
        let end = self.conns[conn].end(from);
        let seq = end.sends.next_seq;
        end.signaled.push_back(seq);
        self.post(conn, from, message)
    }

    /// Posts a message; `false` if the queue pair does not take any.
    pub(crate) fn post(&mut self, conn: ConnId, from: Side, message: Message) -> bool {
        let end = self.conns[conn].end(from);
        if !end.open || end.broken {
            return false;
        }
        let flow = &mut end.sends;
        let seq = flow.next_seq;
        flow.next_seq += 1;
        flow.unacked.push_back((seq, message));
        if flow.unacked.len() == 1 {
            self.arm(conn, from);
        }
        self.transmit(conn, from, seq, message);
        true
    }

    fn arm(&mut self, conn: ConnId, from: Side) {
        let flow = &mut self.conns[conn].end(from).sends;
        flow.round += 1;
        let round = flow.round;
        self.after(RETRANSMIT_US, Event::Retransmit { conn, from, round });
    }

    fn transmit(&mut self, conn: ConnId, from: Side, seq: u64, message: Message) {
        let to = from.other();
        let lost = self.swallows(self.conns[conn].wire);
        let late = lost && self.rng.u32(0..self.settings.late_one_in) == 0;
        if lost && !late {
            return;
        }
        let at_us = if late {
            self.now_us + self.rng.u64(100 * MS..5 * S)
        } else {
            let at_us = self.now_us + self.delay_us();
            let flow = &mut self.conns[conn].end(from).sends;
            flow.arrival_us = flow.arrival_us.max(at_us);
            flow.arrival_us
        };
        let arrive = Event::Arrive {
            conn,
            to,
            seq,
            message,
            late,
        };
        self.queue_at(at_us, arrive);
    }

    /// A packet is at the receiver's host: the adapter's part.
    pub(crate) fn arrive(
        &mut self,
        conn: ConnId,
        to: Side,
        seq: u64,
        message: Message,
        late: bool,
    ) {
        let wire = self.conns[conn].wire;
        if (self.wires[wire].cut && !late) || !self.conns[conn].is_open(to) {
            return;
        }
        let given_up = !self.conns[conn].is_open(to.other());
        // The fence message is for that; with a C server nothing is, and its hole is not what the
        // other checks are for.
        let is_hidden = !self.settings.knows_fences && !self.settings.options.late_packets;
        if given_up && is_hidden && self.is_superseded(&message) {
            note!(self, Net, "c{conn}: late packet {message:?} dropped");
            self.trace.reached("a late packet is dropped");
            return;
        }
        let flow = &mut self.conns[conn].end(to.other()).sends;
        if seq > flow.expected {
            return;
        }
        let fresh = seq == flow.expected;
        if fresh && to == Side::Server && !self.key_permits(conn, &message, given_up) {
            return;
        }
        let flow = &mut self.conns[conn].end(to.other()).sends;
        if fresh {
            flow.expected += 1;
        }
        let upto = flow.expected;
        if fresh {
            if given_up {
                note!(self, Net, "c{conn}: late packet {message:?} delivered");
                self.trace.reached("a late packet is delivered");
            }
            if to == Side::Server {
                self.land(conn, &message);
            }
            self.handle(Event::Receive { conn, to, message });
        }
        if !self.swallows(wire) {
            let at_us = self.now_us + self.delay_us();
            let to = to.other();
            self.queue_at(at_us, Event::Ack { conn, to, upto });
        }
    }

    pub(crate) fn acked(&mut self, conn: ConnId, to: Side, upto: u64) {
        let end = self.conns[conn].end(to);
        if !end.open {
            return;
        }
        let flow = &mut end.sends;
        let before = flow.unacked.len();
        while flow.unacked.front().is_some_and(|(seq, _)| *seq < upto) {
            flow.unacked.pop_front();
        }
        if flow.unacked.len() == before {
            return;
        }
        flow.retries = 0;
        flow.round += 1;
        let is_busy = !flow.unacked.is_empty();
        let before = end.signaled.len();
        end.signaled.retain(|seq| *seq >= upto);
        let reported = before - end.signaled.len();
        if is_busy {
            self.arm(conn, to);
        }
        for _ in 0..reported {
            self.answers_sent(conn);
        }
    }

    /// The queue pair of the server fails: its client used a key that is not valid.
    pub(crate) fn break_conn(&mut self, conn: ConnId) {
        for side in [Side::Client, Side::Server] {
            let end = self.conns[conn].end(side);
            if end.open && !end.broken {
                end.broken = true;
                self.after(MS, Event::Broken { conn, side });
            }
        }
    }

    pub(crate) fn retransmit(&mut self, conn: ConnId, from: Side, round: u64) {
        let end = self.conns[conn].end(from);
        let flow = &mut end.sends;
        if !end.open || end.broken || flow.round != round || flow.unacked.is_empty() {
            return;
        }
        flow.retries += 1;
        if flow.retries > RETRY_COUNT {
            end.broken = true;
            note!(self, Net, "c{conn}: {from:?} gives up: retries exceeded");
            self.trace.reached("retries are exceeded");
            // Its owner is busy; meanwhile posts to the queue pair fail.
            let later = self.rng.u64(0..60 * MS);
            self.after(later, Event::Broken { conn, side: from });
            return;
        }
        let again: Vec<_> = flow.unacked.iter().copied().collect();
        self.arm(conn, from);
        for (seq, message) in again {
            self.transmit(conn, from, seq, message);
        }
    }

    /// Sends a message of the connection manager, which may be lost, or come twice.
    pub(crate) fn send_cm(&mut self, conn: ConnId, to: Side, message: CmMessage) {
        let wire = self.conns[conn].wire;
        if matches!(message, CmMessage::Connect(_)) && self.rng.u32(0..20) == 0 {
            let later = self.rng.u64(0..10 * S);
            let message = message.clone();
            self.after(later, Event::Cm { conn, to, message });
        }
        if !self.swallows(wire) {
            let later = self.delay_us();
            self.after(later, Event::Cm { conn, to, message });
        }
    }
}
