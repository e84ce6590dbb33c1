// SPDX-License-Identifier: GPL-2.0

//! The faults, and the quiet phase after them, in which all parts have to recover.

use proto::rnbd::control::DeviceState;
use proto::rtrs::{
    outage::FastIoFail,
    path::{
        ClientState,
        ServerState, //
    },
    policy::Policy,
};

use crate::{
    check,
    device::Device,
    event::{
        Event,
        MS,
        S, //
    },
    message::Side,
    server::Number,
    settings::Mutation,
    trace::note,
    world::World,
};

/// A kind of fault, or of administration at an inconvenient time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A wire is cut, and restored later.
    Cut,
    /// A wire loses packets for a while.
    Loss,
    /// The server crashes and starts again; its disks keep their data, caches included.
    Crash,
    /// The server's machine loses power and boots: the caches are lost.
    PowerFail,
    /// The server closes a device of a client, which is opened again on request later.
    ForceClose,
    /// The server freezes, then handles all queued events at once.
    Freeze,
    /// The server's software does not handle the receives of a wire's connections; the adapter
    /// acknowledges. Afterwards it handles them at once.
    Stall,
    /// The client freezes, then handles all queued events at once.
    ClientFreeze,
    /// The server drops its answers to IO, until this fault is drawn again.
    Mute,
    /// The disk is slow, until this fault is drawn again.
    SlowDisk,
    /// `disconnect` of a path at the client, `reconnect` some time later.
    Disconnect,
    /// `reconnect` of a path in any state.
    Reconnect,
    /// `remove_path`.
    Remove,
    /// `add_path`.
    Add,
    /// `disconnect` of a path at the server.
    ServerClose,
    /// A device is unmapped at the client, and mapped again later.
    Unmap,
    /// Another policy.
    Policy,
    /// Another `fast_io_fail_tmo`.
    FastIoFail,
}

impl Kind {
    /// All but `Stall`, which is for peers that have agreed upon the fence message.
    pub(crate) const ALL: [Self; 17] = [
        Self::Cut,
        Self::Loss,
        Self::Crash,
        Self::PowerFail,
        Self::ForceClose,
        Self::Freeze,
        Self::ClientFreeze,
        Self::Mute,
        Self::SlowDisk,
        Self::Disconnect,
        Self::Reconnect,
        Self::Remove,
        Self::Add,
        Self::ServerClose,
        Self::Unmap,
        Self::Policy,
        Self::FastIoFail,
    ];
}

/// The virtual time within which all parts must recover.
const BACK_US: u64 = 240 * S;

impl World {
    /// Starts a fault, or the quiet phase.
    pub(crate) fn fault(&mut self) {
        if self.now_us >= self.settings.calm_us {
            return self.calm();
        }
        self.at = self.rng.usize(0..self.clients.len());
        let kind = self.rng.usize(0..self.settings.kinds.len());
        let kind = self.settings.kinds[kind];
        note!(self, Fault, "{kind:?}");
        match kind {
            Kind::ClientFreeze => self.freeze_client(),
            Kind::Cut | Kind::Loss => self.damage(kind),
            Kind::Crash
            | Kind::PowerFail
            | Kind::ForceClose
            | Kind::Freeze
            | Kind::Stall
            | Kind::Mute
            | Kind::SlowDisk
            | Kind::ServerClose => {
                self.fault_of_server(kind);
            }
            // A frozen machine has no administrator.
            _ if self.clients[self.at].frozen => {}
            Kind::Disconnect | Kind::Reconnect | Kind::Remove | Kind::Add => {
                self.fault_of_path(kind);
            }
            Kind::Unmap => {
                let device = self.rng.usize(0..self.settings.volatile.len());
                self.unmap(device);
                // So that a CLOSE is on its way when its path is lost, and the last one.
                for _ in 0..self.rng.usize(0..=self.wires.len()) {
                    self.damage(Kind::Cut);
                }
            }
            Kind::Policy => {
                let policy = Policy::from_u8(self.rng.u8(0..3));
                self.clients[self.at].policy = policy.unwrap_or_default();
            }
            Kind::FastIoFail => {
                self.settings.fast_io_fail = FastIoFail::from_i32(self.rng.i32(-3..20));
                for client in 0..self.clients.len() {
                    self.at = client;
                    self.change_outage_setting();
                }
            }
        }
        let pause_us = self.rng.u64(0..2 * self.settings.fault_pause_us);
        let next_us = (self.now_us + pause_us).min(self.settings.calm_us);
        self.queue_at(next_us, Event::Fault);
    }

    fn damage(&mut self, kind: Kind) {
        let wire = self.rng.usize(0..self.wires.len());
        let per_cent = self.rng.u32(5..70);
        let for_us = match self.rng.u32(0..3) {
            0 => self.rng.u64(20 * MS..S),
            1 => self.rng.u64(S..5 * S),
            _ => self.rng.u64(S..40 * S),
        };
        let w = &mut self.wires[wire];
        w.round += 1;
        let round = w.round;
        match kind {
            Kind::Cut => w.cut = true,
            _ => w.loss = per_cent,
        }
        note!(self, Fault, "wire {wire} for {} ms", for_us / MS);
        self.after(for_us, Event::Mend { wire, round });
    }

    pub(crate) fn mend(&mut self, wire: usize, round: u64) {
        let w = &mut self.wires[wire];
        if w.round == round {
            (w.cut, w.loss) = (false, 0);
            note!(self, Fault, "wire {wire} mended");
        }
    }

    fn freeze_client(&mut self) {
        if !self.clients[self.at].frozen {
            self.clients[self.at].frozen = true;
            let longest = match self.rng.u32(0..4) {
                0 => 45 * S,
                _ => 8 * S,
            };
            let later = self.rng.u64(50 * MS..longest);
            self.after(later, Event::Thaw { side: Side::Client });
        }
    }

    fn fault_of_server(&mut self, kind: Kind) {
        match kind {
            Kind::Crash | Kind::PowerFail if !self.server.down => {
                match kind {
                    Kind::Crash => self.crash(),
                    _ => self.lose_power(),
                }
                let later = self.rng.u64(10 * MS..10 * S);
                self.after(later, Event::Restart);
            }
            Kind::Freeze if !self.server.down && !self.server.frozen => {
                self.server.frozen = true;
                let later = self.rng.u64(50 * MS..12 * S);
                self.after(later, Event::Thaw { side: Side::Server });
            }
            Kind::Stall if !self.server.down => self.stall(),
            Kind::ForceClose if !self.server.frozen => self.force_close(),
            Kind::Mute => self.server.mute = !self.server.mute,
            Kind::SlowDisk => self.disk.slow = !self.disk.slow,
            Kind::ServerClose if !self.server.frozen => {
                let paths: Vec<u64> = self.server.paths.keys().copied().collect();
                if let Some(path) = self.rng.choice(&paths) {
                    self.server_close(*path);
                }
            }
            _ => {}
        }
    }

    /// An administrator of the server closes a device of a client.
    fn force_close(&mut self) {
        // CAST: two clients.
        let uuid = [0x5e + self.at as u8; 16];
        let reuses = self.settings.broken(Mutation::ReuseNumber);
        let Some(session) = self.server.sessions.get_mut(&uuid) else {
            return;
        };
        let is_open = |n: &Number| matches!(n, Number::Open { .. });
        let Some(number) = session.numbers.iter().position(is_open) else {
            return;
        };
        let Number::Open { device } = session.numbers[number] else {
            return;
        };
        // CAST: a few devices.
        session.close(number as u32, !reuses);
        let device_state = &mut self.clients[self.at].devices[device];
        // CAST: a few devices.
        device_state.fenced = Some((device_state.disconnects, number as u32));
        note!(
            self,
            Fault,
            "device {device} of client {} is closed",
            self.at
        );
        let later = self.rng.u64(S..8 * S);
        self.after(later, Event::Remap { device });
    }

    fn fault_of_path(&mut self, kind: Kind) {
        let there: Vec<usize> = (0..self.clients[self.at].paths.len())
            .filter(|i| self.clients[self.at].paths[*i].exists())
            .collect();
        let picked = self.rng.choice(&there).copied();
        match (kind, picked) {
            (Kind::Disconnect, Some(path)) => {
                self.clients[self.at].paths[path].disconnected = true;
                self.close_path(path);
                let later = self.rng.u64(0..5 * S);
                self.after(later, Event::Reconnect { path });
            }
            (Kind::Reconnect, Some(path)) => self.reconnect_path(path),
            (Kind::Remove, Some(path)) if there.len() > 1 => self.remove_path(path),
            (Kind::Add, _) => self.add_missing_path(),
            _ => {}
        }
    }

    /// Adds a path on a wire that has none.
    fn add_missing_path(&mut self) {
        let used = |wire: usize| {
            let mut paths = self.clients[self.at].paths.iter();
            paths.any(|p| p.exists() && p.wire == wire)
        };
        if let Some(wire) = (0..self.wires.len()).find(|w| !used(*w)) {
            if self.clients[self.at].paths.len() < proto::rtrs::PATHS_MAX {
                self.add_path(wire);
            }
        }
    }

    /// Ends the freeze of a side: the queued events happen, in order.
    pub(crate) fn thaw(&mut self, side: Side) {
        let client = self.at;
        let backlog: Vec<(usize, Event)> = match side {
            Side::Client => {
                self.clients[client].frozen = false;
                let backlog = std::mem::take(&mut self.clients[client].backlog);
                backlog.into_iter().map(|event| (client, event)).collect()
            }
            Side::Server => {
                self.server.frozen = false;
                std::mem::take(&mut self.server.backlog).into()
            }
        };
        for (client, event) in backlog {
            self.at = client;
            self.handle(event);
        }
        self.at = client;
    }

    /// Faults stop.
    fn calm(&mut self) {
        note!(self, Fault, "calm");
        for wire in 0..self.wires.len() {
            let round = self.wires[wire].round;
            self.mend(wire, round);
            self.resume_receives(wire);
        }
        self.server.down = false;
        self.server.mute = false;
        self.disk.slow = false;
        for client in 0..self.clients.len() {
            self.at = client;
            self.thaw(Side::Client);
        }
        self.thaw(Side::Server);
        self.app.until_us = match self.settings.is_busy {
            true => u64::MAX,
            false => self.now_us + S,
        };
        self.after(S, Event::Watch);
    }

    /// Checks whether all parts have recovered.
    pub(crate) fn watch(&mut self) {
        let is_open = |d: &Device| d.io_state.remote_id().is_some();
        let mut devices = self.clients.iter().flat_map(|c| &c.devices);
        if devices.all(is_open) {
            self.app.until_us = self.app.until_us.min(self.now_us + S);
        }
        let mut missing = Vec::new();
        for client in 0..self.clients.len() {
            self.at = client;
            self.repair();
            missing.extend(self.missing_of_client());
        }
        missing.extend(self.missing());
        if missing.is_empty() {
            for block in 0..self.disk.blocks() {
                let content = self.disk.content(block);
                self.check.content(block, content, check::Kind::LostWrite);
            }
            note!(self, Check, "everything is back");
            self.over = true;
        } else if self.now_us > self.settings.calm_us + BACK_US {
            self.check.fail(check::Kind::Stuck, missing.join(", "));
        } else {
            self.after(100 * MS, Event::Watch);
        }
    }

    /// The administrator mends what does not come back by itself.
    fn repair(&mut self) {
        for path in 0..self.clients[self.at].paths.len() {
            let p = &self.clients[self.at].paths[path];
            if p.exists() && p.state() == ClientState::Closed {
                self.reconnect_path(path);
            }
        }
        let idle = self.clients[self.at].tasks.is_idle();
        for device in 0..self.settings.volatile.len() {
            if idle && self.clients[self.at].devices[device].state == DeviceState::Fenced {
                self.remap(device);
                break;
            }
        }
    }

    /// Returns the state of a client that differs from the expected one after recovery.
    fn missing_of_client(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let client = &self.clients[self.at];
        for (chunk, slot) in client.slots.iter().enumerate() {
            if let Some(s) = slot {
                missing.push(format!("chunk {chunk} used by r{}", s.body.request));
            }
        }
        // Chunks may be held on, for a path that was removed; one that is lent to a request is not.
        let lent = |id: &u16| client.quarantine.used_instead_of(*id).is_some();
        let ids = (0..self.settings.queue_depth).filter(lent);
        missing.extend(ids.map(|id| format!("chunk for {id}")));
        for (i, p) in client.paths.iter().enumerate() {
            if p.exists() && !p.is_live {
                missing.push(format!("p{i} {:?}", p.state()));
            }
        }
        for (i, device) in client.devices.iter().enumerate() {
            if device.io_state.remote_id().is_none() {
                missing.push(format!("device {i} {:?}", device.io_state));
            }
        }
        if !client.waiting.is_empty() || !client.tasks.is_idle() {
            missing.push("requests or messages wait".to_owned());
        }
        missing
    }

    /// The same of the server.
    fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        let clients = self.clients.iter();
        let up = clients
            .flat_map(|c| &c.paths)
            .filter(|p| p.exists() && p.is_live);
        let up = up.count();
        let paths = self.server.paths.values();
        let serving = paths.clone().filter(|p| p.state == ServerState::Connected);
        if (serving.count(), paths.len()) != (up, up) {
            let held = self.server.paths.len();
            missing.push(format!("server has {held} paths, clients {up}"));
        }
        let sessions = self.server.sessions.len();
        if !self.server.ops.is_empty() || sessions != self.clients.len() {
            missing.push("server is not at rest".to_owned());
        }
        if self.now_us <= self.app.until_us {
            missing.push("application runs".to_owned());
        }
        missing
    }
}
