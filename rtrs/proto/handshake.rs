// SPDX-License-Identifier: GPL-2.0

//! The connect request and its response.

use zerocopy::{
    little_endian::{
        U16,
        U32, //
    },
    FromBytes, //
};

use super::{
    device::Unfit,
    fence::Life,
    geometry::Geometry,
    wire::{
        ConnectRequest,
        ConnectResponse,
        FENCES,
        FIRST_CONN,
        NEW_RKEY, //
    },
    CONNECTIONS_MAX,
    MAGIC,
    VERSION,
    VERSION_MAJOR, //
};
use ferro_proto::errno::Errno;

/// The content of a connect request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connect {
    /// The number of this connection in its path; 0 is the admin connection.
    pub cid: u16,
    /// The number of connections of the path, above `cid`.
    pub cid_num: u16,
    /// The number of connects of this path, from 1.
    pub recon_cnt: u16,
    /// The uuid of the path.
    pub sess_uuid: [u8; 16],
    /// The uuid of the session.
    pub paths_uuid: [u8; 16],
    /// Set if no session with this `paths_uuid` exists yet, or if the session was connected before.
    pub first_conn: bool,
    /// The client knows the fence message.
    pub fences: bool,
}

/// The reason why a server rejects a connect request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The private data is shorter than the request.
    Truncated,
    /// The private data do not start with the magic number.
    Magic(u16),
    /// The major version differs from [`VERSION_MAJOR`].
    Version(u16),
    /// More connections than [`CONNECTIONS_MAX`].
    ConnectionCount(u16),
    /// The connection's number is not below the number of connections.
    ConnectionId(u16),
    /// The path exists, and is past its set-up or being torn down.
    PathState,
    /// The path exists with another number of connections.
    ConnectionCountChanged(u16),
    /// The path already has this connection.
    ConnectionTaken(u16),
    /// The first connection of a path must be its admin connection.
    NotAdminFirst(u16),
    /// The request is not for the first connection, and the session does not exist.
    UnknownSession,
    /// The session has a path with these two addresses.
    AddressTaken,
    /// The session has the maximum number of paths.
    TooManyPaths,
    /// The path has connected since this request, whose `recon_cnt` is given.
    Stale(u16),
    /// The allocation of the path failed.
    NoMemory,
    /// The device of the request cannot be used.
    Device(Unfit),
    /// The session, its path or the connection would exceed the memory limit of all sessions.
    MemoryLimit,
}

impl Refusal {
    /// Returns the error of the reject message, the same as the C driver's.
    pub const fn errno(self) -> Errno {
        match self {
            Refusal::UnknownSession => Errno::ENXIO,
            Refusal::AddressTaken => Errno::EEXIST,
            Refusal::NoMemory | Refusal::MemoryLimit => Errno::ENOMEM,
            Refusal::Device(unfit) => unfit.errno(),
            _ => Errno::ECONNRESET,
        }
    }
}

impl core::fmt::Display for Refusal {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Refusal::Truncated => f.write_str("connect request too short"),
            Refusal::Magic(m) => write!(f, "magic number {m:#06x}, not RTRS"),
            Refusal::Version(v) => {
                write!(f, "protocol version {}.{}, ours is 2.0", v >> 8, v & 0xff)
            }
            Refusal::ConnectionCount(n) => write!(f, "{n} connections asked for, at most 4096"),
            Refusal::ConnectionId(c) => write!(f, "connection {c} is beyond the announced number"),
            Refusal::PathState => f.write_str("path is not being connected"),
            Refusal::ConnectionCountChanged(n) => write!(f, "number of connections changed to {n}"),
            Refusal::ConnectionTaken(c) => write!(f, "connection {c} exists"),
            Refusal::NotAdminFirst(c) => write!(f, "connection {c} came before connection 0"),
            Refusal::UnknownSession => f.write_str("session is unknown"),
            Refusal::AddressTaken => f.write_str("session has a path between these addresses"),
            Refusal::TooManyPaths => f.write_str("session has all its paths"),
            Refusal::Stale(n) => write!(f, "path has connected since attempt {n}"),
            Refusal::Device(unfit) => write!(f, "{unfit}"),
            Refusal::NoMemory => f.write_str("no memory"),
            Refusal::MemoryLimit => {
                f.write_str("limit of memory (max_memory_mib, or what is free) reached")
            }
        }
    }
}

impl Connect {
    /// Encodes the message.
    pub const fn to_wire(&self) -> ConnectRequest {
        ConnectRequest {
            cma_version: 0,
            ip_version: 0,
            magic: U16::new(MAGIC),
            version: U16::new(VERSION),
            cid: U16::new(self.cid),
            cid_num: U16::new(self.cid_num),
            recon_cnt: U16::new(self.recon_cnt),
            sess_uuid: self.sess_uuid,
            paths_uuid: self.paths_uuid,
            first_conn: if self.first_conn { FIRST_CONN } else { 0 },
            extension: U32::new(if self.fences { FENCES } else { 0 }),
            reserved: [0; 7],
        }
    }

    /// Parses the private data of a connect request, with the checks that need no session.
    /// Transports may pad the data, so bytes after the message are ignored.
    pub fn parse(private_data: &[u8]) -> Result<Self, Refusal> {
        let (msg, _) =
            ConnectRequest::read_from_prefix(private_data).map_err(|_| Refusal::Truncated)?;
        if msg.magic.get() != MAGIC {
            return Err(Refusal::Magic(msg.magic.get()));
        }
        if msg.version.get() >> 8 != VERSION_MAJOR {
            return Err(Refusal::Version(msg.version.get()));
        }
        let cid_num = msg.cid_num.get();
        if cid_num > CONNECTIONS_MAX {
            return Err(Refusal::ConnectionCount(cid_num));
        }
        let cid = msg.cid.get();
        if cid >= cid_num {
            return Err(Refusal::ConnectionId(cid));
        }
        Ok(Self {
            cid,
            cid_num,
            recon_cnt: msg.recon_cnt.get(),
            sess_uuid: msg.sess_uuid,
            paths_uuid: msg.paths_uuid,
            first_conn: msg.first_conn & FIRST_CONN != 0,
            fences: msg.extension.get() == FENCES,
        })
    }

    /// Checks a request that starts a path, which must be its admin connection.
    ///
    /// The C driver accepts any connection as the first. If the server has dropped an incomplete
    /// path of the client, the client then waits for a response to `INFO_REQ` that cannot arrive.
    pub const fn check_new_path(&self) -> Result<(), Refusal> {
        if self.cid == 0 {
            Ok(())
        } else {
            Err(Refusal::NotAdminFirst(self.cid))
        }
    }

    /// Checks a request for a further connection of an existing path: `connecting` is whether the
    /// path is in set-up, `cid_num` the number of connections that it announced, `taken` whether
    /// connection `self.cid` exists.
    pub const fn check_known_path(
        &self,
        connecting: bool,
        cid_num: u16,
        taken: bool,
    ) -> Result<(), Refusal> {
        if !connecting {
            return Err(Refusal::PathState);
        }
        if self.cid_num != cid_num {
            return Err(Refusal::ConnectionCountChanged(self.cid_num));
        }
        if taken {
            return Err(Refusal::ConnectionTaken(self.cid));
        }
        Ok(())
    }
}

/// The values that a server grants with its accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The number and size of the chunks.
    pub geometry: Geometry,
    /// The maximum number of data bytes of a request.
    pub max_io_size: u32,
    /// The maximum number of bytes of user message and head of a request.
    pub max_hdr_size: u32,
    /// The server invalidates its keys and sends a new one with each response.
    pub new_rkey: bool,
    /// The name of the path's life at a server that knows the fence message.
    pub life: Option<Life>,
}

/// The reason why a client closes a connection after the server's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The private data is shorter than the response.
    Truncated,
    /// The private data do not start with the magic number.
    Magic(u16),
    /// The major version differs from [`VERSION_MAJOR`].
    Version(u16),
    /// The server rejected the connection with this error (`None`: the field has no valid error).
    Rejected(Option<Errno>),
    /// The queue depth, IO size and header size are not valid.
    Geometry,
    /// The queue depth is not that of the session's first connect, which a session cannot change.
    QueueDepthChanged(u16),
    /// The session is open, and its requests may be longer than the granted size.
    SmallerRequests {
        /// The maximum number of bytes of a request on this path.
        granted: u32,
        /// The maximum number of bytes of the session's requests.
        needed: u32,
    },
}

impl ConnectError {
    /// Returns the error that the opener of the session gets; the C driver uses only this one.
    pub const fn errno(self) -> Errno {
        Errno::ECONNRESET
    }
}

impl core::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ConnectError::Truncated => f.write_str("connect response too short"),
            ConnectError::Magic(m) => write!(f, "magic number {m:#06x}, not RTRS"),
            ConnectError::Version(v) => {
                write!(f, "protocol version {}.{}, ours is 2.0", v >> 8, v & 0xff)
            }
            ConnectError::Rejected(Some(e)) if *e == Errno::EBUSY => {
                f.write_str("server still holds the previous session, try again later")
            }
            ConnectError::Rejected(Some(e)) => write!(f, "server refused with {e}"),
            ConnectError::Rejected(None) => f.write_str("server refused without a reason"),
            ConnectError::Geometry => f.write_str("queue depth and sizes make no session"),
            ConnectError::QueueDepthChanged(d) => write!(f, "queue depth changed to {d}"),
            ConnectError::SmallerRequests { granted, needed } => write!(
                f,
                "server takes smaller requests now, {granted} bytes instead of {needed}"
            ),
        }
    }
}

fn response(private_data: &[u8]) -> Result<ConnectResponse, ConnectError> {
    let (msg, _) =
        ConnectResponse::read_from_prefix(private_data).map_err(|_| ConnectError::Truncated)?;
    if msg.magic.get() != MAGIC {
        return Err(ConnectError::Magic(msg.magic.get()));
    }
    if msg.version.get() >> 8 != VERSION_MAJOR {
        return Err(ConnectError::Version(msg.version.get()));
    }
    Ok(msg)
}

fn errno_of(msg: &ConnectResponse) -> Option<Errno> {
    // CAST: The field is a signed number.
    Errno::new(i32::from(msg.errno.get() as i16))
}

/// Parses the private data of an accept. `queue_depth` is that of the open session, `None` on its
/// first connect.
pub fn accepted(private_data: &[u8], queue_depth: Option<u16>) -> Result<Accepted, ConnectError> {
    let msg = response(private_data)?;
    if msg.errno.get() != 0 {
        return Err(ConnectError::Rejected(errno_of(&msg)));
    }
    let depth = msg.queue_depth.get();
    if queue_depth.is_some_and(|d| d != depth) {
        return Err(ConnectError::QueueDepthChanged(depth));
    }
    let (io, hdr) = (msg.max_io_size.get(), msg.max_hdr_size.get());
    if io == 0 || hdr == 0 {
        return Err(ConnectError::Geometry);
    }
    let chunk_size = io.checked_add(hdr).ok_or(ConnectError::Geometry)?;
    Ok(Accepted {
        geometry: Geometry::new(u32::from(depth), chunk_size)
            .map_err(|_| ConnectError::Geometry)?,
        max_io_size: io,
        max_hdr_size: hdr,
        new_rkey: msg.flags.get() & NEW_RKEY != 0,
        life: match msg.extension.get() {
            FENCES => Life::new(msg.session.get(), msg.path_number.get()),
            _ => None,
        },
    })
}

/// Parses the private data of a reject: the server's reason, if it has one.
pub fn rejected(private_data: &[u8]) -> ConnectError {
    match response(private_data) {
        Ok(msg) => ConnectError::Rejected(errno_of(&msg)),
        // A reject by the connection manager itself has no RTRS data.
        Err(ConnectError::Truncated) => ConnectError::Rejected(None),
        Err(e) => e,
    }
}
