// SPDX-License-Identifier: GPL-2.0

//! The clock, the network and the faults.

use std::{
    cmp::Reverse,
    collections::{
        BTreeMap,
        BinaryHeap, //
    },
};

use crate::chance::Chance;

use super::{
    client::{
        Client,
        Timer, //
    },
    files::{
        Files,
        FILES,
        HOSTS, //
    },
    server::{
        ServerConn,
        Servers, //
    },
};

/// The options of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    /// Servers die, freeze and lose connections, for a while.
    pub(crate) faults: bool,
    /// Files are written meanwhile.
    pub(crate) writes: bool,
    /// A writer keeps a file open and writes at this pace, in milliseconds.
    pub(crate) writes_on_ms: Option<u64>,
    /// Processes of gfsds stop for good, one after the other, with what they have open.
    pub(crate) silences: bool,
    /// Server and message, counted from 0: this server (0 is gfmd) dies at this message.
    pub(crate) dies: Option<(usize, usize)>,
    /// The number of files to read; 0 is 40.
    pub(crate) jobs: usize,
    /// A broken client: it does not ask whether a gfsd's file has changed.
    pub(crate) no_witness: bool,
    /// A broken client: it takes the first bytes from a gfsd as they are.
    pub(crate) trusts_first: bool,
    /// A broken client: it keeps pages of a file that was rewritten.
    pub(crate) keep_pages: bool,
}

/// The end of the faults of a run, in milliseconds.
const FAULTS_UNTIL_MS: u64 = 20_000;

/// The end of the silences of a run, and the time between two, in milliseconds.
const SILENCES_UNTIL_MS: u64 = 60_000;
const SILENCE_MS: u64 = 600;

/// The time for which a writer that keeps a file open writes, in milliseconds.
const WRITES_UNTIL_MS: u64 = 60_000;

/// The time by which a run is over.
const END_MS: u64 = 400_000;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// Bytes arrive at a server.
    ToServer(usize, Vec<u8>),
    /// Bytes arrive at the client.
    ToClient(usize, Vec<u8>),
    /// The client sees the end of a connection.
    Ended(usize),
    /// A connection is established, or refused.
    Established(usize),
    Timer(Timer),
    Start(usize),
    Thaw(usize),
    Fault,
    Silence,
    Write,
    WriteOn,
}

pub(crate) struct World {
    pub(crate) now_ms: u64,
    pub(crate) chance: Chance,
    pub(crate) options: Options,
    pub(crate) servers: Servers,
    agenda: BinaryHeap<Reverse<(u64, u64, Event)>>,
    events: u64,
    conns: BTreeMap<usize, ServerConn>,
    next_conn: usize,
    /// The last time at which something arrives, by connection and side: streams keep their order.
    order: BTreeMap<(usize, bool), u64>,
    frozen: [bool; HOSTS + 1],
    held: Vec<Event>,
    messages: [usize; HOSTS + 1],
    /// The maximum pause of writers, in milliseconds.
    pace: usize,
    pub(crate) jobs_done: usize,
    pub(crate) jobs_failed: usize,
    /// The number of times that bytes were read again because gfmd and the gfsd did not agree.
    pub(crate) read_again: usize,
}

impl World {
    pub(crate) fn run(seed: u64, options: Options) -> Self {
        let mut chance = Chance::new(seed);
        let files = Files::new(&mut chance);
        let pace = 2 + chance.below(20);
        let mut world = Self {
            now_ms: 0,
            chance,
            options,
            servers: Servers::new(files),
            agenda: BinaryHeap::new(),
            events: 0,
            conns: BTreeMap::new(),
            next_conn: 0,
            order: BTreeMap::new(),
            frozen: [false; HOSTS + 1],
            held: Vec::new(),
            messages: [0; HOSTS + 1],
            pace,
            jobs_done: 0,
            jobs_failed: 0,
            read_again: 0,
        };
        let mut client = Client::new(if options.jobs == 0 { 4 } else { 1 });
        if options.faults {
            world.after(500, Event::Fault);
        }
        if options.silences {
            world.after(SILENCE_MS, Event::Silence);
        }
        if options.writes {
            world.after(50, Event::Write);
        }
        if let Some(pause_ms) = options.writes_on_ms {
            world.after(pause_ms, Event::WriteOn);
        }
        client.begin(&mut world);
        let jobs = if options.jobs == 0 { 40 } else { options.jobs };
        while world.jobs_done < jobs || world.goes_on() {
            let Some(Reverse((at_ms, _, event))) = world.agenda.pop() else {
                panic!("seed {seed}: nothing is left to happen: {client:?}");
            };
            world.now_ms = at_ms;
            assert!(at_ms < END_MS, "seed {seed}: stuck: {client:?}");
            world.happen(event, &mut client);
        }
        world
    }

    /// Returns whether something still happens to what is read.
    fn goes_on(&self) -> bool {
        let is_written = self.options.writes_on_ms.is_some() && self.now_ms < WRITES_UNTIL_MS;
        self.is_faulty() || self.falls_silent() || is_written
    }

    /// Returns whether faults still happen; readers go on meanwhile.
    pub(crate) fn is_faulty(&self) -> bool {
        self.options.faults && self.now_ms < FAULTS_UNTIL_MS
    }

    /// Returns whether processes of gfsds still stop.
    fn falls_silent(&self) -> bool {
        self.options.silences && self.now_ms < SILENCES_UNTIL_MS
    }

    /// Returns whether a read may fail: not long after the last fault.
    pub(crate) fn may_fail(&self) -> bool {
        self.options.faults && self.now_ms < FAULTS_UNTIL_MS + 20_000
    }

    pub(crate) fn boundaries(&self, server: usize) -> usize {
        self.messages[server]
    }

    fn after(&mut self, delay_ms: u64, event: Event) {
        self.events += 1;
        self.agenda
            .push(Reverse((self.now_ms + delay_ms, self.events, event)));
    }

    pub(crate) fn timer(&mut self, delay_ms: u64, timer: Timer) {
        self.after(delay_ms, Event::Timer(timer));
    }

    /// Queues what arrives on a stream, in order.
    fn stream(&mut self, conn: usize, to_client: bool, event: Event) {
        let place = self.order.entry((conn, to_client)).or_default();
        let at_ms = (self.now_ms + self.chance.below(3) as u64).max(*place);
        *place = at_ms;
        self.after(at_ms - self.now_ms, event);
    }

    /// The client connects to a server.
    pub(crate) fn connect(&mut self, server: usize) -> usize {
        self.next_conn += 1;
        let id = self.next_conn;
        let (conn, _) = ServerConn::accept(server);
        self.conns.insert(id, conn);
        self.stream(id, true, Event::Established(id));
        id
    }

    pub(crate) fn send(&mut self, conn: usize, bytes: Vec<u8>) {
        if self.conns.contains_key(&conn) {
            self.stream(conn, false, Event::ToServer(conn, bytes));
        }
    }

    /// The client closes a connection.
    pub(crate) fn close(&mut self, conn: usize) {
        if let Some(conn) = self.conns.remove(&conn) {
            self.servers.disconnected(&conn);
        }
    }

    fn happen(&mut self, event: Event, client: &mut Client) {
        match event {
            Event::Established(id) => match self.conns.get(&id).map(|conn| conn.server) {
                Some(server) if self.frozen[server] => self.held.push(event),
                Some(server) if self.servers.up[server] => {
                    client.established(self, id);
                    let (_, greeting) = ServerConn::accept(server);
                    self.sends(id, greeting);
                }
                Some(_) => self.end(id),
                None => {}
            },
            Event::ToServer(id, ref bytes) => {
                let Some(mut conn) = self.conns.remove(&id) else {
                    return;
                };
                if self.servers.silent.contains(&id) {
                    self.conns.insert(id, conn);
                    return;
                }
                if self.frozen[conn.server] {
                    self.conns.insert(id, conn);
                    self.held.push(event);
                    return;
                }
                conn.received.extend(bytes);
                self.serve(id, conn);
            }
            Event::ToClient(id, bytes) => client.receive(self, id, &bytes),
            Event::Ended(id) => client.ended(self, id),
            Event::Timer(timer) => client.expired(self, timer),
            Event::Start(server) => self.servers.up[server] = true,
            Event::Thaw(server) => {
                self.frozen[server] = false;
                // At once: nothing that is sent later may overtake it.
                for event in std::mem::take(&mut self.held) {
                    self.happen(event, client);
                }
            }
            Event::Fault => self.fault(),
            Event::Silence if self.falls_silent() => {
                let silent = &mut self.servers.silent;
                let mut conns = self.conns.iter().filter(|(_, conn)| conn.has_open());
                let is_new = conns.any(|(id, _)| silent.insert(*id));
                self.after(if is_new { SILENCE_MS } else { 1 }, Event::Silence);
            }
            Event::Silence => {}
            Event::WriteOn => {
                self.servers.files.write_on(0, &mut self.chance);
                self.after(self.options.writes_on_ms.unwrap(), Event::WriteOn);
            }
            Event::Write => {
                let up = self.servers.up;
                let file = self.chance.below(FILES);
                self.servers
                    .files
                    .write(file, |host| up[host + 1], &mut self.chance);
                let pause_ms = self.chance.below(self.pace) as u64;
                self.after(pause_ms, Event::Write);
            }
        }
    }

    /// A server answers what has arrived; it may die before each message, and after it.
    fn serve(&mut self, id: usize, mut conn: ServerConn) {
        let server = conn.server;
        loop {
            if self.dies_now(server) {
                self.conns.insert(id, conn);
                self.die(server, 300);
                return;
            }
            let Some(bytes) = self.servers.answer(id, &mut conn) else {
                self.conns.insert(id, conn);
                return;
            };
            if bytes.is_empty() {
                continue;
            }
            if self.dies_now(server) {
                // Carried out, and answered in part.
                self.conns.insert(id, conn);
                let part = self.chance.below(bytes.len());
                self.sends(id, bytes[..part].to_vec());
                self.die(server, 300);
                return;
            }
            self.conns.insert(id, conn);
            self.sends(id, bytes);
            conn = self.conns.remove(&id).unwrap();
        }
    }

    fn dies_now(&mut self, server: usize) -> bool {
        let count = self.messages[server];
        self.messages[server] += 1;
        self.options.dies == Some((server, count))
            || (self.is_faulty() && self.chance.below(400) == 0)
    }

    /// Sends a reply in pieces.
    fn sends(&mut self, conn: usize, bytes: Vec<u8>) {
        let cut = self.chance.below(bytes.len() + 1);
        for piece in [&bytes[..cut], &bytes[cut..]] {
            if !piece.is_empty() {
                self.stream(conn, true, Event::ToClient(conn, piece.to_vec()));
            }
        }
    }

    fn end(&mut self, id: usize) {
        if let Some(conn) = self.conns.remove(&id) {
            self.servers.disconnected(&conn);
            self.stream(id, true, Event::Ended(id));
        }
    }

    fn die(&mut self, server: usize, pause_ms: u64) {
        if !std::mem::replace(&mut self.servers.up[server], false) {
            return;
        }
        if server == 0 {
            self.servers.forget_processes();
        }
        let conns = self.conns.iter().filter(|(_, conn)| conn.server == server);
        for id in conns.map(|(id, _)| *id).collect::<Vec<_>>() {
            self.end(id);
        }
        self.after(pause_ms, Event::Start(server));
    }

    fn fault(&mut self) {
        if !self.is_faulty() {
            return;
        }
        let server = self.chance.below(HOSTS + 1);
        let pause_ms = 50 + self.chance.below(4000) as u64;
        match self.chance.below(3) {
            0 => self.die(server, pause_ms),
            1 if !self.frozen[server] => {
                self.frozen[server] = true;
                self.after(pause_ms, Event::Thaw(server));
            }
            _ => {
                let ids: Vec<usize> = self.conns.keys().copied().collect();
                if !ids.is_empty() {
                    let id = ids[self.chance.below(ids.len())];
                    self.end(id);
                }
            }
        }
        let pause_ms = 100 + self.chance.below(1500) as u64;
        self.after(pause_ms, Event::Fault);
    }
}
