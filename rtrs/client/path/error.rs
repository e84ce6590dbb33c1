// SPDX-License-Identifier: GPL-2.0

//! The reasons why a path could not be connected, or was lost.

use ferro_proto::errno::Errno;
use kernel::{
    fmt,
    prelude::*,
    str::CStr, //
};
use kernel_ext::errno;
use rdma::{
    cm::RejectReason,
    WcStatus, //
};
use rtrs_core::proto::{
    device::Unfit,
    handshake::ConnectError,
    info::InfoError,
    recovery::Outcome,
    request::RkeyError, //
};

use crate::client::path::setup::Step;

/// The reason for the end of a path or of its set-up. Its text is the second half of one log line.
#[derive(Clone, Copy)]
pub(crate) enum PathError {
    /// Resolving the address or the route failed.
    Unreachable(&'static str, Error),
    /// The interface of a link-local address does not exist.
    Interface,
    /// The connection manager gave up.
    Connect(&'static str, i32),
    /// The server, or its connection manager, rejected the connect.
    Rejected(ConnectError, RejectReason),
    /// The accept's private data is invalid.
    Response(ConnectError),
    /// The info response is invalid.
    Info(InfoError),
    /// A step of the set-up took longer than 30 s.
    Timeout(&'static str),
    /// The task that connects was killed.
    Killed,
    /// A resource could not be allocated.
    Resource(&'static str, Error),
    /// The peer disconnected.
    Disconnected,
    /// The device is being removed.
    DeviceRemoval,
    /// The device has failed.
    DeviceFailed,
    /// The device cannot be used.
    Device(Unfit),
    /// The device reports that a queue pair cannot be used any more.
    Broken(&'static CStr),
    /// A work request failed.
    Completion(WcStatus),
    /// Posting a work request failed.
    Post(Error),
    /// No heartbeat was answered for too long.
    Heartbeat,
    /// An immediate of no known kind, or one that only servers get.
    Immediate(u32),
    /// A heartbeat on another connection than the admin one.
    StrayHeartbeat,
    /// A receive that is neither an invalidation nor a response.
    Receive,
    /// A response for a chunk that the session does not have.
    MessageId(u32),
    /// A response for a request that is not in flight on this connection.
    NotInFlight(u16),
    /// A new key that is invalid.
    Rkey(RkeyError),
    /// A response to a read without the end of its data.
    Tail(u16),
    /// A request was not answered within its time.
    RequestTimeout(u16),
    /// A fence message was not answered within its time.
    FenceTimeout,
    /// The server of this path is another one than that of the other paths.
    ServerRestarted,
    /// Requests wait for chunks that only the server can release.
    ChunksHeld,
    /// The device has not ended the work requests of an earlier life.
    Undrained,
    /// The session already has a path between these addresses.
    Exists,
    /// The upper layer cannot use the path.
    NotAdmitted(Error),
    /// The port of the path is down.
    PortDown,
    /// A link has come up during address resolution: the address is resolved again.
    LinkIsUp,
    /// The path is closed on request.
    Requested,
}

impl PathError {
    /// Returns what an attempt that ended so says about the peer.
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            // A peer whose address is not resolved is absent, not silent.
            PathError::Timeout(step) if step != Step::Address.name() => Outcome::Silence,
            // A reject of the server itself, not of the connection manager.
            PathError::Rejected(_, reason) if reason.is_consumer() => Outcome::Refused,
            PathError::Info(InfoError::Refused(_)) => Outcome::Refused,
            _ => Outcome::Other,
        }
    }

    /// Returns whether the server has said that it does not know the session.
    pub(crate) fn is_unknown_session(self) -> bool {
        matches!(
            self,
            PathError::Rejected(ConnectError::Rejected(Some(Errno::ENXIO)), _)
        )
    }

    /// Returns whether the server has no memory for the path.
    pub(crate) fn is_server_memory(self) -> bool {
        matches!(
            self,
            PathError::Rejected(ConnectError::Rejected(Some(Errno::ENOMEM)), _)
                | PathError::Info(InfoError::Refused(Errno::ENOMEM))
        )
    }

    /// Returns the error that the opener of the session gets.
    pub(crate) fn error(self) -> Error {
        match self {
            // The C driver looks for it when it parses the address.
            PathError::Interface => EINVAL,
            PathError::Unreachable(..) => errno::EHOSTUNREACH,
            PathError::Rejected(ConnectError::Rejected(Some(e)), _) => e.into(),
            PathError::Info(InfoError::Refused(e)) => e.into(),
            // As for a neighbour that the kernel says is not there.
            PathError::Timeout(step) if step == Step::Address.name() => errno::EHOSTUNREACH,
            PathError::Timeout(_) => ETIMEDOUT,
            PathError::Killed => EINTR,
            PathError::Resource(_, e) | PathError::Post(e) | PathError::NotAdmitted(e) => e,
            PathError::Device(unfit) => unfit.errno().into(),
            PathError::Exists => EEXIST,
            PathError::DeviceRemoval | PathError::Requested => errno::ECONNABORTED,
            _ => errno::ECONNRESET,
        }
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathError::Unreachable(what, e) => f.write_fmt(fmt!("{what} failed ({e:?})")),
            PathError::Interface => {
                f.write_str("the interface of a link-local address is not there")
            }
            PathError::Connect(what, status) => {
                f.write_fmt(fmt!("connect failed: {what} (status {status})"))
            }
            // Without a listener, for instance, the connection manager rejects, not the server.
            PathError::Rejected(_, reason) if !reason.is_consumer() => {
                f.write_fmt(fmt!("connect rejected: {reason}"))
            }
            PathError::Rejected(e, reason) => f.write_fmt(fmt!("connect rejected: {e} ({reason})")),
            PathError::Response(e) => f.write_fmt(fmt!("connect response refused: {e}")),
            PathError::Info(e @ InfoError::Refused(_)) => f.write_fmt(fmt!("{e}")),
            PathError::Info(e) => f.write_fmt(fmt!("info response refused: {e}")),
            PathError::Timeout(what) => f.write_fmt(fmt!("{what} took too long")),
            PathError::Killed => f.write_str("connecting was interrupted"),
            PathError::Resource(what, e) => f.write_fmt(fmt!("{what} could not be made ({e:?})")),
            PathError::Disconnected => f.write_str("peer disconnected"),
            PathError::DeviceRemoval => f.write_str("device is being removed"),
            PathError::DeviceFailed => f.write_str("device has failed"),
            PathError::Device(unfit) => f.write_fmt(fmt!("{unfit}")),
            PathError::Broken(why) => f.write_fmt(fmt!("device gave a queue pair up: {why}")),
            PathError::Completion(status) => f.write_fmt(fmt!("work request failed: {status}")),
            PathError::Post(e) => f.write_fmt(fmt!("work request was not taken ({e:?})")),
            PathError::Heartbeat => f.write_str("heartbeat was not answered"),
            PathError::Immediate(imm) => {
                f.write_fmt(fmt!("server sent the unknown immediate {imm:#010x}"))
            }
            PathError::StrayHeartbeat => f.write_str("server sent a heartbeat on an IO connection"),
            PathError::Receive => f.write_str("server sent a message of no known kind"),
            PathError::MessageId(id) => {
                f.write_fmt(fmt!("server answered for chunk {id}, which is none"))
            }
            PathError::NotInFlight(id) => f.write_fmt(fmt!(
                "server answered request {id}, which is not in flight here"
            )),
            PathError::Rkey(RkeyError::Truncated) => f.write_str("server sent a new key cut short"),
            PathError::Rkey(RkeyError::Kind(k)) => {
                f.write_fmt(fmt!("server sent a message of type {k}, not a key"))
            }
            PathError::Rkey(RkeyError::ForeignChunk(id)) => {
                f.write_fmt(fmt!("server sent a key for the foreign chunk {id}"))
            }
            PathError::Tail(id) => f.write_fmt(fmt!(
                "server answered request {id} without the end of its data"
            )),
            PathError::RequestTimeout(id) => {
                f.write_fmt(fmt!("request {id} has had no answer in its time"))
            }
            PathError::FenceTimeout => {
                f.write_str("server does not say that a lost path is drained")
            }
            PathError::Undrained => {
                f.write_str("work requests of its last connections have not ended")
            }
            PathError::ChunksHeld => f.write_str("chunks of lost requests are still held"),
            PathError::ServerRestarted => f.write_str("the server was started anew"),
            PathError::Exists => f.write_str("the session's path between these addresses exists"),
            PathError::NotAdmitted(e) => f.write_fmt(fmt!("the path is of no use yet ({e:?})")),
            PathError::PortDown => f.write_str("port is down"),
            PathError::LinkIsUp => f.write_str("a link has come up"),
            PathError::Requested => f.write_str("closed on request"),
        }
    }
}
