// SPDX-License-Identifier: GPL-2.0

//! What follows from the decisions of `proto::recovery`: lives that begin and end, pauses,
//! stale connections.
//!
//! Stands for `rtrs/client/path/recovery.rs`.

use proto::rtrs::recovery::{
    self,
    Action,
    Pauses, //
    StaleConnection,
};

use crate::{
    check::Kind,
    event::{
        Event,
        MS, //
    },
    message::{
        CmMessage,
        Side, //
    },
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
}
