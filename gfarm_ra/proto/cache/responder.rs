// SPDX-License-Identifier: GPL-2.0

//! Which requests of other nodes are served, and with what.
//!
//! A datagram is looked at in this order, and each step is the first one that can refuse it for its
//! reason: length, version and kind; the code; the receiver; the sender, who must be known and be
//! where it is known to be; the number; the fields. Up to the number, what is refused is counted
//! only. Behind it the sender is a node of this cache that has not sent this before, so it gets an
//! answer.

use super::{
    address::NodeId,
    fragment::FragmentLen,
    invalid::Invalid,
    pages::PageSet,
    reply::{
        Answer,
        Refusal, //
    },
    request::{
        Request,
        RequestId, //
    },
    window::ReplayWindow,
    wire::{
        Datagram,
        Kind, //
    }, //
};

/// What the table of peers knows of the sender of a datagram.
#[derive(Debug)]
pub struct Sender<'p> {
    /// The datagram has come from the address that the node has.
    pub is_at_its_address: bool,
    /// The numbers of the node's datagrams.
    pub window: &'p mut ReplayWindow,
}

/// Why a datagram is not answered, although its code is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Discarded {
    /// It is not a request.
    Kind,
    /// It was sent to another node: an earlier mount of this one, or a wrong address.
    Receiver,
    /// The sender is not known.
    Sender,
    /// It has not come from where the sender is.
    Address,
    /// It has come before, or is too old to tell.
    Repeated,
    /// Its length is not that of a request, so not even its number can be read.
    Length,
}

/// Why a datagram is no request to serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unserved {
    /// It is counted, and not answered.
    Discarded(Discarded),
    /// It is answered with [`Refusal::Invalid`].
    Invalid(RequestId, Invalid),
}

/// Reads a request to the node `me` out of a datagram whose code is right. `sender` is what is
/// known of the node that it names as its sender.
pub fn receive(
    datagram: &Datagram<'_>,
    me: NodeId,
    sender: Option<Sender<'_>>,
) -> Result<Request, Unserved> {
    let discard = |why| Err(Unserved::Discarded(why));
    if datagram.head.kind != Kind::Request {
        return discard(Discarded::Kind);
    }
    if datagram.head.to != Some(me) {
        return discard(Discarded::Receiver);
    }
    let Some(sender) = sender else {
        return discard(Discarded::Sender);
    };
    if !sender.is_at_its_address {
        return discard(Discarded::Address);
    }
    if !sender.window.accept(datagram.head.sequence) {
        return discard(Discarded::Repeated);
    }
    Request::parse(datagram.body).map_err(|invalid| match Request::id_of(datagram.body) {
        Some(id) => Unserved::Invalid(id, invalid),
        None => Unserved::Discarded(Discarded::Length),
    })
}

/// What this node has of exactly the content that is asked for. A file that is open for writing
/// here, and one whose pages are of another generation or of none, have nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cached {
    /// The size of the file, in bytes.
    pub size_bytes: u64,
    /// The pages of the chunk that are in the page cache, and up to date.
    pub held: PageSet,
    /// The pages that this node is fetching, from the file server or from a node that is not the
    /// one that asks: two that keep each other's requests would both wait for ever.
    pub fetching: PageSet,
}

/// What to do about a request to this node as a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serve {
    /// Send the fragments of these pages, and behind them [`Answer::Data`].
    Send(PageSet),
    /// Keep the request until these pages are there.
    Keep(PageSet),
    /// Send this.
    Say(Answer),
}

/// Decides about a request to this node as a holder. Fragments are at most `longest` here.
pub fn serve(request: &Request, cached: Option<&Cached>, longest: FragmentLen) -> Serve {
    let Some(landing) = request.landing() else {
        return Serve::Say(Answer::Refused(Refusal::Invalid));
    };
    if landing.fragment_len() > longest {
        return Serve::Say(Answer::Refused(Refusal::FragmentLen));
    }
    let wanted = request.wanted();
    let cached = cached.filter(|cached| cached.size_bytes == wanted.size_bytes());
    let Some(cached) = cached else {
        return Serve::Say(Answer::Miss);
    };
    let held = cached.held.intersection(wanted.pages());
    let fetching = cached.fetching.intersection(wanted.pages());
    let awaited = fetching.difference(held);
    if !awaited.is_empty() {
        return Serve::Keep(awaited);
    }
    if held.is_empty() {
        return Serve::Say(Answer::Miss);
    }
    Serve::Send(held)
}
