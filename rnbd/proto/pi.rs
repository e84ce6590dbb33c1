// SPDX-License-Identifier: GPL-2.0

//! Protection information (PI): a tuple of checksum, application tag and block address beside each
//! interval of data, which both ends of a session verify.
//!
//! A client asks for it when it opens a device ([`Wanted`]), and the server answers with the
//! [`Geometry`], both in bytes that protocol 2.0 reserves ([`wire`](super::wire)). From then on the
//! data of each READ and WRITE is followed by its tuples, in the chunk and in the client's memory:
//!
//! ```text
//! blocks | tuples | io message | head of RTRS
//! ```
//!
//! The io message says how many bytes of tuples there are, and has a CRC-32C of itself and of the
//! tuples of a WRITE ([`message_digest`]). Other operations have no tuples.

pub mod choice;
pub mod geometry;
pub mod guard_hash;
pub mod message_digest;
pub mod series;
pub mod tuple;

pub use self::{
    choice::{
        Choice,
        Kept,
        Wanted, //
    },
    geometry::{
        Format,
        Geometry,
        Mode, //
    },
    guard_hash::{
        FirstGuardHash,
        GuardCheck,
        GuardHash, //
    },
    message_digest::MessageDigest,
    series::Series,
    tuple::Tuple, //
};
