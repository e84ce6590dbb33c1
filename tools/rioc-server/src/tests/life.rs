// SPDX-License-Identifier: GPL-2.0

//! A life of a store on a log: clients send, paths are lost, IO ends in any order, power fails.

use std::collections::BTreeMap;

use kernel::{
    sync::Arc,
    Answer, //
};

use super::{
    objects::{
        Change,
        Look,
        Objects,
        Seen,
        OBJECTS, //
    },
    random::Random,
    rig::{
        on_log,
        OnLog,
        DEVICE_BYTES, //
    }, //
};
use crate::bdev::BlockDevice;

const CLIENTS: usize = 3;
const CHUNKS: usize = 6;
/// The lanes of a client: a copy of a request comes over another path, on a chunk behind them.
const LANES: u16 = 32;
/// The errnos of operations that are refused, and change nothing: there is no room for them.
const REFUSALS: [i32; 2] = [28, 90];
/// The bytes of a read of what a whole object has, and how many there are.
pub(super) const PART: u64 = 112 << 10;
pub(super) const PARTS: u64 = 6;

/// A change that was sent, and is not answered.
struct Sent {
    /// The numbers of the request and its copies; none of one that was lost.
    numbers: Vec<u64>,
    change: Change,
    sequence: u64,
}

/// A client.
struct Client {
    number: u32,
    incarnation: u64,
    sent: BTreeMap<u16, Sent>,
    sequence: u64,
    /// The requests that have come to the server, and are not answered.
    there: Vec<u64>,
    /// The copies among them, by their chunks.
    copied: BTreeMap<u16, u64>,
    /// Its path is lost: answers do not come, and it attaches again when all are given.
    is_cut: bool,
}

/// A read in flight: what it may see.
struct Reading {
    look: Look,
    may: Vec<Seen>,
    of: (usize, u16),
}

/// Counts of what has happened.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) changes: u64,
    pub(super) reads: u64,
    pub(super) again: u64,
    pub(super) copies: u64,
    pub(super) crashes: u64,
    pub(super) moved: u64,
    pub(super) pauses: u64,
}

impl Counts {
    pub(super) fn add(&mut self, other: &Self) {
        self.changes += other.changes;
        self.reads += other.reads;
        self.again += other.again;
        self.copies += other.copies;
        self.crashes += other.crashes;
        self.moved += other.moved;
        self.pauses += other.pauses;
    }
}

/// A life.
pub(super) struct Life {
    pub(super) random: Random,
    pub(super) device: Arc<BlockDevice>,
    pub(super) server: OnLog,
    clients: Vec<Client>,
    reads: BTreeMap<u64, Reading>,
    pub(super) objects: Objects,
    pub(super) counts: Counts,
}

impl Life {
    pub(super) fn new(seed: u64) -> Self {
        let random = Random::new(seed * 2 + 1);
        let device = BlockDevice::of_zeroes(DEVICE_BYTES, seed % 2 == 0).unwrap();
        let mut server = on_log(&device, true).unwrap();
        server.lanes = LANES;
        let clients = (0..CLIENTS as u64).map(|name| {
            let (number, incarnation) = server.attach(name).unwrap();
            Client {
                number,
                incarnation,
                sent: BTreeMap::new(),
                sequence: 0,
                there: Vec::new(),
                copied: BTreeMap::new(),
                is_cut: false,
            }
        });
        Self {
            random,
            device,
            clients: clients.collect(),
            server,
            reads: BTreeMap::new(),
            objects: Objects::new(),
            counts: Counts::default(),
        }
    }

    /// Lets some things happen.
    pub(super) fn live(&mut self, events: usize) {
        for _ in 0..events {
            let client = self.random.below(CLIENTS);
            match self.random.below(40) {
                0..=11 => self.change(client),
                12..=15 => self.read(client),
                16..=23 => drop(self.server.end_io(&mut self.random)),
                24..=27 => drop(self.server.collect()),
                28 if self.random.below(8) == 0 => self.clients[client].is_cut = true,
                29 => self.come_back(client),
                30 => self.copy(client),
                _ => {
                    let collects = self.random.below(4);
                    self.server.go_on(collects);
                }
            }
            self.take_answers();
        }
    }

    fn is_busy(&self, client: usize, chunk: u16) -> bool {
        let of = (client, chunk);
        self.clients[client].sent.contains_key(&chunk) || self.reads.values().any(|r| r.of == of)
    }

    /// A client sends a change, unless one of another that it meets is not answered.
    fn change(&mut self, client: usize) {
        let chunk = self.random.below(CHUNKS) as u16;
        let change = Change::any(&mut self.random);
        let mut sent = self.clients.iter().flat_map(|client| client.sent.values());
        if self.is_busy(client, chunk) || sent.any(|sent| sent.change.meets(&change)) {
            return;
        }
        let after = change.after(&self.objects);
        let meets = |reading: &&mut Reading| change.objects().contains(&reading.look.object);
        for reading in self.reads.values_mut().filter(meets) {
            let seen = reading.look.of(after.get(&reading.look.object));
            reading.may.push(seen);
        }
        let client = &mut self.clients[client];
        client.sequence += 1;
        let sent = Sent {
            numbers: Vec::new(),
            change,
            sequence: client.sequence,
        };
        client.sent.insert(chunk, sent);
        // A request may be lost on its way.
        client.is_cut |= self.random.below(200) == 0;
        if !client.is_cut {
            Self::send(&mut self.server, client, chunk);
        }
    }

    fn send(server: &mut OnLog, client: &mut Client, chunk: u16) {
        let sent = client.sent.get_mut(&chunk).unwrap();
        let of = (client.number, chunk);
        let number = sent.change.send(server, of, sent.sequence);
        sent.numbers.push(number);
        client.there.push(number);
    }

    /// A client sends a request again over another path, while the server may still carry it out.
    fn copy(&mut self, client: usize) {
        let client = &mut self.clients[client];
        let mut alone = client.sent.iter_mut().filter(|(_, s)| s.numbers.len() == 1);
        let Some((chunk, sent)) = alone.next().filter(|_| !client.is_cut) else {
            return;
        };
        let chunk = chunk + LANES;
        if !client.copied.contains_key(&chunk) {
            let of = (client.number, chunk);
            let number = sent.change.send(&mut self.server, of, sent.sequence);
            sent.numbers.push(number);
            client.there.push(number);
            client.copied.insert(chunk, number);
            self.counts.copies += 1;
        }
    }

    fn read(&mut self, client: usize) {
        let chunk = self.random.below(CHUNKS) as u16;
        if self.is_busy(client, chunk) || self.clients[client].is_cut {
            return;
        }
        let look = Look::any(&mut self.random);
        let mut may = vec![look.of(self.objects.get(&look.object))];
        let sent = self.clients.iter().flat_map(|client| client.sent.values());
        for sent in sent.filter(|sent| sent.change.objects().contains(&look.object)) {
            let after = sent.change.after(&self.objects);
            may.push(look.of(after.get(&look.object)));
        }
        let of = (self.clients[client].number, chunk);
        let number = self.server.read(of, look.object, (look.at, look.bytes));
        self.clients[client].there.push(number);
        let of = (client, chunk);
        self.reads.insert(number, Reading { look, may, of });
    }

    /// A client whose path was lost comes back, if the server has answered all of it, and sends
    /// again what was not answered.
    fn come_back(&mut self, client: usize) {
        let name = client as u64;
        let client = &mut self.clients[client];
        if !client.is_cut || !client.there.is_empty() {
            return;
        }
        self.server.engine.detach(client.number);
        let (number, incarnation) = self.server.attach(name).unwrap();
        assert_eq!(incarnation, client.incarnation, "it is known");
        (client.number, client.is_cut) = (number, false);
        client.sent.values_mut().for_each(|s| s.numbers.clear());
        let chunks: Vec<u16> = client.sent.keys().copied().collect();
        for chunk in chunks {
            self.counts.again += 1;
            Self::send(&mut self.server, client, chunk);
        }
    }

    fn take_answers(&mut self) {
        for answer in self.server.take_answers() {
            let is_its = |client: &&mut Client| client.there.contains(&answer.number);
            let client = self.clients.iter_mut().find(is_its);
            let client = client.expect("a request is answered once");
            client.there.retain(|number| *number != answer.number);
            client.copied.retain(|_, number| *number != answer.number);
            if client.is_cut {
                // It does not come. Nobody waits for a read.
                self.reads.remove(&answer.number);
                continue;
            }
            match self.reads.remove(&answer.number) {
                Some(reading) => {
                    self.counts.reads += 1;
                    let seen = reading.look.judge(&answer);
                    assert!(reading.may.contains(&seen), "{:?}", reading.look);
                }
                None => Self::end(&mut self.objects, client, &answer, &mut self.counts),
            }
        }
    }

    fn end(objects: &mut Objects, client: &mut Client, answer: &Answer, counts: &mut Counts) {
        let is_it = |sent: &Sent| sent.numbers.contains(&answer.number);
        let chunk = client.sent.iter().find(|(_, sent)| is_it(sent));
        let Some(chunk) = chunk.map(|(chunk, _)| *chunk) else {
            // Its copy was answered first.
            return;
        };
        let sent = client.sent.remove(&chunk).unwrap();
        if !REFUSALS.contains(&answer.errno) {
            let errno = sent.change.apply(objects);
            assert_eq!(answer.errno, errno, "{:.60?}", sent.change);
            counts.changes += 1;
        }
    }

    /// The machine of the server dies, and comes back: the log is opened, clients attach again and
    /// send again what was not answered.
    pub(super) fn crash(&mut self) {
        self.counts.crashes += 1;
        let random = &mut self.random;
        self.device.lose_power(|words| {
            let (kind, torn) = (random.below(4), random.below(words + 1));
            let is_kept = |word: usize| match kind {
                0 => false,
                1 => true,
                2 => random.below(2) == 0,
                _ => word < torn,
            };
            (0..words).map(is_kept).collect()
        });
        self.open_again();
    }

    /// The log is opened anew.
    pub(super) fn open_again(&mut self) {
        self.reads.clear();
        self.counts.moved += self.server.moved;
        self.counts.pauses += self.server.pauses;
        self.server = on_log(&self.device, false).unwrap();
        self.server.lanes = LANES;
        for client in 0..CLIENTS {
            self.clients[client].there.clear();
            self.clients[client].copied.clear();
            self.clients[client].is_cut = true;
            self.come_back(client);
        }
    }

    /// Lets all end, and checks each object.
    pub(super) fn check(&mut self) {
        loop {
            self.server.settle(&mut self.random);
            self.take_answers();
            (0..CLIENTS).for_each(|client| self.come_back(client));
            if self.clients.iter().all(|client| client.sent.is_empty()) {
                break;
            }
        }
        for object in 0..OBJECTS as u64 {
            for at in (0..PARTS).map(|part| part * PART) {
                let (look, seen) = self.look((object, at));
                let right = look.of(self.objects.get(&object));
                assert!(seen == right, "object {object} at {at} is another one");
            }
        }
    }

    /// Reads a part of an object.
    pub(super) fn look(&mut self, (object, at): (u64, u64)) -> (Look, Seen) {
        let look = Look {
            object,
            at,
            bytes: PART,
        };
        let of = (self.clients[0].number, 0);
        let number = self.server.read(of, object, (at, PART));
        let answer = self.server.run(&mut self.random, number);
        (look, look.judge(&answer))
    }
}
