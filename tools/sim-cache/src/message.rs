// SPDX-License-Identifier: GPL-2.0

//! What nodes send each other, and what else happens.

use proto::gfarm::cache::{
    excluded::Excluded,
    pages::PageSet, //
};

/// The content of a page: which generation of the file it is of. Its chunk and its number are those
/// of the set that it is in.
pub(crate) type Generation = u64;

/// Pages that a node asks another one for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) from: usize,
    /// The read at the requester, and the number of the attempt.
    pub(crate) read: u64,
    pub(crate) attempt: u32,
    pub(crate) gen: Generation,
    pub(crate) chunk: u64,
    pub(crate) pages: PageSet,
    /// The receiver is to give what it has, and to send the requester nowhere.
    pub(crate) at_holder: bool,
    /// Another node has named the receiver as the owner.
    pub(crate) is_forwarded: bool,
    pub(crate) is_retry: bool,
    /// What the owner adds when it is the holder itself: what the requester is to fetch.
    pub(crate) fetch: PageSet,
    pub(crate) excluded: Excluded,
}

/// What a request is answered with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answer {
    /// These pages were sent before; the owner says which are to be fetched.
    Data { pages: PageSet, fetch: PageSet },
    /// Ask this node for `pages`.
    Redirect {
        holder: usize,
        pages: PageSet,
        fetch: PageSet,
    },
    /// Nobody has them.
    Fetch,
    /// Ask this one, it is the owner.
    OtherOwner(usize),
    /// The request is kept; the node is lost if it is silent for so long. So many nodes are between
    /// it and a file server.
    Wait(u64, u8),
    /// Nothing yet: ask again after this time.
    Later(u64),
    /// It has too much to do.
    Busy,
    /// It does not have any of them.
    Miss,
}

/// A datagram to a public queue pair.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    Request(Request),
    Reply {
        from: usize,
        read: u64,
        attempt: u32,
        answer: Answer,
    },
    /// A read is done: for the owner.
    Have {
        from: usize,
        gen: Generation,
        chunk: u64,
        pages: PageSet,
    },
    /// `Hello` or `Members`.
    Gossip {
        from: usize,
        is_answer: bool,
        names_receiver: bool,
        body: Vec<u8>,
    },
}

/// What happens.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A datagram reaches a public queue pair.
    Arrive { to: usize, message: Message },
    /// The node has time for it.
    Serve {
        to: usize,
        life: u32,
        message: Message,
    },
    /// The last fragment of an answer arrives; `pages` are complete.
    Bulk {
        to: usize,
        life: u32,
        read: u64,
        attempt: u32,
        gen: Generation,
        pages: PageSet,
    },
    /// A file server has answered.
    Fetched {
        to: usize,
        life: u32,
        read: u64,
        gen: Generation,
        pages: PageSet,
    },
    /// A requester has waited long enough.
    Timer {
        node: usize,
        life: u32,
        read: u64,
        attempt: u32,
        /// Timers that were set again since are void.
        round: u32,
    },
    /// A requester asks again.
    Again {
        node: usize,
        life: u32,
        read: u64,
        attempt: u32,
    },
    /// A holder tells those that wait that it lives.
    KeepAlive { node: usize, life: u32 },
    /// The reader of a node goes on.
    Read { node: usize, life: u32 },
    /// Members: something is due.
    Poll { node: usize, life: u32 },
    /// A node dies, and one joins.
    Churn,
    /// The file has another content.
    Rewrite,
    /// A node opens the file again.
    Reopen { node: usize, life: u32 },
}
