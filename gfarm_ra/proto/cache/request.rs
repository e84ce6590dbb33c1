// SPDX-License-Identifier: GPL-2.0

//! A request for pages: from the node that wants them to the public queue pair of another one.
//!
//! Each type here is valid by construction: what a peer has sent goes through the same checks as
//! what this node sends.

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
    super::identity::ContentId,
    address::{
        NodeId,
        QueuePair, //
    },
    content::RawContent,
    excluded::{
        Excluded,
        EXCLUDED_MAX, //
    },
    fragment::FragmentLen,
    invalid::Invalid,
    pages::{
        PageSet,
        CHUNK_LEN, //
    },
    wire::{
        self,
        Head,
        Key,
        Kind, //
    }, //
    PAGE_LEN,
};

/// The maximum time for which a request waits at a peer, in milliseconds.
pub const TIMEOUT_MS_MAX: u16 = 10_000;

/// The flag of [`Ask::is_retry`].
const RETRY: u8 = 1 << 0;

/// The flag of [`Ask::wants_sums`].
const SUMS: u8 = 1 << 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRequest {
    cookie: U64,
    content: RawContent,
    size: U64,
    chunk: U64,
    pages: [U64; 4],
    excluded: [U64; EXCLUDED_MAX],
    qpn: U32,
    qkey: U32,
    tag: U16,
    fragment_len: U16,
    role: u8,
    flags: u8,
    timeout: U16,
    reasons: [u8; EXCLUDED_MAX],
    reply_qpn: U32,
    reply_qkey: U32,
}

/// The length of a request's datagram, in bytes.
pub const REQUEST_LEN: usize = wire::HEAD_LEN + size_of::<RawRequest>() + wire::CODE_LEN;

const _: () = assert!(REQUEST_LEN == 184);

/// Pages of one content of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    id: ContentId,
    size_bytes: u64,
    chunk: u64,
    pages: PageSet,
}

impl Wanted {
    /// Names pages, at least one, of a chunk of the file with this size; none of them is behind the
    /// file's end.
    pub fn new(
        id: ContentId,
        size_bytes: u64,
        chunk: u64,
        pages: PageSet,
    ) -> Result<Self, Invalid> {
        if id.file.inum == 0 {
            return Err(Invalid::Object);
        }
        if size_bytes == 0 || i64::try_from(size_bytes).is_err() {
            return Err(Invalid::Size);
        }
        if pages.is_empty() || !pages.is_subset(PageSet::of_file(chunk, size_bytes)) {
            return Err(Invalid::Pages);
        }
        Ok(Self {
            id,
            size_bytes,
            chunk,
            pages,
        })
    }

    /// Returns the content.
    pub const fn id(&self) -> ContentId {
        self.id
    }

    /// Returns the size of the file as the node that asks knows it, in bytes, not 0.
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Returns the number of the chunk.
    pub const fn chunk(&self) -> u64 {
        self.chunk
    }

    /// Returns the pages, at least one.
    pub const fn pages(&self) -> PageSet {
        self.pages
    }

    /// Returns the number of bytes that a page, of those that are wanted, has of the file.
    pub fn page_len(&self, page: u8) -> usize {
        let start = self.chunk.saturating_mul(CHUNK_LEN);
        let start = start.saturating_add(u64::from(page).saturating_mul(PAGE_LEN));
        // CAST: At most 4096.
        self.size_bytes.saturating_sub(start).min(PAGE_LEN) as usize
    }

    /// Returns the same for some of the pages; `None` if there are none, or others among them.
    pub fn part(&self, pages: PageSet) -> Option<Self> {
        let is_part = !pages.is_empty() && pages.is_subset(self.pages);
        is_part.then_some(Self { pages, ..*self })
    }
}

/// The receiver of fragments: a queue pair at the port of the node that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Landing {
    qp: QueuePair,
    fragment_len: FragmentLen,
}

impl Landing {
    /// Names a queue pair by its number, 2 to 2^24 - 1, and the key that it has for this request
    /// only, 1 to 2^31 - 1.
    pub fn new(qpn: u32, qkey: u32, fragment_len: FragmentLen) -> Result<Self, Invalid> {
        let qp = QueuePair::new(qpn, qkey)?;
        Ok(Self { qp, fragment_len })
    }

    /// Returns the number of the queue pair.
    pub const fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    /// Returns the key of the queue pair.
    pub const fn qkey(&self) -> u32 {
        self.qp.qkey()
    }

    /// Returns the length of the fragments.
    pub const fn fragment_len(&self) -> FragmentLen {
        self.fragment_len
    }
}

/// The role in which a node is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Role {
    /// The owner of the chunk: it tells which nodes have the pages.
    Owner = 0,
    /// The owner, by the word of another node: it names no further owner.
    NamedOwner = 1,
    /// A holder: it sends the pages, now or when it has them, or tells that it will not.
    Holder = 2,
}

impl Role {
    const fn new(raw: u8) -> Option<Self> {
        match raw {
            0 => Some(Self::Owner),
            1 => Some(Self::NamedOwner),
            2 => Some(Self::Holder),
            _ => None,
        }
    }
}

/// The fields of a request besides the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The role in which the node is asked.
    pub role: Role,
    /// The node that asks has asked a node for the same read before. To the owner it is still
    /// fetching what it was told to fetch.
    pub is_retry: bool,
    /// A holder is to tell the sums of the pages, and to give none without.
    pub wants_sums: bool,
    /// The nodes that were of no use.
    pub excluded: Excluded,
}

impl Ask {
    const fn flags(&self) -> u8 {
        let retry = if self.is_retry { RETRY } else { 0 };
        let sums = if self.wants_sums { SUMS } else { 0 };
        retry | sums
    }
}

/// The identity of a request, which the reply repeats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId {
    /// Tells the request from the others that the node has under way, and from those before it on
    /// the same queue pair. Fragments have it too, see [`Tags`](super::tags::Tags).
    pub tag: u16,
    /// A random number, another one each time.
    pub cookie: u64,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    id: RequestId,
    wanted: Wanted,
    landing: Option<Landing>,
    replies: QueuePair,
    ask: Ask,
    timeout_ms: u16,
}

impl Request {
    /// Makes a request. A holder is told where to send the fragments, an owner is not. The peer may
    /// answer within `timeout_ms`, 1 to [`TIMEOUT_MS_MAX`], to the queue pair `replies`.
    pub fn new(
        id: RequestId,
        wanted: Wanted,
        (landing, replies): (Option<Landing>, QueuePair),
        ask: Ask,
        timeout_ms: u16,
    ) -> Result<Self, Invalid> {
        if landing.is_some() != (ask.role == Role::Holder) {
            return Err(Invalid::Landing);
        }
        if ask.wants_sums && ask.role != Role::Holder {
            return Err(Invalid::Flags);
        }
        let count = landing.map_or(Some(0), |l| l.fragment_len.count(wanted.pages));
        count.ok_or(Invalid::Fragments)?;
        if !(1..=TIMEOUT_MS_MAX).contains(&timeout_ms) {
            return Err(Invalid::Timeout);
        }
        Ok(Self {
            id,
            wanted,
            landing,
            replies,
            ask,
            timeout_ms,
        })
    }

    /// Reads the body of a datagram of the kind [`Kind::Request`].
    pub fn parse(body: &[u8]) -> Result<Self, Invalid> {
        let raw = RawRequest::read_from_bytes(body).map_err(|_| Invalid::Length)?;
        let id = raw.content.id()?;
        let pages = PageSet::from_words(raw.pages.map(U64::get));
        let wanted = Wanted::new(id, raw.size.get(), raw.chunk.get(), pages)?;
        if raw.flags & !(RETRY | SUMS) != 0 {
            return Err(Invalid::Flags);
        }
        let ask = Ask {
            role: Role::new(raw.role).ok_or(Invalid::Role)?,
            is_retry: raw.flags & RETRY != 0,
            wants_sums: raw.flags & SUMS != 0,
            excluded: Excluded::from_raw(&raw.excluded, &raw.reasons).ok_or(Invalid::Excluded)?,
        };
        let queues = (raw.landing()?, raw.replies()?);
        Self::new(raw.id(), wanted, queues, ask, raw.timeout.get())
    }

    /// Returns what tells the request from others, and the queue pair for replies, although another
    /// field may be invalid.
    pub fn id_of(body: &[u8]) -> Option<(RequestId, QueuePair)> {
        let raw = RawRequest::read_from_bytes(body).ok()?;
        Some((raw.id(), raw.replies().ok()?))
    }

    /// Writes the datagram, with `sequence` as its number.
    pub fn seal(
        &self,
        from: NodeId,
        to: NodeId,
        sequence: u64,
        key: &Key,
    ) -> Option<[u8; REQUEST_LEN]> {
        let (excluded, reasons) = self.ask.excluded.to_raw();
        let fragment_len = self.landing.map_or(0, |l| l.fragment_len.bytes());
        let raw = RawRequest {
            cookie: U64::new(self.id.cookie),
            content: RawContent::new(&self.wanted.id),
            size: U64::new(self.wanted.size_bytes),
            chunk: U64::new(self.wanted.chunk),
            pages: self.wanted.pages.to_words().map(U64::new),
            excluded,
            qpn: U32::new(self.landing.map_or(0, |l| l.qpn())),
            qkey: U32::new(self.landing.map_or(0, |l| l.qkey())),
            tag: U16::new(self.id.tag),
            // CAST: At most 4096.
            fragment_len: U16::new(fragment_len as u16),
            role: self.ask.role as u8,
            flags: self.ask.flags(),
            timeout: U16::new(self.timeout_ms),
            reasons,
            reply_qpn: U32::new(self.replies.qpn()),
            reply_qkey: U32::new(self.replies.qkey()),
        };
        let head = Head {
            kind: Kind::Request,
            from,
            to: Some(to),
            sequence,
        };
        let mut out = [0; REQUEST_LEN];
        wire::seal(&head, raw.as_bytes(), key, &mut out)?;
        Some(out)
    }

    /// Returns what tells the request from others.
    pub const fn id(&self) -> RequestId {
        self.id
    }

    /// Returns the pages.
    pub const fn wanted(&self) -> &Wanted {
        &self.wanted
    }

    /// Returns where fragments are to be sent, if a holder is asked.
    pub const fn landing(&self) -> Option<&Landing> {
        self.landing.as_ref()
    }

    /// Returns what the node is asked for besides the pages.
    pub const fn ask(&self) -> &Ask {
        &self.ask
    }

    /// Returns how long the node that asks waits, in milliseconds.
    pub const fn timeout_ms(&self) -> u16 {
        self.timeout_ms
    }
}

impl RawRequest {
    fn id(&self) -> RequestId {
        RequestId {
            tag: self.tag.get(),
            cookie: self.cookie.get(),
        }
    }

    /// Reads where replies are to be sent.
    fn replies(&self) -> Result<QueuePair, Invalid> {
        QueuePair::new(self.reply_qpn.get(), self.reply_qkey.get())
    }

    /// Reads where fragments are to be sent; all three fields are 0 if nowhere.
    fn landing(&self) -> Result<Option<Landing>, Invalid> {
        let (qpn, qkey, len) = (self.qpn.get(), self.qkey.get(), self.fragment_len.get());
        if (qpn, qkey, len) == (0, 0, 0) {
            return Ok(None);
        }
        let fragment_len = FragmentLen::new(len.into()).ok_or(Invalid::Fragments)?;
        Landing::new(qpn, qkey, fragment_len).map(Some)
    }
}
