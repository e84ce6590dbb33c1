// SPDX-License-Identifier: GPL-2.0

//! The cooperative page cache of a mount: what `proto::cache` decides is carried out here.
//!
//! | file | what |
//! |---|---|
//! | `place` | the device and the port |
//! | `endpoint` | the public queue pair: messages that come and go |
//! | `membership` | what it tells others of itself, and what they tell |
//! | `peers` | the other nodes, under a lock |
//! | `owner` | what this node knows as the owner of chunks |
//! | `responder` | pages that go to other nodes |
//! | `fetches` | what this node is reading |
//! | `requester`, `run`, `inbox`, `contacts` | pages that come from other nodes |
//! | `guests` | how much is done for whom |
//! | `counters` | what has happened |
//! | `secret` | the key of all nodes |
//! | `workers` | requests that are kept, and addresses that are looked up |
//! | `live` | what a node has on its device, and how it answers |
//! | `node` | all of it, from the mount to the unmount |

mod contacts;
mod counters;
mod drafts;
mod endpoint;
mod fetches;
mod guests;
mod inbox;
mod live;
mod membership;
mod node;
mod owner;
mod peers;
mod place;
mod requester;
mod resolvers;
mod responder;
mod run;
mod secret;
mod workers;

pub(crate) use self::{
    node::{
        Limits,
        Node,
        Reads,
        View, //
    },
    place::Place,
    requester::Notice,
    responder::PageCache, //
};

use kernel::time::{
    ClockSource,
    Monotonic,
    NSEC_PER_USEC, //
};

/// Returns the time since the boot, in microseconds.
pub(crate) fn now_us() -> u64 {
    u64::try_from(Monotonic::ktime_get() / NSEC_PER_USEC).unwrap_or(0)
}
