// SPDX-License-Identifier: GPL-2.0

//! The events that a requester is told, and the effects that it tells its driver.

use super::super::{
    address::NodeId,
    excluded::Excluded,
    pages::PageSet,
    reply::{
        Answer,
        Holder,
        Reply,
        Sums, //
    },
    request::{
        RequestId,
        Role, //
    },
    rtt::Timing, //
};

/// The node that is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whom {
    /// The owner of the chunk among the nodes that are not excluded.
    Owner,
    /// A node that another one has named.
    Named(Holder),
}

/// A request that is to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asking {
    /// The node.
    pub whom: Whom,
    /// The role in which the node is asked.
    pub role: Role,
    /// The pages, at least one.
    pub pages: PageSet,
    /// The nodes that were of no use.
    pub excluded: Excluded,
}

/// A datagram that has come to the queue pair for data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landed {
    /// The number of the slot.
    pub slot: u8,
    /// The immediate, if the datagram had one.
    pub imm: Option<u32>,
    /// The length behind the global header, in bytes.
    pub len_bytes: u32,
}

/// The events of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'r> {
    /// The read begins.
    Start,
    /// The request is about to be sent to this node. If it is asked as a holder, receives are
    /// posted for all fragments, slot by slot, and none of them has completed yet.
    Sending {
        /// The node.
        node: NodeId,
        /// The number of the request.
        id: RequestId,
        /// The time to wait for the answer.
        timing: Timing,
    },
    /// The answer of this node's own directory: this node is the owner.
    Answered(Answer),
    /// The request cannot be sent: not before some microseconds have passed, or not at all.
    Unsent {
        /// The time after which to try again.
        retry_us: Option<u32>,
    },
    /// A reply has come from a node that has the key.
    Replied {
        /// The node that has sent it.
        from: NodeId,
        /// The reply.
        reply: &'r Reply,
        /// The sums of the pages that it announces.
        sums: Sums<'r>,
    },
    /// The receive of a slot has completed.
    Arrived(Landed),
    /// The timer has expired.
    TimerFired,
    /// The driver has carried out [`Effect::Stop`]: the device writes to no page any more, and
    /// there will be no [`Event::Arrived`].
    Stopped,
    /// The driver has carried out [`Effect::Settle`]: the moves are done.
    Settled {
        /// The pages whose sum is not [the one](super::Requester::sum) that they are to have. They
        /// have not been given to the reader.
        damaged: PageSet,
    },
    /// The reader has no use for the pages any more.
    Cancel,
}

/// The next action of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing is to be done until the next event.
    Wait,
    /// Sends a request with [`ask_of`](super::Requester::ask_of), after [`Event::Sending`]; or says
    /// by [`Event::Answered`] or [`Event::Unsent`] why not.
    Ask(Asking),
    /// Sends the last request once more, to the same node, with the same number, the
    /// [`ask_of`](super::Requester::ask_of) of now and another sequence, and sets the timer.
    Again {
        /// The time, in microseconds.
        at_us: u64,
    },
    /// Sets the timer, in place of an earlier time.
    Timer {
        /// The time, in microseconds.
        at_us: u64,
    },
    /// Changes the key of the queue pair, or stops it, so that no further fragment gets to a page.
    /// Then [`Event::Stopped`].
    Stop,
    /// Makes all moves of [`next_move`](super::Requester::next_move), which makes these pages
    /// complete, and compares them with their [sums](super::Requester::sum). Then
    /// [`Event::Settled`].
    Settle {
        /// The pages, at least one.
        complete: PageSet,
    },
    /// The read has ended: these pages are complete, and nothing of it is under way.
    Over {
        /// The pages.
        got: PageSet,
    },
}

/// The behaviour of a peer that a read has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The peer has answered.
    Answer {
        /// The time that it took, in microseconds, if it says something of the peer.
        rtt_us: Option<u32>,
    },
    /// The peer has not answered in time.
    Silence,
    /// The peer has said that it waits itself, until the read had to go to the file server, or for
    /// a third of that time, and then had nothing.
    Kept,
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The action of the driver.
    pub effect: Effect,
    /// The note for the timing of peers.
    pub note: Option<(NodeId, Heard)>,
}
