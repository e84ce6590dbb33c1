// SPDX-License-Identifier: GPL-2.0

//! Carries out the decisions of `proto::recovery`: lives that begin and end, pauses, stale
//! connections.
//!
//! Stands for `rtrs/client/path/recovery.rs`.

use proto::rtrs::recovery::{
    self,
    Action,
    Pauses, //
    StaleConnection,
    TearDown,
};

use crate::{
    check::Kind,
    event::{
        Event,
        MS,
        S, //
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
    /// Handles an event of a path: `Path::step` of the driver, and its effects.
    pub(crate) fn path_event(&mut self, path: usize, event: recovery::Event) -> Action {
        let p = &mut self.clients[self.at].paths[path];
        let before = p.state();
        let effects = p.recovery.step(event);
        let (next, action) = (p.state(), effects.action);
        note!(
            self,
            Client,
            "p{path} {before:?} + {event:?}: {next:?}, {effects:?}"
        );
        self.disconnect_stale(path, effects.stale_connection);
        match action {
            Action::GoLive => self.go_live(path),
            Action::AbortConnect | Action::TearDown | Action::LeaveDevice | Action::GiveUp => {
                if action == Action::GiveUp {
                    self.given_up(path);
                }
                self.tear_down(path);
                if action == Action::GiveUp {
                    self.path_left();
                }
            }
            Action::StartIn { pause_ms } => self.start_in(path, u64::from(pause_ms) * MS),
            Action::Connect => self.connect(path),
            Action::AnnounceClosed => {
                if self.clients[self.at].paths[path].removed {
                    self.remove_or_close(path);
                }
            }
            Action::Release => self.path_removed(path),
            // The simulated devices flush, so no run is put off.
            Action::TearDownIn { .. } | Action::Ignore | Action::Busy | Action::LookAgain => {}
        }
        action
    }

    /// The connection that was kept is closed to the client; the word still goes out on it.
    pub(super) fn disconnect_stale(&mut self, path: usize, stale_connection: StaleConnection) {
        let p = &mut self.clients[self.at].paths[path];
        let said = match stale_connection {
            StaleConnection::Leave => return,
            StaleConnection::Disconnect => p.stale_connection,
            StaleConnection::Drop => p.stale_connection.take(),
        };
        if let Some(conn) = said {
            self.trace.reached("a stale connection is disconnected");
            self.send_cm(conn, Side::Server, CmMessage::Disconnect);
        }
    }

    fn start_in(&mut self, path: usize, pause_us: u64) {
        let p = &mut self.clients[self.at].paths[path];
        p.attempts += 1;
        p.start += 1;
        let start = p.start;
        self.after(pause_us, Event::Start { path, start });
    }

    pub(crate) fn start(&mut self, path: usize, start: u64) {
        if self.clients[self.at].paths[path].start == start {
            self.path_event(path, recovery::Event::Start);
        }
    }

    pub(super) fn pauses(&mut self, path: usize) -> Pauses {
        let max = self.settings.max_reconnect_attempts;
        let away_us = self.clients[self.at]
            .away_until_us
            .saturating_sub(self.now_us);
        // CAST: a run has few attempts.
        let spent = self.clients[self.at].paths[path].spent as i32;
        Pauses {
            delay_ms_max: self.settings.reconnect_delay_ms,
            attempts_max: if max < 0 { max } else { (max - spent).max(0) },
            // CAST: seconds.
            least_ms: away_us.div_ceil(MS) as u32,
            random: self.rng.u32(..),
        }
    }

    /// The attempts of a path are used up.
    fn given_up(&mut self, path: usize) {
        let (max, attempts) = (
            self.settings.max_reconnect_attempts,
            self.clients[self.at].paths[path].attempts,
        );
        self.trace.reached("attempts are used up");
        let early = u32::try_from(max).is_ok_and(|max| attempts >= max);
        self.check.require(early, Kind::GivenUpEarly, || {
            format!("p{path} given up after {attempts} of {max} attempts")
        });
    }

    /// Disconnects and drains; requests in flight are sent again after that.
    pub(super) fn tear_down(&mut self, path: usize) {
        let p = &mut self.clients[self.at].paths[path];
        p.life += 1;
        p.run = p.recovery.begin_tear_down();
        p.pending = None;
        p.asked = 0;
        let (life, run, conns) = (p.life, p.run, std::mem::take(&mut p.conns));
        if run == Some(TearDown::ToConnectAgain) {
            p.stale_connection = conns.first().copied();
        } else if run.is_some() {
            self.disconnect_stale(path, StaleConnection::Drop);
        }
        for conn in conns {
            if self.clients[self.at].paths[path].stale_connection != Some(conn) {
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
        // Those that have asked on it ask on another one.
        self.give_on_all();
    }

    pub(crate) fn torn_down(&mut self, path: usize, life: u64) {
        let p = &mut self.clients[self.at].paths[path];
        if p.life != life {
            return;
        }
        if std::mem::take(&mut p.is_live) {
            self.life_is_down(path);
        } else if p.down.is_some() {
            self.give_on(path);
        } else {
            self.fail_over(path, false);
            self.teardown_done(path);
        }
    }

    /// Nothing is left of a path's life, or attempt.
    pub(crate) fn teardown_done(&mut self, path: usize) {
        let p = &self.clients[self.at].paths[path];
        let (run, outcome, kept) = (p.run, p.outcome, p.stale_connection.is_some());
        if kept && self.clients[self.at].away_until_us > self.now_us {
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
