// SPDX-License-Identifier: GPL-2.0

//! The treatment of a message at the queue pair that it is for.

use super::qp_state::QpState;

/// The status with which a work request ended (`enum ib_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Executed.
    Success,
    /// More bytes than the receive has room for, or the device can gather.
    LocalLength,
    /// The queue pair cannot execute such a work request.
    LocalOperation,
    /// A local key is not valid for the memory.
    LocalProtection,
    /// The work request is not executed, as the queue pair is in the error state.
    Flushed,
    /// A key is not valid for what the work request does to it.
    MemoryManagement,
    /// The receive of the peer is too short.
    RemoteInvalidRequest,
    /// The peer's key is not valid for the memory.
    RemoteAccess,
    /// The peer could not execute it.
    RemoteOperation,
    /// The peer does not answer.
    RetryExceeded,
    /// One that a rule for faults asks for, as its number.
    Demanded(u32),
}

impl Status {
    /// Returns the number in `enum ib_wc_status`.
    pub const fn to_raw(self) -> u32 {
        match self {
            Self::Success => 0,
            Self::LocalLength => 1,
            Self::LocalOperation => 2,
            Self::LocalProtection => 4,
            Self::Flushed => 5,
            Self::MemoryManagement => 6,
            Self::RemoteInvalidRequest => 9,
            Self::RemoteAccess => 10,
            Self::RemoteOperation => 11,
            Self::RetryExceeded => 12,
            Self::Demanded(raw) => raw,
        }
    }
}

/// The queue pair that the sender finds at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Responder {
    /// The state of the queue pair.
    pub state: QpState,
    /// Whether it is connected to the sender.
    pub is_mine: bool,
    /// The bytes that its first receive has room for; [`None`] if none is posted.
    pub room: Option<u64>,
}

/// The decision about a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The message is executed.
    Execute,
    /// The message waits until a receive is posted (the retry count for that is taken for 7,
    /// endless).
    AwaitReceive,
    /// The message is not executed; the sender's work request ends so, and both queue pairs fail if
    /// the peer is to blame.
    Refuse {
        /// The status at the sender.
        sender: Status,
        /// The status of the peer's receive.
        receiver: Option<Status>,
    },
}

/// Decides what becomes of a message of `len` bytes on a connection. `uses_receive` says whether it
/// takes a receive of the peer, `fills_receive` whether its bytes go there.
pub fn deliver(
    responder: Option<Responder>,
    uses_receive: bool,
    fills_receive: bool,
    len: u64,
) -> Delivery {
    let found = responder.filter(|end| end.is_mine && end.state.is_ready());
    let Some(end) = found else {
        return Delivery::Refuse {
            sender: Status::RetryExceeded,
            receiver: None,
        };
    };
    if !uses_receive {
        return Delivery::Execute;
    }
    match end.room {
        None => Delivery::AwaitReceive,
        Some(room) if fills_receive && room < len => Delivery::Refuse {
            sender: Status::RemoteInvalidRequest,
            receiver: Some(Status::LocalLength),
        },
        Some(_) => Delivery::Execute,
    }
}

/// Returns whether a datagram of `len` bytes is received; all others are lost silently.
pub fn receives_datagram(state: QpState, qkey: u32, sent_qkey: u32, room: u64, len: u64) -> bool {
    state.is_ready() && qkey == sent_qkey && room >= len
}
