// SPDX-License-Identifier: GPL-2.0

//! Several requests to gfmd in one round trip, put together freely: what the questions of a mount
//! are compared with, and the traces of other clients are read with.
//!
//! gfmd answers the requests of a compound in order, each with its own reply. After the first one
//! that fails it answers no request any more, and not the end of the compound: the error is the
//! last thing that arrives. [`Catch`] is the exception.

use proto::gfarm::{
    attr::FileType,
    command::*,
    error::{
        decode_status,
        GfarmError, //
    },
    operation::{
        ListOperation,
        Operation,
        ReplyError, //
    },
    xdr::{
        Decoder,
        Encoder, //
    },
};

/// Starts requests for the case that an earlier one failed with an error.
const COMPOUND_ON_ERROR: u32 = 66;
/// Fails if the current object has this type.
const VERIFY_TYPE_NOT: u32 = 86;

/// Fails if the current object has this type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VerifyTypeNot(pub(crate) FileType);

impl Operation for VerifyTypeNot {
    type Reply<'a> = ();

    fn encode(&self, to: &mut Encoder<'_>) {
        to.u32(VERIFY_TYPE_NOT);
        to.u32(self.0.to_wire());
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<(), ReplyError> {
        decode_status(from)
    }
}

fn encode_begin(to: &mut Encoder<'_>) {
    to.u32(GFM_PROTO_COMPOUND_BEGIN);
}

fn encode_end(to: &mut Encoder<'_>) {
    to.u32(GFM_PROTO_COMPOUND_END);
}

/// Requests that are carried out until one fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compound<T>(pub(crate) T);

impl<T: Operation> Operation for Compound<T> {
    type Reply<'a> = T::Reply<'a>;

    fn encode(&self, to: &mut Encoder<'_>) {
        encode_begin(to);
        self.0.encode(to);
        encode_end(to);
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<Self::Reply<'a>, ReplyError> {
        decode_status(from)?;
        let reply = self.0.decode(from)?;
        decode_status(from)?;
        Ok(reply)
    }
}

/// A compound of requests, and of others for the case that one of them fails with an error
/// (`COMPOUND_ON_ERROR`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Catch<T, U> {
    /// The requests.
    pub(crate) attempt: T,
    /// The error.
    pub(crate) error: GfarmError,
    /// The requests after that error.
    pub(crate) instead: U,
}

/// The reply to [`Catch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caught<T, U> {
    /// All requests were carried out.
    All(T),
    /// One has failed with the error, and the others were carried out.
    Instead(U),
}

impl<T: Operation, U: Operation> Operation for Catch<T, U> {
    type Reply<'a> = Caught<T::Reply<'a>, U::Reply<'a>>;

    fn encode(&self, to: &mut Encoder<'_>) {
        encode_begin(to);
        self.attempt.encode(to);
        to.u32(COMPOUND_ON_ERROR);
        to.u32(self.error.get());
        self.instead.encode(to);
        encode_end(to);
    }

    fn decode<'a>(&self, from: &mut Decoder<'a>) -> Result<Self::Reply<'a>, ReplyError> {
        decode_status(from)?;
        match self.attempt.decode(from) {
            Ok(reply) => {
                decode_status(from)?;
                Ok(Caught::All(reply))
            }
            // gfmd answers neither COMPOUND_ON_ERROR nor, after an error, COMPOUND_END.
            Err(ReplyError::Server(error)) if error == self.error => {
                self.instead.decode(from).map(Caught::Instead)
            }
            Err(error) => Err(error),
        }
    }
}

/// A compound with a list: requests before it, the list, requests after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListCompound<H, L, T> {
    /// The requests before the list.
    pub(crate) head: H,
    /// The request for the list.
    pub(crate) list: L,
    /// The requests after the list.
    pub(crate) tail: T,
}

impl<H: Operation, L: ListOperation, T: Operation> ListCompound<H, L, T> {
    /// Writes the request.
    pub(crate) fn encode(&self, to: &mut Encoder<'_>) {
        encode_begin(to);
        self.head.encode(to);
        self.list.encode(to);
        self.tail.encode(to);
        encode_end(to);
    }
}

/// A part of the reply to a [`ListCompound`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<H, I, T> {
    /// The replies before the list, and the number of entries.
    Head(H, u32),
    /// An entry.
    Item(I),
    /// The replies after the list; the last part.
    Tail(T),
}

/// A part of the reply to a [`ListCompound`] of these requests.
pub(crate) type PartOf<'a, H, L, T> =
    Part<<H as Operation>::Reply<'a>, <L as ListOperation>::Item<'a>, <T as Operation>::Reply<'a>>;

/// The part of the reply to [`ListCompound`] that comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Head,
    Items { left: u32 },
    Tail,
    Nothing,
}

/// Reads the reply to a [`ListCompound`], one part a call.
///
/// A part that was returned is not decoded again: the caller drops the bytes that were consumed.
/// After an error other than [`ReplyError::NeedMore`] no part follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListReply {
    next: Next,
}

impl Default for ListReply {
    fn default() -> Self {
        Self::NEW
    }
}

impl ListReply {
    /// Nothing was read yet.
    pub(crate) const NEW: Self = Self { next: Next::Head };

    /// Returns whether the last part was returned, or an error.
    pub(crate) const fn is_over(&self) -> bool {
        matches!(self.next, Next::Nothing)
    }

    /// Reads the next part of the reply to `request`; `None` after the last one.
    pub(crate) fn decode<'a, H: Operation, L: ListOperation, T: Operation>(
        &mut self,
        request: &ListCompound<H, L, T>,
        from: &mut Decoder<'a>,
    ) -> Result<Option<PartOf<'a, H, L, T>>, ReplyError> {
        let part = self.part(request, from);
        if !matches!(part, Ok(_) | Err(ReplyError::NeedMore(_))) {
            self.next = Next::Nothing;
        }
        part
    }

    fn part<'a, H: Operation, L: ListOperation, T: Operation>(
        &mut self,
        request: &ListCompound<H, L, T>,
        from: &mut Decoder<'a>,
    ) -> Result<Option<PartOf<'a, H, L, T>>, ReplyError> {
        match self.next {
            Next::Head => {
                decode_status(from)?;
                let head = request.head.decode(from)?;
                decode_status(from)?;
                let left = from.count("entries", request.list.count_max())?;
                self.next = Self::after_item(left);
                Ok(Some(Part::Head(head, left)))
            }
            Next::Items { left } => {
                let item = L::decode_item(from)?;
                self.next = Self::after_item(left.wrapping_sub(1));
                Ok(Some(Part::Item(item)))
            }
            Next::Tail => {
                let tail = request.tail.decode(from)?;
                decode_status(from)?;
                self.next = Next::Nothing;
                Ok(Some(Part::Tail(tail)))
            }
            Next::Nothing => Ok(None),
        }
    }

    const fn after_item(left: u32) -> Next {
        match left {
            0 => Next::Tail,
            left => Next::Items { left },
        }
    }
}
