// SPDX-License-Identifier: GPL-2.0

//! A request that declares its reply.

use core::fmt;

use ferro_proto::errno::Errno;

use super::{
    error::GfarmError,
    xdr::{
        DecodeError,
        Decoder,
        Encoder,
        Malformed, //
    },
};

/// The reason why there is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyError {
    /// The reply is not complete: at least this many bytes more are needed, not 0.
    NeedMore(usize),
    /// The reply is not valid: the connection cannot be used any further.
    Malformed(Malformed),
    /// The server has answered with an error. All of its answer was read, and the connection can be
    /// used.
    Server(GfarmError),
}

impl ReplyError {
    /// Returns the kernel's error; `EAGAIN` for an answer that is not complete.
    pub fn errno(self) -> Errno {
        const EAGAIN: i32 = 11;
        const EPROTO: i32 = 71;

        let number = match self {
            Self::Server(error) => return error.errno(),
            Self::Malformed(_) => EPROTO,
            Self::NeedMore(_) => EAGAIN,
        };
        Errno::new(number).unwrap_or(Errno::EIO)
    }
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeedMore(len) => write!(f, "answer lacks {len} bytes or more"),
            Self::Malformed(malformed) => malformed.fmt(f),
            Self::Server(error) => error.fmt(f),
        }
    }
}

impl From<DecodeError> for ReplyError {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::NeedMore(len) => Self::NeedMore(len),
            DecodeError::Malformed(malformed) => Self::Malformed(malformed),
        }
    }
}

impl From<Malformed> for ReplyError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// One request, or several that follow one another in a compound.
///
/// After [`ReplyError::NeedMore`] the whole reply is decoded again, so a driver that has none of it
/// left to receive decodes it once.
pub trait Operation {
    /// The values of a reply without an error.
    type Reply<'a>;

    /// Writes the request.
    fn encode(&self, to: &mut Encoder<'_>);

    /// Reads the reply.
    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<Self::Reply<'a>, ReplyError>;
}

/// A request with a list as its reply, which is decoded entry by entry: it may be long.
pub trait ListOperation {
    /// An entry.
    type Item<'a>;

    /// Writes the request.
    fn encode(&self, to: &mut Encoder<'_>);

    /// Returns the maximum number of entries.
    fn count_max(&self) -> u32;

    /// Reads an entry.
    fn decode_item<'a>(from: &mut Decoder<'a>) -> Result<Self::Item<'a>, ReplyError>;
}

/// No request.
impl Operation for () {
    type Reply<'a> = ();

    fn encode(&self, _to: &mut Encoder<'_>) {}

    fn decode<'a>(&self, _from: &mut Decoder<'a>) -> Result<(), ReplyError> {
        Ok(())
    }
}

/// Several requests, in this order.
macro_rules! operations {
    ($($name:ident: $place:tt),*) => {
        impl<$($name: Operation),*> Operation for ($($name,)*) {
            type Reply<'a> = ($($name::Reply<'a>,)*);

            fn encode(&self, to: &mut Encoder<'_>) {
                $(self.$place.encode(to);)*
            }

            fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<Self::Reply<'a>, ReplyError> {
                Ok(($(self.$place.decode(from)?,)*))
            }
        }
    };
}

operations!(A: 0, B: 1);
operations!(A: 0, B: 1, C: 2);
operations!(A: 0, B: 1, C: 2, D: 3);
operations!(A: 0, B: 1, C: 2, D: 3, E: 4);
