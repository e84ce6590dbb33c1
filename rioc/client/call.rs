// SPDX-License-Identifier: GPL-2.0

//! Carries out what a program asks for.

use kernel::{
    prelude::*,
    sync::Arc,
    uaccess::{
        UserPtr,
        UserSlice, //
    },
};
use kernel_ext::{
    crc::Checksum,
    errno,
    new_irq_lock,
    sync::{
        new_wait_queue,
        IrqLock,
        WaitQueue, //
    }, //
};
use zerocopy::little_endian::U32;

use super::{
    lane::{
        Flight,
        ANSWER,
        DATA, //
    },
    session::{
        Attachment,
        Session, //
    },
    LOG_LIMIT, //
};
use crate::proto::{
    answer::{
        Listed,
        ReadHead,
        Short,
        Unbelievable, //
    },
    ioctl::{
        Call,
        Request, //
    },
    message::{
        Operation,
        Sums, //
    },
    span::{
        ObjectId,
        Span,
        IO_BLOCKS_MAX, //
    },
    split::{
        CopyParts,
        Parts, //
    },
    wire::{
        self,
        ANSWER_BYTES,
        LISTED_BYTES,
        READ_ANSWER_BYTES, //
    },
};

/// The most operations that one call has in flight.
const WINDOW: usize = 8;
/// The most names of one call.
const NAMES_MAX: u64 = 120;
/// The bytes of the answer with these names.
const LIST_BYTES: usize = ANSWER_BYTES as usize + NAMES_MAX as usize * LISTED_BYTES as usize;

/// Carries out a call, and writes to `request` what it has given. Sleeps, and can be killed.
pub(super) fn carry_out(session: &Attachment, request: &mut Request, call: Call) -> Result {
    let length = core::mem::take(&mut request.length);
    match call {
        // Of the file and not of a session.
        Call::Attach(_) => Err(EINVAL),
        Call::One(operation @ Operation::Lease { .. }) => {
            request.lease = lease(session, operation)?.lease;
            Ok(())
        }
        Call::One(operation) => one(session, request, operation),
        Call::List(cursor, bytes) => list(session, request, (cursor, bytes)),
        Call::Read(object, span) => read(session, request, (object, span)),
        Call::Write(object, span, creates) => write(session, request, (object, span, creates)),
        Call::Copy {
            source,
            span,
            destination,
            offset,
            creates,
        } => {
            let mut parts = CopyParts::new(span, offset);
            let copied = copy(session, request.lease, &mut parts, |span, offset| {
                Operation::Copy {
                    source,
                    span,
                    destination,
                    offset,
                    creates,
                }
            });
            request.length = length.saturating_sub(parts.left_bytes());
            copied
        }
    }
}

/// Carries out one operation; the flight has the answer.
fn exchange(session: &Attachment, operation: Operation<'_>, lease: u32) -> Result<KBox<Flight>> {
    let flight = session.lanes()?.take()?;
    let of = (lease, session.store());
    let lane = begin_one(session, flight, |flight| flight.prepare(operation, of))?;
    session.finish(lane)
}

/// A lease that is asked for by a work item, as the program may be killed at any moment.
#[pin_data]
struct Asked {
    /// The memory of the operation, until the item takes it.
    #[pin]
    flight: IrqLock<Option<KBox<Flight>>>,
    #[pin]
    state: IrqLock<Asking>,
    #[pin]
    answered: WaitQueue,
}

/// The state of such a lease.
enum Asking {
    /// The program waits for it.
    Waited,
    /// The answer is there.
    Answered(Result<Short>),
    /// The program was killed: the lease is ended once it is there.
    GivenUp,
}

impl Asked {
    fn is_given_up(&self) -> bool {
        matches!(*self.state.lock(), Asking::GivenUp)
    }

    /// Asks for it, unless the program was killed before.
    fn ask(&self, session: &Attachment, operation: Operation<'static>) -> Result<Short> {
        let flight = self.flight.lock().take();
        let mut flight = flight.ok_or(errno::ECANCELED)?;
        let lane = flight.lane();
        if let Err(error) = flight.prepare(operation, (0, session.store())) {
            session.lanes()?.give_back(flight);
            return Err(error);
        }
        session.start_unless(flight, || self.is_given_up())?;
        short(session, session.finish(lane)?, wire::LEASE)
    }
}

/// Takes a lease. Sleeps, and can be killed.
#[inline(never)]
fn lease(session: &Attachment, operation: Operation<'static>) -> Result<Short> {
    let asked = pin_init!(Asked {
        flight <- new_irq_lock!(None),
        state <- new_irq_lock!(Asking::Waited),
        answered <- new_wait_queue!(),
    });
    let (asked, lanes) = (Arc::pin_init(asked, GFP_KERNEL)?, session.lanes()?);
    // Here, as an item that waits cannot be killed.
    let flight = lanes.take()?;
    *asked.flight.lock() = Some(flight);
    let (left, to) = (session.clone(), asked.clone());
    let spawned = session.client().wq.try_spawn(GFP_KERNEL, move || {
        let answer = to.ask(&left, operation);
        let mut state = to.state.lock();
        let is_given_up = matches!(*state, Asking::GivenUp);
        *state = Asking::Answered(answer);
        drop(state);
        to.answered.wake_all();
        if let (true, Ok(taken)) = (is_given_up, answer) {
            release(&left, taken.lease);
        }
    });
    if let Err(error) = spawned {
        let flight = asked.flight.lock().take();
        if let Some(flight) = flight {
            lanes.give_back(flight);
        }
        return Err(error);
    }
    let is_there = || !matches!(*asked.state.lock(), Asking::Waited);
    let waited = asked.answered.wait_until_killable(is_there);
    let mut state = asked.state.lock();
    if let Asking::Answered(answer) = *state {
        return answer;
    }
    *state = Asking::GivenUp;
    drop(state);
    session.wake();
    waited.and(Err(errno::ECANCELED))
}

#[inline(never)]
fn one(session: &Attachment, request: &mut Request, operation: Operation<'_>) -> Result {
    let flight = exchange(session, operation, request.lease)?;
    let kind = match operation {
        Operation::Stat { .. } => wire::STAT,
        Operation::Ping => wire::PING,
        _ => {
            session.lanes()?.give_back(flight);
            return Ok(());
        }
    };
    let short = short(session, flight, kind)?;
    (request.size, request.blocks) = (short.size, short.blocks);
    Ok(())
}

/// Reads a short answer out of a flight, whose lane is idle then.
fn short(session: &Session, flight: KBox<Flight>, kind: u8) -> Result<Short> {
    let mut bytes = [0; ANSWER_BYTES as usize];
    let copied = flight.pages().copy_out(ANSWER, &mut bytes);
    session.lanes()?.give_back(flight);
    copied?;
    Short::parse(&bytes, kind).map_err(|reason| session.disbelieve(reason))
}

/// Ends a lease of a file that was closed.
pub(super) fn release(session: &Attachment, lease: u32) {
    if let Ok(flight) = exchange(session, Operation::Release, lease) {
        if let Ok(lanes) = session.lanes() {
            lanes.give_back(flight);
        }
    }
}

#[inline(never)]
fn list(session: &Attachment, request: &mut Request, (cursor, bytes): (u32, u64)) -> Result {
    // CAST: At most `NAMES_MAX`.
    let count_max = (bytes / u64::from(LISTED_BYTES)).min(NAMES_MAX) as u32;
    if count_max == 0 {
        return Err(EINVAL);
    }
    let mut bytes = KVec::from_elem(0, LIST_BYTES, GFP_KERNEL)?;
    let flight = exchange(session, Operation::List { cursor, count_max }, 0)?;
    let copied = flight.pages().copy_out(ANSWER, &mut bytes);
    session.lanes()?.give_back(flight);
    copied?;
    let listed = Listed::parse(&bytes, count_max);
    let (listed, names) = listed.map_err(|reason| session.disbelieve(reason))?;
    if listed.next.is_some_and(|next| next <= cursor) {
        // A program would ask for ever.
        return Err(session.disbelieve(Unbelievable::Number));
    }
    let bytes = size_of_val(names);
    let mut to = UserSlice::new(user(request.buffer, 0)?, bytes).writer();
    for name in names {
        let ObjectId { high, low } = (*name).into();
        to.write_slice(&high.to_ne_bytes())?;
        to.write_slice(&low.to_ne_bytes())?;
    }
    request.length = bytes as u64;
    request.offset = listed.next.unwrap_or_default().into();
    Ok(())
}

/// Copies as much at once as the server has room for.
#[inline(never)]
fn copy(
    session: &Attachment,
    lease: u32,
    parts: &mut CopyParts,
    operation: impl Fn(Span, u64) -> Operation<'static>,
) -> Result {
    while let Some((span, offset)) = parts.next() {
        match exchange(session, operation(span, offset), lease) {
            Ok(flight) => {
                session.lanes()?.give_back(flight);
                parts.done();
            }
            Err(EMSGSIZE) if parts.halve() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns an address of the program.
fn user(buffer: u64, offset: u64) -> Result<UserPtr> {
    let address = buffer.checked_add(offset).ok_or(EFAULT)?;
    Ok(UserPtr::from_addr(
        usize::try_from(address).map_err(|_| EFAULT)?,
    ))
}

/// Returns the CRC of each block of bytes that are in the pages of a flight.
fn sums(flight: &Flight, span: &Span) -> Result<[U32; IO_BLOCKS_MAX]> {
    let (mut sums, mut at) = ([U32::ZERO; IO_BLOCKS_MAX], DATA);
    for (sum, piece) in sums.iter_mut().zip(span.pieces()) {
        let bytes = piece.to.saturating_sub(piece.from) as usize;
        let crc = flight.pages().checksum(Checksum::Crc32c, 0, at, bytes)?;
        // CAST: It has 32 bits.
        *sum = U32::new(crc as u32);
        at = at.saturating_add(bytes);
    }
    Ok(sums)
}

#[inline(never)]
fn write(
    session: &Attachment,
    request: &mut Request,
    (object, all, creates): (ObjectId, Span, bool),
) -> Result {
    let (buffer, of) = (request.buffer, (request.lease, session.store()));
    let begin = |flight: &mut Flight, span: &Span| {
        let from = user(buffer, span.offset().saturating_sub(all.offset()))?;
        // CAST: Those of one operation.
        flight
            .pages()
            .copy_from_user(DATA, from, span.bytes() as usize)?;
        let sums = sums(flight, span)?;
        let sums = sums.get(..span.block_count() as usize).ok_or(EINVAL)?;
        let operation = Operation::Write {
            object,
            span: *span,
            creates,
            sums: Sums::new(sums),
        };
        flight.prepare(operation, of)
    };
    pipeline(session, all, begin, |_, span| {
        request.length = request.length.saturating_add(span.bytes());
        Ok(true)
    })
}

#[inline(never)]
fn read(session: &Attachment, request: &mut Request, (object, all): (ObjectId, Span)) -> Result {
    let (buffer, of) = (request.buffer, (request.lease, session.store()));
    let begin = |flight: &mut Flight, span: &Span| {
        let span = *span;
        flight.prepare(Operation::Read { object, span }, of)
    };
    pipeline(session, all, begin, |flight, span| {
        let mut head = [0; READ_ANSWER_BYTES as usize];
        flight.pages().copy_out(ANSWER, &mut head)?;
        let head = ReadHead::parse(&head, span).map_err(|reason| session.disbelieve(reason))?;
        request.size = head.size;
        let Some(found) = Span::new(span.offset(), head.bytes.into()) else {
            return Ok(false);
        };
        let sums = sums(flight, &found)?;
        if sums.iter().zip(head.sums).any(|(sum, sent)| *sum != sent) {
            if LOG_LIMIT.allow().is_some() {
                let (name, offset) = (session.name(), span.offset());
                let ObjectId { high, low } = object;
                pr_err!(
                    "session {name}: object {high}:{low}: what was read at {offset} is not what \
                     was written there\n"
                );
            }
            return Err(EIO);
        }
        let to = user(buffer, span.offset().saturating_sub(all.offset()))?;
        flight.pages().copy_to_user(DATA, to, head.bytes as usize)?;
        request.length = request.length.saturating_add(found.bytes());
        Ok(found == *span)
    })
}

/// Carries out operations for all parts of bytes, some at a time: `begin` makes one, and `end` gets
/// its answer, in the order of the bytes, and says whether more is wanted.
fn pipeline(
    session: &Session,
    all: Span,
    begin: impl Fn(&mut Flight, &Span) -> Result,
    mut end: impl FnMut(&Flight, &Span) -> Result<bool>,
) -> Result {
    let lanes = session.lanes()?;
    let mut parts = Parts::new(all, session.attached()?.io_bytes_max).peekable();
    let mut window = [None; WINDOW];
    let (mut first, mut count) = (0usize, 0usize);
    let mut more = Ok(true);
    loop {
        while more == Ok(true) && count < WINDOW {
            let Some(span) = parts.peek() else {
                break;
            };
            // Who has one lane does not wait for another.
            let taken = match count {
                0 => lanes.take(),
                _ => match lanes.try_take() {
                    Some(flight) => Ok(flight),
                    None => break,
                },
            };
            match taken.and_then(|flight| begin_one(session, flight, |flight| begin(flight, span)))
            {
                Ok(lane) => {
                    if let Some(place) = window.get_mut(first.wrapping_add(count) % WINDOW) {
                        *place = Some((lane, *span));
                    }
                    count = count.wrapping_add(1);
                    let _ = parts.next();
                }
                Err(error) => more = Err(error),
            }
        }
        let oldest = window.get_mut(first % WINDOW).and_then(Option::take);
        let Some((lane, span)) = oldest else {
            return more.map(|_| ());
        };
        (first, count) = (first.wrapping_add(1), count.saturating_sub(1));
        match session.finish(lane) {
            Ok(flight) => {
                if more == Ok(true) {
                    more = end(&flight, &span);
                }
                lanes.give_back(flight);
            }
            Err(error) => more = more.and(Err(error)),
        }
    }
}

/// Makes and sends an operation; returns its lane.
fn begin_one(
    session: &Session,
    mut flight: KBox<Flight>,
    begin: impl FnOnce(&mut Flight) -> Result,
) -> Result<u16> {
    if let Err(error) = begin(&mut flight) {
        session.lanes()?.give_back(flight);
        return Err(error);
    }
    let lane = flight.lane();
    session.start(flight)?;
    Ok(lane)
}
