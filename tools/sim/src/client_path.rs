// SPDX-License-Identifier: GPL-2.0

//! A client's path: set-up, heartbeat, teardown, back-off.
//!
//! Stands for `rtrs/client/path`. The decisions are those of `proto::recovery`, `proto::heartbeat`
//! and `proto::handshake`.

use proto::common::errno::Errno;
use proto::rtrs::{
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
        StaleConnection,
        TearDown, //
    },
    CONNECT_TIMEOUT_MS, //
};
use zerocopy::IntoBytes;

use crate::{
    check::Kind,
    event::{
        Event,
        MS,
        S, //
    },
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

/// Name of the only session.
pub(crate) const SESSION: [u8; 16] = [0x5e; 16];

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
    life: u64,
    /// Number of the next start.
    start: u64,
    /// The current run of the teardown worker; `None`: a failed attempt is undone.
    run: Option<TearDown>,
    /// How the last attempt ended.
    outcome: Outcome,
    /// The connection of an earlier life that is to be disconnected.
    stale_connection: Option<ConnId>,
    /// To be released when it is closed.
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
    /// The connection whose answer is awaited.
    pending: Option<ConnId>,
    missed: u32,
    pulse_sent_us: u64,
    pub(crate) latency_ns: Option<u64>,
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
            pending: None,
            missed: 0,
            pulse_sent_us: 0,
            latency_ns: None,
        }
    }

    pub(crate) fn state(&self) -> ClientState {
        self.recovery.state()
    }

    /// Says whether the path is there at all.
    pub(crate) fn exists(&self) -> bool {
        self.state() != ClientState::Dead && !self.removed
    }
}

impl World {
    pub(crate) fn add_path(&mut self, wire: usize) {
        let path = self.client.paths.len();
        let Some(number) = self.client.quarantine.add_path() else {
            return;
        };
        self.client.paths.push(ClientPath::new(path, wire, number));
        note!(self, Client, "p{path} added on wire {wire}");
        self.connect(path);
    }

    pub(crate) fn remove_path(&mut self, path: usize) {
        self.client.paths[path].removed = true;
        self.remove_or_close(path);
    }

    fn remove_or_close(&mut self, path: usize) {
        let closed = self.client.paths[path].state() == ClientState::Closed;
        let event = if closed {
            recovery::Event::Remove
        } else {
            recovery::Event::Close
        };
        self.path_event(path, event);
    }

    pub(crate) fn close_path(&mut self, path: usize) {
        self.path_event(path, recovery::Event::Close);
    }

    /// The administrator requests a connect; counting starts again.
    pub(crate) fn reconnect_path(&mut self, path: usize) {
        let p = &mut self.client.paths[path];
        if !p.exists() {
            return;
        }
        p.disconnected = false;
        let before = (p.attempts, p.spent);
        (p.attempts, p.spent) = (0, 0);
        if self.path_event(path, recovery::Event::Reconnect) == Action::Busy {
            let p = &mut self.client.paths[path];
            (p.attempts, p.spent) = before;
        }
    }

    pub(crate) fn path_failed(&mut self, path: usize) {
        self.path_event(path, recovery::Event::Lost { life: None });
    }

    /// Connects, one connection after the other, then does the info exchange.
    fn connect(&mut self, path: usize) {
        let others_up = self.client.paths.iter().any(|p| p.state().carries_io());
        let p = &mut self.client.paths[path];
        p.life += 1;
        p.outcome = Outcome::Other;
        // As the driver: a path that was connected before may meet a restarted server.
        let was_up = p.recovery.was_up();
        p.first_conn = was_up || !others_up;
        let quarantine = &self.client.quarantine;
        p.inquiry = quarantine.inquiry(p.number, was_up);
        p.first_conn &= p.inquiry.is_none();
        p.conns.clear();
        let life = p.life;
        self.connect_next(path);
        self.after(CM_RETRY_US, Event::CmRetry { path, life });
        let timeout_us = u64::from(CONNECT_TIMEOUT_MS) * MS;
        self.after(timeout_us, Event::ConnectTimeout { path, life });
    }

    fn connect_next(&mut self, path: usize) {
        let conn = self.new_conn(self.client.paths[path].wire);
        let p = &mut self.client.paths[path];
        p.conns.push(conn);
        p.pending = Some(conn);
        self.send_connect(path, conn);
    }

    fn send_connect(&mut self, path: usize, conn: ConnId) {
        let p = &self.client.paths[path];
        let connect = Connect {
            // CAST: a few connections.
            cid: p.conns.len() as u16 - 1,
            cid_num: self.settings.connections,
            recon_cnt: p.recovery.life(),
            sess_uuid: p.uuid,
            paths_uuid: SESSION,
            first_conn: p.first_conn,
        };
        let bytes = connect.to_wire().as_bytes().to_vec();
        self.send_cm(conn, Side::Server, CmMessage::Connect(bytes));
    }

    pub(crate) fn cm_retry(&mut self, path: usize, life: u64) {
        let p = &self.client.paths[path];
        let connecting = p.life == life && p.state() == ClientState::Connecting;
        if let Some(conn) = p.pending.filter(|_| connecting) {
            self.send_connect(path, conn);
            self.after(CM_RETRY_US, Event::CmRetry { path, life });
        }
    }

    pub(crate) fn connect_timeout(&mut self, path: usize, life: u64) {
        let p = &mut self.client.paths[path];
        if p.life == life && p.state() == ClientState::Connecting {
            p.outcome = Outcome::Silence;
            self.trace.reached("a set-up takes too long");
            self.path_failed(path);
        }
    }

    /// The path that a connection belongs to now.
    pub(crate) fn path_of(&self, conn: ConnId) -> Option<usize> {
        let mut paths = self.client.paths.iter();
        paths.position(|p| p.conns.contains(&conn))
    }

    pub(crate) fn client_cm(&mut self, conn: ConnId, message: &CmMessage) {
        let Some(path) = self.path_of(conn) else {
            return;
        };
        let p = &mut self.client.paths[path];
        match message {
            CmMessage::Disconnect => self.path_failed(path),
            // An answer to a repeated request.
            _ if p.pending != Some(conn) => {}
            CmMessage::Accept(bytes) => {
                p.pending = None;
                match handshake::accepted(bytes, Some(self.settings.queue_depth)) {
                    Ok(accepted) if accepted.geometry == self.geometry => {}
                    answer => {
                        let what = format!("accept not understood: {answer:?}");
                        self.check.fail(Kind::Refused, what);
                    }
                }
                if self.client.paths[path].conns.len() < self.settings.connections.into() {
                    self.connect_next(path);
                } else {
                    let admin = self.client.paths[path].conns[0];
                    self.post(admin, Side::Client, Message::InfoRequest);
                }
            }
            CmMessage::Reject(bytes) => {
                let why = handshake::rejected(bytes);
                note!(self, Client, "p{path}: {why}");
                self.trace.reached("a connect is refused");
                let unknown = matches!(why, ConnectError::Rejected(Some(Errno::ENXIO)));
                if let Some(losses) = self.client.paths[path].inquiry.filter(|_| unknown) {
                    self.session_forgotten(losses);
                    // As the driver, which reconnects at once.
                    self.client.paths[path].attempts = 0;
                    self.path_event(path, recovery::Event::RetryNow);
                } else {
                    self.client.paths[path].outcome = Outcome::Refused;
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
        self.client.paths[path].missed = 0;
        match message {
            Message::InfoResponse => {
                self.path_event(path, recovery::Event::Established);
            }
            Message::Pulse { imm } => match Imm::decode(imm) {
                Ok(Imm::Heartbeat) => {
                    let imm = Imm::HeartbeatAck.encode();
                    self.post(conn, Side::Client, Message::Pulse { imm });
                }
                Ok(Imm::HeartbeatAck) => {
                    let now_us = self.now_us;
                    let p = &mut self.client.paths[path];
                    p.latency_ns = Some(latency_ns(p.pulse_sent_us * 1000, now_us * 1000));
                }
                _ => {}
            },
            Message::Response {
                imm,
                content,
                request,
            } => {
                if let Ok(Imm::Response(r)) = Imm::decode(imm) {
                    self.response((path, conn), r, content, request);
                }
            }
            Message::InfoRequest | Message::Request { .. } => {}
        }
    }

    fn go_live(&mut self, path: usize) {
        let reset = !self.settings.broken(Mutation::NoBackoffReset);
        let p = &mut self.client.paths[path];
        if !reset {
            p.spent += p.attempts;
        }
        p.attempts = 0;
        p.missed = 0;
        p.latency_ns = None;
        let life = p.life;
        // The server has drained this path's predecessors before it answered.
        self.end_quarantine_of(path);
        self.client_tick(path, life);
        self.path_up();
    }

    pub(crate) fn client_tick(&mut self, path: usize, life: u64) {
        let heartbeat = self.settings.heartbeat;
        let p = &mut self.client.paths[path];
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

    /// Disconnects and drains; requests in flight are sent again after that.
    fn tear_down(&mut self, path: usize) {
        let p = &mut self.client.paths[path];
        p.life += 1;
        p.run = p.recovery.begin_tear_down();
        p.pending = None;
        let (life, run, conns) = (p.life, p.run, std::mem::take(&mut p.conns));
        if run == Some(TearDown::ToConnectAgain) {
            p.stale_connection = conns.first().copied();
        } else if run.is_some() {
            self.disconnect_stale(path, StaleConnection::Drop);
        }
        for conn in conns {
            if self.client.paths[path].stale_connection != Some(conn) {
                self.send_cm(conn, Side::Server, CmMessage::Disconnect);
            }
            if self.settings.broken(Mutation::SkipDrain) {
                let later = self.rng.u64(0..3 * S);
                self.after(later, Event::CloseLate { conn });
            } else {
                self.close_conn(conn, Side::Client);
            }
        }
        let pause = match self.settings.broken(Mutation::SkipDrain) {
            true => 0,
            false => self.rng.u64(MS..30 * MS),
        };
        self.after(pause, Event::TornDown { path, life });
    }

    pub(crate) fn torn_down(&mut self, path: usize, life: u64) {
        let p = &mut self.client.paths[path];
        if p.life != life {
            return;
        }
        let (run, outcome, kept) = (p.run, p.outcome, p.stale_connection.is_some());
        self.fail_over(path);
        if kept && self.client.away_until_us > self.now_us {
            // So that the server forgets the session.
            self.disconnect_stale(path, StaleConnection::Disconnect);
        }
        let pauses = self.pauses(path);
        let event = match run {
            Some(run) => recovery::Event::TornDown { run, kept, pauses },
            None => recovery::Event::AttemptFailed {
                outcome,
                took_ms: 0,
                pauses,
            },
        };
        self.path_event(path, event);
    }
}
