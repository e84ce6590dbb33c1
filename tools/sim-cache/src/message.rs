// SPDX-License-Identifier: GPL-2.0

//! Messages between nodes, and the other events.

use std::rc::Rc;

use proto::gfarm::{
    cache::pages::PageSet,
    identity::ContentId, //
};

/// The generation of the file that a content is of.
pub(crate) type Generation = u64;

/// Returns which content [`World::file`](crate::world::World::file) has named.
pub(crate) const fn generation(id: &ContentId) -> Generation {
    // CAST: It was one before.
    id.mtime.sec as Generation
}

/// The content of the memory of a fragment: a part of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) gen: Generation,
    pub(crate) chunk: u32,
    pub(crate) page: u8,
    pub(crate) part: u8,
    /// A bit of it is wrong.
    pub(crate) is_damaged: bool,
}

/// Returns the sum of a page as a file server sends it.
pub(crate) fn sum(gen: Generation, chunk: u64, page: u8) -> u32 {
    // CAST: The lower half.
    (gen << 24 ^ chunk << 8 ^ u64::from(page)) as u32
}

/// A datagram to a public queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) from: usize,
    pub(crate) bytes: Vec<u8>,
}

/// Pages on their way to a data queue pair.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) life: u32,
    pub(crate) lane: usize,
    pub(crate) qkey: u32,
    pub(crate) tag: u16,
    pub(crate) gen: Generation,
    pub(crate) chunk: u64,
    /// The pages that were asked for, in their order, and those whose memory has gone bad.
    pub(crate) pages: Vec<u8>,
    pub(crate) damaged: PageSet,
}

/// An event, which the world handles at its time.
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
    /// Fragments reach a data queue pair, in this order.
    Fragments {
        transfer: Rc<Transfer>,
        numbers: Vec<u8>,
    },
    /// The last fragment for a node has left.
    Released { node: usize, life: u32, peer: usize },
    /// A file server has answered.
    Fetched {
        to: usize,
        life: u32,
        read: u64,
        pages: PageSet,
    },
    /// The timer of a lane; void if it was set again since.
    Timer {
        node: usize,
        life: u32,
        lane: usize,
        round: u32,
    },
    /// The queue pair of a lane is stopped.
    Stopped { node: usize, life: u32, lane: usize },
    /// A lane has the key of its next request; void if its timer was set since.
    Keyed {
        node: usize,
        life: u32,
        lane: usize,
        round: u32,
    },
    /// A node takes itself for cut off from the others.
    CutOff { node: usize, life: u32 },
    /// A holder looks at the requests that it keeps.
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
