// SPDX-License-Identifier: GPL-2.0

//! The client's session: its outages, and which of its paths carry IO.
//!
//! Stands for `rtrs/client/session/outage.rs`. The decisions are those of `proto::availability`.

use proto::rnbd::control::DeviceState;
use proto::rtrs::{
    availability::{
        Conditions,
        Effect,
        Event as Availability, //
    },
    outage::{
        Effect as OutageEffect,
        Event as Outage, //
    },
    recovery, //
};

use crate::{
    event::{
        Event,
        MS, //
    },
    settings::Mutation,
    tasks::{
        Purpose,
        Step, //
    },
    trace::note,
    world::World,
};

impl World {
    pub(crate) fn now_ms(&self) -> u64 {
        self.now_us / MS
    }

    /// Returns the conditions of an outage that begins now.
    fn conditions(&self) -> Conditions {
        Conditions {
            now_ms: self.now_ms(),
            setting: self.settings.fast_io_fail,
            is_away: self.now_us < self.clients[self.at].away_until_us,
        }
    }

    /// The session is open, and has no path yet: `Session::start_events`.
    pub(crate) fn opened(&mut self) {
        self.availability(Availability::Opened(self.conditions()));
    }

    /// A path that was up is lost: `Session::path_down`.
    pub(crate) fn path_down(&mut self) {
        self.availability(Availability::PathDown(self.conditions()));
    }

    /// Counts a path that is published to senders.
    pub(crate) fn path_up(&mut self) {
        self.availability(Availability::PathUp);
    }

    fn outage(&mut self, event: Outage) {
        self.availability(Availability::Outage(event));
    }

    /// Applies an event: `Session::step`.
    pub(crate) fn availability(&mut self, event: Availability) {
        let effect = self.clients[self.at].availability.step(event);
        note!(self, Client, "session: {effect:?}");
        match effect {
            Effect::Ignore => {}
            Effect::BeginOutage(effect) => {
                self.disconnected();
                self.carry_out_outage(effect);
            }
            Effect::Outage(effect) => self.carry_out_outage(effect),
            Effect::ReopenIn { pause_ms: 0 } => self.reopen(),
            Effect::ReopenIn { pause_ms } => self.after(u64::from(pause_ms) * MS, Event::Reopen),
        }
    }

    fn carry_out_outage(&mut self, effect: OutageEffect) {
        match effect {
            OutageEffect::Ignore | OutageEffect::Queue { until_ms: None } => {}
            OutageEffect::Queue {
                until_ms: Some(until_ms),
            } => {
                let event = Event::OutageDeadline { until_ms };
                self.queue_at(self.now_us.max(until_ms * MS), event);
            }
            OutageEffect::Resume => self.trace.reached("a session is back"),
            OutageEffect::FailQueued => self.io_failed(),
        }
    }

    pub(crate) fn outage_deadline(&mut self, until_ms: u64) {
        use proto::rtrs::outage::Outage as State;

        let now_ms = self.now_ms();
        // A replaced timer counts as cancelled.
        let state = self.clients[self.at].availability.outage();
        if matches!(state, State::Queueing { until_ms: Some(u), .. } if u == until_ms) {
            self.outage(Outage::DeadlinePassed { now_ms });
        }
    }

    pub(crate) fn change_outage_setting(&mut self) {
        let (now_ms, setting) = (self.now_ms(), self.settings.fast_io_fail);
        self.outage(Outage::SettingChanged { now_ms, setting });
    }

    /// A path will not reconnect by itself: `Session::path_left`.
    pub(crate) fn path_left(&mut self) {
        let mut paths = self.clients[self.at].paths.iter();
        if !paths.any(|p| p.may_come_back()) {
            self.outage(Outage::DeadlinePassed { now_ms: u64::MAX });
        }
    }

    /// Makes the session usable: `Session::make_usable`, which runs once at a time.
    pub(crate) fn reopen(&mut self) {
        if self.clients[self.at].tasks.reopen_again() {
            return;
        }
        if let Some(reopening) = self.clients[self.at].availability.reopening() {
            self.start_task(Purpose::Reopen(reopening), &[Step::Info(None)]);
        }
    }

    /// An administrator writes `remap_device`.
    pub(crate) fn remap(&mut self, device: usize) {
        let state = self.clients[self.at].devices[device].state;
        if state == DeviceState::Fenced {
            // It fails without a path.
            self.after(2_000 * MS, Event::Remap { device });
        }
        if state.check_remap().is_ok() {
            self.start_task(
                Purpose::Remap,
                &[Step::Info(Some(device)), Step::Open(device)],
            );
        }
    }

    /// Publishes a path to senders: `Session::path_up`.
    pub(crate) fn established(&mut self, path: usize) {
        let client = &self.clients[self.at];
        let admission = client.paths[path].admission;
        let is_admitted = admission.is_none_or(|a| client.availability.admits(a));
        if is_admitted && self.next_fence(path).is_none() {
            self.path_event(path, recovery::Event::Established);
        } else {
            self.trace.reached("a path is validated before an outage");
            self.fence_lost_lives(path);
        }
    }

    /// `Session::is_admission_due`.
    pub(crate) fn is_admission_due(&self, path: usize) -> bool {
        let client = &self.clients[self.at];
        let admission = client.paths[path].admission;
        client.availability.is_connected()
            && admission.is_none_or(|admission| client.availability.admits(admission))
    }

    /// Asks the upper layer about a path that is connected, and carries no IO yet:
    /// `Session::admit`.
    pub(crate) fn admit(&mut self, path: usize) {
        let client = &mut self.clients[self.at];
        client.paths[path].admission = Some(client.availability.admission());
        let is_connected = client.availability.is_connected();
        if !is_connected || self.settings.broken(Mutation::NoValidation) {
            return self.established(path);
        }
        self.trace.reached("a path is validated");
        let life = self.clients[self.at].paths[path].life;
        self.start_task(Purpose::Validate { path, life }, &[Step::Info(None)]);
    }
}
