// SPDX-License-Identifier: GPL-2.0

//! A store: what clients ask of it, carried out on its index and its medium.
//!
//! Its user calls under one lock. A request *arrives* ([`Store::arrive`]), and waits for those that
//! it may not overtake; then it takes *steps* ([`Store::step`]) until it has ended, and is answered
//! when the batch is durable that has what it has changed ([`Store::answered`]). Between two steps
//! the lock is left: blocks are read, or room is waited for. Nothing here waits.

mod changing;
mod claiming;
mod copying;
mod filing;
mod room;

use ferro_proto::errno::Errno;
use seglog::{
    collect::Purpose,
    log::Wait,
    Checksum, //
};

use super::{
    body::CHANGES_MAX,
    claim::{
        Claim,
        Claims, //
    },
    index::{
        Index,
        Reading,
        Refused,
        Source, //
    },
    limits::{
        Account,
        Limits, //
    },
    log::{
        LogMemory,
        Logged,
        Moved,
        Victim, //
    },
    medium::{
        Actions,
        Medium,
        Need, //
    },
    message::{
        Message,
        Operation, //
    },
    slot::{
        Memory,
        Slot, //
    },
    span::{
        ObjectId,
        Span,
        BLOCK_BYTES, //
    },
    ticket::{
        Lane,
        Outcome,
        Tickets,
        LANES_MAX, //
    },
};

use self::filing::{
    Files,
    Want, //
};
pub use self::{
    claiming::Arrived,
    filing::FileWork, //
};

/// The blocks that an operation reads before it changes something: both edges of what it writes,
/// and both of what it copies.
pub const OLD_MAX: usize = 4;

// A client is forgotten in one batch.
const _: () = assert!(LANES_MAX as usize <= CHANGES_MAX);

/// The bytes of a block.
pub type Block = [u8; BLOCK_BYTES as usize];

/// The memory of a store, which its user allocates.
pub trait StoreMemory {
    /// The slots.
    type Slots: Memory<Slot>;
    /// Heads of lists, by a hash.
    type Buckets: Memory<u32>;
    /// The claims.
    type Claims: Memory<Claim>;
}

/// A client that has attached.
#[derive(Debug)]
pub struct Client<L> {
    /// The number of its session.
    number: u32,
    /// The name that it has for longer than a session: of a client that comes back after a restart
    /// it is the same.
    name: [u64; 2],
    /// The number of its incarnation in the log, and that in all logs and memories.
    kept: u64,
    incarnation: u64,
    tickets: Tickets<L>,
    account: Account,
    /// The limits, which its administrator sets.
    pub limits: Limits,
}

impl<L: AsMut<[Lane]>> Client<L> {
    /// Begins with nothing in flight; [`Store::attach`] follows, on a log. `random` is another one
    /// for each.
    pub fn new((number, name, random): (u32, [u64; 2], u64), lanes: L, limits: Limits) -> Self {
        Self {
            number,
            name,
            kept: random,
            incarnation: random,
            tickets: Tickets::new(lanes),
            account: Account::default(),
            limits,
        }
    }

    /// Returns the number of its incarnation, which the answer of its attach tells. Each message of
    /// it has it: one for another store, or for a client that was forgotten, is not carried out.
    pub const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns what it has.
    pub const fn account(&self) -> &Account {
        &self.account
    }

    /// An administrator has ended a lease of it.
    pub fn lease_ended(&mut self) {
        self.account.end_lease();
    }
}

/// The place of an operation in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    /// Nothing is changed yet.
    #[default]
    Arrived,
    /// A hidden object is filled from a block on.
    Filling(u32, u32),
    /// The end of the object in a slot is removed.
    Trimming(u32),
}

/// A request that is carried out, in memory of its user.
#[derive(Debug, Default)]
pub struct Op {
    /// The number by which it is told that it begins.
    tag: u32,
    /// The number of its claim, or of its lease; 0 of one that needs none.
    claim: u32,
    bytes: u64,
    old: [Option<Source>; OLD_MAX],
    progress: Progress,
    /// The slots that it has looked at for what can be evicted.
    looked: u64,
    /// The need of files, and the error that one has given.
    want: Want,
    has_fetched: bool,
    lost: Option<Errno>,
    /// The times that room could not be made, when it began to wait for some.
    setbacks: Option<u64>,
}

impl Op {
    /// Begins one. Its user finds it by the tag.
    pub fn new(tag: u32) -> Self {
        Self {
            tag,
            ..Self::default()
        }
    }
}

/// The data of a request, and the blocks that were read for it.
pub struct Data<'a> {
    /// The bytes that are written.
    pub bytes: &'a [u8],
    /// The blocks that [`Step::Read`] has named; of others the content does not matter.
    pub blocks: &'a mut [Block; OLD_MAX],
}

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    /// The answer.
    pub outcome: Outcome,
    /// The batch that has to be durable before the answer: what it has changed is in it, or what it
    /// has seen. In memory it is 0.
    pub after: u64,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Blocks are read to [`Data::blocks`], which may be none, then it takes its next step. They
    /// are those for all steps that follow, until there is another result of this kind.
    Read([Option<Source>; OLD_MAX]),
    /// Room is waited for: it takes its next step when something has ended.
    Wait(Wait),
    /// Room is waited for in the same way, which others make by writing to files. It keeps none of
    /// the blocks that were read for it.
    Room,
    /// A file is needed: the request is put into the queue for [`Store::file_of`], as the first one
    /// if `is_next`: what it has fetched would be dropped for others, and theirs for it. It keeps
    /// none of its blocks.
    File {
        /// Whether it has fetched something.
        is_next: bool,
    },
    /// The request takes its next step.
    Again,
    /// The request has ended.
    Done(Done),
}

/// The reason why a step is not the last one.
enum Stop {
    /// Blocks of [`Op::old`] are read first.
    Read,
    Wait(Wait),
    Room,
    File,
    Again,
    Refused(Errno),
}

impl From<Refused> for Stop {
    fn from(refused: Refused) -> Self {
        match refused {
            // A step of its trimming ends that.
            Refused::Shrinking => Self::Wait(Wait::Segment),
            _ => Self::Refused(refused.errno()),
        }
    }
}

/// The result of a look.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "its extents are pinned"]
pub struct Look {
    /// The bytes that are read: [`Store::end_read`] ends it.
    pub reading: Reading,
    /// The batch that has to be durable before the answer.
    pub after: u64,
}

/// A store.
#[derive(Clone, Debug)]
pub struct Store<M: StoreMemory, D> {
    /// Slot at which eviction looks next; `None` if objects stay until they are deleted.
    evicts_from: Option<u32>,
    /// The files of objects; `None` if they have none.
    files: Option<Files>,
    index: Index<M::Slots, M::Buckets>,
    claims: Claims<M::Claims, M::Buckets>,
    medium: D,
}

impl<M: StoreMemory, D: Medium> Store<M, D> {
    /// Begins with an index, which may have been restored.
    pub const fn new(
        index: Index<M::Slots, M::Buckets>,
        claims: Claims<M::Claims, M::Buckets>,
        medium: D,
    ) -> Self {
        Self {
            evicts_from: None,
            files: None,
            index,
            claims,
            medium,
        }
    }

    /// Objects that were not used lately go when there is no room. Only in memory: what was
    /// acknowledged as durable stays.
    pub fn evict_objects(&mut self) {
        self.evicts_from = Some(0);
    }

    /// Returns the index.
    pub const fn index(&self) -> &Index<M::Slots, M::Buckets> {
        &self.index
    }

    /// Returns the claims, of which leases are some.
    pub const fn claims(&self) -> &Claims<M::Claims, M::Buckets> {
        &self.claims
    }

    /// Returns the medium.
    pub const fn medium(&self) -> &D {
        &self.medium
    }

    /// Returns the medium.
    pub fn medium_mut(&mut self) -> &mut D {
        &mut self.medium
    }

    /// Returns the client of the next incarnation behind one, at first 0, and the number of that:
    /// the clients that a log has kept, in the order in which they came. Its user has a place for
    /// each of them, as for clients that are gone, so that they are forgotten in time.
    pub fn client_after(&self, incarnation: u64) -> Option<([u64; 2], u64)> {
        self.index.client_after(incarnation)
    }

    /// A client begins: what the log has kept of its operations is known from now on. `gone` is one
    /// that is gone, and is forgotten for good to make room for it.
    ///
    /// # Errors
    ///
    /// Returns that there is no room for it: none is forgotten.
    pub fn attach(
        &mut self,
        client: &mut Client<impl AsMut<[Lane]>>,
        gone: Option<[u64; 2]>,
        with: (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Errno> {
        if gone.is_some() {
            // All of it is forgotten in one batch, or nothing.
            let prepared = self.prepare((Purpose::Reserved, 0, CHANGES_MAX), with);
            prepared.map_err(|_| Errno::EAGAIN)?;
        }
        let of = (client.name, client.kept);
        let attached = self
            .index
            .attach(of, &mut client.tickets, gone, &mut self.medium);
        client.kept = attached.map_err(Refused::errno)?;
        // Logs count each from the first one on.
        client.incarnation = client.kept ^ self.medium.identity().unwrap_or_default();
        Ok(())
    }

    /// Begins a read of bytes of an object, of one operation that has begun: those of this moment.
    ///
    /// # Errors
    ///
    /// Returns why it does not, and the batch that has to be durable before this is said.
    // A frame of its own: what is read is large.
    #[inline(never)]
    pub fn read(&mut self, (object, span): (ObjectId, &Span)) -> Result<Look, (Errno, u64)> {
        let after = self.medium.changed_by(self.index.bit(object));
        if self.is_backed() && self.index.missing(object, span).is_some() {
            // Its user has not called `ready`, which would have them fetched.
            return Err((Errno::EIO, after));
        }
        let reading = self.index.read(object, span);
        let reading = reading.map_err(|refused| (refused.errno(), after))?;
        for source in reading.parts().iter().filter_map(|part| part.source) {
            self.medium.begin_read(&source.stored);
        }
        Ok(Look { reading, after })
    }

    /// A read has ended.
    pub fn end_read(&mut self, reading: Reading) {
        for source in reading.parts().iter().filter_map(|part| part.source) {
            self.medium.end_read(&source.stored);
        }
        self.index.end_read(reading, &mut self.medium);
    }

    /// Returns the batch that has to be durable before something is said of an object.
    pub fn after(&self, object: ObjectId) -> u64 {
        self.medium.changed_by(self.index.bit(object))
    }

    fn prepare(
        &mut self,
        need: Need,
        with: (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Wait> {
        let index = &self.index;
        self.medium.prepare(need, |slot| index.entry(slot), with)
    }

    /// Takes the next step of a request that has begun.
    pub fn step(
        &mut self,
        client: &mut Client<impl AsMut<[Lane]>>,
        op: &mut Op,
        (message, data): (&Message<'_>, &mut Data<'_>),
        (actions, crc): (&mut impl Actions, &impl Checksum),
    ) -> Step {
        let done = self.carry_out(client, op, (message, data), (actions, crc));
        self.result(op, message, done, actions)
    }

    /// Takes the next step of a write as far as its bytes are not needed; returns its result if
    /// that is all: its user need not copy them for it. [`Self::step`] follows otherwise. A read
    /// begins if this has no result.
    pub fn ready(
        &mut self,
        op: &mut Op,
        message: &Message<'_>,
        (actions, crc): (&mut impl Actions, &impl Checksum),
    ) -> Option<Step> {
        let with = (&mut *actions, crc);
        let ready = match message.operation {
            Operation::Write { object, span, .. } => self.ready_to_write(op, (object, &span), with),
            Operation::Read { object, span } => self.have(op, (object, &span), with),
            _ => return None,
        };
        match ready {
            Ok(()) => None,
            stopped => Some(self.result(op, message, stopped, actions)),
        }
    }

    /// Returns the result of a step.
    fn result(
        &mut self,
        op: &mut Op,
        message: &Message<'_>,
        done: Result<(), Stop>,
        actions: &mut impl Actions,
    ) -> Step {
        let errno = match done {
            Err(Stop::Read) => return Step::Read(op.old),
            Err(Stop::Wait(wait)) => return Step::Wait(wait),
            Err(Stop::Room) => return Step::Room,
            Err(Stop::File) => {
                let is_next = core::mem::replace(&mut op.has_fetched, true);
                return Step::File { is_next };
            }
            Err(Stop::Again) => return Step::Again,
            Err(Stop::Refused(errno)) => Some(errno),
            Ok(()) => None,
        };
        let after = match errno {
            // It has seen what others have changed.
            Some(_) => self.seen(&message.operation),
            None => self.medium.last(),
        };
        let is_lease = matches!(message.operation, Operation::Lease { .. });
        let outcome = Outcome {
            errno: errno.map_or(0, Errno::get),
            lease: if is_lease && errno.is_none() {
                op.claim
            } else {
                0
            },
        };
        self.end(op, is_lease, actions);
        Step::Done(Done { outcome, after })
    }
}

impl<M: StoreMemory, L: LogMemory> Store<M, Logged<L>> {
    /// Does what follows by itself, when something has ended or was changed. The user then lets
    /// those requests take a step that wait for room, and answers those whose batch is durable.
    pub fn settle(&mut self, with: (&mut impl Actions, &impl Checksum)) {
        let index = &self.index;
        self.medium.settle(|slot| index.entry(slot), with);
    }

    /// Moves what is used of a batch that was read to `column`.
    pub fn collect(
        &mut self,
        from: (&mut Victim, &[u8]),
        with: (&mut impl Actions, &impl Checksum),
    ) -> Moved {
        self.medium.collect(from, &mut self.index, with)
    }
}
