// SPDX-License-Identifier: GPL-2.0

//! Checks the bytes of a message: each field, in its turn.

use zerocopy::{
    little_endian::U32,
    FromBytes, //
};

use super::{
    super::{
        span::{
            ObjectId,
            Span,
            IO_BYTES_MAX,
            OBJECT_BYTES_MAX, //
        },
        ticket::Ticket,
        wire, //
    },
    malformed::Malformed,
    Direction,
    Message,
    Operation,
    Sums, //
};

/// The rules of a kind of message, beside those of its own numbers.
struct Rules {
    direction: Direction,
    /// The flags that it may have.
    flags: u16,
    /// Whether it may, or must not, name a lease.
    may_have_lease: bool,
    /// Whether it changes something.
    is_change: bool,
    has_object: bool,
    has_offset: bool,
    has_length: bool,
}

impl Rules {
    /// Returns those of a kind.
    const fn of(kind: u8) -> Option<Self> {
        use Direction::{
            Read,
            Write, //
        };
        // Direction, flags, lease, change, object, offset, length.
        let (direction, flags, bits) = match kind {
            wire::ATTACH | wire::PING => (Read, 0, [0, 0, 0, 0, 0]),
            wire::CREATE => (Write, wire::FLAG_NEW, [0, 1, 1, 0, 0]),
            wire::DELETE => (Write, 0, [1, 1, 1, 0, 0]),
            wire::STAT => (Read, 0, [0, 0, 1, 0, 0]),
            wire::LIST => (Read, 0, [0, 0, 0, 1, 0]),
            wire::READ => (Read, 0, [1, 0, 1, 1, 1]),
            wire::WRITE => (Write, wire::FLAG_CREATE, [1, 1, 1, 1, 1]),
            wire::TRUNCATE => (Write, 0, [1, 1, 1, 1, 0]),
            wire::COPY => (Write, wire::FLAG_CREATE, [1, 1, 1, 1, 1]),
            wire::SNAPSHOT => (Write, wire::FLAG_NEW, [1, 1, 1, 0, 0]),
            wire::FLUSH => (Write, 0, [0, 0, 1, 1, 1]),
            wire::LEASE => (Read, wire::FLAG_WRITER, [0, 1, 1, 1, 1]),
            wire::RELEASE => (Write, 0, [1, 1, 0, 0, 0]),
            _ => return None,
        };
        let [lease, change, object, offset, length] = bits;
        Some(Self {
            direction,
            flags,
            may_have_lease: lease != 0,
            is_change: change != 0,
            has_object: object != 0,
            has_offset: offset != 0,
            has_length: length != 0,
        })
    }

    fn check(&self, head: &wire::Head, direction: Direction) -> Result<(), Malformed> {
        let ticket = head.ticket.get();
        if direction != self.direction {
            return Err(Malformed::Direction);
        }
        let has_ticket = Ticket::from_word(ticket).is_some();
        if self.is_change != has_ticket || (!has_ticket && ticket != 0) {
            return Err(Malformed::Ticket(ticket));
        }
        if head.kind == wire::ATTACH && head.incarnation.get() != 0 {
            return Err(Malformed::Unused);
        }
        self.check_fields(head)
    }

    /// Checks what a program says as well: all but the direction and the ticket.
    fn check_fields(&self, head: &wire::Head) -> Result<(), Malformed> {
        let (flags, lease) = (head.flags.get(), head.lease.get());
        if flags & !self.flags != 0 {
            return Err(Malformed::Flags(flags));
        }
        if (lease != 0 && !self.may_have_lease) || (lease == 0 && head.kind == wire::RELEASE) {
            return Err(Malformed::Lease(lease));
        }
        if !self.has_object && ObjectId::from(head.object) != ObjectId::default() {
            return Err(Malformed::Object);
        }
        let offset_is_set = !self.has_offset && head.offset.get() != 0;
        if offset_is_set || (!self.has_length && head.length.get() != 0) {
            return Err(Malformed::Unused);
        }
        Ok(())
    }
}

impl wire::Head {
    /// Checks what a program says of a request that its kernel will make.
    ///
    /// # Errors
    ///
    /// Returns what is wrong first.
    pub fn check_fields(&self) -> Result<(), Malformed> {
        let rules = Rules::of(self.kind).ok_or(Malformed::Kind(self.kind))?;
        rules.check_fields(self)
    }
}

impl Operation<'static> {
    /// Reads an operation that has neither a body nor data of the client. Its fields were checked.
    ///
    /// # Errors
    ///
    /// Returns what is wrong first.
    pub fn without_body(head: &wire::Head) -> Result<Self, Malformed> {
        operation(head, (size_of::<wire::Head>(), &[]), 0)
    }
}

impl Operation<'_> {
    /// Returns the direction of its data, of which there may be none.
    pub const fn direction(&self) -> Direction {
        match self {
            Self::Attach { .. }
            | Self::Ping
            | Self::Stat { .. }
            | Self::List { .. }
            | Self::Read { .. }
            | Self::Lease { .. } => Direction::Read,
            _ => Direction::Write,
        }
    }

    /// Whether it changes something, so that it has a ticket.
    pub const fn is_change(&self) -> bool {
        let is_lease = matches!(self, Self::Lease { .. });
        let is_write = matches!(self.direction(), Direction::Write);
        is_lease || (is_write && !matches!(self, Self::Flush { .. }))
    }
}

impl<'a> Message<'a> {
    /// Parses the user message of a request with `data_bytes` of data.
    ///
    /// # Errors
    ///
    /// Returns what is wrong first.
    pub fn parse(
        bytes: &'a [u8],
        (direction, data_bytes): (Direction, u32),
    ) -> Result<Self, Malformed> {
        let too_short = Malformed::Length(bytes.len());
        // First, as the heads of other versions have other lengths.
        match bytes.get(1) {
            None | Some(&wire::VERSION) => (),
            Some(version) => return Err(Malformed::Version(*version)),
        }
        let (head, body) = wire::Head::ref_from_prefix(bytes).map_err(|_| too_short)?;
        let rules = Rules::of(head.kind).ok_or(Malformed::Kind(head.kind))?;
        rules.check(head, direction)?;
        let operation = operation(head, (bytes.len(), body), data_bytes)?;
        if operation.data_bytes() != data_bytes {
            return Err(Malformed::DataLength(data_bytes));
        }
        Ok(Self {
            lease: head.lease.get(),
            ticket: Ticket::from_word(head.ticket.get()),
            incarnation: head.incarnation.get(),
            operation,
        })
    }
}

/// The name of an object, and its bytes.
type ObjectSpan = (ObjectId, Span);

fn bytes_of(head: &wire::Head) -> Result<ObjectSpan, Malformed> {
    let (offset, length) = (head.offset.get(), head.length.get());
    let span = Span::new(offset, length).ok_or(Malformed::Span { offset, length })?;
    Ok((head.object.into(), span))
}

/// Reads the bytes of one operation.
fn io_of(head: &wire::Head) -> Result<ObjectSpan, Malformed> {
    let (object, span) = bytes_of(head)?;
    if !span.is_io() {
        return Err(Malformed::TooLong(span.bytes()));
    }
    Ok((object, span))
}

/// Reads bytes of which a length of 0 means all behind the offset.
fn rest_of(head: &wire::Head) -> Result<ObjectSpan, Malformed> {
    let (offset, length) = (head.offset.get(), head.length.get());
    if length != 0 {
        return bytes_of(head);
    }
    let rest = OBJECT_BYTES_MAX.saturating_sub(offset);
    let span = Span::new(offset, rest).ok_or(Malformed::Span { offset, length })?;
    Ok((head.object.into(), span))
}

/// Reads the body of a copy.
fn destination(body: &[u8]) -> Option<(ObjectId, u64)> {
    let destination = wire::Destination::ref_from_bytes(body).ok()?;
    Some((destination.object.into(), destination.offset.get()))
}

fn has(head: &wire::Head, flag: u16) -> bool {
    head.flags.get() & flag != 0
}

/// Reads what is of the kind, of one with a body. The body has these bytes and no others.
fn with_body<'a>(
    head: &wire::Head,
    (bytes, body): (usize, &'a [u8]),
) -> Result<Operation<'a>, Malformed> {
    let wrong = Malformed::Length(bytes);
    match head.kind {
        wire::ATTACH => {
            let name = body.first_chunk::<{ wire::STORE_NAME_MAX }>();
            let name = name.filter(|name| name.len() == body.len()).ok_or(wrong)?;
            let store = store_name(name).ok_or(Malformed::StoreName)?;
            Ok(Operation::Attach { store })
        }
        wire::WRITE => {
            let (object, span) = io_of(head)?;
            let sums = <[U32]>::ref_from_bytes(body).map_err(|_| wrong)?;
            if sums.len() != span.block_count() as usize {
                return Err(wrong);
            }
            Ok(Operation::Write {
                object,
                span,
                creates: has(head, wire::FLAG_CREATE),
                sums: Sums::new(sums),
            })
        }
        wire::COPY => {
            let (source, span) = bytes_of(head)?;
            let (destination, offset) = destination(body).ok_or(wrong)?;
            let length = span.bytes();
            span.moved_to(offset)
                .ok_or(Malformed::Span { offset, length })?;
            Ok(Operation::Copy {
                source,
                span,
                destination,
                offset,
                creates: has(head, wire::FLAG_CREATE),
            })
        }
        _ => {
            let (destination, offset) = destination(body).ok_or(wrong)?;
            if offset != 0 {
                return Err(Malformed::Unused);
            }
            Ok(Operation::Snapshot {
                source: head.object.into(),
                destination,
                is_new: has(head, wire::FLAG_NEW),
            })
        }
    }
}

/// Reads what is of the kind.
fn operation<'a>(
    head: &wire::Head,
    (bytes, body): (usize, &'a [u8]),
    data_bytes: u32,
) -> Result<Operation<'a>, Malformed> {
    let object = head.object.into();
    let operation = match head.kind {
        wire::ATTACH | wire::WRITE | wire::COPY | wire::SNAPSHOT => {
            return with_body(head, (bytes, body));
        }
        wire::PING => Operation::Ping,
        wire::CREATE => Operation::Create {
            object,
            is_new: has(head, wire::FLAG_NEW),
        },
        wire::DELETE => Operation::Delete { object },
        wire::STAT => Operation::Stat { object },
        wire::LIST => list(head.offset.get(), data_bytes)?,
        wire::READ => {
            let (object, span) = io_of(head)?;
            Operation::Read { object, span }
        }
        wire::TRUNCATE => {
            let size = head.offset.get();
            if size > OBJECT_BYTES_MAX {
                return Err(Malformed::Size(size));
            }
            Operation::Truncate { object, size }
        }
        wire::FLUSH => {
            let (object, span) = rest_of(head)?;
            Operation::Flush { object, span }
        }
        wire::LEASE => {
            let (object, span) = rest_of(head)?;
            Operation::Lease {
                object,
                span,
                is_writer: has(head, wire::FLAG_WRITER),
            }
        }
        wire::RELEASE => Operation::Release,
        kind => return Err(Malformed::Kind(kind)),
    };
    if body.is_empty() {
        Ok(operation)
    } else {
        Err(Malformed::Length(bytes))
    }
}

/// Reads the name of a store, behind which all bytes are 0.
fn store_name(field: &[u8]) -> Option<&[u8]> {
    let len = field.iter().position(|byte| *byte == 0);
    let (name, rest) = field.split_at_checked(len.unwrap_or(field.len()))?;
    let is_name = !name.is_empty() && rest.iter().all(|byte| *byte == 0);
    is_name.then_some(name)
}

fn list<'a>(cursor: u64, data_bytes: u32) -> Result<Operation<'a>, Malformed> {
    let room = data_bytes.checked_sub(wire::ANSWER_BYTES);
    let names = room.filter(|room| *room > 0 && room % wire::LISTED_BYTES == 0);
    let is_short = |bytes: &u32| u64::from(*bytes) <= IO_BYTES_MAX;
    let names = names.filter(is_short);
    Ok(Operation::List {
        cursor: u32::try_from(cursor).map_err(|_| Malformed::Cursor(cursor))?,
        count_max: names.ok_or(Malformed::DataLength(data_bytes))? / wire::LISTED_BYTES,
    })
}
