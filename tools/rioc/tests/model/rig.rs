// SPDX-License-Identifier: GPL-2.0

//! A store and its clients, carried out as a server does: requests arrive, take their steps, and
//! are answered, while IO ends in any order. Beside it are objects that are arrays of bytes, on
//! which a request is carried out when the store says that it was.

mod begun;
pub(crate) mod filed;
mod logged;
mod reading;
mod stepping;

use std::collections::{
    BTreeMap,
    BTreeSet,
    VecDeque, //
};

use rioc::proto::{
    body,
    claim::{
        Claim,
        Claims, //
    },
    index::{
        Reading,
        Source, //
    },
    limits::Limits,
    log::{
        Logged,
        Moved,
        Victim, //
    },
    medium::{
        Actions,
        Io,
        Medium, //
    },
    slot::{
        Slot,
        Stored,
        NONE, //
    },
    span::{
        ObjectId,
        Span,
        BLOCK_BYTES, //
    },
    store::{
        Arrived,
        Block,
        Client,
        Data,
        Done,
        Op,
        Step,
        Store,
        StoreMemory,
        OLD_MAX, //
    },
    ticket::{
        Lane,
        Outcome,
        Ticket, //
    },
};
use seglog::{
    batch::HEAD_BYTES,
    superblock::SUPERBLOCK_BYTES, //
};
use zerocopy::little_endian::U32;

use crate::{
    assembly::{
        assemble,
        format,
        Heap,
        PAGE_BYTES, //
    },
    disk::{
        Crc,
        Disk, //
    },
    random::Random,
    requests::{
        apply,
        Ask,
        Request, //
    },
    store::Objects,
    world::{
        id,
        pattern, //
    },
};

use self::filed::Filed;

pub(crate) use self::begun::Begun;

pub(crate) const CLIENTS: usize = 3;
pub(crate) const LANES: u16 = 4;
pub(crate) const LIMITS: Limits = Limits {
    operations_max: 8,
    bytes_max: 1 << 20,
    leases_max: 2,
};

/// The memory of a store.
#[derive(Clone, Debug)]
pub(crate) struct Tables;

impl StoreMemory for Tables {
    type Slots = Vec<Slot>;
    type Buckets = Vec<u32>;
    type Claims = Vec<Claim>;
}

/// Mistakes of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    None,
    /// The pages of a dump are not flushed before the superblock that names it.
    DumpNotFlushed,
    /// A flush of batches does nothing.
    FlushNotDone,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    Waits,
    Runs,
    Reads([Option<Source>; OLD_MAX]),
    /// Waits in the queue of files.
    Files,
    /// Waits for room until something has ended.
    Room,
    Ended(Done),
}

struct Running {
    request: Request,
    op: Op,
    state: State,
    blocks: Box<[Block; OLD_MAX]>,
    /// Batch in which it was carried out on the arrays already.
    applied: Option<u64>,
}

/// A read that has begun, and the bytes that it must give.
pub(crate) struct Held(Reading, Vec<u8>);

/// A medium of which blocks are read, by their places.
pub(crate) trait Readable: Medium {
    fn block(&self, disk: &Disk, stored: &Stored, block: u8) -> Block;
    fn durable_up_to(&self) -> u64;
    fn settle_all(store: &mut Store<Tables, Self>, begun: &mut Begun)
    where
        Self: Sized;
    fn end_io(_rig: &mut Rig<Self>) -> bool
    where
        Self: Sized,
    {
        false
    }
}

/// Result of a life.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) done: u64,
    pub(crate) refused: u64,
    pub(crate) full: u64,
    pub(crate) crashes: u64,
    pub(crate) moved: u64,
    pub(crate) batches: u64,
    pub(crate) sent_again: u64,
    pub(crate) carried_out_before: u64,
}

pub(crate) struct Rig<D> {
    pub(crate) store: Store<Tables, D>,
    pub(crate) begun: Begun,
    pub(crate) clients: Vec<Client<Vec<Lane>>>,
    sequences: Vec<u64>,
    pub(crate) leases: Vec<Vec<u32>>,
    running: BTreeMap<u32, Running>,
    tags: u32,
    pub(crate) objects: Objects,
    /// The objects behind each batch.
    history: BTreeMap<u64, Objects>,
    /// The batch in which each operation was carried out.
    carried_out: BTreeMap<(usize, u64), u64>,
    /// The last batch that an answer has told of.
    answered: u64,
    held: Vec<Held>,
    victim: Option<(Victim, Vec<u8>, bool)>,
    pub(crate) random: Random,
    pub(crate) fault: Fault,
    /// Flushes take much longer than writes.
    pub(crate) slow_flushes: bool,
    pub(crate) filed: Filed,
    pub(crate) tally: Tally,
}

fn clients() -> Vec<Client<Vec<Lane>>> {
    let each = 0..CLIENTS as u32;
    let lanes = || vec![Lane::UNUSED; LANES.into()];
    each.map(|number| Client::new((number, [7, u64::from(number)], 9), lanes(), LIMITS))
        .collect()
}

/// Makes the claims of a life.
pub(crate) fn claims(random: &mut Random) -> Claims<Vec<Claim>, Vec<u32>> {
    // CAST: Some of its bits.
    let first_lease = random.next() as u32;
    Claims::new(vec![Claim::FREE; 64], vec![NONE; 3], ([5, 6], first_lease))
}

impl<D: Readable> Rig<D> {
    pub(crate) fn with(
        (store, begun): (Store<Tables, D>, Begun),
        (random, fault): (Random, Fault),
        end: u64,
    ) -> Self {
        let mut rig = Self {
            store,
            begun,
            clients: clients(),
            sequences: vec![0; CLIENTS],
            leases: vec![Vec::new(); CLIENTS],
            running: BTreeMap::new(),
            tags: 0,
            objects: Objects::new(),
            history: BTreeMap::from([(end, Objects::new())]),
            carried_out: BTreeMap::new(),
            answered: 0,
            held: Vec::new(),
            victim: None,
            random,
            fault,
            slow_flushes: false,
            filed: Filed::default(),
            tally: Tally::default(),
        };
        rig.attach();
        rig
    }

    fn attach(&mut self) {
        for client in &mut self.clients {
            let with = (&mut self.begun, &Crc);
            self.store.attach(client, None, with).unwrap();
        }
    }

    /// Makes a request, with the next number of a lane.
    pub(crate) fn request(&mut self, client: usize, ask: Ask, lease: u32) -> Request {
        self.sequences[client] += 1;
        let sequence = self.sequences[client];
        let lane = (sequence % u64::from(LANES)) as u16;
        let has_ticket = !matches!(ask, Ask::Flush(_) | Ask::Read(..));
        let mut request = Request {
            client,
            ask,
            lease,
            ticket: has_ticket.then(|| Ticket::new(lane, sequence).unwrap()),
            incarnation: self.clients[client].incarnation(),
            bytes: Vec::new(),
            sums: Vec::new(),
        };
        if let Ask::Write(_, offset, bytes, _) = ask {
            let step = sequence * CLIENTS as u64 + client as u64;
            request.bytes = (0..bytes as usize).map(|at| pattern(step, at)).collect();
            let pieces = Span::new(offset, bytes).unwrap().pieces();
            let sums = pieces.map(|piece| {
                let at = u64::from(piece.block) * BLOCK_BYTES + u64::from(piece.from) - offset;
                let bytes = &request.bytes[at as usize..][..(piece.to - piece.from) as usize];
                U32::new(crc32c::crc32c(bytes))
            });
            request.sums = sums.collect();
        }
        request
    }

    /// Whether the lane of the next request of a client is idle.
    pub(crate) fn is_idle(&self, client: usize) -> bool {
        let lane = ((self.sequences[client] + 1) % u64::from(LANES)) as u16;
        let each = self.running.values();
        let mut own = each.filter(|one| one.request.client == client);
        !own.any(|one| {
            one.request
                .ticket
                .is_some_and(|ticket| ticket.lane() == lane)
        })
    }

    /// Sends a request; returns its answer if it is answered at once.
    pub(crate) fn send(&mut self, request: Request) -> Result<u32, Arrived> {
        self.tags += 1;
        let mut op = Op::new(self.tags);
        let client = &mut self.clients[request.client];
        let arrived = self.store.arrive(client, &mut op, &request.message());
        let state = match arrived {
            Arrived::Begins => State::Runs,
            Arrived::Waits => State::Waits,
            other => return Err(other),
        };
        self.sent_flush(self.tags, request.ask);
        self.running.insert(
            self.tags,
            Running {
                request,
                op,
                state,
                blocks: Box::new([[0x77; BLOCK_BYTES as usize]; OLD_MAX]),
                applied: None,
            },
        );
        Ok(self.tags)
    }

    fn ended(&mut self, tag: u32, done: Done) {
        let ask = self.running[&tag].request.ask;
        let errno = u32::from(done.outcome.errno);
        match errno {
            0 => {
                self.applied(tag);
                assert!(Some(done.after) >= self.running[&tag].applied);
            }
            // No room for it, a file that may not be so long, or too many ranges for a copy.
            27 | 28 | 90 => self.tally.full += 1,
            // The device has failed, a lease excludes it now, or is gone.
            5 | 16 | 116 => self.tally.refused += 1,
            _ => {
                let expected = apply(&mut self.objects.clone(), &self.running[&tag].request);
                assert_eq!(expected, Err(errno), "{ask:?}");
                self.tally.refused += 1;
            }
        }
        if let (0, Ask::Lease(..)) = (errno, ask) {
            let client = self.running[&tag].request.client;
            self.leases[client].push(done.outcome.lease);
        }
    }

    /// A request was carried out.
    fn applied(&mut self, tag: u32) {
        let one = self.running.get_mut(&tag).unwrap();
        if one.applied.is_some() {
            return;
        }
        one.applied = Some(self.store.medium().last());
        let done = apply(&mut self.objects, &one.request);
        assert_eq!(done, Ok(()), "{:?}", one.request.ask);
        self.tally.done += 1;
        self.filed.flushed(tag);
        if matches!(
            one.request.ask,
            Ask::Flush(_) | Ask::Lease(..) | Ask::Release | Ask::Read(..)
        ) {
            return;
        }
        let batch = self.store.medium().last();
        self.history.insert(batch, self.objects.clone());
        self.filed.note(&self.objects, one.request.ask);
        if let Some(ticket) = one.request.ticket {
            let key = (one.request.client, ticket.word());
            let before = self.carried_out.insert(key, batch);
            assert_eq!(before, None, "carried out twice");
        }
    }

    /// Answers those whose batch is durable; returns their outcomes.
    pub(crate) fn answer(&mut self) -> Vec<(u32, Outcome)> {
        let durable = self.store.medium().durable_up_to();
        let mut answers = Vec::new();
        for (tag, one) in &self.running {
            if let State::Ended(done) = one.state {
                if done.after <= durable {
                    answers.push((*tag, done.outcome));
                    // The first batch of an assembly has no operations, and may be lost.
                    let told = self.history.range(..=done.after).last();
                    self.answered = self.answered.max(told.map_or(0, |(batch, _)| *batch));
                }
            }
        }
        for (tag, outcome) in &answers {
            let one = self.running.remove(tag).unwrap();
            let client = &mut self.clients[one.request.client];
            let message = one.request.message();
            self.store.answered(client, (&one.op, &message), *outcome);
        }
        answers
    }

    pub(crate) fn settle(&mut self) {
        D::settle_all(&mut self.store, &mut self.begun);
    }

    /// Lets requests that run take a step, all of them or one.
    pub(crate) fn step_some(&mut self, all: bool) {
        let tags: Vec<_> = self.running.keys().copied().collect();
        if all {
            tags.into_iter().for_each(|tag| self.step(tag));
        } else if !tags.is_empty() {
            let tag = tags[self.random.below(tags.len())];
            self.step(tag);
        }
    }

    /// Returns how many reads are held.
    pub(crate) fn held(&self) -> usize {
        self.held.len()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.running.len()
    }

    /// The server gives up a request whose client is gone.
    pub(crate) fn give_up(&mut self, tag: u32) {
        let mut one = self.running.remove(&tag).unwrap();
        self.store.give_up(&mut one.op, &mut self.begun);
        let client = &mut self.clients[one.request.client];
        let message = one.request.message();
        let outcome = Outcome::default();
        self.store.answered(client, (&one.op, &message), outcome);
        self.note_begun();
    }

    /// Whether a request has ended with EIO.
    pub(crate) fn is_refused(&self, tag: u32) -> bool {
        let state = &self.running[&tag].state;
        matches!(state, State::Ended(done) if done.outcome.errno == 5)
    }

    /// An IO ends, if one is in flight; returns whether one was.
    pub(crate) fn end_any(&mut self) -> bool {
        D::end_io(self)
    }
}
