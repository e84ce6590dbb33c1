// SPDX-License-Identifier: GPL-2.0

//! The messages of a client: the checked user message of an RTRS request.
//!
//! The server answers a rejected message with an error, and the session continues.

use ferro_proto::errno::Errno;
use zerocopy::FromBytes;

use super::{
    access::AccessMode,
    device,
    flags::{
        Op,
        Rw,
        RwFlags, //
    },
    pi::{
        Geometry,
        MessageDigest, //
    },
    wire::{
        Close,
        Header,
        Io,
        IoV1,
        Open,
        OpenResponse,
        SessInfo,
        CLOSE,
        IO,
        OPEN,
        SESS_INFO, //
    },
    SECTOR_SIZE,
    VERSION, //
};

/// The direction of an RTRS request's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Data go from the server to the client.
    Read,
    /// Data go from the client to the server.
    Write,
}

/// A client's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Agree on a version; answered with `wire::SessInfo::response` or `response_to`.
    SessInfo {
        /// The version agreed on.
        version: u8,
        /// The client's nonce, if it supports the extension in reserved bytes.
        nonce: Option<u64>,
    },
    /// Open a device; answered with `device::Device::to_wire`.
    Open {
        /// The device's name, 1 to 254 bytes without a NUL.
        name: &'a [u8],
        /// The access mode.
        access_mode: AccessMode,
        /// The byte that [`Wanted::from_wire`](super::pi::Wanted::from_wire) reads, if the client
        /// has sent a nonce; a C driver may send any value.
        pi: u8,
        /// The byte that [`AnswerTime::from_wire`](super::answer_time::AnswerTime::from_wire)
        /// reads, under the same condition.
        answer_time: u8,
    },
    /// Close a device.
    Close {
        /// The device's number in its session.
        device_id: u32,
    },
    /// An operation on a device.
    Io(IoRequest),
}

/// An operation on a device, whose numbers go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoRequest {
    /// The device's number in its session.
    pub device_id: u32,
    /// The first sector. Sector and length do not wrap around; the block layer checks the end of
    /// the device, of an operation without data [`Self::check_range`].
    pub sector: u64,
    /// Operation and flags.
    pub rw: Rw,
    /// The number of bytes, whole sectors; for reads and writes the length of the data and not 0,
    /// for a flush 0.
    pub size: u32,
    /// IO priority; 0 for clients that send none.
    pub prio: u16,
}

/// The reason why a message is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The message is shorter than its type requires (D7).
    Truncated,
    /// A client does not send this type.
    Kind(u16),
    /// The client's buffer is too small for the answer (D7), or a message without data has data.
    DataLength(u32),
    /// The device's name has no NUL (D7) or is empty.
    DeviceName,
    /// The access mode is not known.
    AccessMode(u8),
    /// The operation is not known (D9).
    Op(u8),
    /// The flags are not valid for the operation.
    Flags,
    /// The direction of the request is not that of the operation.
    Direction,
    /// `bi_size` is not the length of the data (D9), not whole sectors, or missing.
    Size(u32),
    /// Sector and length wrap around.
    Sector(u64),
    /// An operation without data ends beyond the device.
    End {
        /// The first sector.
        sector: u64,
        /// The number of bytes.
        size: u32,
    },
    /// The bytes of tuples are not those of whole intervals of the data.
    Tuples(u16),
}

impl Malformed {
    /// Returns the error that the client gets.
    pub const fn errno(self) -> Errno {
        match self {
            Malformed::Op(_) => Errno::EOPNOTSUPP,
            _ => Errno::EINVAL,
        }
    }
}

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Malformed::Truncated => f.write_str("message too short"),
            Malformed::Kind(k) => write!(f, "message of unknown type {k}"),
            Malformed::DataLength(n) => write!(f, "{n} bytes of data do not fit the message"),
            Malformed::DeviceName => f.write_str("device name empty or without an end"),
            Malformed::AccessMode(m) => write!(f, "unknown access mode {m}"),
            Malformed::Op(op) => write!(f, "unknown operation {op}"),
            Malformed::Flags => f.write_str("flags do not fit the operation"),
            Malformed::Direction => f.write_str("data moves the wrong way for the operation"),
            Malformed::Size(n) => write!(f, "size of {n} bytes does not fit the operation"),
            Malformed::Sector(s) => write!(f, "sector {s} is past the end of everything"),
            Malformed::End { sector, size } => {
                write!(f, "{size} bytes at sector {sector} end beyond the device")
            }
            Malformed::Tuples(n) => write!(f, "{n} bytes of tuples do not fit the operation"),
        }
    }
}

impl<'a> Message<'a> {
    /// Parses the user message `user` of a request with `data_len` bytes of data in `direction`, in
    /// a session with protocol `version`.
    #[inline]
    pub fn parse(
        user: &'a [u8],
        data_len: u32,
        direction: Direction,
        version: u8,
    ) -> Result<Self, Malformed> {
        let (header, _) = Header::ref_from_prefix(user).map_err(|_| Malformed::Truncated)?;
        match header.kind.get() {
            IO => IoRequest::parse(user, data_len, direction, version).map(Message::Io),
            SESS_INFO => sess_info(user, data_len, direction),
            OPEN => open(user, data_len, direction),
            CLOSE => close(user, data_len),
            kind => Err(Malformed::Kind(kind)),
        }
    }
}

/// Checks that a message is a read whose buffer fits an answer of `need` bytes.
fn answerable(data_len: u32, direction: Direction, need: usize) -> Result<(), Malformed> {
    if direction != Direction::Read {
        return Err(Malformed::Direction);
    }
    if (data_len as usize) < need {
        return Err(Malformed::DataLength(data_len));
    }
    Ok(())
}

fn sess_info(
    user: &[u8],
    data_len: u32,
    direction: Direction,
) -> Result<Message<'static>, Malformed> {
    let (msg, _) = SessInfo::ref_from_prefix(user).map_err(|_| Malformed::Truncated)?;
    answerable(data_len, direction, size_of::<SessInfo>())?;
    Ok(Message::SessInfo {
        version: device::agree(msg.version),
        nonce: msg.nonce(),
    })
}

fn open(user: &[u8], data_len: u32, direction: Direction) -> Result<Message<'_>, Malformed> {
    let (msg, _) = Open::ref_from_prefix(user).map_err(|_| Malformed::Truncated)?;
    answerable(data_len, direction, size_of::<OpenResponse>())?;
    let name = msg
        .dev_name
        .iter()
        .position(|c| *c == 0)
        .and_then(|end| msg.dev_name.get(..end))
        .filter(|name| !name.is_empty())
        .ok_or(Malformed::DeviceName)?;
    let access_mode = AccessMode::from_wire(msg.access_mode)
        .map_err(|_| Malformed::AccessMode(msg.access_mode))?;
    Ok(Message::Open {
        name,
        access_mode,
        pi: msg.pi,
        answer_time: msg.answer_time,
    })
}

fn close(user: &[u8], data_len: u32) -> Result<Message<'static>, Malformed> {
    let (msg, _) = Close::ref_from_prefix(user).map_err(|_| Malformed::Truncated)?;
    if data_len != 0 {
        return Err(Malformed::DataLength(data_len));
    }
    Ok(Message::Close {
        device_id: msg.device_id.get(),
    })
}

/// The first sector of an IO as nearly all are is at most this: no length reaches the last one.
const SECTOR_USUAL: u64 = u64::MAX >> 1;

impl IoRequest {
    /// Parses an IO message as nearly all are: a read or write without other flags than
    /// [`RwFlags::SYNC`], of the latest version, whose numbers go together. Servers call this first
    /// and parse all others by [`Message::parse`], which says what is wrong with one.
    #[inline(always)]
    pub fn parse_usual(
        user: &[u8],
        data_len: u32,
        direction: Direction,
        version: u8,
    ) -> Option<Self> {
        let Io { v1: msg, prio, .. } = Io::ref_from_bytes(user).ok()?;
        let op = match direction {
            Direction::Read => Op::Read,
            Direction::Write => Op::Write,
        };
        let (flags, size) = (RwFlags::SYNC.of(msg.rw.get()), msg.bi_size.get());
        let rw = Rw { op, flags };
        let is_usual = msg.header.kind.get() == IO
            && version >= VERSION
            && msg.rw.get() == rw.to_wire()
            && size == data_len
            && size != 0
            && size % SECTOR_SIZE == 0
            && msg.sector.get() <= SECTOR_USUAL;
        is_usual.then_some(Self {
            device_id: msg.device_id.get(),
            sector: msg.sector.get(),
            rw,
            size,
            prio: prio.get(),
        })
    }

    /// Returns whether a user message is an IO message.
    #[inline]
    pub fn is_one(user: &[u8]) -> bool {
        Header::ref_from_prefix(user).is_ok_and(|(header, _)| header.kind.get() == IO)
    }

    /// Parses an IO message; the arguments are those of [`Message::parse`].
    #[inline(always)]
    pub fn parse(
        user: &[u8],
        data_len: u32,
        direction: Direction,
        version: u8,
    ) -> Result<Self, Malformed> {
        let (msg, _) = IoV1::ref_from_prefix(user).map_err(|_| Malformed::Truncated)?;
        let prio = match Io::ref_from_prefix(user) {
            Ok((msg, _)) if version >= VERSION => msg.prio.get(),
            _ => 0,
        };
        let rw = Rw::from_wire(msg.rw.get()).map_err(|op| Malformed::Op(op.0))?;
        if !rw.is_consistent() {
            return Err(Malformed::Flags);
        }
        let size = msg.bi_size.get();
        check_size(rw.op, direction, data_len, size)?;
        let sector = msg.sector.get();
        if sector.checked_add(u64::from(size / SECTOR_SIZE)).is_none() {
            return Err(Malformed::Sector(sector));
        }
        Ok(Self {
            device_id: msg.device_id.get(),
            sector,
            rw,
            size,
            prio,
        })
    }
}

impl IoRequest {
    /// Checks the end of an operation without data, whose length no data limit, on a device of
    /// `capacity_sectors`.
    ///
    /// What the device takes at a time does not count, as the block layer splits what is longer: a
    /// client may go by the limits of an earlier session, when the device had others.
    pub const fn check_range(&self, capacity_sectors: u64) -> Result<(), Malformed> {
        let sectors = self.size / SECTOR_SIZE;
        // CAST: widens. `parse` has seen that the sum does not wrap around.
        if self.sector.saturating_add(sectors as u64) > capacity_sectors {
            return Err(Malformed::End {
                sector: self.sector,
                size: self.size,
            });
        }
        Ok(())
    }

    /// Parses an IO message for a device with the protection information `geometry`: the data, of
    /// which there are `data_len` bytes, has its tuples at the end. The caller has verified its
    /// [`MessageDigest`].
    pub fn parse_protected(
        user: &[u8],
        data_len: u32,
        direction: Direction,
        version: u8,
        geometry: Geometry,
    ) -> Result<(Self, MessageDigest), Malformed> {
        let (msg, _) = Io::ref_from_prefix(user).map_err(|_| Malformed::Truncated)?;
        let digest = msg.digest();
        let wrong = Malformed::Tuples(digest.tuples_len);
        let blocks_len = data_len
            .checked_sub(digest.tuples_len.into())
            .ok_or(wrong)?;
        let request = Self::parse(user, blocks_len, direction, version)?;
        let tuples_len = match request.rw.op.has_data() {
            true => geometry
                .reference(request.sector)
                .and_then(|_| geometry.tuples_len(request.size)),
            false => Some(0),
        };
        if tuples_len != Some(digest.tuples_len) {
            return Err(wrong);
        }
        Ok((request, digest))
    }

    /// Returns the number of the device in an IO message of any kind, if it is long enough.
    pub fn device_id_of(user: &[u8]) -> Option<u32> {
        let (msg, _) = IoV1::ref_from_prefix(user).ok()?;
        Some(msg.device_id.get())
    }
}

/// Checks that operation, direction and the two lengths are consistent.
///
/// Operations without data may have either direction: the C client sends its flushes as reads and
/// its discards as writes of no bytes.
#[inline]
fn check_size(op: Op, direction: Direction, data_len: u32, size: u32) -> Result<(), Malformed> {
    match (op, direction) {
        (Op::Read, Direction::Write) | (Op::Write, Direction::Read) => {
            return Err(Malformed::Direction)
        }
        _ => {}
    }
    if op.has_data() {
        if size != data_len {
            return Err(Malformed::Size(size));
        }
    } else if data_len != 0 {
        return Err(Malformed::DataLength(data_len));
    }
    let empty = matches!(op, Op::Flush);
    if (size == 0) != empty || size % SECTOR_SIZE != 0 {
        return Err(Malformed::Size(size));
    }
    Ok(())
}
