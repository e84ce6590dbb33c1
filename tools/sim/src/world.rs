// SPDX-License-Identifier: GPL-2.0

//! The whole state, and the event loop.

use std::collections::BTreeMap;

use fastrand::Rng;
use proto::rtrs::geometry::Geometry;

use crate::{
    app::App,
    check::{
        self,
        Check, //
    },
    client::Client,
    disk::Disk,
    event::{
        Agenda,
        Event, //
    },
    faults::Kind,
    message::Side,
    network::{
        Conn,
        ConnId,
        Wire, //
    },
    server::Server,
    settings::Settings,
    trace::{
        note,
        Trace, //
    },
};

/// The maximum number of events of a run; more mean a livelock.
const EVENTS_MAX: u64 = 3_000_000;

/// The whole state of a run.
pub(crate) struct World {
    pub(crate) now_us: u64,
    pub(crate) rng: Rng,
    pub(crate) settings: Settings,
    pub(crate) geometry: Geometry,
    pub(crate) agenda: Agenda,
    pub(crate) wires: Vec<Wire>,
    pub(crate) conns: Vec<Conn>,
    pub(crate) clients: Vec<Client>,
    /// The client that the current event belongs to.
    pub(crate) at: usize,
    pub(crate) server: Server,
    pub(crate) disk: Disk,
    pub(crate) app: App,
    pub(crate) check: Check,
    pub(crate) trace: Trace,
    /// The last sending that the server received in each client's chunk; neither side can know it.
    pub(crate) landed: BTreeMap<(usize, u16), u64>,
    /// Requests so far, of all clients.
    pub(crate) requests: u64,
    /// Sendings so far.
    pub(crate) sends: u64,
    /// All parts have recovered.
    pub(crate) over: bool,
    pub(crate) events: u64,
}

impl World {
    pub(crate) fn new(rng: Rng, settings: Settings, geometry: Geometry) -> Self {
        let blocks = settings.blocks;
        let devices = settings.volatile.len();
        let client = |_| Client::new(settings.queue_depth, settings.policy, devices);
        Self {
            now_us: 0,
            geometry,
            agenda: Agenda::default(),
            wires: (0..settings.wires).map(|_| Wire::default()).collect(),
            conns: Vec::new(),
            clients: (0..settings.clients).map(client).collect(),
            at: 0,
            server: Server::new(),
            disk: Disk::new(blocks, settings.volatile.clone()),
            app: App::new(blocks, settings.clients * devices, u64::MAX),
            check: Check::new(blocks),
            trace: Trace {
                wanted: settings.options.trace,
                ..Trace::default()
            },
            landed: BTreeMap::new(),
            requests: 0,
            sends: 0,
            over: false,
            events: 0,
            rng,
            settings,
        }
    }

    /// Queues an event of the current client for `at_us`.
    pub(crate) fn queue_at(&mut self, at_us: u64, event: Event) {
        self.agenda.push(at_us, self.at, event);
    }

    /// Queues `event` in `delay_us`.
    pub(crate) fn after(&mut self, delay_us: u64, event: Event) {
        self.queue_at(self.now_us + delay_us, event);
    }

    /// Runs until all parts have recovered or an invariant is violated.
    pub(crate) fn run(&mut self) {
        note!(self, Check, "{:?}", self.settings);
        let mut paths = self.settings.wires;
        if self.settings.kinds.contains(&Kind::Add) {
            paths = 1;
        }
        for client in 0..self.clients.len() {
            self.at = client;
            self.opened();
            for wire in 0..paths {
                self.add_path(wire);
            }
            self.queue_at(0, Event::App);
        }
        let first_us = self.rng.u64(0..2 * self.settings.fault_pause_us);
        self.queue_at(first_us, Event::Fault);
        while let (false, None) = (self.over, &self.check.violation) {
            let Some((at_us, client, event)) = self.agenda.pop() else {
                let what = "nothing is left to happen".to_owned();
                self.check.fail(check::Kind::Stuck, what);
                break;
            };
            (self.now_us, self.at) = (at_us, client);
            self.events += 1;
            if self.events > EVENTS_MAX {
                let what = format!("{EVENTS_MAX} events were not enough");
                self.check.fail(check::Kind::Stuck, what);
            }
            self.handle(event);
        }
        if let Some(violation) = self.check.violation.clone() {
            note!(self, Check, "{violation}");
        }
    }

    /// The session that a connection of the server's belongs to.
    pub(crate) fn session_of(&self, conn: ConnId) -> Option<[u8; 16]> {
        let path = self.server.path_of(conn)?;
        self.server.paths.get(&path).map(|p| p.session)
    }

    /// Handles an event, or defers it while its owner is frozen.
    pub(crate) fn handle(&mut self, event: Event) {
        let owner = match event {
            Event::Arrive { to, .. } if !self.settings.adapter_acks => Some(to),
            ref event => event.owner(),
        };
        if let Some(conn) = event.conn() {
            self.at = self.conns[conn].owner;
        }
        if self.clients[self.at].frozen && owner == Some(Side::Client) {
            self.trace.reached("a frozen client puts something off");
            self.clients[self.at].backlog.push_back(event);
            return;
        }
        if self.server.frozen && owner == Some(Side::Server) {
            self.trace.reached("a frozen server puts something off");
            self.server.backlog.push_back((self.at, event));
            return;
        }
        if self.is_stalled(&event) {
            self.trace.reached("requests wait in a receive queue");
            self.server.held.push_back((self.at, event));
            return;
        }
        match event {
            Event::Arrive { .. }
            | Event::Receive { .. }
            | Event::Ack { .. }
            | Event::Retransmit { .. }
            | Event::Broken { .. }
            | Event::Cm { .. } => self.on_network(event),
            Event::ServerTick { path } => self.server_tick(path),
            Event::SetupTimeout { path } => self.setup_timeout(path),
            Event::ServerTornDown { path } => self.server_torn_down(path),
            Event::DiskDone { op } => self.disk_done(op),
            Event::Thaw { side } => self.thaw(side),
            Event::Resume { wire } => self.resume_receives(wire),
            Event::Restart => self.server.down = false,
            Event::App => self.app(),
            Event::Fault => self.fault(),
            Event::Mend { wire, round } => self.mend(wire, round),
            Event::Watch => self.watch(),
            event => self.on_client(event),
        }
    }

    fn on_network(&mut self, event: Event) {
        match event {
            Event::Arrive {
                conn,
                to,
                seq,
                message,
                late,
            } => self.arrive(conn, to, seq, message, late),
            Event::Receive { conn, to, message } => match to {
                Side::Client => self.client_receive(conn, message),
                Side::Server => self.server_receive(conn, message),
            },
            Event::Ack { conn, to, upto } => self.acked(conn, to, upto),
            Event::Retransmit { conn, from, round } => self.retransmit(conn, from, round),
            Event::Broken { conn, side } => match (side, self.path_of(conn)) {
                (Side::Server, _) => self.server_broken(conn),
                (Side::Client, Some(path)) => self.path_failed(path),
                (Side::Client, None) => {}
            },
            Event::Cm { conn, to, message } => match to {
                Side::Client => self.client_cm(conn, &message),
                Side::Server => self.server_cm(conn, &message),
            },
            _ => {}
        }
    }

    fn on_client(&mut self, event: Event) {
        match event {
            Event::CmRetry { path, life } => self.cm_retry(path, life),
            Event::ConnectTimeout { path, step } => self.connect_timeout(path, step),
            Event::TornDown { path, life } => self.torn_down(path, life),
            Event::CloseLate { conn } => self.close_conn(conn, Side::Client),
            Event::Start { path, start } => self.start(path, start),
            Event::FenceTimeout { path, life, number } => self.fence_timeout(path, life, number),
            Event::ClientTick { path, life } => self.client_tick(path, life),
            Event::RequestTimeout { tag, send } => self.request_timeout(tag, send),
            Event::OutageDeadline { until_ms } => self.outage_deadline(until_ms),
            Event::TryAgain => self.try_again(),
            Event::Reopen => self.reopen(),
            Event::TaskTimeout { task, step } => self.task_timeout(task, step),
            Event::Remap { device } => self.remap(device),
            Event::Unlocked => self.lock_released(),
            Event::FinishUnmap { device } => self.finish_unmap(device),
            Event::Map { device } => self.map(device),
            Event::Reconnect { path } => self.reconnect_path(path),
            _ => {}
        }
    }
}
