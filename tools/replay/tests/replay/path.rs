// SPDX-License-Identifier: GPL-2.0

//! A client's path.

use proto::rtrs::recovery::{
    record::Operation,
    Action,
    Event,
    Outcome,
    Pauses,
    Recovery,
    StaleConnection,
    TearDown, //
};
use replay::judge;

use super::{
    assert_agrees,
    assert_each_counts,
    assert_words_count,
    is_refused,
    log,
    Told,
    Traced, //
};

const KIND: &str = "rtrs_client: path";

const PAUSES: Pauses = Pauses {
    delay_ms_max: 1000,
    attempts_max: 5,
    least_ms: 0,
    random: 7,
};

/// The part of `rtrs_client` that carries decisions out, in one thread.
struct Driver {
    path: Traced<Recovery>,
    is_run_queued: bool,
    run: Option<TearDown>,
    is_attempting: bool,
    /// Timers start without the lock, and another event comes between.
    is_late: bool,
}

impl Driver {
    fn new(is_late: bool) -> Self {
        let mut driver = Self {
            path: Traced::new(Recovery::NEW),
            is_run_queued: false,
            run: None,
            is_attempting: false,
            is_late,
        };
        driver.attempt();
        driver
    }

    fn did(&mut self, operation: Operation) {
        self.path.did(operation);
    }

    fn attempt(&mut self) {
        self.did(Operation::Connect);
        self.is_attempting = true;
    }

    fn queue_run(&mut self) {
        self.did(Operation::QueueTearDown);
        self.is_run_queued = true;
    }

    fn step(&mut self, event: Event) {
        let effects = self.path.step(event);
        match effects.action {
            Action::StartIn { pause_ms } => {
                if self.is_late {
                    // Of a life that never was: it changes nothing.
                    self.step(Event::Lost { life: Some(9999) });
                }
                self.did(Operation::StartIn { pause_ms });
            }
            Action::TearDownIn { pause_ms } => {
                self.did(Operation::TearDownIn { pause_ms });
                self.is_run_queued = true;
            }
            Action::TearDown | Action::LeaveDevice => self.queue_run(),
            Action::GiveUp => {
                self.queue_run();
                self.did(Operation::LeaveSession);
            }
            Action::LookAgain => self.did(Operation::GiveUpAddress),
            Action::AbortConnect => self.did(Operation::AbortConnect),
            Action::Connect => self.attempt(),
            Action::GoLive => self.did(Operation::GoLive),
            Action::Release => self.did(Operation::Release),
            Action::Ignore | Action::Busy | Action::AnnounceClosed => {}
        }
        if effects.action == Action::TearDown && matches!(event, Event::Close | Event::CloseForGood)
        {
            self.did(Operation::AbortConnect);
        }
        match effects.stale_connection {
            StaleConnection::Leave => {}
            StaleConnection::Disconnect => self.did(Operation::Disconnect),
            StaleConnection::Drop => self.did(Operation::Drop),
        }
        if effects.action == Action::GoLive {
            self.did(Operation::StartHeartbeat);
            self.is_attempting = false;
        }
    }

    fn end_attempt(&mut self, up: bool) {
        if up {
            self.step(Event::Established);
        }
        if self.is_attempting {
            self.is_attempting = false;
            self.step(Event::AttemptFailed {
                outcome: Outcome::Refused,
                took_ms: 3,
                pauses: PAUSES,
            });
        }
    }

    fn begin_run(&mut self) {
        self.is_run_queued = false;
        self.run = self.path.machine.begin_tear_down();
        self.did(Operation::TearDown(self.run));
    }

    fn end_run(&mut self, run: TearDown, drained: bool) {
        self.run = None;
        if !drained {
            return self.step(Event::Undrained);
        }
        if run != TearDown::ToConnectAgain {
            self.did(Operation::Drop);
        }
        self.step(Event::TornDown {
            run,
            kept: run == TearDown::ToConnectAgain,
            pauses: PAUSES,
        });
    }

    /// The thread of the path that attempts and runs take turns in.
    fn work(&mut self, chance: &mut fastrand::Rng) {
        match self.run {
            _ if self.is_attempting => self.end_attempt(chance.bool()),
            Some(run) => self.end_run(run, chance.u8(..4) > 0),
            None if self.is_run_queued => self.begin_run(),
            None => self.step(Event::Start),
        }
    }

    fn happen(&mut self, chance: &mut fastrand::Rng) {
        let life = chance.bool().then(|| self.path.machine.life());
        match chance.u8(..24) {
            0..3 => self.step(Event::Lost { life }),
            3 => self.step(Event::Abandoned),
            4 => self.step(Event::DeviceGone { life }),
            5 => self.step(Event::RetryNow),
            6 => self.step(Event::Reconnect),
            7 if chance.u8(..8) == 0 => self.step(Event::Close),
            8 if chance.u8(..16) == 0 => self.step(Event::CloseForGood),
            _ => self.work(chance),
        }
    }

    fn run(chance: &mut fastrand::Rng, is_late: bool) -> Vec<Told<Operation>> {
        let mut driver = Self::new(is_late);
        for _ in 0..60 {
            driver.happen(chance);
        }
        driver.step(Event::CloseForGood);
        while driver.is_attempting || driver.is_run_queued || driver.run.is_some() {
            driver.work(chance);
        }
        driver.step(Event::Remove);
        driver.path.record
    }

    fn record(chance: &mut fastrand::Rng) -> Vec<Told<Operation>> {
        Self::run(chance, false)
    }
}

#[test]
fn a_driver_that_does_what_was_decided_agrees() {
    let mut chance = fastrand::Rng::with_seed(1);
    for _ in 0..2_000 {
        let record = Driver::record(&mut chance);
        assert_agrees(KIND, &record);
    }
}

#[test]
fn what_the_driver_leaves_out_or_was_not_decided_is_found() {
    // A run that has nothing to do may as well not be, and begin twice.
    let is_idle = |operation: &Operation| *operation == Operation::TearDown(None);
    let mut chance = fastrand::Rng::with_seed(2);
    for _ in 0..100 {
        // A teardown may drop the stale connection twice.
        let may_repeat = |operation: &Operation| *operation == Operation::Drop;
        assert_each_counts(
            KIND,
            &Driver::record(&mut chance),
            |operation| !is_idle(operation),
            |operation| !is_idle(operation) && !may_repeat(operation),
        );
    }
}

#[test]
fn a_timer_that_is_started_late_is_found() {
    let mut chance = fastrand::Rng::with_seed(4);
    let mut found = 0;
    for _ in 0..100 {
        let record = Driver::run(&mut chance, true);
        let is_timer = |told: &Told<_>| matches!(told, Told::Did(Operation::StartIn { .. }));
        let has_timer = record.iter().any(is_timer);
        assert_eq!(is_refused(KIND, &record), has_timer);
        found += u32::from(has_timer);
    }
    assert!(found > 50);
}

#[test]
fn a_step_with_another_word_is_found() {
    let mut chance = fastrand::Rng::with_seed(6);
    let record = Driver::record(&mut chance);
    for at in 0..record.len() {
        assert_words_count(KIND, &record, at);
    }
}

#[test]
fn a_path_with_missing_lines_is_judged_up_to_them() {
    let mut chance = fastrand::Rng::with_seed(5);
    let text = log(KIND, &Driver::record(&mut chance));
    for at in 0..text.lines().count() - 1 {
        let without = |(n, line)| (n != at).then_some(line);
        let rest: Vec<&str> = text.lines().enumerate().filter_map(without).collect();
        let verdict = judge(&rest.join("\n"));
        assert_eq!((verdict.cut, verdict.lines), (1, at));
        assert!(verdict.wrong.is_empty());
    }
}

#[test]
fn other_lines_are_no_records_and_spoilt_ones_are_wrong() {
    assert_eq!(
        judge("rtrs_client: session s1: closing the path to ip:10.0.0.2\n").lines,
        0
    );
    let spoilt = [
        "",
        "did",
        "did 3 1",
        "did 1",
        "did 0",
        "did 10",
        "did 3 0 0",
        "did  3 0",
        "did x",
        "did d 2",
        "did d 1 4",
        "step",
        "step 1",
        "step 0 0 0 0 0 0 0 0 0 0",
        "step d 0 0 0 0 0 0 0 0 0",
        "step 1 1 10000 0 0 0 0 0 0 0",
        "step 8 3 0 0 0 0 0 0 0 0",
        "went 1 0",
    ];
    for line in spoilt {
        let verdict = judge(&format!("{KIND} 1 0 {line}\n"));
        assert_eq!(verdict.wrong.len(), 1, "{line}");
    }
}
