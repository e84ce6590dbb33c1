// SPDX-License-Identifier: GPL-2.0

//! The reply to a request: to the reply queue pair of the node that has asked, behind the
//! fragments if there are any.
//!
//! Behind the fields of an answer with pages are the [sums](Sums) of these, if they were asked for.
//! They need no message of their own: pages with F bytes in a fragment are F / 16 at most, so their
//! reply is 164 + F / 4 bytes long at most, and a port that takes the fragments takes it.

use core::fmt;

use zerocopy::{
    little_endian::{
        U16,
        U32,
        U64, //
    },
    FromBytes,
    IntoBytes, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::{
    address::{
        Address,
        NodeId, //
    },
    invalid::Invalid,
    pages::{
        PageSet,
        PAGES, //
    },
    request::RequestId,
    wire::{
        self,
        Head,
        Key,
        Kind, //
    }, //
};

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawReply {
    cookie: U64,
    size: U64,
    pages: [U64; 4],
    fetch: [U64; 4],
    holder: U64,
    address: [u8; Address::LEN],
    depth: u8,
    tag: U16,
    status: U16,
    detail: U16,
    credits: U16,
}

/// The length of a reply's datagram without sums, in bytes.
pub const REPLY_LEN: usize = wire::HEAD_LEN + size_of::<RawReply>() + wire::CODE_LEN;

const _: () = assert!(REPLY_LEN == 164);

/// The length of the longest one, in bytes.
pub const REPLY_LEN_MAX: usize = REPLY_LEN + PAGES * size_of::<U32>();

/// The sums of the pages of an answer, in the order of the pages: the CRC-32C of the bytes that
/// each has of the file, made by who has read it from a file server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums<'a>(&'a [U32]);

impl Sums<'_> {
    /// No sums.
    pub const NONE: Self = Self(&[]);

    /// Returns whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the sums.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().map(|sum| sum.get())
    }
}

const NO_SET: [U64; 4] = [U64::ZERO; 4];

/// A node that has pages, with its address: who is told of it may not know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    /// Its number.
    pub node: NodeId,
    /// Its public queue pair.
    pub address: Address,
}

/// The reason why a request is not served, with the pages or without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Refusal {
    /// A field is invalid: the nodes have different ideas of the protocol.
    Invalid = 1,
    /// The fragments are longer than the datagrams of the port.
    FragmentLen = 2,
    /// The node is leaving.
    Leaving = 3,
}

impl Refusal {
    const fn new(raw: u16) -> Option<Self> {
        match raw {
            1 => Some(Self::Invalid),
            2 => Some(Self::FragmentLen),
            3 => Some(Self::Leaving),
            _ => None,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Invalid => "request invalid",
            Self::FragmentLen => "fragments longer than datagrams",
            Self::Leaving => "node is leaving",
        })
    }
}

/// The statement of a node about the pages of a request. Sets are subsets of the request's; what is
/// in none of them the node does not know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A holder has sent the fragments of these pages.
    Data {
        /// The pages, at least one.
        pages: PageSet,
    },
    /// An owner names a node that has pages, or is fetching them.
    Redirect {
        /// The node to ask as a holder: the owner itself, or another one.
        holder: Holder,
        /// The pages to ask it for, at least one.
        pages: PageSet,
        /// No node has these: fetch them from the file server. The owner counts on it.
        fetch: PageSet,
    },
    /// An owner says that no node has the pages.
    Fetch {
        /// Fetch these from the file server, at least one. The owner counts on it.
        pages: PageSet,
    },
    /// An owner names another node as the owner; ask that one as
    /// [`Role::NamedOwner`](super::request::Role::NamedOwner).
    OtherOwner(Holder),
    /// A holder is fetching the pages. It keeps the request, and sends another reply.
    Wait {
        /// The time after which the node is lost if it is silent, in milliseconds, not 0.
        wait_ms: u16,
        /// The number of nodes for which this one waits in a row; 0 if for the file server.
        depth: u8,
    },
    /// The node has too much to do, and has forgotten the request.
    Busy {
        /// The time after which to ask again, in milliseconds, not 0.
        wait_ms: u16,
    },
    /// The node has nothing of it.
    Miss,
    /// The node does not serve such requests.
    Refused(Refusal),
}

/// A reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The number of the request.
    pub id: RequestId,
    /// The size of the file in bytes as the peer knows it, with data; otherwise 0.
    pub size_bytes: u64,
    /// The number of requests that the peer serves for this node at a time.
    pub credits: u16,
    /// The answer of the peer.
    pub answer: Answer,
}

impl RawReply {
    /// Writes an answer to the fields that depend on it; the others are those of `self`.
    fn with(self, answer: &Answer) -> Self {
        let (status, detail) = match *answer {
            Answer::Data { .. } => (1, 0),
            Answer::Redirect { .. } => (2, 0),
            Answer::Fetch { .. } => (3, 0),
            Answer::OtherOwner(_) => (4, 0),
            Answer::Wait { wait_ms, .. } => (5, wait_ms),
            Answer::Busy { wait_ms } => (6, wait_ms),
            Answer::Miss => (7, 0),
            Answer::Refused(refusal) => (8, refusal as u16),
        };
        let (pages, fetch) = match *answer {
            Answer::Data { pages } => (pages, PageSet::EMPTY),
            Answer::Redirect { pages, fetch, .. } => (pages, fetch),
            Answer::Fetch { pages } => (PageSet::EMPTY, pages),
            _ => (PageSet::EMPTY, PageSet::EMPTY),
        };
        let holder = match *answer {
            Answer::Redirect { holder, .. } | Answer::OtherOwner(holder) => Some(holder),
            _ => None,
        };
        Self {
            pages: pages.to_words().map(U64::new),
            fetch: fetch.to_words().map(U64::new),
            holder: U64::new(holder.map_or(0, |holder| holder.node.get())),
            address: holder.map_or([0; Address::LEN], |holder| holder.address.to_bytes()),
            depth: match *answer {
                Answer::Wait { depth, .. } => depth,
                _ => 0,
            },
            status: U16::new(status),
            detail: U16::new(detail),
            ..self
        }
    }

    /// Returns what does not depend on the answer.
    fn cleared(self) -> Self {
        Self {
            pages: NO_SET,
            fetch: NO_SET,
            holder: U64::ZERO,
            address: [0; Address::LEN],
            depth: 0,
            status: U16::ZERO,
            detail: U16::ZERO,
            ..self
        }
    }

    fn holder(&self) -> Result<Holder, Invalid> {
        let node = NodeId::new(self.holder.get());
        let address = Address::from_bytes(&self.address);
        match (node, address) {
            (Some(node), Some(address)) => Ok(Holder { node, address }),
            _ => Err(Invalid::Holder),
        }
    }

    fn answer(&self) -> Result<Answer, Invalid> {
        let pages = PageSet::from_words(self.pages.map(U64::get));
        let fetch = PageSet::from_words(self.fetch.map(U64::get));
        let detail = self.detail.get();
        Ok(match self.status.get() {
            1 => Answer::Data { pages },
            2 => Answer::Redirect {
                holder: self.holder()?,
                pages,
                fetch,
            },
            3 => Answer::Fetch { pages: fetch },
            4 => Answer::OtherOwner(self.holder()?),
            5 => Answer::Wait {
                wait_ms: detail,
                depth: self.depth,
            },
            6 => Answer::Busy { wait_ms: detail },
            7 => Answer::Miss,
            8 => Answer::Refused(Refusal::new(detail).ok_or(Invalid::Field)?),
            _ => return Err(Invalid::Status),
        })
    }
}

impl Answer {
    /// Returns whether the sets and times are such as a node sends.
    fn check(&self) -> Result<(), Invalid> {
        match *self {
            Self::Data { pages } | Self::Fetch { pages } | Self::Redirect { pages, .. }
                if pages.is_empty() =>
            {
                return Err(Invalid::Field)
            }
            Self::Redirect { pages, fetch, .. } if !pages.is_disjoint(fetch) => {
                return Err(Invalid::Sets)
            }
            Self::Wait { wait_ms: 0, .. } | Self::Busy { wait_ms: 0 } => {
                return Err(Invalid::Field)
            }
            _ => {}
        }
        Ok(())
    }
}

impl Reply {
    /// Reads the body of a datagram of the kind [`Kind::Reply`]. With the pages of an answer are
    /// the sums of all of them, or none.
    pub fn parse(body: &[u8]) -> Result<(Self, Sums<'_>), Invalid> {
        let (raw, rest) = RawReply::read_from_prefix(body).map_err(|_| Invalid::Length)?;
        let sums = <[U32]>::ref_from_bytes(rest).map_err(|_| Invalid::Length)?;
        let answer = raw.answer()?;
        let pages = match answer {
            Answer::Data { pages } => pages,
            _ => PageSet::EMPTY,
        };
        if !sums.is_empty() && sums.len() != pages.len() {
            return Err(Invalid::Length);
        }
        answer.check()?;
        // What the status has no use for is 0: what the answer does not say is not there.
        let said = raw.cleared().with(&answer);
        let has_size = matches!(answer, Answer::Data { .. });
        if said.as_bytes() != raw.as_bytes() || has_size != (raw.size.get() != 0) {
            return Err(Invalid::Field);
        }
        let reply = Self {
            id: RequestId {
                tag: raw.tag.get(),
                cookie: raw.cookie.get(),
            },
            size_bytes: raw.size.get(),
            credits: raw.credits.get(),
            answer,
        };
        Ok((reply, Sums(sums)))
    }

    /// Writes the datagram of an answer without sums. It has no number of its own: a reply is
    /// accepted once for its cookie. Returns `None` if no node would accept the answer.
    pub fn seal(&self, from: NodeId, to: NodeId, key: &Key) -> Option<[u8; REPLY_LEN]> {
        let mut out = [0; REPLY_LEN];
        self.seal_in(from, to, key, &mut out, PageSet::EMPTY, |_| 0)?;
        Some(out)
    }

    /// Writes the datagram of an answer with pages, as [`seal`](Self::seal), with the sum of each.
    /// Returns its length in bytes.
    pub fn seal_with_sums(
        &self,
        from: NodeId,
        to: NodeId,
        key: &Key,
        out: &mut [u8; REPLY_LEN_MAX],
        sum_of: impl Fn(u8) -> u32,
    ) -> Option<usize> {
        let Answer::Data { pages } = self.answer else {
            return None;
        };
        self.seal_in(from, to, key, out, pages, sum_of)
    }

    fn seal_in(
        &self,
        from: NodeId,
        to: NodeId,
        key: &Key,
        out: &mut [u8],
        summed: PageSet,
        sum_of: impl Fn(u8) -> u32,
    ) -> Option<usize> {
        self.answer.check().ok()?;
        let raw = RawReply {
            cookie: U64::new(self.id.cookie),
            size: U64::new(self.size_bytes),
            pages: NO_SET,
            fetch: NO_SET,
            holder: U64::ZERO,
            address: [0; Address::LEN],
            depth: 0,
            tag: U16::new(self.id.tag),
            status: U16::ZERO,
            detail: U16::ZERO,
            credits: U16::new(self.credits),
        };
        let head = Head {
            kind: Kind::Reply,
            from,
            to: Some(to),
            sequence: 0,
        };
        let raw = raw.with(&self.answer);
        let sums_len = summed.len().saturating_mul(size_of::<U32>());
        let len = size_of::<RawReply>().saturating_add(sums_len);
        wire::seal_with(&head, len, key, out, |body| {
            let (fields, rest) = body.split_at_mut(size_of::<RawReply>().min(body.len()));
            fields.copy_from_slice(raw.as_bytes());
            let places = rest.chunks_exact_mut(size_of::<U32>());
            for (place, page) in places.zip(summed.iter()) {
                place.copy_from_slice(&sum_of(page).to_le_bytes());
            }
        })
    }
}
