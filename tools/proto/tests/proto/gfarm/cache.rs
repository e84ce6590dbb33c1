// SPDX-License-Identifier: GPL-2.0

//! The cooperative page cache.

mod address;
mod admission;
mod breaker;
mod counter;
mod directory;
mod document;
mod fragment;
mod gap;
mod gossip;
mod have;
mod ibaddr;
mod members;
mod message;
mod owner;
mod pages;
mod peer;
mod place;
mod read_table;
mod reassembly;
mod reply;
mod request;
mod requester;
mod responder;
mod rtt;
mod sound;
mod sums;
mod tags;
mod timings;
mod waiting;
mod window;

/// The golden datagrams.
pub(super) fn seeds() -> impl Iterator<Item = Vec<u8>> {
    let texts = [
        request::GOLDEN,
        reply::GOLDEN_DATA,
        reply::GOLDEN_SUMS,
        reply::GOLDEN_REDIRECT,
    ];
    texts.into_iter().map(message::hex)
}
