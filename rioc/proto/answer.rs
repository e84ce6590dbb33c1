// SPDX-License-Identifier: GPL-2.0

//! The answers of a server: what it makes, and what a client checks before it believes them.

use core::fmt;

use ferro_proto::errno::Errno;
use zerocopy::{
    little_endian::{
        U16,
        U32,
        U64, //
    },
    FromBytes, //
};

use super::{
    span::{
        Span,
        IO_BYTES_MAX,
        OBJECT_BYTES_MAX, //
    },
    wire, //
};

/// The reason why an answer is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unbelievable {
    /// The length: shorter than that of the kind.
    Length(usize),
    /// The kind of another message.
    Kind(u8),
    /// The version is another one.
    Version(u8),
    /// A number is out of its range, or does not fit to the others.
    Number,
    /// A byte that must be 0 is not.
    Reserved,
}

impl Unbelievable {
    /// Returns the error of the operation.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Version(_) => Errno::EPROTONOSUPPORT,
            _ => Errno::EIO,
        }
    }
}

impl fmt::Display for Unbelievable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(bytes) => write!(f, "answer of {bytes} bytes"),
            Self::Kind(kind) => write!(f, "answer of kind {kind}"),
            Self::Version(version) => write!(
                f,
                "answer of version {version}, not {}: load rioc_client and rioc_server of one \
                 release",
                wire::VERSION
            ),
            Self::Number => f.write_str("answer with an impossible number"),
            Self::Reserved => f.write_str("answer with a reserved byte that is set"),
        }
    }
}

fn check(wire: (u8, u8), kind: u8) -> Result<(), Unbelievable> {
    match wire {
        (_, version) if version != wire::VERSION => Err(Unbelievable::Version(version)),
        (found, _) if found != kind => Err(Unbelievable::Kind(found)),
        _ => Ok(()),
    }
}

fn require(condition: bool, otherwise: Unbelievable) -> Result<(), Unbelievable> {
    condition.then_some(()).ok_or(otherwise)
}

fn is_zero(bytes: &[u8]) -> Result<(), Unbelievable> {
    require(bytes.iter().all(|byte| *byte == 0), Unbelievable::Reserved)
}

fn is_true(byte: u8) -> Result<bool, Unbelievable> {
    require(byte <= 1, Unbelievable::Number)?;
    Ok(byte == 1)
}

/// A store that a client uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Whether what is acknowledged is durable, and not only in memory.
    pub is_durable: bool,
    /// Whether a flush writes back.
    pub has_backing: bool,
    /// The most bytes of a read and a write: 1 to [`IO_BYTES_MAX`].
    pub io_bytes_max: u32,
    /// The number of this life of the store.
    pub boot: u64,
    /// The number of the client.
    pub client: u32,
    /// The number of the client's incarnation: another one each time the server begins to know the
    /// client's operations anew.
    pub incarnation: u64,
    /// The identity of what is kept: that of a log, or another one in each life of a store in
    /// memory.
    pub identity: u64,
}

impl Attached {
    /// Returns what is sent.
    pub fn to_wire(&self) -> wire::AttachAnswer {
        wire::AttachAnswer {
            kind: wire::ATTACH,
            version: wire::VERSION,
            is_durable: self.is_durable.into(),
            has_backing: self.has_backing.into(),
            io_bytes_max: U32::new(self.io_bytes_max),
            boot: U64::new(self.boot),
            client: U32::new(self.client),
            reserved: U32::ZERO,
            incarnation: U64::new(self.incarnation),
            identity: U64::new(self.identity),
            reserved2: [0; 24],
        }
    }

    /// Parses what was received.
    ///
    /// # Errors
    ///
    /// Returns what is wrong first.
    pub fn parse(bytes: &[u8]) -> Result<Self, Unbelievable> {
        let wire = wire::AttachAnswer::ref_from_prefix(bytes);
        let (wire, _) = wire.map_err(|_| Unbelievable::Length(bytes.len()))?;
        check((wire.kind, wire.version), wire::ATTACH)?;
        require(wire.reserved.get() == 0, Unbelievable::Reserved)?;
        is_zero(&wire.reserved2)?;
        let io_bytes_max = wire.io_bytes_max.get();
        let is_io = (1..=IO_BYTES_MAX).contains(&io_bytes_max.into());
        require(is_io, Unbelievable::Number)?;
        Ok(Self {
            is_durable: is_true(wire.is_durable)?,
            has_backing: is_true(wire.has_backing)?,
            io_bytes_max,
            boot: wire.boot.get(),
            client: wire.client.get(),
            incarnation: wire.incarnation.get(),
            identity: wire.identity.get(),
        })
    }

    /// Whether it has what was acknowledged by the store of this name that has answered `before`: a
    /// store in memory that was begun anew has nothing of it, and neither has another log.
    pub const fn has_kept(&self, before: &Self) -> bool {
        self.identity == before.identity && (self.is_durable || self.boot == before.boot)
    }

    /// Whether the server still knows which operations it has carried out of those that were sent
    /// when it had answered `before`. Else one that changes something and was not answered must not
    /// be sent again: it could be carried out a second time, over what others have done since.
    pub const fn knows_operations_of(&self, before: &Self) -> bool {
        self.incarnation == before.incarnation
    }
}

/// The answer of a ping, a stat or a lease: numbers that are not of its kind are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Short {
    /// The lease.
    pub lease: u32,
    /// The size of the object in bytes.
    pub size: u64,
    /// The blocks that are stored.
    pub blocks: u64,
}

impl Short {
    /// Returns what is sent to a message of this kind.
    pub fn to_wire(&self, kind: u8) -> wire::ShortAnswer {
        wire::ShortAnswer {
            kind,
            version: wire::VERSION,
            reserved: U16::ZERO,
            lease: U32::new(self.lease),
            size: U64::new(self.size),
            blocks: U64::new(self.blocks),
            reserved2: [0; 40],
        }
    }

    /// Parses what was received to a message of this kind.
    ///
    /// # Errors
    ///
    /// Returns what is wrong first.
    pub fn parse(bytes: &[u8], kind: u8) -> Result<Self, Unbelievable> {
        let wire = wire::ShortAnswer::ref_from_prefix(bytes);
        let (wire, _) = wire.map_err(|_| Unbelievable::Length(bytes.len()))?;
        check((wire.kind, wire.version), kind)?;
        require(wire.reserved.get() == 0, Unbelievable::Reserved)?;
        is_zero(&wire.reserved2)?;
        let short = Self {
            lease: wire.lease.get(),
            size: wire.size.get(),
            blocks: wire.blocks.get(),
        };
        let is_right = match kind {
            wire::LEASE => short.lease != 0 && short.size == 0 && short.blocks == 0,
            wire::STAT => {
                short.lease == 0 && short.size <= OBJECT_BYTES_MAX && short.is_filled_at_most()
            }
            _ => short == Self::default(),
        };
        require(is_right, Unbelievable::Number)?;
        Ok(short)
    }

    /// Whether there are no more blocks than the size has.
    fn is_filled_at_most(&self) -> bool {
        self.blocks <= self.size.div_ceil(super::span::BLOCK_BYTES)
    }
}

/// The head of the answer of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The names that follow.
    pub count: u32,
    /// The cursor for the next names; `None` behind the last one.
    pub next: Option<u32>,
}

impl Listed {
    /// Returns what is sent before the names.
    pub fn to_wire(&self) -> wire::ListAnswer {
        wire::ListAnswer {
            kind: wire::LIST,
            version: wire::VERSION,
            reserved: U16::ZERO,
            count: U32::new(self.count),
            next: U64::new(self.next.unwrap_or_default().into()),
            reserved2: [0; 48],
        }
    }

    /// Parses what was received; returns the names as well. `count_max` is the room for them.
    ///
    /// # Errors
    ///
    /// Returns what is wrong first.
    pub fn parse(bytes: &[u8], count_max: u32) -> Result<(Self, &[wire::Id]), Unbelievable> {
        let too_short = Unbelievable::Length(bytes.len());
        let (wire, names) = wire::ListAnswer::ref_from_prefix(bytes).map_err(|_| too_short)?;
        check((wire.kind, wire.version), wire::LIST)?;
        require(wire.reserved.get() == 0, Unbelievable::Reserved)?;
        is_zero(&wire.reserved2)?;
        let count = wire.count.get();
        require(count <= count_max, Unbelievable::Number)?;
        let next = u32::try_from(wire.next.get()).map_err(|_| Unbelievable::Number)?;
        let names = <[wire::Id]>::ref_from_prefix_with_elems(names, count as usize);
        let (names, _) = names.map_err(|_| too_short)?;
        let listed = Self {
            count,
            next: (next != 0).then_some(next),
        };
        Ok((listed, names))
    }
}

/// The head of the answer of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadHead {
    /// The bytes that were read: those asked for, or fewer if the object ends there.
    pub bytes: u32,
    /// The size of the object in bytes.
    pub size: u64,
    /// The CRC-32C of the bytes of each block; 0 behind the last one.
    pub sums: [u32; wire::READ_SUMS],
}

impl ReadHead {
    /// Returns how many bytes of an object of this size a read gives.
    pub fn bytes_of(asked: &Span, size: u64) -> u32 {
        let end = asked.end().min(size);
        // CAST: At most the bytes of one operation, of which a read is.
        end.saturating_sub(asked.offset()).min(IO_BYTES_MAX) as u32
    }

    fn sums_count(asked: &Span, bytes: u32) -> u32 {
        let read = Span::new(asked.offset(), bytes.into());
        read.map_or(0, |span| span.block_count())
    }

    /// Returns what is sent to a read of these bytes.
    pub fn to_wire(&self, asked: &Span) -> wire::ReadAnswer {
        wire::ReadAnswer {
            kind: wire::READ,
            version: wire::VERSION,
            // CAST: At most READ_SUMS.
            sums_count: U16::new(Self::sums_count(asked, self.bytes) as u16),
            bytes: U32::new(self.bytes),
            size: U64::new(self.size),
            reserved: [0; 16],
            sums: self.sums.map(U32::new),
        }
    }

    /// Parses what was received to a read of these bytes. The client then compares the CRC of each
    /// block.
    ///
    /// # Errors
    ///
    /// Returns what is wrong first.
    pub fn parse(bytes: &[u8], asked: &Span) -> Result<Self, Unbelievable> {
        let wire = wire::ReadAnswer::ref_from_prefix(bytes);
        let (wire, _) = wire.map_err(|_| Unbelievable::Length(bytes.len()))?;
        check((wire.kind, wire.version), wire::READ)?;
        is_zero(&wire.reserved)?;
        let head = Self {
            bytes: wire.bytes.get(),
            size: wire.size.get(),
            sums: wire.sums.map(U32::get),
        };
        let count = Self::sums_count(asked, head.bytes);
        let is_right = head.size <= OBJECT_BYTES_MAX
            && head.bytes == Self::bytes_of(asked, head.size)
            && u32::from(wire.sums_count.get()) == count;
        require(is_right, Unbelievable::Number)?;
        let behind = head.sums.get(count as usize..).unwrap_or_default();
        require(behind.iter().all(|sum| *sum == 0), Unbelievable::Reserved)?;
        Ok(head)
    }
}
