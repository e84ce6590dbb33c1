// SPDX-License-Identifier: GPL-2.0

//! The reasons why a path was closed.

use ferro_proto::errno::Errno;
use kernel::{
    fmt,
    prelude::*,
    str::CStr, //
};
use rdma::{
    cm::Event,
    WcStatus, //
};
use rtrs_core::{
    errno,
    proto::{
        addr::PathName,
        fence::BadFence,
        geometry::BadPayload,
        info::NameError,
        request::Malformed, //
    },
};

/// The reason for the end of a path that is not ended on request. Its text is the middle of one log
/// line.
#[derive(Clone, Copy)]
pub(crate) enum PathError<'a> {
    /// A connection could not be accepted.
    Accept(u16, Error),
    /// An event of the connection manager that ends a connection.
    Connection(&'a Event<'a>),
    /// The device reports that the queue pair of this connection cannot be used any more.
    Broken(u16, &'a CStr),
    /// The completion queue has overflowed.
    CompletionsLost,
    /// The device has failed.
    DeviceFailed,
    /// A work request with this tag failed on this connection.
    Completion(u16, WcStatus, u32),
    /// The work request that could not be posted, and the error of the post.
    Post(&'a str, Error),
    /// The client added no connection, and sent no info request, for so many milliseconds.
    SetUpTimeout(u32),
    /// No heartbeat was answered for too long.
    Heartbeat,
    /// A request before the path is set up.
    EarlyRequest,
    /// The info request came before the admin connection was in use.
    NoAdminConnection,
    /// The info request came before all connections.
    TooFewConnections,
    /// The info request has no valid session name.
    Name(NameError),
    /// The info request could not be read, or its session not be named.
    Unnamed(Error),
    /// The session's name belongs to another client.
    NameTaken,
    /// The session that has the name does not end.
    NameHeld,
    /// The service does not take the session.
    LinkUp(Error),
    /// The info response could not be sent.
    Respond(Error),
    /// A message that is no request, on this connection.
    NoRequest(u16),
    /// An immediate of no known kind, or one that only clients get.
    Immediate(u32),
    /// A request whose chunk or offset is out of range.
    Payload(BadPayload),
    /// A request for a chunk that carries another one.
    ChunkInUse(u16),
    /// The request in this chunk is refused.
    Request(u16, RequestError),
    /// The client uses this chunk on another path before this one has answered.
    Fenced(u16, &'a PathName),
    /// The client connects the path anew.
    Replaced,
    /// The client has given the path up, as it says on another one.
    GivenUp(&'a PathName),
    /// A fence message that the client must not send.
    Fence(BadFence),
}

/// The reason why the request in a chunk is refused.
#[derive(Clone, Copy)]
pub(crate) enum RequestError {
    /// The message is none of the protocol.
    Malformed(Malformed),
    /// The chunk has no key that could be invalidated.
    NoKey,
    /// The invalidation of the chunk's key could not be posted.
    Invalidate(Error),
    /// The client changed a write to a read before its key was invalid.
    Changed,
}

impl From<Malformed> for RequestError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => f.write_fmt(fmt!("{malformed}")),
            Self::NoKey => f.write_str("chunk has no key"),
            Self::Invalidate(e) => f.write_fmt(fmt!("invalidation cannot be posted ({e:?})")),
            Self::Changed => f.write_str("write that became a read"),
        }
    }
}

impl PathError<'_> {
    /// Returns the error number for a client that waits for the info response.
    pub(crate) fn errno(self) -> Errno {
        match self {
            Self::Name(e) => e.errno(),
            Self::NameTaken => Errno::EPERM,
            Self::NameHeld => Errno::EBUSY,
            Self::Unnamed(e) | Self::Post(_, e) | Self::LinkUp(e) => errno::to_wire(e),
            _ => Errno::ECONNRESET,
        }
    }
}

impl fmt::Display for PathError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Accept(cid, e) => f.write_fmt(fmt!("connection {cid} cannot be made ({e:?})")),
            Self::Connection(event) => f.write_fmt(fmt!("{event}")),
            Self::Broken(cid, why) => f.write_fmt(fmt!("connection {cid}: {why}")),
            Self::CompletionsLost => f.write_str("completion queue has lost completions"),
            Self::DeviceFailed => f.write_str("device has failed"),
            Self::Completion(cid, status, tag) => {
                f.write_fmt(fmt!("connection {cid}: {status} (tag {tag})"))
            }
            Self::Post(what, e) => f.write_fmt(fmt!("{what} cannot be posted ({e:?})")),
            Self::SetUpTimeout(ms) => f.write_fmt(fmt!("not set up within {ms} ms")),
            Self::Heartbeat => f.write_str("client does not answer heartbeats"),
            Self::EarlyRequest => f.write_str("request before the path is set up"),
            Self::NoAdminConnection => f.write_str("info request on no connection"),
            Self::TooFewConnections => f.write_str("info request before all connections"),
            Self::Name(e) => f.write_fmt(fmt!("{e}")),
            Self::Unnamed(e) => f.write_fmt(fmt!("session cannot be named ({e:?})")),
            Self::NameTaken => f.write_str("session name belongs to another client"),
            Self::NameHeld => f.write_str("session of the same name does not end"),
            Self::LinkUp(e) => f.write_fmt(fmt!("session cannot be brought up ({e:?})")),
            Self::Respond(e) => f.write_fmt(fmt!("info response cannot be sent ({e:?})")),
            Self::NoRequest(cid) => {
                f.write_fmt(fmt!("message that is no request on connection {cid}"))
            }
            Self::Immediate(imm) => f.write_fmt(fmt!("immediate {imm:#010x} is no request")),
            Self::Payload(bad) => f.write_fmt(fmt!("request points nowhere: {bad}")),
            Self::ChunkInUse(id) => {
                f.write_fmt(fmt!("request for chunk {id}, which carries another"))
            }
            Self::Request(id, why) => f.write_fmt(fmt!("request in chunk {id}: {why}")),
            Self::Fenced(id, by) => f.write_fmt(fmt!(
                "client uses chunk {id} on {by} before this path has answered"
            )),
            Self::Replaced => f.write_str("client connects it anew"),
            Self::GivenUp(by) => f.write_fmt(fmt!("client has given it up, it says on {by}")),
            Self::Fence(bad) => f.write_fmt(fmt!("{bad}")),
        }
    }
}
