// SPDX-License-Identifier: GPL-2.0

//! A client's path: set-up, heartbeat, teardown, back-off.
//!
//! Stands for `rtrs/client/path`. The decisions are those of `proto::recovery`, `proto::heartbeat`
//! and `proto::handshake`.

use proto::common::errno::Errno;
use proto::rtrs::{
    availability::Admission,
    fence::Place,
    handshake::{
        self,
        Connect,
        ConnectError, //
    },
    heartbeat::{
        latency_ns,
        Tick, //
    },
    imm::Imm,
    path::ClientState,
    recovery::{
        self,
        Action,
        Outcome,
        Recovery,
        TearDown, //
    },
    timeouts::ConnectTimeouts, //
};
use zerocopy::IntoBytes;

use crate::{
    check::Kind,
    event::{
        Event,
        MS, //
    },
    fence::Down,
    message::{
        CmMessage,
        Message,
        Side, //
    },
    network::ConnId,
    settings::Mutation,
    trace::note,
    world::World,
};

mod lives;

/// Pause before a connect request is repeated by the connection manager.
const CM_RETRY_US: u64 = 500 * MS;

/// A path.
#[derive(Debug)]
pub(crate) struct ClientPath {
    pub(crate) wire: usize,
    /// Its number in `proto::quarantine`.
    pub(crate) number: u8,
    uuid: [u8; 16],
    recovery: Recovery,
    /// Counts set-ups and teardowns.
    pub(crate) life: u64,
    /// Counts the steps of set-ups.
    step: u64,
    /// Number of the next start.
    start: u64,
    /// The current run of the teardown worker; `None`: a failed attempt is undone.
    run: Option<TearDown>,
    /// The end of the last attempt.
    outcome: Outcome,
    /// The connection of an earlier life that is to be disconnected.
    stale_connection: Option<ConnId>,
    /// The path is to be released when it is closed.
    removed: bool,
    /// The administrator wants it closed.
    pub(crate) disconnected: bool,
    first_conn: bool,
    /// The server is asked whether it knows the session; the losses before that.
    inquiry: Option<u64>,
    /// The check's own count of attempts since the last success.
    attempts: u32,
    /// Attempts before the last success, for a mutation that does not forget them.
    spent: u32,
    pub(crate) conns: Vec<ConnId>,
    /// The outages when its validation began.
    pub(crate) admission: Option<Admission>,
    /// Senders may use it.
    pub(crate) is_live: bool,
    /// The keys of the chunks.
    pub(crate) keys: Vec<u64>,
    /// The connection whose answer is awaited.
    pending: Option<ConnId>,
    missed: u32,
    pulse_sent_us: u64,
    pub(crate) latency_ns: Option<u64>,
    /// The session at the server that it has reached, and the name of its life there.
    pub(crate) place: Option<Place>,
    /// The number of the life that its server was asked about, or 0.
    pub(crate) asked: u32,
    /// Its requests wait until the server executes none of them any more.
    pub(crate) down: Option<Down>,
}

impl ClientPath {
    fn new(index: usize, wire: usize, number: u8) -> Self {
        let mut uuid = [0; 16];
        // CAST: a run adds few paths.
        (uuid[0], uuid[1]) = (index as u8 + 1, (index >> 8) as u8);
        Self {
            wire,
            number,
            uuid,
            recovery: Recovery::NEW,
            life: 0,
            step: 0,
            start: 0,
            run: None,
            outcome: Outcome::Other,
            stale_connection: None,
            removed: false,
            disconnected: false,
            first_conn: true,
            inquiry: None,
            attempts: 0,
            spent: 0,
            conns: Vec::new(),
            admission: None,
            is_live: false,
            keys: Vec::new(),
            pending: None,
            missed: 0,
            pulse_sent_us: 0,
            latency_ns: None,
            place: None,
            asked: 0,
            down: None,
        }
    }

    pub(crate) fn state(&self) -> ClientState {
        self.recovery.state()
    }

    /// Says whether it may be connected again without being asked to.
    pub(crate) fn may_come_back(&self) -> bool {
        use ClientState as S;
        matches!(
            self.state(),
            S::Connecting | S::ConnectingErr | S::Connected | S::Reconnecting
        )
    }

    /// Says whether the path is there at all.
    pub(crate) fn exists(&self) -> bool {
        self.state() != ClientState::Dead && !self.removed
    }
}

impl World {
    pub(crate) fn add_path(&mut self, wire: usize) {
        let path = self.clients[self.at].paths.len();
        let Some(number) = self.clients[self.at].quarantine.add_path() else {
            return;
        };
        self.clients[self.at]
            .paths
            .push(ClientPath::new(path, wire, number));
        note!(self, Client, "p{path} added on wire {wire}");
        self.connect(path);
    }

    pub(crate) fn remove_path(&mut self, path: usize) {
        self.clients[self.at].paths[path].removed = true;
        self.remove_or_close(path);
    }

    fn remove_or_close(&mut self, path: usize) {
        let closed = self.clients[self.at].paths[path].state() == ClientState::Closed;
        let event = if closed {
            recovery::Event::Remove
        } else {
            recovery::Event::CloseForGood
        };
        self.path_event(path, event);
    }

    pub(crate) fn close_path(&mut self, path: usize) {
        self.path_event(path, recovery::Event::Close);
    }

    /// The administrator requests a connect; counting starts again.
    pub(crate) fn reconnect_path(&mut self, path: usize) {
        let p = &mut self.clients[self.at].paths[path];
        if !p.exists() {
            return;
        }
        p.disconnected = false;
        let before = (p.attempts, p.spent);
        (p.attempts, p.spent) = (0, 0);
        if self.path_event(path, recovery::Event::Reconnect) == Action::Busy {
            let p = &mut self.clients[self.at].paths[path];
            (p.attempts, p.spent) = before;
        }
    }

    pub(crate) fn path_failed(&mut self, path: usize) {
        self.path_event(path, recovery::Event::Lost { life: None });
    }

    /// Connects, one connection after the other, then does the info exchange.
    fn connect(&mut self, path: usize) {
        let mut others = self.clients[self.at].paths.iter().enumerate();
        let has_others = others.any(|(other, p)| other != path && p.exists());
        let p = &mut self.clients[self.at].paths[path];
        p.life += 1;
        p.outcome = Outcome::Other;
        // As the driver: a path that is connected again may meet a restarted server.
        let was_up = p.recovery.was_up();
        let is_new = p.life == 1;
        let life = p.life;
        p.conns.clear();
        let client = &mut self.clients[self.at];
        let p = &mut client.paths[path];
        p.inquiry = client.quarantine.inquiry(p.number, was_up);
        p.first_conn = match is_new {
            true => !has_others,
            false => p.inquiry.is_none(),
        };
        self.connect_next(path);
        self.after(CM_RETRY_US, Event::CmRetry { path, life });
    }

    /// A step of the set-up begins: connections one after the other, the info exchange, the
    /// validation, which has its own time.
    fn begin_step(&mut self, path: usize, is_timed: bool) {
        let p = &mut self.clients[self.at].paths[path];
        p.step += 1;
        let step = p.step;
        let timeouts = match p.recovery.was_up() {
            true => ConnectTimeouts::again(p.recovery.silent()),
            false => ConnectTimeouts::FIRST,
        };
        if is_timed {
            let timeout_us = u64::from(timeouts.step_ms) * MS;
            self.after(timeout_us, Event::ConnectTimeout { path, step });
        }
    }

    fn connect_next(&mut self, path: usize) {
        let conn = self.new_conn(self.clients[self.at].paths[path].wire);
        let p = &mut self.clients[self.at].paths[path];
        p.conns.push(conn);
        p.pending = Some(conn);
        self.begin_step(path, true);
        self.send_connect(path, conn);
    }

    fn send_connect(&mut self, path: usize, conn: ConnId) {
        let p = &self.clients[self.at].paths[path];
        let connect = Connect {
            // CAST: a few connections.
            cid: p.conns.len() as u16 - 1,
            cid_num: self.settings.connections,
            recon_cnt: p.recovery.life(),
            sess_uuid: p.uuid,
            // CAST: two clients.
            paths_uuid: [0x5e + self.at as u8; 16],
            first_conn: p.first_conn,
            fences: true,
        };
        let bytes = connect.to_wire().as_bytes().to_vec();
        self.send_cm(conn, Side::Server, CmMessage::Connect(bytes));
    }

    pub(crate) fn cm_retry(&mut self, path: usize, life: u64) {
        let p = &self.clients[self.at].paths[path];
        let connecting = p.life == life && p.state() == ClientState::Connecting;
        if let Some(conn) = p.pending.filter(|_| connecting) {
            self.send_connect(path, conn);
            self.after(CM_RETRY_US, Event::CmRetry { path, life });
        }
    }

    pub(crate) fn connect_timeout(&mut self, path: usize, step: u64) {
        let p = &mut self.clients[self.at].paths[path];
        if p.step == step && p.state() == ClientState::Connecting {
            p.outcome = Outcome::Silence;
            self.trace.reached("a set-up takes too long");
            self.path_failed(path);
        }
    }

    /// The path that a connection belongs to now.
    pub(crate) fn path_of(&self, conn: ConnId) -> Option<usize> {
        let mut paths = self.clients[self.at].paths.iter();
        paths.position(|p| p.conns.contains(&conn))
    }

    pub(crate) fn client_cm(&mut self, conn: ConnId, message: &CmMessage) {
        let Some(path) = self.path_of(conn) else {
            return;
        };
        let p = &mut self.clients[self.at].paths[path];
        match message {
            CmMessage::Disconnect => self.path_failed(path),
            // An answer to a repeated request.
            _ if p.pending != Some(conn) => {}
            CmMessage::Accept(bytes) => {
                p.pending = None;
                let life = match handshake::accepted(bytes, Some(self.settings.queue_depth)) {
                    Ok(accepted) if accepted.geometry == self.geometry => accepted.life,
                    answer => {
                        let what = format!("accept not understood: {answer:?}");
                        self.check.fail(Kind::Refused, what);
                        None
                    }
                };
                if self.clients[self.at].paths[path].conns.len() < self.settings.connections.into()
                {
                    self.connect_next(path);
                } else {
                    let client = &mut self.clients[self.at];
                    let admin = client.paths[path].conns[0];
                    client.paths[path].place = Some(client.fences.reached(life));
                    self.begin_step(path, true);
                    self.post(admin, Side::Client, Message::InfoRequest);
                }
            }
            CmMessage::Reject(bytes) => {
                let why = handshake::rejected(bytes);
                note!(self, Client, "p{path}: {why}");
                self.trace.reached("a connect is refused");
                let unknown = matches!(why, ConnectError::Rejected(Some(Errno::ENXIO)));
                if let Some(losses) = self.clients[self.at].paths[path]
                    .inquiry
                    .filter(|_| unknown)
                {
                    self.session_forgotten(losses);
                    // As the driver, which reconnects at once.
                    self.clients[self.at].paths[path].attempts = 0;
                    self.path_event(path, recovery::Event::RetryNow);
                } else {
                    self.clients[self.at].paths[path].outcome = Outcome::Refused;
                }
                self.path_failed(path);
            }
            CmMessage::Connect(_) => {}
        }
    }

    /// Handles a message received on a connection of the client.
    pub(crate) fn client_receive(&mut self, conn: ConnId, message: Message) {
        let Some(path) = self.path_of(conn) else {
            return;
        };
        if !self.conns[conn].is_open(Side::Client) {
            return;
        }
        self.clients[self.at].paths[path].missed = 0;
        match message {
            Message::InfoResponse { first_key } => {
                let depth = usize::from(self.settings.queue_depth);
                let p = &mut self.clients[self.at].paths[path];
                p.keys = (first_key..).take(depth).collect();
                self.begin_step(path, false);
                // The server has drained this path's predecessors before it answered.
                self.end_quarantine_of(path);
                self.fence_lost_lives(path);
            }
            Message::Pulse { imm } => match Imm::decode(imm) {
                Ok(Imm::Heartbeat) => {
                    let imm = Imm::HeartbeatAck.encode();
                    self.post(conn, Side::Client, Message::Pulse { imm });
                }
                Ok(Imm::HeartbeatAck) => {
                    let now_us = self.now_us;
                    let p = &mut self.clients[self.at].paths[path];
                    p.latency_ns = Some(latency_ns(p.pulse_sent_us * 1000, now_us * 1000));
                }
                Ok(Imm::Fenced(number)) => self.fenced(path, number),
                _ => {}
            },
            Message::Response {
                imm,
                content,
                key,
                request,
            } => {
                if let Ok(Imm::Response(r)) = Imm::decode(imm) {
                    self.take_key(path, r.msg_id, key);
                    self.response((path, conn), r, content, request);
                }
            }
            Message::InfoRequest | Message::Request { .. } => {}
        }
    }

    /// Stores the next key of a chunk.
    fn take_key(&mut self, path: usize, chunk: u32, key: Option<u64>) {
        let is_kept = self.settings.broken(Mutation::OldKey);
        let keys = &mut self.clients[self.at].paths[path].keys;
        if let (Some(slot), Some(key), false) = (keys.get_mut(chunk as usize), key, is_kept) {
            *slot = key;
        }
    }

    fn go_live(&mut self, path: usize) {
        let reset = !self.settings.broken(Mutation::NoBackoffReset);
        let p = &mut self.clients[self.at].paths[path];
        if !reset {
            p.spent += p.attempts;
        }
        p.attempts = 0;
        p.missed = 0;
        p.latency_ns = None;
        let life = p.life;
        p.is_live = true;
        self.client_tick(path, life);
        self.path_up();
    }

    pub(crate) fn client_tick(&mut self, path: usize, life: u64) {
        let heartbeat = self.settings.heartbeat;
        let p = &mut self.clients[self.at].paths[path];
        let is_up = p.life == life && p.state().carries_io();
        if !is_up || self.settings.broken(Mutation::NoHeartbeat) {
            return;
        }
        let (missed, tick) = heartbeat.tick(p.missed);
        p.missed = missed;
        match tick {
            Tick::Dead => {
                note!(self, Client, "p{path}: heartbeat unanswered");
                self.trace.reached("the client's heartbeat gives up");
                self.path_failed(path);
                return;
            }
            Tick::Send => {
                p.pulse_sent_us = self.now_us;
                let admin = p.conns[0];
                let imm = Imm::Heartbeat.encode();
                self.post(admin, Side::Client, Message::Pulse { imm });
            }
            Tick::Wait => {}
        }
        self.look_after_chunks();
        let interval_us = u64::from(heartbeat.interval_ms) * MS;
        self.after(interval_us, Event::ClientTick { path, life });
    }
}
