// SPDX-License-Identifier: GPL-2.0

//! The head and the end of each datagram. All integers are little-endian.
//!
//! ```text
//!   0  magic     4    "gfcc"
//!   4  version   2    5
//!   6  kind      2
//!   8  from      8    the node that sends
//!  16  to        8    the node that receives; 0 if the sender does not know its number
//!  24  sequence  8    a larger number in each datagram from the one to the other node
//!  32  body           as the kind has it
//!      code      8    SipHash-2-4 of all before, with the key that all nodes have
//! ```
//!
//! The code is checked before the body is looked at, so what reads a body is given bytes of nodes
//! that have the key, and nothing else.

use core::fmt;

use ferro_proto::siphash::SipHash;
use zerocopy::{
    little_endian::{
        U16,
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

use super::address::NodeId;

/// The maximum length of a datagram that any port is to have room for, in bytes: RDMA over an
/// Ethernet with frames of 1500 bytes has 1024.
pub const COMMON_LEN_MAX: usize = 1024;

/// The maximum length of a datagram, in bytes: that of a [`Reply`](super::reply::Reply) with the
/// sums of 256 pages. Who asks for as many has longer datagrams than [`COMMON_LEN_MAX`].
pub const DATAGRAM_LEN_MAX: usize = super::reply::REPLY_LEN_MAX;

/// The length of the head, in bytes.
pub const HEAD_LEN: usize = size_of::<RawHead>();

/// The length of the code at the end, in bytes.
pub const CODE_LEN: usize = 8;

const MAGIC: [u8; 4] = *b"gfcc";
const VERSION: u16 = 5;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHead {
    magic: [u8; 4],
    version: U16,
    kind: U16,
    from: U64,
    to: U64,
    sequence: U64,
}

const _: () = assert!(HEAD_LEN == 32);

/// The kind of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Kind {
    /// A [`Request`](super::request::Request).
    Request = 1,
    /// A [`Reply`](super::reply::Reply).
    Reply = 2,
    /// A node tells of itself.
    Hello = 3,
    /// A node tells of others.
    Members = 4,
    /// A [`Have`](super::have::Have).
    Have = 5,
}

impl Kind {
    const fn new(raw: u16) -> Option<Self> {
        match raw {
            1 => Some(Self::Request),
            2 => Some(Self::Reply),
            3 => Some(Self::Hello),
            4 => Some(Self::Members),
            5 => Some(Self::Have),
            _ => None,
        }
    }
}

/// A queue pair of a node to which messages come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpRole {
    /// The public one, which all nodes know.
    Public,
    /// The one for replies, which who was asked knows, and who sees the network.
    Replies,
}

impl Kind {
    /// Returns the queue pair to which such a datagram is sent.
    pub const fn qp(self) -> QpRole {
        match self {
            Self::Reply => QpRole::Replies,
            Self::Request | Self::Hello | Self::Members | Self::Have => QpRole::Public,
        }
    }
}

/// The receives of a queue pair that are posted again together, when all of them were used.
pub const RECEIVE_BATCH: u32 = 4;

/// Returns the receives of a queue pair so that each of `number` messages that come at once finds
/// one, also while most of a batch was used by others and is not posted again yet.
pub const fn receives(number: u16) -> u32 {
    // CAST: Without loss.
    let number = number as u32;
    number
        .saturating_add(RECEIVE_BATCH - 1)
        .next_multiple_of(RECEIVE_BATCH)
}

/// The secret that all nodes of a cache have. It is wiped with its drop. A move may leave a copy
/// behind, which is not: who keeps it has it [read](Self::read) where it stays.
#[derive(PartialEq, Eq)]
pub struct Key([u64; 2]);

impl Drop for Key {
    fn drop(&mut self) {
        self.wipe();
    }
}

/// Does not show the secret.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key { .. }")
    }
}

impl Key {
    /// The length of a key, in bytes.
    pub const LEN: usize = 16;

    /// Returns the place of a key that is read later.
    pub const fn empty() -> Self {
        Self([0; 2])
    }

    /// Takes the bytes of a key, which no one can guess.
    pub fn new(bytes: &[u8; Self::LEN]) -> Self {
        let mut words = [0; 2];
        for (word, half) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            *word = half
                .iter()
                .rev()
                .fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
        Self(words)
    }

    /// Overwrites it, also where the compiler sees that it is not looked at any more.
    pub fn wipe(&mut self) {
        self.0 = [0; 2];
        core::hint::black_box(&self.0);
    }

    /// Reads a key from its text: 32 hexadecimal digits, perhaps with the end of a line. Returns
    /// whether it is one.
    pub fn read(&mut self, text: &[u8]) -> bool {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        if text.len() != 2 * Self::LEN {
            return false;
        }
        for (word, half) in self.0.iter_mut().zip(text.chunks_exact(Self::LEN)) {
            // The first byte is the lowest of the word.
            for digit in half.chunks_exact(2).rev().flatten() {
                let Some(digit) = char::from(*digit).to_digit(16) else {
                    return false;
                };
                *word = *word << 4 | u64::from(digit);
            }
        }
        true
    }

    fn code(&self, bytes: &[u8]) -> u64 {
        let mut hash = SipHash::new(self.0);
        hash.write(bytes);
        hash.finish()
    }
}

/// The fields of the head of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The kind.
    pub kind: Kind,
    /// The node that sends.
    pub from: NodeId,
    /// The node that receives, if the sender knows its number.
    pub to: Option<NodeId>,
    /// A number, not 0, that is larger in each datagram that the sender sends to the receiver; 0 in
    /// a reply, which the cookie makes unique.
    pub sequence: u64,
}

/// A datagram of a node that has the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// The head.
    pub head: Head,
    /// The bytes between the head and the code.
    pub body: &'a [u8],
}

/// The reason why a datagram was not read. No such datagram is answered: an answer to a sender that
/// may not have the key would let it use nodes against each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rejected {
    /// The datagram is shorter than a head and a code, or longer than [`DATAGRAM_LEN_MAX`].
    Length,
    /// The datagram does not begin as those of the cache do.
    Magic,
    /// The datagram is of another version.
    Version,
    /// Its kind is not known.
    Kind,
    /// The code is wrong: the sender has another key, or the bytes were changed.
    Code,
    /// The sender's number is 0.
    From,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Length => "datagram too short or too long",
            Self::Magic => "no datagram of the cache",
            Self::Version => "datagram of another version",
            Self::Kind => "datagram of an unknown kind",
            Self::Code => "authentication code wrong: another cc_key, or changed on the way",
            Self::From => "sender without a number",
        })
    }
}

/// Writes a datagram: head, body, code. Returns its length in bytes, or `None` if `out` or a
/// datagram has no room for it.
pub fn seal(head: &Head, body: &[u8], key: &Key, out: &mut [u8]) -> Option<usize> {
    seal_with(head, body.len(), key, out, |place| {
        place.copy_from_slice(body)
    })
}

/// Writes a datagram as [`seal`] does, with a body of `body_len` bytes that `write` writes to its
/// place.
pub(super) fn seal_with(
    head: &Head,
    body_len: usize,
    key: &Key,
    out: &mut [u8],
    write: impl FnOnce(&mut [u8]),
) -> Option<usize> {
    let len = HEAD_LEN.checked_add(body_len)?;
    let whole = len.checked_add(CODE_LEN)?;
    if whole > DATAGRAM_LEN_MAX {
        return None;
    }
    let (covered, rest) = out.split_at_mut_checked(len)?;
    let code = rest.first_chunk_mut::<CODE_LEN>()?;
    let (start, place) = covered.split_at_mut_checked(HEAD_LEN)?;
    let raw = RawHead {
        magic: MAGIC,
        version: U16::new(VERSION),
        kind: U16::new(head.kind as u16),
        from: U64::new(head.from.get()),
        to: U64::new(head.to.map_or(0, NodeId::get)),
        sequence: U64::new(head.sequence),
    };
    start.copy_from_slice(raw.as_bytes());
    write(place);
    *code = key.code(covered).to_le_bytes();
    Some(whole)
}

/// A datagram whose code was not looked at yet.
#[derive(Debug)]
pub struct Sealed<'a> {
    datagram: Datagram<'a>,
    covered: &'a [u8],
    code: u64,
}

/// Reads the head of a datagram: what refuses it here costs next to nothing, and its code a pass
/// over all of its bytes.
pub fn peek(bytes: &[u8]) -> Result<Sealed<'_>, Rejected> {
    if bytes.len() > DATAGRAM_LEN_MAX {
        return Err(Rejected::Length);
    }
    let (covered, code) = bytes
        .split_last_chunk::<CODE_LEN>()
        .ok_or(Rejected::Length)?;
    let (raw, body) = RawHead::read_from_prefix(covered).map_err(|_| Rejected::Length)?;
    if raw.magic != MAGIC {
        return Err(Rejected::Magic);
    }
    if raw.version.get() != VERSION {
        return Err(Rejected::Version);
    }
    let kind = Kind::new(raw.kind.get()).ok_or(Rejected::Kind)?;
    let head = Head {
        kind,
        from: NodeId::new(raw.from.get()).ok_or(Rejected::From)?,
        to: NodeId::new(raw.to.get()),
        sequence: raw.sequence.get(),
    };
    Ok(Sealed {
        datagram: Datagram { head, body },
        covered,
        code: u64::from_le_bytes(*code),
    })
}

impl<'a> Sealed<'a> {
    /// Returns what the head says, which anyone may have written.
    pub const fn head(&self) -> &Head {
        &self.datagram.head
    }

    /// Returns the datagram, if its sender has the key.
    pub fn open(self, key: &Key) -> Result<Datagram<'a>, Rejected> {
        // One comparison of two words takes the same time wherever they differ.
        match self.code == key.code(self.covered) {
            true => Ok(self.datagram),
            false => Err(Rejected::Code),
        }
    }
}

/// Reads a datagram to any node.
pub fn open<'a>(bytes: &'a [u8], key: &Key) -> Result<Datagram<'a>, Rejected> {
    peek(bytes)?.open(key)
}
