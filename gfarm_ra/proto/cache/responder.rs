// SPDX-License-Identifier: GPL-2.0

//! Decides which requests of other nodes are served, and with what.
//!
//! A datagram is looked at in this order, and each step is the first one that can refuse it for its
//! reason: length, version, kind and sender's number; the queue pair; the receiver; the code. The
//! code comes last, as it costs the most, and who has seen no message knows the number of no node.
//! Of requests and notices then the sender, who must be known and be where it is known to be; the
//! number; where replies go; the fields. Up to where replies go, what is refused is counted only.
//! Behind it the sender is a node of this cache that has not sent this before, so it gets an
//! answer. Replies and answers of members are told by their random numbers, and of greetings
//! [`Members::hello`](super::members::Members::hello) looks at the number.

use super::{
    address::{
        Address,
        NodeId, //
    },
    fragment::FragmentLen,
    gossip::Gossip,
    have::Have,
    pages::PageSet,
    reply::{
        Answer,
        Refusal,
        Reply,
        Sums, //
    },
    request::{
        Request,
        RequestId,
        Wanted, //
    },
    sums::Verify,
    wire::{
        self,
        Datagram,
        Head,
        Key,
        Kind,
        QpRole,
        Rejected, //
    }, //
};

/// The reason why a datagram to this node is not answered, although its code is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Discarded {
    /// The sender is not known.
    Sender,
    /// The datagram has not come from the address of the sender.
    Address,
    /// The datagram has come before, or is too old to tell.
    Repeated,
    /// Its length is not that of its kind, or what it lists is invalid.
    Body,
}

/// The reason why a datagram is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A datagram that no node with the key sends.
    Rejected(Rejected),
    /// A datagram to another queue pair of this node than that of its kind.
    QueuePair,
    /// A datagram to another node: an earlier mount of this one, or a wrong address.
    Receiver,
}

/// Reads a datagram to the node `me` that has come to a queue pair.
pub fn open<'a>(
    bytes: &'a [u8],
    qp: QpRole,
    me: NodeId,
    key: &Key,
) -> Result<Datagram<'a>, Refused> {
    let sealed = wire::peek(bytes).map_err(Refused::Rejected)?;
    let head = sealed.head();
    if head.kind.qp() != qp {
        return Err(Refused::QueuePair);
    }
    let is_for_anyone = head.kind == Kind::Hello && head.to.is_none();
    if head.to != Some(me) && !is_for_anyone {
        return Err(Refused::Receiver);
    }
    sealed.open(key).map_err(Refused::Rejected)
}

/// A datagram that this node takes.
#[derive(Debug)]
pub enum Received<'a> {
    /// A greeting, with its number if it names this node, for
    /// [`Members::hello`](super::members::Members::hello).
    Hello(Gossip<'a>, Option<u64>),
    /// An answer, if it is one, for [`Members::members`](super::members::Members::members).
    Members(Gossip<'a>),
    /// A reply, if it is one, for the read that has its cookie; and the sums of its pages.
    Reply(Reply, Sums<'a>),
    /// A member has pages.
    Have(Have),
    /// A member wants pages, and replies at this address. Of an invalid request it is told so.
    Request(Address, Result<Request, RequestId>),
}

/// Reads what was [opened](open). `admit` looks at the sender of requests and notices: a member,
/// where it is known to be, with a new number; its address is returned.
pub fn receive<'a>(
    datagram: &Datagram<'a>,
    admit: impl FnOnce(&Head) -> Result<Address, Discarded>,
) -> Result<Received<'a>, Discarded> {
    let Datagram { head, body } = datagram;
    let gossip = || Gossip::parse(body, head.from).map_err(|_| Discarded::Body);
    match head.kind {
        Kind::Hello => Ok(Received::Hello(gossip()?, head.to.map(|_| head.sequence))),
        Kind::Members => Ok(Received::Members(gossip()?)),
        Kind::Reply => {
            let (reply, sums) = Reply::parse(body).map_err(|_| Discarded::Body)?;
            Ok(Received::Reply(reply, sums))
        }
        Kind::Have => {
            admit(head)?;
            let have = Have::parse(body).map_err(|_| Discarded::Body)?;
            Ok(Received::Have(have))
        }
        Kind::Request => {
            let address = admit(head)?;
            let (id, replies) = Request::id_of(body).ok_or(Discarded::Body)?;
            Ok(Received::Request(
                address.with(replies),
                Request::parse(body).map_err(|_| id),
            ))
        }
    }
}

/// The pages that this node has of exactly the content that is asked for. A file that is open for
/// writing here, and one whose pages are of another generation or of none, have nothing.
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

/// Takes pages for another node by `take`, if they are of the content that it asks for. `label`
/// returns the number of the content's label, which no other content of the file has had, or `None`
/// if that is another one.
///
/// The label changes before the first page of another content is filled, so pages are of the wanted
/// content if it is the same when all are taken; what it was before they were taken does not tell.
pub fn take_of_content<T>(
    label: impl Fn() -> Option<u64>,
    take: impl FnOnce() -> Option<T>,
) -> Option<T> {
    let before = label()?;
    let taken = take()?;
    (label() == Some(before)).then_some(taken)
}

/// The action for a request to this node as a holder.
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

/// The pages of a holder, as [`serve_sound`] looks at them.
pub trait HeldPages {
    /// Returns the pages, of those that are wanted, whose sums are known.
    fn known(&mut self, wanted: &Wanted) -> PageSet;

    /// Takes those of the pages that are cached with exactly the content that is wanted, instead of
    /// those that were taken before. Returns which, and the size of the file in bytes; [`None`] if
    /// the content is not what is cached.
    fn take(&mut self, wanted: &Wanted) -> Option<(PageSet, u64)>;

    /// Counts pages that are about to be sent; returns the answer if too much was sent lately.
    fn pay(&mut self, pages: PageSet) -> Result<(), Answer>;

    /// Compares pages, which were taken, with their sums, as far as these are known. Returns those
    /// that are damaged.
    fn damaged(&mut self, wanted: &Wanted) -> PageSet;

    /// Drops those of the pages that were taken, `held`, that are damaged, as far as they are still
    /// in the page cache. Does not wait for others that use them.
    fn drop_pages(&mut self, held: &Wanted, damaged: PageSet);
}

/// Decides about a request to this node as a holder, as [`serve`] does. What is to be sent was
/// taken, and is not known to be damaged.
///
/// Pages are compared, if they are, when they are about to be sent: this takes a look at each of
/// their bytes, and a request that is kept is looked at often. Whether the node that asks compares
/// itself makes no difference: this one alone can find out that its memory is bad.
pub fn serve_sound(
    request: &Request,
    fetching: PageSet,
    longest: FragmentLen,
    verify: Verify,
    pages: &mut impl HeldPages,
) -> Serve {
    let wanted = request.wanted();
    let wants_sums = request.ask().wants_sums;
    if wants_sums && verify == Verify::Off {
        // No page will have a sum, so none is waited for.
        return serve(request, None, longest);
    }
    let (mut left, mut paid) = (wanted.pages(), PageSet::EMPTY);
    loop {
        if wants_sums {
            left = wanted.part(left).map_or(left, |part| pages.known(&part));
        }
        let taken = match wanted.part(left) {
            Some(part) => pages.take(&part),
            // They may be on their way.
            None => Some((PageSet::EMPTY, wanted.size_bytes())),
        };
        let cached = taken.map(|(held, size_bytes)| Cached {
            size_bytes,
            held,
            fetching,
        });
        let decision = serve(request, cached.as_ref(), longest);
        let Serve::Send(held) = decision else {
            return decision;
        };
        // A node that is not given anything now has nothing compared.
        if let Err(answer) = pages.pay(held.difference(paid)) {
            return Serve::Say(answer);
        }
        paid = paid.union(held);
        let Some(compared) = wanted.part(held).filter(|_| verify >= Verify::Given) else {
            return decision;
        };
        let damaged = pages.damaged(&compared);
        if damaged.is_empty() {
            return decision;
        }
        pages.drop_pages(&compared, damaged);
        // One that could not be dropped is not given either.
        left = left.difference(damaged);
    }
}
