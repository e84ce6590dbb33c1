// SPDX-License-Identifier: GPL-2.0

//! Makes the bytes of a message.

use zerocopy::{
    little_endian::{
        U16,
        U32,
        U64, //
    },
    IntoBytes, //
};

use super::{
    super::{
        span::{
            ObjectId,
            Span,
            OBJECT_BYTES_MAX, //
        },
        ticket::Ticket,
        wire, //
    },
    Message,
    Operation, //
};

impl Message<'_> {
    /// Writes the user message at the start of `to`; returns its bytes, or `None` if there is too
    /// little room.
    pub fn write(&self, to: &mut [u8]) -> Option<usize> {
        let head = self.head();
        head.write_to_prefix(to).ok()?;
        let body = to.get_mut(size_of::<wire::Head>()..)?;
        let body_bytes = match self.operation {
            Operation::Attach { store } => {
                let body = body.get_mut(..wire::STORE_NAME_MAX)?;
                body.fill(0);
                for (to, from) in body.get_mut(..store.len())?.iter_mut().zip(store) {
                    *to = *from;
                }
                wire::STORE_NAME_MAX
            }
            Operation::Write { sums, .. } => {
                sums.0.write_to_prefix(body).ok()?;
                size_of_val(sums.0)
            }
            Operation::Copy {
                destination,
                offset,
                ..
            } => write_destination(body, (destination, offset))?,
            Operation::Snapshot { destination, .. } => write_destination(body, (destination, 0))?,
            _ => 0,
        };
        Some(size_of::<wire::Head>().saturating_add(body_bytes))
    }

    fn head(&self) -> wire::Head {
        let none = ObjectId::default();
        let flag = |is_set: bool, flag: u16| if is_set { flag } else { 0 };
        let bytes = |span: &Span| (span.offset(), span.bytes());
        let (kind, object, flags, (offset, length)) = match self.operation {
            Operation::Attach { .. } => (wire::ATTACH, none, 0, (0, 0)),
            Operation::Ping => (wire::PING, none, 0, (0, 0)),
            Operation::Create { object, is_new } => {
                (wire::CREATE, object, flag(is_new, wire::FLAG_NEW), (0, 0))
            }
            Operation::Delete { object } => (wire::DELETE, object, 0, (0, 0)),
            Operation::Stat { object } => (wire::STAT, object, 0, (0, 0)),
            Operation::List { cursor, .. } => (wire::LIST, none, 0, (cursor.into(), 0)),
            Operation::Read { object, span } => (wire::READ, object, 0, bytes(&span)),
            Operation::Write {
                object,
                span,
                creates,
                ..
            } => {
                let flags = flag(creates, wire::FLAG_CREATE);
                (wire::WRITE, object, flags, bytes(&span))
            }
            Operation::Truncate { object, size } => (wire::TRUNCATE, object, 0, (size, 0)),
            Operation::Copy {
                source,
                span,
                creates,
                ..
            } => {
                let flags = flag(creates, wire::FLAG_CREATE);
                (wire::COPY, source, flags, bytes(&span))
            }
            Operation::Snapshot { source, is_new, .. } => {
                (wire::SNAPSHOT, source, flag(is_new, wire::FLAG_NEW), (0, 0))
            }
            Operation::Flush { object, span } => (wire::FLUSH, object, 0, some_or_all(&span)),
            Operation::Lease {
                object,
                span,
                is_writer,
            } => {
                let flags = flag(is_writer, wire::FLAG_WRITER);
                (wire::LEASE, object, flags, some_or_all(&span))
            }
            Operation::Release => (wire::RELEASE, none, 0, (0, 0)),
        };
        wire::Head {
            kind,
            version: wire::VERSION,
            flags: U16::new(flags),
            lease: U32::new(self.lease),
            ticket: U64::new(self.ticket.map_or(0, Ticket::word)),
            incarnation: U64::new(self.incarnation),
            object: object.into(),
            offset: U64::new(offset),
            length: U64::new(length),
        }
    }
}

fn write_destination(to: &mut [u8], (object, offset): (ObjectId, u64)) -> Option<usize> {
    let body = wire::Destination {
        object: object.into(),
        offset: U64::new(offset),
    };
    body.write_to_prefix(to).ok()?;
    Some(size_of::<wire::Destination>())
}

/// Returns offset and length, of which 0 means all behind the offset.
fn some_or_all(span: &Span) -> (u64, u64) {
    if span.end() == OBJECT_BYTES_MAX {
        (span.offset(), 0)
    } else {
        (span.offset(), span.bytes())
    }
}
