// SPDX-License-Identifier: GPL-2.0

//! Decides what a client does about a request that failed.

use core::fmt;

use ferro_proto::errno::Errno;

use super::{
    auth::AuthFailure,
    error::GfarmError,
    operation::ReplyError,
    xdr::Malformed, //
};

/// The reason why a request has no reply, or none of use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The server has answered with an error.
    Server(GfarmError),
    /// The server has refused the user.
    Auth(AuthFailure),
    /// The connection was refused or has ended.
    Disconnected,
    /// The server is silent for too long.
    TimedOut,
    /// The server has sent what no server sends.
    Malformed(Malformed),
}

impl Fault {
    /// The fault of an answer for which there is no memory here. It is received to its end, and the
    /// question is asked again later, as if it was the server that had none: the connection is that
    /// of others, too.
    pub const NO_MEMORY: Self = Self::Server(GfarmError::NO_MEMORY);

    /// Returns that a part of an answer, `field`, is not what a server sends.
    pub const fn malformed(field: &'static str) -> Self {
        Self::Malformed(Malformed::Value { field })
    }

    /// Converts the error of a reply; `None` if it is only incomplete.
    pub const fn of_reply(error: ReplyError) -> Option<Self> {
        match error {
            ReplyError::NeedMore(_) => None,
            ReplyError::Malformed(malformed) => Some(Self::Malformed(malformed)),
            ReplyError::Server(error) => Some(Self::Server(error)),
        }
    }

    /// Returns whether the connection cannot be used any more.
    pub const fn ends_connection(self) -> bool {
        !matches!(self, Self::Server(_))
    }

    /// Returns the error of the reader, if nothing else helps.
    pub fn errno(self) -> Errno {
        match self {
            Self::Server(error) => error.errno(),
            Self::Auth(failure) => failure.errno(),
            Self::Disconnected | Self::TimedOut | Self::Malformed(_) => Errno::EIO,
        }
    }

    /// Returns the error of a server that does not accept the user or the key, and will not later.
    pub fn refusal(self) -> Option<Errno> {
        match self {
            Self::Auth(failure) if !self.is_of_connection() => Some(failure.errno()),
            _ => None,
        }
    }

    /// Returns whether the server can do later what it cannot do now.
    const fn is_busy(self) -> bool {
        matches!(
            self,
            Self::Server(
                GfarmError::RESOURCE_TEMPORARILY_UNAVAILABLE
                    | GfarmError::NO_MEMORY
                    | GfarmError::TOO_MANY_OPEN_FILES
                    | GfarmError::TOO_MANY_JOBS
                    | GfarmError::DB_ACCESS_SHOULD_BE_RETRIED
                    | GfarmError::NO_FILESYSTEM_NODE,
            )
        )
    }

    /// Returns whether the server, or the way to it, does not work.
    const fn is_of_connection(self) -> bool {
        match self {
            Self::Server(error) => error.is_connection_error(),
            Self::Auth(failure) => {
                failure.is_temporary() || matches!(failure, AuthFailure::Malformed(_))
            }
            Self::Disconnected | Self::TimedOut | Self::Malformed(_) => true,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server(error) => error.fmt(f),
            Self::Auth(failure) => failure.fmt(f),
            Self::Disconnected => f.write_str("connection ended"),
            Self::TimedOut => f.write_str("no answer in time"),
            Self::Malformed(malformed) => write!(f, "malformed answer: {malformed}"),
        }
    }
}

/// The action for a request to gfmd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtGfmd {
    /// Give the connection up, and send the request again by the next one.
    Reconnect,
    /// Send it again after a pause.
    Wait,
    /// The request fails.
    Fail(Errno),
}

impl AtGfmd {
    /// Decides about a fault of gfmd.
    pub fn decide(fault: Fault) -> Self {
        if fault.is_of_connection() || fault == Fault::Server(GfarmError::GFMD_FAILED_OVER) {
            return Self::Reconnect;
        }
        match fault {
            // The process of this connection is gone.
            Fault::Server(GfarmError::NO_SUCH_PROCESS) => Self::Reconnect,
            // Those of this process: none of them is given back while it is waited for. Another
            // process may have room, see `Gfmd::gives_up`.
            Fault::Server(GfarmError::TOO_MANY_OPEN_FILES) => Self::Fail(fault.errno()),
            _ if fault.is_busy() => Self::Wait,
            _ => Self::Fail(fault.errno()),
        }
    }
}

/// A request to a gfsd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GfsdRequest {
    /// Connecting, authentication, joining the process.
    Connect,
    /// `GFS_PROTO_OPEN`.
    Open,
    /// `GFS_PROTO_PREAD` and `GFS_PROTO_BULKREAD`.
    Read,
}

/// The action for a request to a gfsd. All but `Fail` open the file anew at gfmd: a descriptor that
/// one connection had open cannot be opened by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtGfsd {
    /// Open it at once: the descriptor or the replica is not what gfmd has told.
    Reopen,
    /// Open it at once, and prefer another replica.
    OtherReplica,
    /// Open it after a pause.
    Wait,
    /// Open it when gfmd is connected again: it was restarted.
    Reconnect,
    /// The read fails.
    Fail(Errno),
}

impl AtGfsd {
    /// Decides about a fault of a gfsd.
    pub fn decide(request: GfsdRequest, fault: Fault) -> Self {
        // One that refuses the key is no reason not to ask another one: it has no part in what the
        // others accept.
        let Fault::Server(error) = fault else {
            return Self::OtherReplica;
        };
        if error.is_connection_error() {
            return Self::OtherReplica;
        }
        match error {
            GfarmError::GFMD_FAILED_OVER => Self::Reconnect,
            // The descriptor is of an earlier process.
            GfarmError::BAD_FILE_DESCRIPTOR | GfarmError::NO_SUCH_PROCESS => Self::Reopen,
            // Another connection has the descriptor open.
            GfarmError::OPERATION_NOT_PERMITTED if request == GfsdRequest::Open => Self::Reopen,
            // The file itself is gone here, or bad.
            GfarmError::FILE_MIGRATED
            | GfarmError::NO_SUCH_FILE_OR_DIRECTORY
            | GfarmError::STALE_FILE_HANDLE
            | GfarmError::NO_SUCH_OBJECT
            | GfarmError::INPUT_OUTPUT
            | GfarmError::INVALID_FILE_REPLICA
            | GfarmError::CHECKSUM_MISMATCH => Self::OtherReplica,
            _ if fault.is_busy() => Self::Wait,
            _ => Self::Fail(fault.errno()),
        }
    }
}
