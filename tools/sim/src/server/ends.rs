// SPDX-License-Identifier: GPL-2.0

//! Ends the server's paths: teardown, crash, power failure.
//!
//! Stands for `rtrs/server/path/teardown.rs`.

use proto::rtrs::path::{
    ServerEffect,
    ServerEvent,
    ServerState, //
};

use crate::{
    event::{
        Event,
        MS, //
    },
    message::{
        CmMessage,
        Side, //
    },
    settings::Mutation,
    trace::note,
    world::World,
};

impl World {
    /// Starts the teardown: new messages are dropped, and it waits for the requests at the disk.
    pub(super) fn server_tear_down(&mut self, path: u64) {
        let Some(p) = self.server.paths.get(&path) else {
            return;
        };
        for conn in p.conns.values().copied().collect::<Vec<_>>() {
            self.close_conn(conn, Side::Server);
        }
        self.server_drain(path);
    }

    /// The queue pairs of a path that is torn down are drained, unless their receives wait to be
    /// handled.
    pub(crate) fn server_drain(&mut self, path: u64) {
        let Some(p) = self.server.paths.get_mut(&path) else {
            return;
        };
        if p.state != ServerState::Closing || self.server.stalled.contains(&p.wire) {
            return;
        }
        p.drained = true;
        for conn in p.conns.values().copied().collect::<Vec<_>>() {
            self.send_cm(conn, Side::Client, CmMessage::Disconnect);
        }
        self.drop_waiting(path);
        self.answer_fences();
        self.maybe_torn_down(path);
    }

    /// The teardown of a path is complete when the disk has none of its requests.
    pub(crate) fn maybe_torn_down(&mut self, path: u64) {
        let busy = self.server.ops.values().any(|op| op.path == path);
        let Some(p) = self.server.paths.get_mut(&path) else {
            return;
        };
        if p.state == ServerState::Closing && p.drained && !busy && !p.leaving {
            p.leaving = true;
            let later = self.rng.u64(MS..20 * MS);
            self.after(later, Event::ServerTornDown { path });
        }
    }

    pub(crate) fn server_torn_down(&mut self, path: u64) {
        if self.server_step(path, ServerEvent::TornDown) != ServerEffect::Release {
            return;
        }
        let Some(p) = self.server.paths.remove(&path) else {
            return;
        };
        self.server.of_conn.retain(|_, of| *of != path);
        self.server
            .queues
            .retain(|c, _| !p.conns.values().any(|conn| conn == c));
        let all = self.settings.broken(Mutation::CloseAll);
        let left = self.server.paths.values().any(|o| o.session == p.session);
        if let Some(session) = self.server.sessions.get_mut(&p.session) {
            session.linked -= usize::from(p.linked);
            if session.linked == 0 {
                session.numbers.clear();
                if all {
                    let sessions = self.server.sessions.values_mut();
                    sessions.for_each(|s| s.numbers.clear());
                }
            }
        }
        if !left {
            self.server.sessions.remove(&p.session);
        }
        let waiting: Vec<u64> = self.server.paths.keys().copied().collect();
        for other in waiting {
            self.try_go_live(other);
        }
    }

    /// The server's machine loses power: so do the caches of its disks.
    pub(crate) fn lose_power(&mut self) {
        self.crash();
        self.server.boot += 1;
        self.disk.lose_power(&mut self.rng);
        note!(self, Server, "the machine has lost power");
        for block in 0..self.disk.blocks() {
            let content = self.disk.content(block);
            self.check.power_lost(block, content);
        }
    }

    /// Crashes the server. Operations at the disk may be executed, or not.
    pub(crate) fn crash(&mut self) {
        for op in std::mem::take(&mut self.server.ops).into_values() {
            if op.running && !op.executed && self.rng.bool() {
                self.apply(&op);
            }
        }
        for conn in std::mem::take(&mut self.server.of_conn).into_keys() {
            self.close_conn(conn, Side::Server);
        }
        self.server.paths.clear();
        self.server.queues.clear();
        self.server.sessions.clear();
        self.server.backlog.clear();
        self.server.held.clear();
        self.server.stalled.clear();
        self.server.frozen = false;
        self.server.down = true;
        self.landed.clear();
    }
}
