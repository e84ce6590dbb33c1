// SPDX-License-Identifier: GPL-2.0

//! The server's sessions and paths: admission, set-up and teardown.
//!
//! Stands for `rtrs/server/{listener,session,path}`. The decisions are those of `proto::handshake`,
//! `proto::path` and `proto::heartbeat`.

use std::collections::{
    BTreeMap,
    BTreeSet,
    VecDeque, //
};

use proto::rtrs::{
    admission::{
        self,
        Admission,
        Known, //
    },
    fence::Life,
    handshake::{
        Connect,
        Refusal, //
    },
    heartbeat::Tick,
    imm::Imm,
    path::{
        ServerEffect,
        ServerEvent,
        ServerState, //
    },
    wire::ConnectResponse,
    CONNECT_TIMEOUT_MS,
};
use zerocopy::IntoBytes;

use crate::{
    answers::SendQueue,
    event::{
        Event,
        MS, //
    },
    message::{
        Body,
        CmMessage,
        Message,
        Side, //
    },
    network::ConnId,
    server_io::Op,
    settings::Mutation,
    trace::note,
    world::World,
};

mod ends;

/// A session: the chunks, and the state of the upper layer.
#[derive(Debug)]
pub(crate) struct Session {
    /// Tells it from its predecessors.
    incarnation: u64,
    /// The number of its last path.
    pub(crate) last_number: u32,
    /// The request that a client's adapter has last written into each chunk.
    pub(crate) chunks: Vec<Option<Body>>,
    /// Paths that are up, those being torn down included.
    linked: usize,
    /// The devices' numbers.
    pub(crate) numbers: Vec<Number>,
}

/// The state of a device number in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    Free,
    Open {
        device: usize,
    },
    /// An administrator has closed the device.
    Retired {
        device: usize,
    },
}

/// A path.
#[derive(Debug)]
pub(crate) struct ServerPath {
    pub(crate) session: [u8; 16],
    uuid: [u8; 16],
    pub(crate) wire: usize,
    recon_cnt: u16,
    cid_num: u16,
    pub(crate) conns: BTreeMap<u16, ConnId>,
    pub(crate) state: ServerState,
    /// The info request has arrived.
    asked: bool,
    /// The session counts it.
    linked: bool,
    missed: u32,
    /// The chunks' keys, `None` while one is invalid.
    pub(crate) keys: Vec<Option<u64>>,
    /// The key that the next registration gives each chunk.
    pub(crate) next_keys: Vec<u64>,
    /// [`Event::ServerTornDown`] is on its way.
    leaving: bool,
    /// Its name in fence messages.
    pub(crate) life: Option<Life>,
    /// The number that a fence message on it is about, or 0.
    pub(crate) asked_about: u32,
    /// Its queue pairs are drained.
    pub(crate) drained: bool,
}

impl ServerPath {
    /// Returns what a connect request for path `uuid` over `wire` finds of this one.
    fn known(&self, uuid: &[u8; 16], wire: usize) -> Known {
        Known {
            same_path: self.uuid == *uuid,
            same_addresses: self.wire == wire,
            recon_cnt: self.recon_cnt,
            state: self.state,
            silent: self.missed > 1,
        }
    }
}

/// The server.
#[derive(Debug, Default)]
pub(crate) struct Server {
    pub(crate) sessions: BTreeMap<[u8; 16], Session>,
    pub(crate) paths: BTreeMap<u64, ServerPath>,
    of_conn: BTreeMap<ConnId, u64>,
    /// The send queues of the connections.
    pub(crate) queues: BTreeMap<ConnId, SendQueue>,
    /// The boot of its machine.
    pub(crate) boot: u64,
    pub(crate) ops: BTreeMap<u64, Op>,
    pub(crate) down: bool,
    pub(crate) frozen: bool,
    /// The events for a frozen server when it runs again.
    pub(crate) backlog: VecDeque<(usize, Event)>,
    /// The wires whose receives are not handled now, and what waits for that.
    pub(crate) stalled: BTreeSet<usize>,
    pub(crate) held: VecDeque<(usize, Event)>,
    /// Answers are dropped now.
    pub(crate) mute: bool,
    next: u64,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self {
            boot: 1,
            ..Self::default()
        }
    }

    /// A number that was never used.
    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The path that a connection belongs to.
    pub(crate) fn path_of(&self, conn: ConnId) -> Option<u64> {
        self.of_conn.get(&conn).copied()
    }
}

/// The record of a rejection.
fn refusal_name(refusal: &Refusal) -> &'static str {
    match refusal {
        Refusal::UnknownSession => "refused: unknown session",
        Refusal::AddressTaken => "refused: address taken",
        Refusal::PathState => "refused: path state",
        Refusal::Stale(_) => "refused: stale",
        Refusal::NotAdminFirst(_) => "refused: not admin first",
        _ => "refused: otherwise",
    }
}

impl World {
    pub(crate) fn server_cm(&mut self, conn: ConnId, message: &CmMessage) {
        if self.server.down {
            return;
        }
        match message {
            CmMessage::Connect(bytes) => self.connect_request(conn, bytes),
            CmMessage::Disconnect => {
                if let Some(path) = self.server.path_of(conn) {
                    self.server_close(path);
                }
            }
            CmMessage::Accept(_) | CmMessage::Reject(_) => {}
        }
    }

    fn connect_request(&mut self, conn: ConnId, bytes: &[u8]) {
        let accept = |w: &mut Self| {
            let path = w.server.path_of(conn);
            let life = path.and_then(|path| w.server.paths.get(&path)?.life);
            let response = ConnectResponse::accept(&w.geometry, false, life);
            let bytes = response.as_bytes().to_vec();
            w.send_cm(conn, Side::Client, CmMessage::Accept(bytes));
        };
        // The connection manager recognises a repeated request.
        if self.server.of_conn.contains_key(&conn) {
            return accept(self);
        }
        let answer = Connect::parse(bytes).and_then(|c| self.path_for(conn, &c).map(|p| (c, p)));
        match answer {
            Ok((connect, path)) => {
                self.server.of_conn.insert(conn, path);
                if let Some(p) = self.server.paths.get_mut(&path) {
                    p.conns.insert(connect.cid, conn);
                }
                let depth = self.settings.queue_depth;
                let queue = SendQueue::new(self.settings.send_room, depth);
                self.server.queues.insert(conn, queue);
                self.open_conn(conn, Side::Server);
                accept(self);
            }
            Err(refusal) => {
                note!(self, Server, "c{conn} refused: {refusal}");
                self.trace.reached(refusal_name(&refusal));
                let response = ConnectResponse::reject(refusal.errno());
                let bytes = response.as_bytes().to_vec();
                self.send_cm(conn, Side::Client, CmMessage::Reject(bytes));
            }
        }
    }

    /// Finds the path that a connect request is for, or makes it, and its session if need be.
    fn path_for(&mut self, conn: ConnId, connect: &Connect) -> Result<u64, Refusal> {
        if !connect.first_conn && !self.server.sessions.contains_key(&connect.paths_uuid) {
            return Err(Refusal::UnknownSession);
        }
        let wire = self.conns[conn].wire;
        let paths = self.server.paths.iter();
        let known: Vec<(u64, Known)> = paths
            .filter(|(_, p)| p.session == connect.paths_uuid)
            .map(|(id, p)| (*id, p.known(&connect.sess_uuid, wire)))
            .collect();
        let admission = admission::admit(connect, known.iter().map(|(_, k)| *k))?;
        if let Admission::Join(index) = admission {
            let id = known.get(index).map_or(0, |(id, _)| *id);
            let p = self.server.paths.get(&id).ok_or(Refusal::PathState)?;
            connect.check_known_path(
                p.state == ServerState::Connecting,
                p.cid_num,
                p.conns.contains_key(&connect.cid),
            )?;
            return Ok(id);
        }
        for (id, rival) in known {
            if rival.is_rival() {
                note!(self, Server, "path {id} is replaced");
                self.trace.reached("a reconnect replaces a path");
                self.server_close(id);
            }
        }
        Ok(self.new_path(conn, connect))
    }

    fn new_path(&mut self, conn: ConnId, connect: &Connect) -> u64 {
        let depth = usize::from(self.settings.queue_depth);
        let id = self.server.number();
        let incarnation = self.server.number();
        let session = self.server.sessions.entry(connect.paths_uuid);
        let session = session.or_insert_with(|| Session {
            incarnation,
            last_number: 0,
            chunks: vec![None; depth],
            linked: 0,
            numbers: Vec::new(),
        });
        let mut life = None;
        if connect.fences && self.settings.knows_fences {
            session.last_number += 1;
            life = Life::new(session.incarnation, session.last_number);
        }
        let path = ServerPath {
            session: connect.paths_uuid,
            uuid: connect.sess_uuid,
            wire: self.conns[conn].wire,
            recon_cnt: connect.recon_cnt,
            cid_num: connect.cid_num,
            conns: BTreeMap::new(),
            state: ServerState::Connecting,
            asked: false,
            linked: false,
            missed: 0,
            keys: Vec::new(),
            next_keys: Vec::new(),
            leaving: false,
            life,
            asked_about: 0,
            drained: false,
        };
        self.server.paths.insert(id, path);
        note!(self, Server, "path {id} made for {connect:?}");
        let limit_us = u64::from(CONNECT_TIMEOUT_MS) * MS;
        self.after(limit_us, Event::SetupTimeout { path: id });
        id
    }

    /// Steps a path's state and returns the action.
    fn server_step(&mut self, path: u64, event: ServerEvent) -> ServerEffect {
        let Some(p) = self.server.paths.get_mut(&path) else {
            return ServerEffect::Ignore;
        };
        let before = p.state;
        let (next, effect) = before.step(event);
        p.state = next;
        if next != before {
            note!(self, Server, "path {path} {before:?} + {event:?}: {next:?}");
        }
        effect
    }

    pub(crate) fn server_close(&mut self, path: u64) {
        if self.server_step(path, ServerEvent::Close) == ServerEffect::TearDown {
            self.server_tear_down(path);
        }
    }

    pub(crate) fn setup_timeout(&mut self, path: u64) {
        let state = self.server.paths.get(&path).map(|p| p.state);
        if state == Some(ServerState::Connecting) {
            self.trace.reached("a half-made path is given up");
            self.server_close(path);
        }
    }

    /// Handles a message received on a connection of the server.
    pub(crate) fn server_receive(&mut self, conn: ConnId, message: Message) {
        let Some(path) = self.server.path_of(conn) else {
            return;
        };
        let Some(p) = self.server.paths.get_mut(&path) else {
            return;
        };
        p.missed = 0;
        match message {
            Message::InfoRequest => {
                p.asked = true;
                self.try_go_live(path);
            }
            Message::Pulse { imm } => match Imm::decode(imm) {
                Ok(Imm::Heartbeat) => _ = self.send_pulse(conn, Imm::HeartbeatAck),
                Ok(Imm::Fence(number)) => self.fence_message(path, number),
                _ => {}
            },
            Message::Request { imm, body, .. } => {
                match self.server_step(path, ServerEvent::Request) {
                    ServerEffect::Serve => self.serve(path, conn, imm, body),
                    ServerEffect::TearDown => self.server_tear_down(path),
                    _ => {}
                }
            }
            Message::InfoResponse { .. } | Message::Response { .. } => {}
        }
    }

    /// Answers an info request, once the path's predecessors are drained.
    fn try_go_live(&mut self, path: u64) {
        let Some(p) = self.server.paths.get(&path) else {
            return;
        };
        if p.state != ServerState::Connecting || !p.asked {
            return;
        }
        let mut earlier = self.server.paths.range(..path);
        let old =
            earlier.any(|(_, o)| o.session == p.session && o.known(&p.uuid, p.wire).is_rival());
        if old && !self.settings.broken(Mutation::ForgetReconnectFence) {
            self.trace.reached("an info request waits for the old path");
            return;
        }
        let complete = p.conns.len() == usize::from(p.cid_num);
        match self.server_step(path, ServerEvent::InfoRequest { complete }) {
            ServerEffect::GoLive => self.server_go_live(path),
            ServerEffect::TearDown => self.server_tear_down(path),
            _ => {}
        }
    }

    fn server_go_live(&mut self, path: u64) {
        let Some(p) = self.server.paths.get_mut(&path) else {
            return;
        };
        p.linked = true;
        let admin = p.conns.get(&0).copied();
        let first_key = path << 32;
        p.next_keys = (first_key..)
            .take(self.settings.queue_depth.into())
            .collect();
        p.keys = p.next_keys.iter().copied().map(Some).collect();
        if let Some(session) = self.server.sessions.get_mut(&p.session) {
            session.linked += 1;
        }
        if let Some(admin) = admin {
            self.post(admin, Side::Server, Message::InfoResponse { first_key });
        }
        self.server_tick(path);
    }

    pub(crate) fn server_tick(&mut self, path: u64) {
        let Some(p) = self.server.paths.get_mut(&path) else {
            return;
        };
        if p.state != ServerState::Connected {
            return;
        }
        self.answer_fence(path);
        let Some(p) = self.server.paths.get_mut(&path) else {
            return;
        };
        let heartbeat = self.settings.server_heartbeat;
        let (missed, tick) = heartbeat.tick(p.missed);
        p.missed = missed;
        let admin = p.conns.get(&0).copied();
        match (tick, admin) {
            (Tick::Dead, _) => {
                self.trace.reached("the server's heartbeat gives up");
                return self.server_close(path);
            }
            (Tick::Send, Some(admin)) => {
                self.send_pulse(admin, Imm::Heartbeat);
            }
            _ => {}
        }
        let interval_us = u64::from(heartbeat.interval_ms) * MS;
        self.after(interval_us, Event::ServerTick { path });
    }

    pub(crate) fn server_broken(&mut self, conn: ConnId) {
        if let Some(path) = self.server.path_of(conn) {
            self.server_close(path);
        }
    }
}
