// SPDX-License-Identifier: GPL-2.0

//! Requests of clients, and what they do to objects that are arrays of bytes.

use rioc::proto::{
    message::{
        Message,
        Operation,
        Sums, //
    },
    span::{
        Span,
        BLOCK_BYTES, //
    },
    ticket::Ticket, //
};
use zerocopy::little_endian::U32;

use crate::{
    store::Objects,
    world::{
        id,
        put_bytes, //
    },
};

/// A request, on objects by small numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Create(u64, bool),
    Delete(u64),
    /// Object, offset, bytes, whether it is made.
    Write(u64, u64, u64, bool),
    Truncate(u64, u64),
    /// Source, offset, bytes; destination, offset, whether it is made.
    Copy(u64, u64, u64, u64, u64, bool),
    Snapshot(u64, u64, bool),
    Flush(u64),
    /// Object, offset, bytes.
    Read(u64, u64, u64),
    Lease(u64, u64, u64, bool),
    Release,
}

/// A request in flight, in memory of the server.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) client: usize,
    pub(crate) ask: Ask,
    pub(crate) lease: u32,
    pub(crate) ticket: Option<Ticket>,
    pub(crate) incarnation: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) sums: Vec<U32>,
}

impl Request {
    pub(crate) fn message(&self) -> Message<'_> {
        let span = |offset, bytes| Span::new(offset, bytes).unwrap();
        let operation = match self.ask {
            Ask::Create(object, is_new) => Operation::Create {
                object: id(object),
                is_new,
            },
            Ask::Delete(object) => Operation::Delete { object: id(object) },
            Ask::Write(object, offset, bytes, creates) => Operation::Write {
                object: id(object),
                span: span(offset, bytes),
                creates,
                sums: Sums::new(&self.sums),
            },
            Ask::Truncate(object, size) => Operation::Truncate {
                object: id(object),
                size,
            },
            Ask::Copy(source, from, bytes, destination, offset, creates) => Operation::Copy {
                source: id(source),
                span: span(from, bytes),
                destination: id(destination),
                offset,
                creates,
            },
            Ask::Snapshot(source, destination, is_new) => Operation::Snapshot {
                source: id(source),
                destination: id(destination),
                is_new,
            },
            Ask::Flush(object) => Operation::Flush {
                object: id(object),
                span: Span::ALL,
            },
            Ask::Read(object, offset, bytes) => Operation::Read {
                object: id(object),
                span: span(offset, bytes),
            },
            Ask::Lease(object, offset, bytes, is_writer) => Operation::Lease {
                object: id(object),
                span: span(offset, bytes),
                is_writer,
            },
            Ask::Release => Operation::Release,
        };
        Message {
            lease: self.lease,
            ticket: self.ticket,
            incarnation: self.incarnation,
            operation,
        }
    }
}

/// Carries out a request on arrays of bytes.
pub(crate) fn apply(objects: &mut Objects, request: &Request) -> Result<(), u32> {
    let (no_object, exists, invalid) = (2u32, 17, 22);
    let has = |objects: &Objects, object: u64| {
        let found = objects.contains_key(&id(object));
        found.then_some(()).ok_or(no_object)
    };
    match request.ask {
        Ask::Create(object, is_new) => {
            if is_new && has(objects, object).is_ok() {
                return Err(exists);
            }
            objects.entry(id(object)).or_default();
        }
        Ask::Delete(object) => {
            has(objects, object)?;
            objects.remove(&id(object));
        }
        Ask::Write(object, offset, _, creates) => {
            if !creates {
                has(objects, object)?;
            }
            let bytes = objects.entry(id(object)).or_default();
            put_bytes(bytes, offset as usize, &request.bytes);
        }
        Ask::Truncate(object, size) => {
            has(objects, object)?;
            objects
                .get_mut(&id(object))
                .unwrap()
                .resize(size as usize, 0);
        }
        Ask::Copy(source, from, bytes, destination, to, creates) => {
            has(objects, source)?;
            let first = |at: u64| at / BLOCK_BYTES;
            let end = |at: u64| (at + bytes).div_ceil(BLOCK_BYTES);
            let overlaps = first(from) < end(to) && first(to) < end(from);
            if from % BLOCK_BYTES != to % BLOCK_BYTES || (source == destination && overlaps) {
                return Err(invalid);
            }
            if !creates {
                has(objects, destination)?;
            }
            let mut copied = objects[&id(source)].clone();
            copied.resize(copied.len().max((from + bytes) as usize), 0);
            let copied = &copied[from as usize..(from + bytes) as usize];
            let bytes = objects.entry(id(destination)).or_default();
            put_bytes(bytes, to as usize, copied);
        }
        Ask::Snapshot(source, destination, is_new) => {
            has(objects, source)?;
            if source == destination {
                return Err(invalid);
            }
            if is_new && has(objects, destination).is_ok() {
                return Err(exists);
            }
            let bytes = objects[&id(source)].clone();
            objects.insert(id(destination), bytes);
        }
        Ask::Flush(_) | Ask::Read(..) | Ask::Lease(..) | Ask::Release => (),
    }
    Ok(())
}
