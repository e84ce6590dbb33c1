// SPDX-License-Identifier: GPL-2.0

//! A server without locks and work items: the steps of `store.rs`, one after the other.

use std::{
    collections::{
        BTreeMap,
        VecDeque, //
    },
    ffi::CString, //
};

use kernel::{
    prelude::*,
    sync::Arc,
    workqueue::{
        Flags,
        WorkQueue, //
    },
    Answers,
    Operation, //
};
use zerocopy::little_endian::U32;

use super::{
    super::{
        engine::{
            Engine,
            Place,
            Turn, //
        },
        log::{
            self,
            InLog, //
        },
        medium::{
            Acting,
            Kept, //
        },
        memory::{
            claims,
            Elements,
            RamPages,
            DEPTH, //
        },
        one_device::{
            LogDevice,
            OneDevice, //
        },
        reading::Scratch,
        upkeep::Upkeep, //
    },
    random::Random, //
};
use crate::{
    bdev::BlockDevice,
    proto::{
        command::LogOn,
        index::Index,
        log::Logged,
        medium::{
            Io,
            Ram, //
        },
        message::{
            Direction,
            Message,
            Operation as Asked,
            Sums, //
        },
        slot::{
            Slot,
            NONE, //
        },
        span::{
            ObjectId,
            Span,
            BLOCK_BYTES, //
        },
        store::Store,
        ticket::Ticket, //
    },
};

/// The bytes of a device with few segments more than a log needs.
pub(super) const DEVICE_BYTES: usize = 10 << 20;
/// The most steps of collecting without an IO that ends, and without a pause: a segment takes few.
const COLLECTING_MAX: usize = 2000;

/// A store on a log.
pub(super) type OnLog = Server<Logged<InLog>>;
/// A store in memory.
pub(super) type InMemory = Server<Ram<RamPages>>;

/// A server.
pub(super) struct Server<D: Kept> {
    pub(super) engine: KBox<Engine<D>>,
    scratch: KBox<Scratch>,
    upkeep: Option<Upkeep<D>>,
    device: Option<Arc<BlockDevice>>,
    inbox: VecDeque<(u32, Operation)>,
    ended: VecDeque<Io>,
    answers: Answers,
    number: u64,
    /// The incarnation of each client.
    incarnations: BTreeMap<u32, u64>,
    /// The lanes of each client; a copy of a request comes on a chunk behind them.
    pub(super) lanes: u16,
    /// The pauses of collecting, and the batches that it has read.
    pub(super) pauses: u64,
    pub(super) moved: u64,
}

/// Returns the name of an object.
pub(super) fn id(low: u64) -> ObjectId {
    ObjectId { high: 1, low }
}

/// Opens the log of a device, or makes a new one.
pub(super) fn on_log(device: &Arc<BlockDevice>, is_new: bool) -> Result<OnLog> {
    let on = LogOn {
        device: b"",
        is_new,
        is_forced: false,
    };
    let of = LogDevice {
        device: device.clone(),
        owed: Arc::new(WorkQueue::new(c"owed", Flags::UNBOUND, 0)?, GFP_KERNEL)?,
    };
    let opened = log::assemble("bb", &on, &of)?;
    let scratch = Scratch::new(Some(OneDevice::new(&of)?))?;
    Ok(Server {
        engine: Engine::new(opened.store, opened.acting)?,
        scratch,
        upkeep: Some(Upkeep::new(&of)?),
        device: Some(device.clone()),
        inbox: VecDeque::new(),
        ended: VecDeque::new(),
        answers: Answers::default(),
        number: 0,
        incarnations: BTreeMap::new(),
        lanes: DEPTH,
        pauses: 0,
        moved: 0,
    })
}

/// Makes a store in memory.
pub(super) fn in_memory(blocks: u32) -> InMemory {
    let slots = blocks as usize * 5 / 2 + 4096;
    let table = Elements::new(Slot::Free(NONE), slots).unwrap();
    let buckets = Elements::new(NONE, (blocks / 2).max(1) as usize).unwrap();
    let medium = Ram::new(RamPages::new(blocks).unwrap(), blocks.into());
    let store = Store::new(
        Index::new(table, buckets, [3, 4]),
        claims().unwrap(),
        medium,
    );
    let store = KBox::new(store, GFP_KERNEL).unwrap();
    Server {
        engine: Engine::new(store, Acting::new(None).unwrap()).unwrap(),
        scratch: Scratch::new(None).unwrap(),
        upkeep: None,
        device: None,
        inbox: VecDeque::new(),
        ended: VecDeque::new(),
        answers: Answers::default(),
        number: 0,
        incarnations: BTreeMap::new(),
        lanes: DEPTH,
        pauses: 0,
        moved: 0,
    }
}

/// Returns the CRC of each block's bytes.
pub(super) fn sums(span: &Span, bytes: &[u8]) -> Vec<U32> {
    let sum = |(from, to): (u64, u64)| {
        let (from, to) = (from - span.offset(), to - span.offset());
        U32::new(crc32c::crc32c(&bytes[from as usize..to as usize]))
    };
    let places = span.pieces().map(|piece| {
        let block = u64::from(piece.block) * BLOCK_BYTES;
        (block + u64::from(piece.from), block + u64::from(piece.to))
    });
    places.map(sum).collect()
}

impl<D: Kept> Server<D> {
    /// A client attaches; returns its number, and that of its incarnation.
    pub(super) fn attach(&mut self, name: u64) -> Result<(u32, u64)> {
        let session = CString::new(format!("c{name}")).unwrap();
        let place = Place::new(&session)?;
        let (client, incarnation) = self.engine.attach([9, name], place)?;
        self.incarnations.insert(client, incarnation);
        Ok((client, incarnation))
    }

    /// Returns the incarnation of a client that has attached.
    pub(super) fn incarnation(&self, client: u32) -> u64 {
        self.incarnations[&client]
    }

    /// Sends a message of any bytes.
    pub(super) fn send_bytes(
        &mut self,
        (client, chunk): (u32, u16),
        user: Vec<u8>,
        direction: (bool, u32),
        data: &[u8],
    ) -> u64 {
        self.number += 1;
        let of = (self.number, chunk, &self.answers);
        let operation = Operation::new(of, user, direction, data);
        self.inbox.push_back((client, operation));
        self.number
    }

    /// Sends a request on a chunk, with a number of its lane; returns its number.
    pub(super) fn send(
        &mut self,
        (client, chunk): (u32, u16),
        (sequence, lease): (u64, u32),
        operation: Asked<'_>,
        data: &[u8],
    ) -> u64 {
        let lane = chunk % self.lanes;
        let ticket = operation.is_change().then(|| Ticket::new(lane, sequence));
        let message = Message {
            lease,
            ticket: ticket.flatten(),
            incarnation: self.incarnation(client),
            operation,
        };
        let mut bytes = [0; 1024];
        let len = message.write(&mut bytes).unwrap();
        let is_read = matches!(operation.direction(), Direction::Read);
        let direction = (is_read, operation.data_bytes());
        self.send_bytes((client, chunk), bytes[..len].to_vec(), direction, data)
    }

    /// Sends a write.
    pub(super) fn write(
        &mut self,
        of: (u32, u16),
        sequence: u64,
        (object, offset): (u64, u64),
        bytes: &[u8],
    ) -> u64 {
        let span = Span::new(offset, bytes.len() as u64).unwrap();
        let sums = sums(&span, bytes);
        let operation = Asked::Write {
            object: id(object),
            span,
            creates: true,
            sums: Sums::new(&sums),
        };
        self.send(of, (sequence, 0), operation, bytes)
    }

    /// Sends a read.
    pub(super) fn read(&mut self, of: (u32, u16), object: u64, (at, bytes): (u64, u64)) -> u64 {
        let operation = Asked::Read {
            object: id(object),
            span: Span::new(at, bytes).unwrap(),
        };
        self.send(of, (0, 0), operation, &[])
    }

    /// Returns how many leases a client has.
    pub(super) fn leases(&self, client: u32) -> u32 {
        let mut leases = 0;
        let count = |number, _: &_, (_, _, has): (u32, u64, u32)| {
            if number == client as usize {
                leases = has;
            }
            Ok(())
        };
        self.engine.each_client(count).unwrap();
        leases
    }

    /// Takes the answers that were given.
    pub(super) fn take_answers(&mut self) -> Vec<kernel::Answer> {
        std::mem::take(&mut *self.answers.lock().unwrap())
    }

    /// Takes in what has come, as `take_in` of `store.rs`.
    pub(super) fn take_in(&mut self) {
        while let Some(io) = self.ended.pop_front() {
            self.engine.io_ended(io, true);
        }
        while let Some((client, operation)) = self.inbox.pop_front() {
            self.engine.arrive(client, operation);
        }
    }

    /// Takes a turn, as `go_on` of `store.rs`; `collects` steps of collecting come while blocks are
    /// read. Returns whether there may be more.
    pub(super) fn go_on(&mut self, collects: usize) -> bool {
        self.take_in();
        match self.engine.turn(&mut self.scratch) {
            Turn::Reads(tag) => {
                for _ in 0..collects {
                    self.collect();
                }
                self.scratch.fetch();
                self.engine.finish(tag, &mut self.scratch);
                true
            }
            Turn::Done => true,
            Turn::Idle => false,
        }
    }

    /// Takes a step of collecting, as `collect` of `store.rs`.
    pub(super) fn collect(&mut self) -> bool {
        let Some(upkeep) = &mut self.upkeep else {
            return false;
        };
        let is_loaded = upkeep.load();
        self.moved += u64::from(is_loaded);
        is_loaded || upkeep.step(&mut self.engine, false)
    }

    /// Collects until there is nothing to do, or a pause is due.
    pub(super) fn collect_all(&mut self) {
        let mut steps = 0;
        while self.collect() {
            let pause = self.upkeep.as_mut().and_then(Upkeep::take_pause_ms);
            if pause.is_some() {
                self.pauses += 1;
                break;
            }
            steps += 1;
            assert!(steps < COLLECTING_MAX, "collecting spins");
        }
    }

    /// Ends one of the IOs in flight; returns whether there was one.
    pub(super) fn end_io(&mut self, random: &mut Random) -> bool {
        let device = self.device.as_ref();
        let io = device.and_then(|device| device.end_one(|count| random.below(count)));
        self.ended.extend(io);
        io.is_some()
    }

    /// Lets all of it come to its end.
    pub(super) fn settle(&mut self, random: &mut Random) {
        for _ in 0..10_000 {
            let mut turns = 0;
            while self.go_on(0) {
                turns += 1;
                assert!(turns < 100_000, "requests spin");
            }
            self.collect_all();
            if !self.end_io(random) && !self.go_on(0) && self.engine.is_quiet() {
                return;
            }
        }
        panic!("not quiet");
    }

    /// Carries out what was sent; returns the answer with a number.
    pub(super) fn run(&mut self, random: &mut Random, number: u64) -> kernel::Answer {
        self.settle(random);
        let mut all = self.take_answers().into_iter();
        let answer = all.find(|answer| answer.number == number);
        answer.expect("it is answered")
    }
}
