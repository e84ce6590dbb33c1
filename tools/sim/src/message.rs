// SPDX-License-Identifier: GPL-2.0

//! The messages on a wire. Fields that the real wire does not have are marked; only the checks use
//! them.

/// The side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

/// The operation of a request. The content of a block is the number of the request that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    /// Agree on the version: the answer tells the boot of the server's machine (SESS_INFO).
    Info,
    /// Open the device of this name; the answer has its number (OPEN).
    Open {
        device: usize,
    },
    /// Close the device of this number (CLOSE).
    Close {
        number: u32,
    },
    Read {
        block: usize,
    },
    Write {
        block: usize,
        fua: bool,
    },
    Flush {
        device: usize,
    },
}

impl Deed {
    /// Returns whether it is an admin message.
    pub(crate) fn is_admin(self) -> bool {
        matches!(self, Self::Info | Self::Open { .. } | Self::Close { .. })
    }

    /// Returns whether its data goes from the client to the server.
    pub(crate) fn is_write(self) -> bool {
        matches!(self, Self::Write { .. } | Self::Close { .. })
    }

    /// The device of an IO, of `devices`.
    pub(crate) fn device(self, devices: usize) -> Option<usize> {
        match self {
            Self::Read { block } | Self::Write { block, .. } => Some(block % devices),
            Self::Flush { device } => Some(device),
            Self::Info | Self::Open { .. } | Self::Close { .. } => None,
        }
    }
}

/// A request as it lies in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    /// Number of the request, from 1; also the data of a write.
    pub(crate) request: u64,
    pub(crate) deed: Deed,
    /// The device's number on the server, if this is an IO.
    pub(crate) number: u32,
}

/// A message on a reliable connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    InfoRequest,
    /// The chunks' keys are this one and those after it.
    InfoResponse {
        first_key: u64,
    },
    /// Heartbeat or its answer: an encoded `proto::imm::Imm`.
    Pulse {
        imm: u32,
    },
    /// Data and head go into the chunk that `imm` names.
    Request {
        imm: u32,
        /// The key of the chunk.
        key: u64,
        body: Body,
        /// Number of this sending; not on the real wire.
        send: u64,
    },
    Response {
        imm: u32,
        /// The data of a read.
        content: u64,
        /// The chunk's next key, under `always_invalidate`.
        key: Option<u64>,
        /// The request that this answers; not on the real wire.
        request: u64,
    },
}

/// A message of the connection manager; the private data is that of `proto::wire`.
#[derive(Clone, Debug)]
pub(crate) enum CmMessage {
    Connect(Vec<u8>),
    Accept(Vec<u8>),
    Reject(Vec<u8>),
    Disconnect,
}
