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
    /// Open the device (`rnbd`'s open message).
    Open,
    Read {
        block: usize,
    },
    Write {
        block: usize,
    },
}

/// A request as it lies in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Body {
    /// Number of the request, from 1; also the data of a write.
    pub(crate) request: u64,
    pub(crate) deed: Deed,
}

/// A message on a reliable connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Message {
    InfoRequest,
    InfoResponse,
    /// Heartbeat or its answer: an encoded `proto::imm::Imm`.
    Pulse {
        imm: u32,
    },
    /// Data and head go into the chunk that `imm` names.
    Request {
        imm: u32,
        body: Body,
        /// Number of this sending; not on the real wire.
        send: u64,
    },
    Response {
        imm: u32,
        /// The data of a read.
        content: u64,
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
