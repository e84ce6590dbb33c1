// SPDX-License-Identifier: GPL-2.0

//! A driver that does what was decided agrees with the replay; one that leaves anything out, or
//! does more, does not.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that panics has failed"
)]

use proto::rtrs::recovery::{
    record::{
        Entry,
        Operation,
        Step, //
    },
    Action,
    Event,
    Outcome,
    Pauses,
    Recovery,
    StaleConnection,
    TearDown, //
};
use replay::judge;

const PAUSES: Pauses = Pauses {
    delay_ms_max: 1000,
    attempts_max: 5,
    least_ms: 0,
    random: 7,
};

/// What `rtrs_client` does, in one thread.
struct Driver {
    recovery: Recovery,
    record: Vec<Entry>,
    is_run_queued: bool,
    run: Option<TearDown>,
    is_attempting: bool,
    /// It starts its timers without the lock, and another event comes between.
    is_late: bool,
}

impl Driver {
    fn new(is_late: bool) -> Self {
        let mut driver = Self {
            recovery: Recovery::NEW,
            record: Vec::new(),
            is_run_queued: false,
            run: None,
            is_attempting: false,
            is_late,
        };
        driver.attempt();
        driver
    }

    fn did(&mut self, operation: Operation) {
        self.record.push(Entry::Did(operation));
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
        let effects = self.recovery.step(event);
        let step = Step::new(&event, &effects, &self.recovery);
        self.record.push(Entry::Step(step));
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
        if effects.action == Action::TearDown && matches!(event, Event::Close) {
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
        self.run = self.recovery.begin_tear_down();
        self.record.push(Entry::Ran(self.run));
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
        let life = chance.bool().then(|| self.recovery.life());
        match chance.u8(..24) {
            0..3 => self.step(Event::Lost { life }),
            3 => self.step(Event::Abandoned),
            4 => self.step(Event::DeviceGone { life }),
            5 => self.step(Event::RetryNow),
            6 => self.step(Event::Reconnect),
            7 if chance.u8(..8) == 0 => self.step(Event::Close),
            _ => self.work(chance),
        }
    }

    fn run(chance: &mut fastrand::Rng, is_late: bool) -> Vec<Entry> {
        let mut driver = Self::new(is_late);
        for _ in 0..60 {
            driver.happen(chance);
        }
        driver.step(Event::Close);
        while driver.is_attempting || driver.is_run_queued || driver.run.is_some() {
            driver.work(chance);
        }
        driver.step(Event::Remove);
        driver.record
    }

    fn record(chance: &mut fastrand::Rng) -> Vec<Entry> {
        Self::run(chance, false)
    }
}

fn log(record: &[Entry]) -> String {
    let lines = record.iter().enumerate();
    let lines = lines.map(|(n, entry)| format!("[ 1.2] rtrs_client: path 00ab {n} {entry}\n"));
    lines.collect()
}

fn is_refused(record: &[Entry]) -> bool {
    let verdict = judge(&log(record));
    assert_eq!((verdict.whole + verdict.wrong.len(), verdict.cut), (1, 0));
    verdict.whole == 0
}

#[test]
fn a_driver_that_does_what_was_decided_agrees() {
    let mut chance = fastrand::Rng::with_seed(1);
    for _ in 0..2_000 {
        let record = Driver::record(&mut chance);
        let verdict = judge(&log(&record));
        assert_eq!(verdict.wrong, Vec::<String>::new(), "{record:?}");
        assert_eq!((verdict.whole, verdict.lines), (1, record.len()));
    }
}

#[test]
fn what_the_driver_leaves_out_is_found() {
    let mut chance = fastrand::Rng::with_seed(2);
    for _ in 0..100 {
        let record = Driver::record(&mut chance);
        for at in 0..record.len() {
            // A run that has nothing to do may as well not be.
            if record[at] != Entry::Ran(None) && !matches!(record[at], Entry::Step(_)) {
                let mut less = record.clone();
                less.remove(at);
                assert!(is_refused(&less), "without {}: {record:?}", record[at]);
            }
        }
    }
}

#[test]
fn what_was_not_decided_is_found() {
    let mut chance = fastrand::Rng::with_seed(3);
    for _ in 0..100 {
        let record = Driver::record(&mut chance);
        for at in 0..record.len() {
            // A teardown may drop the stale connection twice.
            if matches!(record[at], Entry::Did(operation) if operation != Operation::Drop) {
                let mut more = record.clone();
                more.insert(at, record[at]);
                assert!(is_refused(&more), "{} twice: {record:?}", record[at]);
            }
        }
    }
}

#[test]
fn a_timer_that_is_started_late_is_found() {
    let mut chance = fastrand::Rng::with_seed(4);
    let mut found = 0;
    for _ in 0..100 {
        let record = Driver::run(&mut chance, true);
        let is_timer = |entry: &Entry| matches!(entry, Entry::Did(Operation::StartIn { .. }));
        let has_timer = record.iter().any(is_timer);
        assert_eq!(is_refused(&record), has_timer);
        found += u32::from(has_timer);
    }
    assert!(found > 50);
}

/// A log in which one line says something else.
fn with_line(lines: &[String], at: usize, text: &str) -> String {
    let mut lines = lines.to_vec();
    let (head, _) = lines[at].split_once(" step").unwrap();
    lines[at] = format!("{head} {text}");
    lines.join("\n")
}

#[test]
fn a_step_with_another_word_is_found() {
    let mut chance = fastrand::Rng::with_seed(6);
    let record = Driver::record(&mut chance);
    let lines: Vec<String> = log(&record).lines().map(str::to_owned).collect();
    for (at, entry) in record.iter().enumerate() {
        let text = entry.to_string();
        let words: Vec<&str> = text.split(' ').collect();
        if words[0] != "step" {
            continue;
        }
        // Action and state, pause, life: any bit. Words that the event does not need: any.
        let has_pauses = matches!(words[1], "8" | "9");
        for word in (3..8).filter(|_| !has_pauses).chain(8..11) {
            for bit in 0..32 {
                let value = u32::from_str_radix(words[word], 16).unwrap() ^ 1 << bit;
                let value = format!("{value:x}");
                let mut other = words.clone();
                other[word] = &value;
                let verdict = judge(&with_line(&lines, at, &other.join(" ")));
                assert_eq!(verdict.wrong.len(), 1, "{text}, word {word}, bit {bit}");
            }
        }
        let longer = judge(&with_line(&lines, at, &format!("{text} 0")));
        assert_eq!(longer.wrong.len(), 1);
    }
}

#[test]
fn a_path_with_missing_lines_is_judged_up_to_them() {
    let mut chance = fastrand::Rng::with_seed(5);
    let text = log(&Driver::record(&mut chance));
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
        "did 3",
        "did 3 1",
        "did 0 0",
        "did d 0",
        "did 3 0 0",
        "did  3 0",
        "ran",
        "ran 4",
        "ran x",
        "step",
        "step 1",
        "step 0 0 0 0 0 0 0 0 0 0",
        "step d 0 0 0 0 0 0 0 0 0",
        "step 1 20001 0 0 0 0 0 0 0 0",
        "step 8 3 0 0 0 0 0 0 0 0",
        "went 1 0",
    ];
    for line in spoilt {
        let verdict = judge(&format!("rtrs_client: path 1 0 {line}\n"));
        assert_eq!(verdict.wrong.len(), 1, "{line}");
    }
    let twice = "rtrs_client: path 1 0 did 7 0\n".repeat(2);
    assert!(judge(&twice).wrong[0].contains("there are two"));
}
