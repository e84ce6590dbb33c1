// SPDX-License-Identifier: GPL-2.0

//! The 32-bit immediate of every request, response and heartbeat: 4 bits of kind, 28 bits of
//! payload. Numbers are in host order here; on the wire an immediate is big-endian.

use super::IMM_PAYLOAD_BITS;
use ferro_proto::errno::Errno;

const PAYLOAD_MASK: u32 = (1 << IMM_PAYLOAD_BITS) - 1;
const MSG_ID_BITS: u32 = 19;
const MSG_ID_MASK: u32 = (1 << MSG_ID_BITS) - 1;
const ERRNO_MASK: u32 = (1 << (IMM_PAYLOAD_BITS - MSG_ID_BITS)) - 1;

const REQUEST: u32 = 0;
const RESPONSE: u32 = 1;
const RESPONSE_INVALIDATED: u32 = 2;
const HEARTBEAT: u32 = 8;
const HEARTBEAT_ACK: u32 = 9;
const FENCE: u32 = 10;
const FENCED: u32 = 11;

/// The response of a server to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The id of the request's chunk, 19 bits; to be checked with `Geometry::chunk_id`.
    pub msg_id: u32,
    /// 0, or the error number, positive, at most 511.
    pub errno: u16,
    /// The server has invalidated the client's key.
    pub invalidated: bool,
}

impl Response {
    /// Creates the response to request `msg_id`.
    ///
    /// An error that does not fit the 9 bits of the field becomes `EIO`: the C driver truncates it,
    /// which can turn an error into a success.
    #[inline(always)]
    pub const fn new(msg_id: u16, error: Option<Errno>, invalidated: bool) -> Self {
        let errno = match error {
            None => 0,
            Some(e) if e.get() as u32 <= ERRNO_MASK => e.get(),
            Some(_) => Errno::EIO.get(),
        };
        Self {
            msg_id: msg_id as u32,
            errno,
            invalidated,
        }
    }

    /// Returns the id in an immediate that says that a request has succeeded, below 2^19. Of any
    /// other, which [`Imm::decode`] decodes, it returns a number above. Nearly all immediates that
    /// a client gets are of that kind, so one comparison tells that, and that there is such a
    /// request.
    #[inline(always)]
    pub const fn succeeded(raw: u32) -> u32 {
        raw ^ (RESPONSE << IMM_PAYLOAD_BITS)
    }
}

/// The content of an immediate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imm {
    /// Client to server: a request; the payload is `Geometry::join` of chunk id and offset.
    Request {
        /// Chunk id and offset, 28 bits.
        payload: u32,
    },
    /// Server to client: the end of a request.
    Response(Response),
    /// A heartbeat, in either direction.
    Heartbeat,
    /// The acknowledgement of a heartbeat, in either direction.
    HeartbeatAck,
    /// Client to server, if both know it: the fence message. The client has given up the path of
    /// this number, 28 bits.
    Fence(u32),
    /// Server to client: the answer to it, with the same number.
    Fenced(u32),
}

/// An immediate of an unknown kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownImm(pub u32);

impl Imm {
    /// Returns the number for the wire, in host order. Bits that do not fit their field are cut
    /// off; `Geometry::join` and [`Response::new`] produce no such bits.
    #[inline(always)]
    pub const fn encode(self) -> u32 {
        match self {
            Imm::Request { payload } => (REQUEST << IMM_PAYLOAD_BITS) | (payload & PAYLOAD_MASK),
            Imm::Response(r) => {
                let kind = if r.invalidated {
                    RESPONSE_INVALIDATED
                } else {
                    RESPONSE
                };
                (kind << IMM_PAYLOAD_BITS)
                    | ((r.errno as u32 & ERRNO_MASK) << MSG_ID_BITS)
                    | (r.msg_id & MSG_ID_MASK)
            }
            Imm::Heartbeat => HEARTBEAT << IMM_PAYLOAD_BITS,
            Imm::HeartbeatAck => HEARTBEAT_ACK << IMM_PAYLOAD_BITS,
            Imm::Fence(number) => (FENCE << IMM_PAYLOAD_BITS) | (number & PAYLOAD_MASK),
            Imm::Fenced(number) => (FENCED << IMM_PAYLOAD_BITS) | (number & PAYLOAD_MASK),
        }
    }

    /// Returns the payload of a request's immediate; `None` for any other, which [`Imm::decode`]
    /// decodes. Nearly all immediates that a server gets are requests, so it calls this first.
    #[inline(always)]
    pub const fn request(raw: u32) -> Option<u32> {
        if raw >> IMM_PAYLOAD_BITS == REQUEST {
            Some(raw & PAYLOAD_MASK)
        } else {
            None
        }
    }

    /// Decodes an immediate of a peer. The payload of a heartbeat is ignored, as in the C driver.
    #[inline]
    pub const fn decode(raw: u32) -> Result<Self, UnknownImm> {
        let payload = raw & PAYLOAD_MASK;
        match raw >> IMM_PAYLOAD_BITS {
            REQUEST => Ok(Imm::Request { payload }),
            kind @ (RESPONSE | RESPONSE_INVALIDATED) => Ok(Imm::Response(Response {
                msg_id: payload & MSG_ID_MASK,
                // CAST: The value has 9 bits.
                errno: (payload >> MSG_ID_BITS) as u16,
                invalidated: kind == RESPONSE_INVALIDATED,
            })),
            HEARTBEAT => Ok(Imm::Heartbeat),
            HEARTBEAT_ACK => Ok(Imm::HeartbeatAck),
            FENCE => Ok(Imm::Fence(payload)),
            FENCED => Ok(Imm::Fenced(payload)),
            _ => Err(UnknownImm(raw)),
        }
    }
}
