// SPDX-License-Identifier: GPL-2.0

//! Replies that arrive in pieces: each operation decodes the same at the end of any piece.

use proto::gfarm::{
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

use super::compound::{
    ListCompound,
    ListReply,
    Part, //
};

/// The bytes of a request.
pub(crate) fn request(operation: &impl Operation) -> Vec<u8> {
    written(|to| operation.encode(to))
}

/// Returns the bytes that `encode` writes into a buffer.
pub(crate) fn written(encode: impl FnOnce(&mut Encoder<'_>)) -> Vec<u8> {
    let mut out = [0; 8192];
    let mut to = Encoder::new(&mut out);
    encode(&mut to);
    let len = to.finish().unwrap();
    out[..len].to_vec()
}

/// Decodes a reply which is all of `bytes`, and each of its beginnings, none of which is complete.
pub(crate) fn reply<'a, O: Operation>(
    operation: &O,
    bytes: &'a [u8],
) -> Result<O::Reply<'a>, ReplyError> {
    for have in 0..bytes.len() {
        match operation.decode(&mut Decoder::new(&bytes[..have])) {
            Err(ReplyError::NeedMore(more)) => assert!(more > 0 && have + more <= bytes.len()),
            Err(error) => panic!("{error} after {have} of {} bytes", bytes.len()),
            Ok(_) => panic!("a reply after {have} of {} bytes", bytes.len()),
        }
    }
    let mut from = Decoder::new(bytes);
    let reply = operation.decode(&mut from);
    assert_eq!(from.consumed(), bytes.len());
    reply
}

/// Decodes the reply to a compound with a list, as a driver does that receives `piece` bytes at a
/// time and keeps only those that are not decoded yet; calls `each` for each part.
pub(crate) fn parts<H, L, T>(
    request: &ListCompound<H, L, T>,
    bytes: &[u8],
    piece: usize,
    mut each: impl FnMut(Part<H::Reply<'_>, L::Item<'_>, T::Reply<'_>>),
) -> Result<(), ReplyError>
where
    H: Operation,
    L: ListOperation,
    T: Operation,
{
    let mut state = ListReply::NEW;
    let mut received = Vec::new();
    let mut pieces = bytes.chunks(piece);
    while !state.is_over() {
        let outcome = {
            let mut from = Decoder::new(&received);
            let part = state.decode(request, &mut from);
            part.map(|part| each(part.unwrap()))
                .map(|()| from.consumed())
        };
        match outcome {
            Ok(consumed) => {
                received.drain(..consumed);
            }
            Err(ReplyError::NeedMore(_)) => received.extend(pieces.next().unwrap()),
            Err(error) => {
                assert!(state.is_over());
                return Err(error);
            }
        }
    }
    let more = state.decode(request, &mut Decoder::new(&[0; 64]));
    assert!(matches!(more, Ok(None)));
    assert_eq!((received.len(), pieces.next()), (0, None));
    Ok(())
}
