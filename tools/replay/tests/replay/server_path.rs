// SPDX-License-Identifier: GPL-2.0

//! A server's path.

use proto::rtrs::path::{
    record::Operation,
    ServerEffect,
    ServerEvent,
    ServerState, //
};

use super::{
    assert_agrees,
    assert_each_counts,
    assert_words_count,
    is_refused,
    Told,
    Traced, //
};

const KIND: &str = "rtrs_server: path";

/// The part of `rtrs_server` that carries decisions out.
struct Driver {
    path: Traced<ServerState>,
    is_running: bool,
}

impl Driver {
    fn step(&mut self, event: ServerEvent) {
        match self.path.step(event) {
            ServerEffect::Ignore | ServerEffect::Serve => {}
            ServerEffect::GoLive => self.path.did(Operation::Respond),
            ServerEffect::TearDown => self.path.did(Operation::QueueTearDown),
            ServerEffect::Release => self.path.did(Operation::Release),
        }
    }

    /// The work item of set-up and teardown.
    fn work(&mut self, chance: &mut fastrand::Rng) {
        if self.is_running {
            self.is_running = false;
            if chance.bool() {
                self.path.did(Operation::Drained);
                return self.step(ServerEvent::TornDown);
            }
            return self.path.did(Operation::TearDownIn { pause_ms: 5000 });
        }
        match self.path.machine {
            ServerState::Connecting => self.step(ServerEvent::InfoRequest { complete: true }),
            ServerState::Closing => {
                self.path.did(Operation::TearDown);
                self.is_running = true;
            }
            ServerState::Connected | ServerState::Closed => {}
        }
    }

    fn record(chance: &mut fastrand::Rng) -> Vec<Told<Operation>> {
        let mut driver = Self {
            path: Traced::new(ServerState::Connecting),
            is_running: false,
        };
        for _ in 0..chance.u8(..10) {
            match chance.u8(..8) {
                0 => driver.step(ServerEvent::Close),
                1 => driver.step(ServerEvent::Request),
                _ => driver.work(chance),
            }
        }
        driver.step(ServerEvent::Close);
        while driver.path.machine != ServerState::Closed {
            driver.work(chance);
        }
        driver.path.record
    }
}

#[test]
fn a_driver_that_does_what_was_decided_agrees() {
    let mut chance = fastrand::Rng::with_seed(1);
    for _ in 0..1_000 {
        assert_agrees(KIND, &Driver::record(&mut chance));
    }
}

#[test]
fn what_the_driver_leaves_out_or_was_not_decided_is_found() {
    let mut chance = fastrand::Rng::with_seed(2);
    for _ in 0..100 {
        let record = Driver::record(&mut chance);
        assert_each_counts(KIND, &record, |_| true, |_| true);
    }
}

#[test]
fn a_step_with_another_word_is_found() {
    let mut chance = fastrand::Rng::with_seed(3);
    let record = Driver::record(&mut chance);
    for at in 0..record.len() {
        assert_words_count(KIND, &record, at);
    }
}

#[test]
fn a_teardown_without_end_is_found() {
    let mut path = Traced::new(ServerState::Connecting);
    path.step(ServerEvent::Close);
    path.did(Operation::QueueTearDown);
    assert!(is_refused(KIND, &path.record), "it does not run");
    path.did(Operation::TearDown);
    assert!(is_refused(KIND, &path.record), "it runs");
    path.did(Operation::Drained);
    path.step(ServerEvent::TornDown);
    path.did(Operation::Release);
    assert_agrees(KIND, &path.record);
}
