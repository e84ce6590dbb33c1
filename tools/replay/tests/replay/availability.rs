// SPDX-License-Identifier: GPL-2.0

//! A client's session.

use proto::rtrs::{
    availability::{
        record::Operation,
        Availability,
        Conditions,
        Effect,
        Event,
        Reopening, //
    },
    outage::{
        self,
        FastIoFail, //
    },
};

use super::{
    assert_agrees,
    assert_each_counts,
    assert_words_count,
    is_refused,
    Told,
    Traced, //
};

const KIND: &str = "rtrs_client: availability";

/// The part of `rtrs_client` that carries decisions out, in one thread.
struct Driver {
    session: Traced<Availability>,
    now_ms: u64,
    paths: u32,
    is_reopen_queued: bool,
    reopening: Option<Reopening>,
}

impl Driver {
    fn conditions(&self) -> Conditions {
        Conditions {
            now_ms: self.now_ms,
            setting: FastIoFail::After(3),
            is_away: false,
        }
    }

    fn step(&mut self, event: Event) {
        match self.session.step(event) {
            Effect::Ignore => {}
            Effect::BeginOutage(effect) => {
                self.session.did(Operation::Requeue);
                self.carry_out(effect);
            }
            Effect::Outage(effect) => self.carry_out(effect),
            Effect::ReopenIn { pause_ms } => {
                self.session.did(Operation::ReopenIn { pause_ms });
                self.is_reopen_queued = true;
            }
        }
    }

    fn carry_out(&mut self, effect: outage::Effect) {
        self.session.did(match effect {
            outage::Effect::Ignore => return,
            outage::Effect::Queue {
                until_ms: Some(until_ms),
            } => Operation::StartTimer { until_ms },
            outage::Effect::Queue { until_ms: None } | outage::Effect::Resume => {
                Operation::StopTimer
            }
            outage::Effect::FailQueued => Operation::FailQueued,
        });
    }

    fn path_up(&mut self) {
        let admission = self.session.machine.admission();
        self.session.did(Operation::Admit(admission));
        self.paths += 1;
        self.step(Event::PathUp);
    }

    /// The work item that makes the session usable.
    fn reopen(&mut self, succeeded: bool) {
        if let Some(reopening) = self.reopening.take() {
            return self.step(Event::Reopened {
                reopening,
                succeeded,
            });
        }
        if std::mem::take(&mut self.is_reopen_queued) {
            self.reopening = self.session.machine.reopening();
            if let Some(reopening) = self.reopening {
                self.session.did(Operation::Reopen(reopening));
            }
        }
    }

    fn record(chance: &mut fastrand::Rng) -> Vec<Told<Operation>> {
        let mut driver = Self {
            session: Traced::new(Availability::NEW),
            now_ms: 0,
            paths: 0,
            is_reopen_queued: false,
            reopening: None,
        };
        driver.path_up();
        driver.step(Event::Opened(driver.conditions()));
        for _ in 0..60 {
            driver.now_ms += chance.u64(..2000);
            let now_ms = driver.now_ms;
            let setting = FastIoFail::After(chance.u32(..10));
            match chance.u8(..12) {
                0..3 => driver.path_up(),
                3..6 if driver.paths > 0 => {
                    driver.paths -= 1;
                    driver.step(Event::PathDown(driver.conditions()));
                }
                6 => {
                    let event = outage::Event::DeadlinePassed { now_ms };
                    // Of a timer that has been started.
                    let has_timer =
                        |told: &Told<_>| matches!(told, Told::Did(Operation::StartTimer { .. }));
                    if driver.session.record.iter().any(has_timer) {
                        driver.step(Event::Outage(event));
                    }
                }
                7 => {
                    let event = outage::Event::SettingChanged { now_ms, setting };
                    driver.step(Event::Outage(event));
                }
                _ => driver.reopen(chance.u8(..4) > 0),
            }
        }
        driver.step(Event::Outage(outage::Event::Closed));
        if driver.reopening.is_some() {
            driver.reopen(true);
        }
        driver.session.record
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
    for _ in 0..50 {
        assert_each_counts(
            KIND,
            &Driver::record(&mut chance),
            |_| true,
            // Admitting is no promise.
            |operation| !matches!(operation, Operation::Admit(_)),
        );
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
fn a_path_of_an_earlier_outage_is_not_admitted() {
    let mut driver = Traced::new(Availability::NEW);
    let early = driver.machine.admission();
    driver.did(Operation::Admit(early));
    driver.step(Event::PathUp);
    let conditions = Conditions {
        now_ms: 0,
        setting: FastIoFail::Off,
        is_away: false,
    };
    driver.step(Event::Opened(conditions));
    driver.step(Event::PathDown(conditions));
    driver.did(Operation::Requeue);
    driver.did(Operation::StopTimer);
    driver.did(Operation::Admit(early));
    driver.step(Event::PathUp);
    driver.did(Operation::ReopenIn { pause_ms: 0 });
    assert_agrees(KIND, &driver.record);
    driver.did(Operation::Admit(early));
    assert!(is_refused(KIND, &driver.record), "a path is there");
}
