// SPDX-License-Identifier: GPL-2.0

//! The client: it carries out what the protocol folder decides, as a driver does.

use std::collections::{
    BTreeMap,
    VecDeque, //
};

use proto::gfarm::{
    attr::FileId,
    auth::{
        Auth,
        AuthStep,
        MESSAGE_LEN_MAX, //
    },
    gfm,
    gfmd::{
        self,
        Gfmd, //
    },
    gfs,
    gfsd::{
        Gfsd,
        State,
        Use, //
    },
    identity::{
        Closed,
        Label, //
    },
    open_file::{
        Event,
        Failure,
        OpenFile, //
    },
    question::Answer,
    replica::{
        Choice,
        HostId, //
    },
    retry::{
        Fault,
        GfsdRequest, //
    },
    xdr::{
        Decoder,
        Encoder, //
    },
};

use super::{
    reader::Reader,
    world::World, //
};
use crate::gfarm::stream::request;

pub(crate) const RECEIVE_TIMEOUT_MS: u64 = 2000;
const RECONNECT_TIMEOUT_MS: u64 = 15_000;

/// A timer, with a number by which one that is out of date is known.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Timer {
    Gfmd(u64),
    Reader(usize, u64),
    Silent(usize, u64),
    Job(usize),
}

/// A request that gfmd has not answered.
#[derive(Debug)]
pub(crate) enum Pending {
    Alloc,
    Close(u32, Answer),
    Open {
        reader: usize,
        state: Answer,
        fd: Option<gfm::Fd>,
        opened: Option<(FileId, Closed)>,
        choice: Choice,
    },
}

/// The question to its gfsd that a reader waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Nothing,
    Join,
    Open,
    Witness { is_read: bool },
    Read,
    Close,
}

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) server: usize,
    auth: Option<Auth<'static>>,
    pub(crate) received: Vec<u8>,
    pub(crate) gfsd: Gfsd,
    pub(crate) reader: Option<usize>,
    pub(crate) ask: Ask,
    serial: u64,
}

/// A file's cache.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) label: Label,
    /// Pages, with the gfsd that gave them.
    pub(crate) pages: BTreeMap<usize, (HostId, Vec<u8>)>,
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) gfmd: Gfmd,
    pub(crate) meta: Option<usize>,
    pub(crate) process: gfm::Process,
    pub(crate) pending: VecDeque<Pending>,
    serial: u64,
    pub(crate) conns: BTreeMap<usize, Conn>,
    pub(crate) readers: Vec<Reader>,
    pub(crate) inodes: BTreeMap<usize, Inode>,
}

pub(crate) fn failure(world: &mut World, fault: Fault) -> Failure {
    let random = world.chance.number() as u32;
    let (now_ms, timeout_ms) = (world.now_ms, RECONNECT_TIMEOUT_MS);
    Failure {
        fault,
        now_ms,
        timeout_ms,
        random,
    }
}

impl Client {
    pub(crate) fn new(readers: usize) -> Self {
        Self {
            gfmd: Gfmd::NEW,
            meta: None,
            process: gfm::Process {
                pid: 0,
                key: gfm::ProcessKey([0; 32]),
            },
            pending: VecDeque::new(),
            serial: 0,
            conns: BTreeMap::new(),
            readers: (0..readers).map(|_| Reader::default()).collect(),
            inodes: BTreeMap::new(),
        }
    }

    pub(crate) fn begin(&mut self, world: &mut World) {
        for reader in 0..self.readers.len() {
            self.start_job(world, reader);
        }
    }

    pub(crate) fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    pub(crate) fn connect(&mut self, world: &mut World, server: usize, epoch: u32) -> usize {
        let id = world.connect(server);
        let conn = Conn {
            server,
            auth: Some(Auth::new(b"user")),
            received: Vec::new(),
            gfsd: Gfsd::new(epoch),
            reader: None,
            ask: Ask::Nothing,
            serial: 0,
        };
        self.conns.insert(id, conn);
        self.watch(world, id);
        id
    }

    /// Starts the time that a server may be silent.
    pub(crate) fn watch(&mut self, world: &mut World, id: usize) {
        let serial = self.next_serial();
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.serial = serial;
            world.timer(RECEIVE_TIMEOUT_MS, Timer::Silent(id, serial));
        }
    }

    pub(crate) fn established(&mut self, world: &mut World, id: usize) {
        if self.meta == Some(id) {
            self.gfmd_event(world, gfmd::Event::Connected);
        }
    }

    pub(crate) fn expired(&mut self, world: &mut World, timer: Timer) {
        match timer {
            Timer::Gfmd(_) => self.gfmd_event(world, gfmd::Event::Timer),
            Timer::Reader(reader, serial) if self.readers[reader].serial == serial => {
                self.event(world, reader, Event::Timer);
            }
            Timer::Reader(..) => {}
            Timer::Job(reader) => self.start_job(world, reader),
            Timer::Silent(id, serial) => {
                let is_owed = |conn: &Conn| conn.auth.is_some() || conn.ask != Ask::Nothing;
                let owes = self.meta == Some(id) && !self.pending.is_empty();
                let conn = self.conns.get(&id).filter(|conn| conn.serial == serial);
                if conn.is_some_and(|conn| owes || is_owed(conn)) {
                    self.lose(world, id, Fault::TimedOut);
                }
            }
        }
    }

    pub(crate) fn ended(&mut self, world: &mut World, id: usize) {
        self.lose(world, id, Fault::Disconnected);
    }

    /// A connection is of no use any more.
    pub(crate) fn lose(&mut self, world: &mut World, id: usize, fault: Fault) {
        if self.meta == Some(id) {
            return self.lose_gfmd(world, fault);
        }
        let Some(mut conn) = self.conns.remove(&id) else {
            return;
        };
        world.close(id);
        conn.gfsd.abandon();
        if let Some(reader) = conn
            .reader
            .filter(|reader| self.readers[*reader].conn == Some(id))
        {
            self.readers[reader].conn = None;
            let request = match conn.ask {
                Ask::Nothing | Ask::Join => GfsdRequest::Connect,
                Ask::Open => GfsdRequest::Open,
                _ => GfsdRequest::Read,
            };
            let failed = failure(world, fault);
            self.event(world, reader, Event::GfsdFailed(request, failed));
        }
    }

    pub(crate) fn receive(&mut self, world: &mut World, id: usize, bytes: &[u8]) {
        let Some(conn) = self.conns.get_mut(&id) else {
            return;
        };
        conn.received.extend(bytes);
        self.watch(world, id);
        // The connection may be lost by what it has brought.
        while self.conns.contains_key(&id) {
            let is_done = if self.conns[&id].auth.is_some() {
                self.authenticate(world, id)
            } else if self.meta == Some(id) {
                self.answer_of_gfmd(world, id)
            } else {
                self.answer_of_gfsd(world, id)
            };
            if is_done {
                return;
            }
        }
    }

    /// Returns whether more has to arrive.
    fn authenticate(&mut self, world: &mut World, id: usize) -> bool {
        let conn = self.conns.get_mut(&id).unwrap();
        let auth = conn.auth.as_mut().unwrap();
        let mut out = [0; MESSAGE_LEN_MAX];
        let mut to = Encoder::new(&mut out);
        let mut from = Decoder::new(&conn.received);
        let step = auth.receive(&mut from, &mut to).unwrap();
        let consumed = from.consumed();
        if let AuthStep::Digest(challenge) = step {
            assert_eq!(challenge, [7; 32]);
            auth.answer(1, &[9; 16], &mut to);
        }
        let len = to.finish().unwrap();
        conn.received.drain(..consumed);
        if len > 0 {
            world.send(id, out[..len].to_vec());
        }
        if step != AuthStep::Done {
            return true;
        }
        conn.auth = None;
        if self.meta == Some(id) {
            self.gfmd_event(world, gfmd::Event::Authenticated);
        } else {
            conn.gfsd.authenticated();
            self.join(world, id, false);
        }
        false
    }

    /// Joins the process of gfmd.
    fn join(&mut self, world: &mut World, id: usize, is_reset: bool) {
        let process = &self.process;
        let failover_count = self.gfmd.epoch();
        let bytes = match is_reset {
            false => request(&gfs::ProcessSet(process)),
            true => request(&gfs::ProcessReset {
                process,
                failover_count,
            }),
        };
        self.ask(world, id, Ask::Join, bytes);
    }

    pub(crate) fn ask(&mut self, world: &mut World, id: usize, ask: Ask, bytes: Vec<u8>) {
        let conn = self.conns.get_mut(&id).unwrap();
        assert_eq!(conn.ask, Ask::Nothing, "one request at a time");
        conn.ask = ask;
        world.send(id, bytes);
        self.watch(world, id);
    }

    /// Takes or makes a connection to a gfsd.
    pub(crate) fn take(&mut self, world: &mut World, reader: usize, host: HostId) {
        let server = host.0 as usize + 1;
        let epoch = self.gfmd.epoch();
        let is_free = |conn: &Conn| {
            conn.server == server && conn.reader.is_none() && conn.gfsd.state() == State::Idle
        };
        let idle = self
            .conns
            .iter()
            .find(|(_, conn)| is_free(conn))
            .map(|(id, _)| *id);
        let id = match idle {
            Some(id) => id,
            None => self.connect(world, server, epoch),
        };
        self.readers[reader].conn = Some(id);
        let conn = self.conns.get_mut(&id).unwrap();
        conn.reader = Some(reader);
        if idle.is_some() {
            self.take_again(world, id, reader);
        }
    }

    /// A connection is idle: sends, or joins the process of today first.
    pub(crate) fn take_again(&mut self, world: &mut World, id: usize, reader: usize) {
        let epoch = self.gfmd.epoch();
        let gfsd = &mut self.conns.get_mut(&id).unwrap().gfsd;
        match gfsd.take(epoch) {
            Use::Send => {
                let epoch = gfsd.epoch();
                self.event(world, reader, Event::Connected { epoch });
            }
            Use::Reset => self.join(world, id, true),
            Use::Unusable => panic!("{self:?}"),
        }
    }
}

impl Default for Reader {
    fn default() -> Self {
        Self {
            file: 0,
            sm: OpenFile::NEW,
            conn: None,
            fd: None,
            awaits_gfmd: false,
            wants_open: None,
            serial: 0,
            page: 0,
            bound: Vec::new(),
            ticket: None,
            closed: None,
            asked: 0,
            data: Vec::new(),
        }
    }
}
