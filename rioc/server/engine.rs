// SPDX-License-Identifier: GPL-2.0

//! Carries out the requests of a store, under its lock.

mod clients;
mod filing;
mod turn;

use ferro_proto::errno::Errno;
use kernel::{
    prelude::*,
    str::CString, //
};
use rtrs_server::Operation;

pub(super) use self::{
    clients::Place,
    turn::Turn, //
};
use super::{
    medium::{
        Acting,
        Kept, //
    },
    memory::{
        Crc,
        Elements,
        Tables,
        CLIENTS_MAX,
        DEPTH,
        REQUESTS_MAX, //
    },
    message::{
        message_of,
        refuse,
        reply, //
    },
    reading::{
        Failed,
        Scratch, //
    }, //
};
use crate::proto::{
    index::Source,
    medium::Io,
    message::{
        Message,
        Operation as Asked, //
    },
    store::{
        Arrived,
        Client,
        Data,
        Done,
        Op,
        Step,
        Store,
        OLD_MAX, //
    },
    ticket::{
        Lane,
        Outcome, //
    },
    turns::Turns, //
};

/// The state of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Waits for another copy of itself, and arrives again then.
    Repeated,
    /// Arrives, for the first time or again.
    Arrives,
    /// Waits for those before it.
    Waits,
    /// Takes its next step.
    Runs,
    /// Waits for room, or for blocks that are read.
    Stays,
    /// Waits for a file.
    Files,
    /// Waits for a batch before it is answered.
    Ended(Done),
}

/// A request that has come and is not answered.
struct Request {
    operation: Operation,
    op: Op,
    state: State,
    /// The blocks that are read before each of its next steps.
    old: [Option<Source>; OLD_MAX],
}

/// A client that has attached.
struct Known {
    client: Client<Elements<Lane>>,
    name: [u64; 2],
    /// The name of its session; `None` of one that is gone.
    session: Option<CString>,
    /// The requests, by their chunks.
    requests: KVVec<Option<Request>>,
    has_repeated: bool,
    /// The time at which it has gone, in clients.
    left: u64,
}

/// The counts of what was done.
#[derive(Default)]
pub(super) struct Counts {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) others: u64,
    pub(super) failed: u64,
    pub(super) malformed: u64,
    /// The reads that had to wait for a file.
    missed: u64,
}

impl Counts {
    /// Returns the reads of what was here.
    pub(super) const fn hits(&self) -> u64 {
        self.reads.saturating_sub(self.missed)
    }

    /// A request waits for a file.
    fn miss(&mut self, message: &Message<'_>) {
        if let Asked::Read { .. } = message.operation {
            self.missed = self.missed.saturating_add(1);
        }
    }

    fn add(&mut self, message: &Message<'_>, errno: u16) {
        let count = match message.operation {
            _ if errno != 0 => &mut self.failed,
            Asked::Read { .. } => &mut self.reads,
            Asked::Write { .. } => &mut self.writes,
            _ => &mut self.others,
        };
        *count = count.saturating_add(1);
    }
}

/// The state of a store, behind its lock.
pub(super) struct Engine<D> {
    pub(super) store: KBox<Store<Tables, D>>,
    pub(super) acting: Acting,
    clients: KVec<KBox<Known>>,
    /// The requests that wait for room, and those that wait for a batch.
    waiting: KVVec<u32>,
    ended: KVVec<u32>,
    /// The batch up to which those that are durable were answered.
    settled: u64,
    in_flight: usize,
    turns: Turns,
    /// The turns of requests that need files, and of what the store does with them by itself.
    file_turns: Turns,
    /// The work item of files runs, or will.
    is_filing: bool,
    /// The first slot that was not looked at for an object that a restart has left to be cut.
    untrimmed: Option<u32>,
    /// A segment is collected, and its work item waits for room.
    pub(super) is_collecting: bool,
    /// The store is being deleted: no request waits for room any more.
    is_ending: bool,
    gone: u64,
    pub(super) counts: Counts,
}

fn tag_of(client: u32, chunk: u16) -> u32 {
    client << u16::BITS | u32::from(chunk)
}

fn split(tag: u32) -> (usize, usize) {
    // CAST: Its lower half.
    ((tag >> u16::BITS) as usize, usize::from(tag as u16))
}

fn request_of(clients: &mut KVec<KBox<Known>>, tag: u32) -> Option<&mut Request> {
    let (client, chunk) = split(tag);
    clients.get_mut(client)?.requests.get_mut(chunk)?.as_mut()
}

impl<D: Kept> Engine<D> {
    /// Begins without clients. Sleeps.
    #[inline(never)]
    pub(super) fn new(store: KBox<Store<Tables, D>>, acting: Acting) -> Result<KBox<Self>> {
        let mut engine = Self {
            store,
            acting,
            clients: KVec::with_capacity(CLIENTS_MAX, GFP_KERNEL)?,
            waiting: KVVec::with_capacity(REQUESTS_MAX, GFP_KERNEL)?,
            ended: KVVec::with_capacity(REQUESTS_MAX, GFP_KERNEL)?,
            settled: 0,
            in_flight: 0,
            turns: Turns::default(),
            file_turns: Turns::default(),
            is_filing: false,
            untrimmed: D::IS_DURABLE.then_some(0),
            is_collecting: false,
            is_ending: false,
            gone: 0,
            counts: Counts::default(),
        };
        engine.remember()?;
        Ok(KBox::new(engine, GFP_KERNEL)?)
    }

    /// Whether no request is in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// The store is being deleted: who waits for room, which may never be there, is answered, and
    /// so is who waits for a file, which may hang.
    pub(super) fn end_waiting(&mut self) {
        self.is_ending = true;
        self.try_again();
        let tags = |clients: u32| (0..clients).flat_map(|c| (0..DEPTH).map(move |n| tag_of(c, n)));
        // CAST: At most CLIENTS_MAX.
        for tag in tags(self.clients.len() as u32) {
            let request = request_of(&mut self.clients, tag);
            if let Some(request) = request.filter(|request| request.state == State::Files) {
                let done = self.store.end_early(&mut request.op, &mut self.acting);
                self.end(tag, done);
            }
        }
    }

    /// Whether nothing is in flight, and all is durable.
    pub(super) fn is_quiet(&self) -> bool {
        let ios = self.acting.log.as_ref().map_or(0, |log| log.in_flight);
        self.is_idle() && ios == 0 && self.store.medium().is_quiet()
    }

    /// An IO of the log has ended.
    pub(super) fn io_ended(&mut self, io: Io, is_well: bool) {
        if let Some(log) = &mut self.acting.log {
            log.in_flight = log.in_flight.saturating_sub(1);
        }
        self.store.medium_mut().ended(io, is_well);
        self.try_again();
    }

    fn take(&mut self, tag: u32) -> Option<Request> {
        let (client, chunk) = split(tag);
        let known = self.clients.get_mut(client)?;
        let request = known.requests.get_mut(chunk)?.take()?;
        self.in_flight = self.in_flight.saturating_sub(1);
        Some(request)
    }

    /// A request has come.
    pub(super) fn arrive(&mut self, client: u32, operation: Operation) {
        let tag = tag_of(client, operation.chunk_id());
        let (client, chunk) = split(tag);
        let known = self.clients.get_mut(client);
        let place = known.and_then(|known| known.requests.get_mut(chunk));
        // A chunk carries one request at a time.
        if let Some(place @ None) = place {
            *place = Some(Request {
                operation,
                op: Op::new(tag),
                state: State::Arrives,
                old: [None; OLD_MAX],
            });
            self.in_flight = self.in_flight.saturating_add(1);
            self.begin(tag);
        }
    }

    /// A request arrives, or does so again.
    fn begin(&mut self, tag: u32) {
        let (client, chunk) = split(tag);
        let Some(known) = self.clients.get_mut(client).map(|known| &mut **known) else {
            return;
        };
        let request = known.requests.get_mut(chunk).and_then(Option::as_mut);
        let Some(request) = request else {
            return;
        };
        let message = match message_of(&request.operation) {
            Ok(message) => message,
            Err(why) => {
                self.counts.malformed = self.counts.malformed.saturating_add(1);
                let request = known.requests.get_mut(chunk).and_then(Option::take);
                self.in_flight = self.in_flight.saturating_sub(1);
                if let (Some(request), Some(session)) = (request, &known.session) {
                    refuse(request.operation, session, why);
                }
                return;
            }
        };
        let arrived = self
            .store
            .arrive(&mut known.client, &mut request.op, &message);
        let outcome = match arrived {
            Arrived::Begins => {
                request.state = State::Runs;
                return self.acting.run(tag);
            }
            Arrived::Waits => {
                request.state = State::Waits;
                return;
            }
            Arrived::Repeated => {
                (request.state, known.has_repeated) = (State::Repeated, true);
                return;
            }
            Arrived::Answer(outcome) => outcome,
            Arrived::Late => Outcome {
                errno: Errno::ESTALE.get(),
                lease: 0,
            },
        };
        if let Some(request) = self.take(tag) {
            reply(request.operation, outcome);
        }
    }

    /// Lets a request take its step.
    #[inline(never)]
    pub(super) fn finish(&mut self, tag: u32, scratch: &mut Scratch) {
        let (client, chunk) = split(tag);
        let Some(known) = self.clients.get_mut(client).map(|known| &mut **known) else {
            return;
        };
        let request = known.requests.get_mut(chunk).and_then(Option::as_mut);
        let Some(request) = request else { return };
        let read = scratch.end(&mut *self.store, &mut request.operation);
        let Ok(message) = message_of(&request.operation) else {
            return;
        };
        let (client, with) = (&mut known.client, (&mut self.acting, &Crc));
        let mut data = Data {
            bytes: scratch.data.get(..scratch.data_bytes).unwrap_or_default(),
            blocks: &mut scratch.blocks,
        };
        let is_lost = matches!(read, Err((_, None)));
        let step = if is_lost {
            // Of blocks that cannot be read nothing can be stored.
            self.store.give_up(&mut request.op, with.0);
            let outcome = Outcome::default();
            Step::Done(Done { outcome, after: 0 })
        } else {
            let (op, of) = (&mut request.op, (&message, &mut data));
            self.store.step(client, op, of, with)
        };
        self.follow(tag, step, read);
    }

    /// Follows the result of a step, for which blocks were `read`.
    pub(super) fn follow(&mut self, tag: u32, step: Step, read: Result<Option<u64>, Failed>) {
        let Some(request) = request_of(&mut self.clients, tag) else {
            return;
        };
        let Ok(message) = message_of(&request.operation) else {
            return;
        };
        match step {
            Step::Read(old) => {
                (request.old, request.state) = (old, State::Runs);
                self.acting.run(tag);
            }
            Step::Again => {
                // It keeps none of them: others may be read before its next step.
                request.old = [None; OLD_MAX];
                request.state = State::Runs;
                self.acting.run(tag);
            }
            Step::Wait(_) | Step::Room | Step::File { .. } if self.is_ending => {
                let done = self.store.end_early(&mut request.op, &mut self.acting);
                self.end(tag, done);
            }
            Step::File { is_next } => {
                (request.old, request.state) = ([None; OLD_MAX], State::Files);
                if !is_next {
                    self.counts.miss(&message);
                }
                self.acting.need_files(tag, is_next);
            }
            Step::Wait(_) | Step::Room => {
                if matches!(step, Step::Room) {
                    request.old = [None; OLD_MAX];
                }
                // There is room for all.
                let _ = self.waiting.push_within_capacity(tag);
            }
            Step::Done(mut done) => {
                request.old = [None; OLD_MAX];
                match read {
                    Ok(after) => done.after = after.unwrap_or(done.after),
                    Err((errno, after)) => {
                        done.outcome.errno = errno;
                        done.after = after.unwrap_or(0);
                    }
                }
                self.counts.add(&message, done.outcome.errno);
                self.end(tag, done);
            }
        }
    }

    /// A request has ended: it is answered when its batch is durable.
    fn end(&mut self, tag: u32, done: Done) {
        let Some(request) = request_of(&mut self.clients, tag) else {
            return;
        };
        request.state = State::Ended(done);
        let durable = self.store.medium().durable_up_to();
        if done.after <= durable {
            self.answer(tag, durable);
        } else {
            let _ = self.ended.push_within_capacity(tag);
        }
    }

    /// Answers; what will never be durable is EIO.
    fn answer(&mut self, tag: u32, durable: u64) {
        let Some(request) = self.take(tag) else {
            return;
        };
        let State::Ended(mut done) = request.state else {
            return;
        };
        let (client, _) = split(tag);
        if let Some(known) = self.clients.get_mut(client).map(|known| &mut **known) {
            if done.after > durable {
                let of = (&mut known.client, &mut self.acting);
                done.outcome = self.store.fail(of.0, done.outcome, of.1);
            }
            if let Ok(message) = message_of(&request.operation) {
                let of = (&request.op, &message);
                self.store.answered(&mut known.client, of, done.outcome);
            }
            if core::mem::take(&mut known.has_repeated) {
                for (chunk, request) in (0..).zip(known.requests.iter_mut()) {
                    let repeated = request.as_mut();
                    let mut repeated = repeated.filter(|one| one.state == State::Repeated);
                    if let Some(request) = &mut repeated {
                        request.state = State::Arrives;
                        // CAST: Below CLIENTS_MAX.
                        self.acting.run(tag_of(client as u32, chunk));
                    }
                }
            }
        }
        reply(request.operation, done.outcome);
    }

    /// Does what follows by itself: what is durable is answered, and who waits for room tries again
    /// if there may be some.
    pub(super) fn settle(&mut self) {
        D::settle(&mut self.store, &mut self.acting);
        let durable = self.store.medium().durable_up_to();
        let is_stopped = self.store.medium().is_stopped();
        if durable == self.settled && !is_stopped {
            return;
        }
        self.settled = durable;
        let mut at = 0;
        while let Some(tag) = self.ended.get(at).copied() {
            if is_stopped || self.is_ended(tag, durable) {
                // The last one takes its place.
                if let (Some(last), Some(place)) = (self.ended.pop(), self.ended.get_mut(at)) {
                    *place = last;
                }
                self.answer(tag, durable);
            } else {
                at = at.saturating_add(1);
            }
        }
    }

    fn is_ended(&self, tag: u32, durable: u64) -> bool {
        let (client, chunk) = split(tag);
        let known = self.clients.get(client);
        let request = known.and_then(|known| known.requests.get(chunk)?.as_ref());
        !request.is_some_and(|request| match request.state {
            State::Ended(done) => done.after > durable,
            _ => false,
        })
    }

    /// Lets those try again that wait for room.
    pub(super) fn try_again(&mut self) {
        for tag in self.waiting.drain_all() {
            if let Some(request) = request_of(&mut self.clients, tag) {
                request.state = State::Runs;
                self.acting.run(tag);
            }
        }
    }
}
