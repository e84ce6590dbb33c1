// SPDX-License-Identifier: GPL-2.0

//! One run: fill, load by several threads, last check.

use std::{
    io,
    path::PathBuf,
    sync::{
        atomic::{
            AtomicBool,
            AtomicU64,
            Ordering::Relaxed, //
        },
        Mutex,
        PoisonError, //
    },
    thread,
    time::{
        Duration,
        Instant, //
    }, //
};

use crate::{
    chance::Chance,
    disk::{
        Buffer,
        Disk, //
    },
    ledger::{
        Claim,
        Ledger,
        Range,
        Verdict, //
    },
    report::{
        Fault,
        Kind,
        Report, //
    }, //
};

const TICK: Duration = Duration::from_millis(20);
/// Between two requests of a thread whose last one failed.
const AFTER_ERROR: Duration = Duration::from_millis(20);
/// Bytes that the fill and the last check write and read at once.
const SWEEP_BYTES: usize = 128 << 10;
/// Reads of one sector by the last check while a failed write may be changing it.
const SETTLE_READS: usize = 50;

/// The meaning of an IO error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errors {
    /// A fault; the run ends.
    Fail,
    /// An expected event, which is counted. A failed write may have been executed, or be so later
    /// (see [`crate::ledger`]).
    Allowed,
}

/// The load of a disk.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Threads that read, write and sometimes write again, each with one request at a time.
    pub(crate) writers: usize,
    /// Threads that read what the others are writing.
    pub(crate) readers: usize,
    /// Units in the longest request.
    pub(crate) span: usize,
    /// The load ends after so long.
    pub(crate) seconds: Option<u64>,
    /// Or when every unit has been written so many times, on average.
    pub(crate) loops: Option<u64>,
    /// Or when this file exists.
    pub(crate) until: Option<PathBuf>,
    /// Writes that must end after that before the load ends: that it goes on is shown, not
    /// believed.
    pub(crate) after: u64,
    /// The meaning of an IO error.
    pub(crate) errors: Errors,
    /// The pause between two flushes in milliseconds; 0 for none.
    pub(crate) flush_ms: u64,
    /// No more flushes after so many; 0 for no end.
    pub(crate) flushes: u64,
    /// The seed of all that is chance in the run.
    pub(crate) seed: u64,
}

/// A run that goes on.
pub(crate) struct Run<'a, D> {
    disk: &'a D,
    ledger: &'a Ledger,
    options: &'a Options,
    say: &'a (dyn Fn(&str) + Sync),
    stop: AtomicBool,
    broken: AtomicBool,
    /// Units whose writes have ended, and writes that have ended, well or not.
    units: AtomicU64,
    ended: AtomicU64,
    report: Mutex<Report>,
}

impl<'a, D: Disk> Run<'a, D> {
    /// Prepares a run; `say` is called for each stage.
    pub(crate) fn new(
        disk: &'a D,
        ledger: &'a Ledger,
        options: &'a Options,
        say: &'a (dyn Fn(&str) + Sync),
    ) -> Self {
        Self {
            disk,
            ledger,
            options,
            say,
            stop: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            units: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            report: Mutex::default(),
        }
    }

    /// Ends the run.
    pub(crate) fn into_report(self) -> Report {
        let mut report = self
            .report
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        report.receded = self.ledger.receded();
        report
    }

    fn note(&self, deed: impl FnOnce(&mut Report)) {
        deed(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn bad(&self, fault: &Fault) {
        self.broken.store(true, Relaxed);
        self.note(|report| report.add(fault.kind, fault.to_string()));
    }

    fn failed(&self, what: &str, why: &io::Error) {
        if self.options.errors == Errors::Fail {
            self.broken.store(true, Relaxed);
            self.note(|report| report.add(Kind::Error, format!("error: {what}: {why}")));
        } else {
            thread::sleep(AFTER_ERROR);
        }
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Relaxed) && !self.broken.load(Relaxed)
    }

    fn at(&self, range: Range) -> (u64, usize) {
        let size = self.ledger.unit_size();
        ((range.first * size) as u64, range.units * size)
    }

    fn took(&self, began: Instant) {
        let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.note(|report| report.worst_us = report.worst_us.max(us));
    }

    fn write(&self, range: Range, claim: &Claim<'_>, writer: u64, buffer: &mut Buffer) -> bool {
        let (at, size) = self.at(range);
        let bytes = buffer.first(size);
        claim.issue(writer, bytes);
        match self.disk.write(at, bytes) {
            Ok(()) => {
                claim.acknowledge();
                self.note(|report| report.writes += 1);
                true
            }
            Err(why) => {
                self.note(|report| report.write_errors += 1);
                self.failed(&format!("write of {size} bytes at {at}"), &why);
                false
            }
        }
    }

    fn read(&self, range: Range, buffer: &mut Buffer) -> Option<Verdict> {
        let (at, size) = self.at(range);
        let before = self.ledger.before(range);
        let bytes = buffer.first(size);
        match self.disk.read(at, bytes) {
            Ok(()) => {
                self.note(|report| report.reads += 1);
                Some(self.ledger.judge(range, &before, bytes))
            }
            Err(why) => {
                self.note(|report| report.read_errors += 1);
                self.failed(&format!("read of {size} bytes at {at}"), &why);
                None
            }
        }
    }

    fn load_read(&self, range: Range, buffer: &mut Buffer) {
        let began = Instant::now();
        let verdict = self.read(range, buffer);
        self.took(began);
        match verdict {
            Some(Verdict::Bad(fault)) => self.bad(&fault),
            Some(Verdict::Unsettled(_)) => self.note(|report| report.unsettled += 1),
            Some(Verdict::Good) | None => (),
        }
    }

    /// Picks the place of a request: half of them go to a few units, which so are written again
    /// soon.
    fn pick(&self, chance: &mut Chance) -> Range {
        let count = self.ledger.count();
        let units = 1 + chance.below(self.options.span.clamp(1, count));
        let hot = (4 * self.options.span * self.options.writers).clamp(units, count);
        let limit = if chance.below(2) == 0 { hot } else { count };
        Range {
            first: chance.below(limit - units + 1),
            units,
        }
    }

    fn writer(&self, number: u64) {
        let mut chance = Chance::new(self.options.seed ^ number << 32);
        let mut buffer = Buffer::new(self.options.span * self.ledger.unit_size());
        while self.goes_on() {
            let range = self.pick(&mut chance);
            let Some(claim) = self.ledger.claim(range) else {
                thread::yield_now();
                continue;
            };
            // Whatever was written before is looked at before it is gone. Now and then two writes
            // follow each other closely, and now and then none does, so that what lands late is not
            // written over at once.
            self.load_read(range, &mut buffer);
            for _ in 0..[0, 1, 1, 2].get(chance.below(4)).copied().unwrap_or(1) {
                let began = Instant::now();
                self.write(range, &claim, number, &mut buffer);
                self.took(began);
                self.units.fetch_add(range.units as u64, Relaxed);
                self.ended.fetch_add(1, Relaxed);
            }
        }
    }

    fn reader(&self, number: u64) {
        let mut chance = Chance::new(self.options.seed ^ number << 32);
        let mut buffer = Buffer::new(self.options.span * self.ledger.unit_size());
        while self.goes_on() {
            let range = self.pick(&mut chance);
            self.load_read(range, &mut buffer);
        }
    }

    fn flusher(&self) {
        let (mut done, wanted) = (0, self.options.flushes);
        // A number of flushes that was asked for is made, however soon the load ends.
        while self.goes_on() || done < wanted && !self.broken.load(Relaxed) {
            thread::sleep(Duration::from_millis(self.options.flush_ms));
            self.flush();
            done += 1;
            if done == wanted {
                (self.say)("flushed");
                return;
            }
        }
    }

    /// Flushes, and remembers what that covers.
    pub(crate) fn flush(&self) {
        let snapshot = self.ledger.before_flush();
        match self.disk.flush() {
            Ok(()) => {
                self.ledger.flushed(&snapshot);
                self.note(|report| report.flushes += 1);
            }
            Err(why) => {
                self.ledger.flush_failed();
                self.note(|report| report.flush_errors += 1);
                self.failed("flush", &why);
            }
        }
    }

    /// Ends the load when it is time, and not before it has gone on.
    fn supervise(&self, began: Instant) {
        let enough = self
            .options
            .loops
            .map(|loops| loops * self.ledger.count() as u64);
        let over = || {
            self.options
                .seconds
                .is_some_and(|seconds| began.elapsed().as_secs() >= seconds)
                || enough.is_some_and(|units| self.units.load(Relaxed) >= units)
                || self
                    .options
                    .until
                    .as_ref()
                    .is_some_and(|file| file.exists())
        };
        while self.goes_on() && !over() {
            thread::sleep(TICK);
        }
        let target = self.ended.load(Relaxed) + self.options.after;
        while self.goes_on() && self.ended.load(Relaxed) < target {
            thread::sleep(TICK);
        }
        self.stop.store(true, Relaxed);
    }

    fn ranges(&self) -> impl Iterator<Item = Range> + '_ {
        let (count, step) = (
            self.ledger.count(),
            (SWEEP_BYTES / self.ledger.unit_size()).max(1),
        );
        (0..count).step_by(step).map(move |first| Range {
            first,
            units: step.min(count - first),
        })
    }

    fn sweep_buffer(&self) -> Buffer {
        Buffer::new(SWEEP_BYTES.max(self.ledger.unit_size()))
    }

    /// Writes every unit once.
    pub(crate) fn fill(&self) {
        let mut buffer = self.sweep_buffer();
        for range in self.ranges() {
            let Some(claim) = self.ledger.claim(range) else {
                continue;
            };
            while !self.write(range, &claim, 0, &mut buffer) {
                if self.broken.load(Relaxed) {
                    return;
                }
            }
        }
        (self.say)("filled");
    }

    /// Loads the disk until it is time to end, or something is wrong.
    pub(crate) fn load(&self) {
        if self.broken.load(Relaxed) {
            return;
        }
        let began = Instant::now();
        let writers = self.options.writers as u64;
        thread::scope(|scope| {
            for number in 1..=writers {
                scope.spawn(move || self.writer(number));
            }
            for number in 1..=self.options.readers as u64 {
                scope.spawn(move || self.reader(writers + number));
            }
            if self.options.flush_ms > 0 {
                scope.spawn(|| self.flusher());
            }
            self.supervise(began);
        });
    }

    /// Reads every unit, and judges it while nothing is under way.
    pub(crate) fn check(&self) {
        let mut buffer = self.sweep_buffer();
        for range in self.ranges() {
            for attempt in 1.. {
                match self.read(range, &mut buffer) {
                    Some(Verdict::Good) => break,
                    Some(Verdict::Bad(fault)) => {
                        self.bad(&fault);
                        break;
                    }
                    Some(Verdict::Unsettled(fault)) if attempt == SETTLE_READS => {
                        self.bad(&fault);
                        break;
                    }
                    None if attempt == SETTLE_READS || self.options.errors == Errors::Fail => {
                        let text = format!("error: unit {} cannot be read", range.first);
                        self.note(|report| report.add(Kind::Error, text));
                        break;
                    }
                    Some(Verdict::Unsettled(_)) => thread::sleep(TICK),
                    None => (),
                }
            }
        }
    }
}
