// SPDX-License-Identifier: GPL-2.0

//! The cooperative page cache.

mod admission;
mod fragment;
mod message;
mod pages;
mod reassembly;
mod reply;
mod request;
mod requester;
mod responder;
mod rtt;
mod window;

/// The golden datagrams.
pub(super) fn seeds() -> impl Iterator<Item = Vec<u8>> {
    let texts = [request::GOLDEN, reply::GOLDEN_DATA, reply::GOLDEN_REDIRECT];
    texts.into_iter().map(message::hex)
}
