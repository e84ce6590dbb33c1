// SPDX-License-Identifier: GPL-2.0

//! The clock and the events, in virtual microseconds.

use std::{
    cmp::Ordering,
    collections::BinaryHeap, //
};

use crate::{
    message::{
        CmMessage,
        Message,
        Side, //
    },
    network::ConnId,
};

/// A millisecond.
pub(crate) const MS: u64 = 1_000;
/// A second.
pub(crate) const S: u64 = 1_000_000;

/// An event. Work of a path has the number of the path's connect; work of an earlier connect is
/// ignored.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A packet reaches the host of the receiver.
    Arrive {
        conn: ConnId,
        to: Side,
        seq: u64,
        message: Message,
        /// Was delayed on the way, and arrives independent of the wire's state.
        late: bool,
    },
    /// A message was received: its completion.
    Receive {
        conn: ConnId,
        to: Side,
        message: Message,
    },
    /// The acknowledgement of all packets below `upto`.
    Ack { conn: ConnId, to: Side, upto: u64 },
    /// The retransmission timeout of a sender.
    Retransmit {
        conn: ConnId,
        from: Side,
        round: u64,
    },
    /// A fence message is unanswered for too long.
    FenceTimeout { path: usize, life: u64, number: u32 },
    /// The server handles the receives of a wire again.
    Resume { wire: usize },
    /// The connection of a sender has failed.
    Broken { conn: ConnId, side: Side },
    /// A message of the connection manager.
    Cm {
        conn: ConnId,
        to: Side,
        message: CmMessage,
    },
    /// Send the connect request once more.
    CmRetry { path: usize, life: u64 },
    /// A step of the client's set-up takes too long.
    ConnectTimeout { path: usize, step: u64 },
    /// The client's queue pairs are drained.
    TornDown { path: usize, life: u64 },
    /// A mutated model closes connections after requests in flight were sent again.
    CloseLate { conn: ConnId },
    /// The pause before an attempt to connect is over.
    Start { path: usize, start: u64 },
    /// The client's heartbeat.
    ClientTick { path: usize, life: u64 },
    /// A request is unanswered for too long.
    RequestTimeout { tag: u16, send: u64 },
    /// The timer of `Outage`.
    OutageDeadline { until_ms: u64 },
    /// Requests and messages that were not sent are tried again.
    TryAgain,
    /// The session is to be made usable.
    Reopen,
    /// An admin message of a task is unanswered for too long.
    TaskTimeout { task: u64, step: u64 },
    /// The server's heartbeat.
    ServerTick { path: u64 },
    /// The set-up of a server's path takes too long.
    SetupTimeout { path: u64 },
    /// A server's path is drained.
    ServerTornDown { path: u64 },
    /// The disk has carried out an operation.
    DiskDone { op: u64 },
    /// One side runs again after a freeze.
    Thaw { side: Side },
    /// The server runs again after a crash.
    Restart,
    /// The application may start a request.
    App,
    /// Time for a fault.
    Fault,
    /// A wire is mended.
    Mend { wire: usize, round: u64 },
    /// The administrator connects a path again that he has disconnected.
    Reconnect { path: usize },
    /// The administrator opens a device again that the server has closed.
    Remap { device: usize },
    /// Tasks that wait for the lock try again.
    Unlocked,
    /// A device that was unmapped is closed when its requests have ended.
    FinishUnmap { device: usize },
    /// The administrator maps a device again.
    Map { device: usize },
    /// Checks whether all parts have recovered.
    Watch,
}

impl Event {
    /// The connection that it happens on.
    pub(crate) fn conn(&self) -> Option<ConnId> {
        match self {
            Self::Arrive { conn, .. }
            | Self::Receive { conn, .. }
            | Self::Ack { conn, .. }
            | Self::Retransmit { conn, .. }
            | Self::Broken { conn, .. }
            | Self::Cm { conn, .. } => Some(*conn),
            _ => None,
        }
    }

    /// Says which side's software acts on it, if one does: a frozen one does that later.
    pub(crate) fn owner(&self) -> Option<Side> {
        match self {
            Self::Receive { to, .. } | Self::Ack { to, .. } | Self::Cm { to, .. } => Some(*to),
            Self::Retransmit { from: side, .. } | Self::Broken { side, .. } => Some(*side),
            Self::ServerTick { .. }
            | Self::SetupTimeout { .. }
            | Self::ServerTornDown { .. }
            | Self::DiskDone { .. } => Some(Side::Server),
            Self::CmRetry { .. }
            | Self::ConnectTimeout { .. }
            | Self::TornDown { .. }
            | Self::CloseLate { .. }
            | Self::Start { .. }
            | Self::ClientTick { .. }
            | Self::RequestTimeout { .. }
            | Self::FenceTimeout { .. }
            | Self::OutageDeadline { .. }
            | Self::TryAgain
            | Self::Reopen
            | Self::TaskTimeout { .. }
            | Self::Remap { .. }
            | Self::Unlocked
            | Self::FinishUnmap { .. }
            | Self::Map { .. }
            | Self::App
            | Self::Reconnect { .. } => Some(Side::Client),
            Self::Arrive { .. }
            | Self::Resume { .. }
            | Self::Thaw { .. }
            | Self::Restart
            | Self::Fault
            | Self::Mend { .. }
            | Self::Watch => None,
        }
    }
}

struct Entry {
    at_us: u64,
    order: u64,
    client: usize,
    event: Event,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The earliest is the greatest, as `BinaryHeap` requires; of two at the same time, the first
    /// queued.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_us, other.order).cmp(&(self.at_us, self.order))
    }
}

/// The queue of events.
#[derive(Default)]
pub(crate) struct Agenda {
    heap: BinaryHeap<Entry>,
    order: u64,
}

impl Agenda {
    /// Queues an event of a client, or of what happens because of it.
    pub(crate) fn push(&mut self, at_us: u64, client: usize, event: Event) {
        self.order += 1;
        self.heap.push(Entry {
            at_us,
            order: self.order,
            client,
            event,
        });
    }

    /// Takes the next event with its time and its client.
    pub(crate) fn pop(&mut self) -> Option<(u64, usize, Event)> {
        self.heap.pop().map(|e| (e.at_us, e.client, e.event))
    }
}
