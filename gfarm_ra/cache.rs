// SPDX-License-Identifier: GPL-2.0

//! The cooperative page cache of a mount: what `proto::cache` decides is carried out here.
//!
//! | file | what |
//! |---|---|
//! | `place` | the device and the port |
//! | `endpoint`, `message_qp`, `handles` | the queue pairs for messages, and where these go |
//! | `membership` | what it tells others of itself, and what they tell |
//! | `message_pool` | memory for the messages of `membership` |
//! | `peers` | the other nodes, under a lock |
//! | `owner` | what this node knows as the owner of chunks |
//! | `responder` | pages that go to other nodes |
//! | `in_flight` | what this node is reading |
//! | `requester`, `chunk_read`, `inbox`, `peer_timing` | pages that come from other nodes |
//! | `admission` | how much is done for whom |
//! | `counters` | what has happened |
//! | `secret` | the key of all nodes |
//! | `sums` | by what pages are known to be what a file server has sent |
//! | `workers` | requests that are kept, and addresses that are looked up |
//! | `attached` | a node that is attached to a device, and how it answers |
//! | `view` | what others see of a node |
//! | `node` | all of it, from the mount to the unmount |

mod admission;
mod attached;
mod chunk_read;
mod counters;
mod data_qps;
mod endpoint;
mod handles;
mod in_flight;
mod inbox;
mod membership;
mod message_pool;
mod message_qp;
mod node;
mod owner;
mod peer_timing;
mod peers;
mod place;
mod requester;
mod resolvers;
mod responder;
mod secret;
mod sums;
mod view;
mod workers;

pub(crate) use self::{
    node::{
        Limits,
        Node,
        Reads, //
    },
    place::Place,
    requester::Notice,
    responder::PageCache,
    secret::Secret,
    sums::Sums,
    view::View, //
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
