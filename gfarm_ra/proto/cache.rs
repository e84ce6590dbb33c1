// SPDX-License-Identifier: GPL-2.0

//! The cooperative page cache: nodes with the same file system mounted give each other pages of
//! files that they have read, by datagrams over RDMA.
//!
//! The page `Documentation/gfarm-cache-protocol.md` describes the messages and what they protect
//! from.
//!
//! | Module | What |
//! |---|---|
//! | [`address`] | the number and the address of a node |
//! | [`pages`] | sets of pages of a chunk |
//! | [`wire`] | the head of each datagram and its authentication code |
//! | [`window`] | which datagrams of a peer are repetitions |
//! | [`request`], [`excluded`], [`reply`], [`invalid`] | the messages of one request, and their errors |
//! | [`fragment`], [`tags`], [`reassembly`] | the parts in which pages are sent, and how they come to their places |
//! | [`requester`] | the pages of one read, from other nodes |
//! | [`gap`] | what of a read is left for the file server |
//! | [`responder`], [`keep`], [`read_table`] | which requests of others are served, and with what |
//! | [`sums`] | by what a page is known to be what a file server has sent |
//! | [`admission`], [`waiting`] | how much a node does for others at a time, and how much waits |
//! | [`place`] | which port and address of a device a node has |
//! | [`counter`] | what is counted |
//! | [`rtt`], [`timings`], [`breaker`] | how long a peer is waited for, and when none is asked |
//! | [`peer`], [`members`], [`gossip`] | the other nodes, and how they are found and lost |
//! | [`owner`], [`directory`], [`have`] | who knows which nodes have the pages of a chunk |
//! | [`ibaddr`] | peers that are registered by hand |

pub mod address;
pub mod admission;
pub mod breaker;
mod content;
pub mod counter;
pub mod directory;
pub mod excluded;
pub mod fragment;
pub mod gap;
pub mod gossip;
pub mod have;
pub mod ibaddr;
pub mod invalid;
pub mod keep;
pub mod members;
pub mod owner;
pub mod pages;
pub mod peer;
pub mod place;
pub mod read_table;
pub mod reassembly;
pub mod reply;
pub mod request;
pub mod requester;
pub mod responder;
pub mod rtt;
pub mod series;
pub mod sums;
pub mod tags;
pub mod timings;
pub mod waiting;
pub mod window;
pub mod wire;

/// The length of a page, in bytes.
pub const PAGE_LEN: u64 = 4096;

/// Returns the number of items, as [`Iterator::count`] does, which could panic.
fn count(items: impl Iterator) -> usize {
    items.fold(0, |number, _| number.saturating_add(1))
}
