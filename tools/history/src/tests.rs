// SPDX-License-Identifier: GPL-2.0

//! Every kind of fault is made on purpose and found, and an honest disk is called clean.

use std::{
    fs,
    io,
    sync::{
        atomic::{
            AtomicBool,
            Ordering::Relaxed, //
        },
        Mutex, //
    }, //
};

use crate::{
    disk::Disk,
    history,
    inject::{
        Injected,
        Wrong, //
    },
    ledger::{
        Floor,
        Ledger,
        Range,
        Verdict, //
    },
    report::{
        Fault,
        Kind,
        Report, //
    },
    run::{
        Errors,
        Options,
        Run, //
    },
    sector::{
        Stamp,
        Unreadable,
        SECTOR_SIZE, //
    }, //
};

const UNIT: usize = 4096;
const UNITS: usize = 64;
const RUN: u64 = 77;

/// A disk in memory with a volatile cache.
struct Memory {
    now: Mutex<Vec<u8>>,
    durable: Mutex<Vec<u8>>,
    flush_fails: AtomicBool,
    flush_lies: AtomicBool,
}

impl Memory {
    fn new() -> Self {
        Self {
            now: Mutex::new(vec![0; UNIT * UNITS]),
            durable: Mutex::new(vec![0; UNIT * UNITS]),
            flush_fails: AtomicBool::new(false),
            flush_lies: AtomicBool::new(false),
        }
    }

    /// Loses all that was not flushed.
    fn power_failure(&self) {
        self.now
            .lock()
            .unwrap()
            .clone_from(&self.durable.lock().unwrap());
    }
}

impl Disk for &Memory {
    fn read(&self, at: u64, into: &mut [u8]) -> io::Result<()> {
        let at = at as usize;
        into.copy_from_slice(&self.now.lock().unwrap()[at..at + into.len()]);
        Ok(())
    }

    fn write(&self, at: u64, from: &[u8]) -> io::Result<()> {
        let at = at as usize;
        self.now.lock().unwrap()[at..at + from.len()].copy_from_slice(from);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        if self.flush_fails.swap(false, Relaxed) {
            return Err(io::Error::from_raw_os_error(5));
        }
        if !self.flush_lies.load(Relaxed) {
            self.durable
                .lock()
                .unwrap()
                .clone_from(&self.now.lock().unwrap());
        }
        Ok(())
    }
}

fn options() -> Options {
    Options {
        writers: 1,
        readers: 0,
        span: 1,
        seconds: None,
        loops: Some(40),
        until: None,
        after: 10,
        errors: Errors::Fail,
        flush_ms: 0,
        flushes: 0,
        seed: 1,
    }
}

fn ledger(floor: Floor) -> Ledger {
    Ledger::new(RUN, UNIT, UNITS, floor)
}

/// Fill, load, check.
fn whole(disk: impl Disk, options: &Options) -> Report {
    let ledger = ledger(Floor::Acknowledged);
    let run = Run::new(&disk, &ledger, options, &|_| ());
    run.fill();
    run.load();
    run.check();
    run.into_report()
}

/// Only the last check.
fn check(disk: impl Disk, ledger: &Ledger) -> Report {
    let options = options();
    let run = Run::new(&disk, ledger, &options, &|_| ());
    run.check();
    run.into_report()
}

/// A number of writes, one after the other, to every unit.
fn write_all(disk: &impl Disk, ledger: &Ledger, times: usize) {
    let options = options();
    let run = Run::new(disk, ledger, &options, &|_| ());
    (0..times).for_each(|_| run.fill());
    assert_eq!(run.into_report().faults, 0);
}

fn flush(disk: &impl Disk, ledger: &Ledger) -> Report {
    let options = Options {
        errors: Errors::Allowed,
        ..options()
    };
    let run = Run::new(disk, ledger, &options, &|_| ());
    run.flush();
    run.into_report()
}

#[test]
fn a_sector_says_what_it_is_and_every_flipped_bit_is_seen() {
    let stamp = Stamp {
        run: RUN,
        sector: 9,
        writer: 3,
        generation: 5,
    };
    let mut bytes = [0; SECTOR_SIZE];
    stamp.write(&mut bytes);
    assert_eq!(Stamp::read(&bytes), Ok(stamp));
    for bit in 0..8 * SECTOR_SIZE {
        bytes[bit / 8] ^= 1 << (bit % 8);
        let wrong = if bit < 64 {
            Unreadable::NoMagic
        } else {
            Unreadable::BadChecksum
        };
        assert_eq!(Stamp::read(&bytes), Err(wrong), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn two_halves_of_two_generations_are_no_sector() {
    let mut old = [0; SECTOR_SIZE];
    let mut new = [0; SECTOR_SIZE];
    Stamp {
        run: RUN,
        sector: 9,
        writer: 3,
        generation: 5,
    }
    .write(&mut old);
    Stamp {
        run: RUN,
        sector: 9,
        writer: 3,
        generation: 6,
    }
    .write(&mut new);
    for cut in (48..SECTOR_SIZE).step_by(8) {
        let mixed: Vec<u8> = new[..cut].iter().chain(&old[cut..]).copied().collect();
        assert_eq!(
            Stamp::read(&mixed),
            Err(Unreadable::BadChecksum),
            "cut at {cut}"
        );
    }
}

#[test]
fn an_honest_disk_is_clean() {
    for (writers, readers, span) in [(1, 0, 1), (8, 2, 1), (8, 2, 4), (3, 1, UNITS)] {
        let report = whole(
            &Memory::new(),
            &Options {
                writers,
                readers,
                span,
                ..options()
            },
        );
        assert_eq!(report.faults, 0, "{report}");
        assert!(report.writes as usize * span > UNITS, "{report}");
        assert!(report.reads > report.writes / 2, "{report}");
    }
}

fn found(wrong: Wrong, every: u64, errors: Errors) -> Report {
    let memory = Memory::new();
    whole(
        Injected::new(&memory, Some((wrong, every))),
        &Options {
            errors,
            ..options()
        },
    )
}

#[test]
fn each_kind_of_fault_is_found_and_named() {
    for (wrong, kind) in [
        (Wrong::Lost, Kind::Lost),
        (Wrong::Late, Kind::Late),
        (Wrong::Torn, Kind::Torn),
        (Wrong::Swapped, Kind::Swapped),
        (Wrong::Foreign, Kind::Foreign),
        (Wrong::Error, Kind::Error),
    ] {
        for every in [9, 20, 101] {
            let report = found(wrong, every, Errors::Fail);
            assert!(
                report.kinds.contains(&kind),
                "{wrong:?} every {every}: {report}"
            );
        }
    }
}

#[test]
fn one_wrong_write_of_hundreds_is_found_under_many_threads() {
    let many = Options {
        writers: 8,
        readers: 2,
        span: 2,
        loops: Some(100),
        ..options()
    };
    for wrong in [Wrong::Lost, Wrong::Torn, Wrong::Swapped, Wrong::Foreign] {
        let memory = Memory::new();
        let report = whole(Injected::new(&memory, Some((wrong, 400))), &many);
        assert!(report.faults > 0, "{wrong:?}: {report}");
    }
}

#[test]
fn a_torn_sector_is_found_as_well_as_a_torn_unit() {
    let cut = |bytes: usize| {
        let memory = Memory::new();
        let ledger = ledger(Floor::Acknowledged);
        write_all(&&memory, &ledger, 1);
        let old = memory.now.lock().unwrap().clone();
        write_all(&&memory, &ledger, 1);
        memory.now.lock().unwrap()[bytes..UNIT].copy_from_slice(&old[bytes..UNIT]);
        check(&memory, &ledger).kinds
    };
    assert_eq!(cut(SECTOR_SIZE), [Kind::Torn]);
    assert_eq!(cut(UNIT - SECTOR_SIZE), [Kind::Torn]);
    assert_eq!(cut(UNIT / 2 + 100), [Kind::Torn]);
    assert_eq!(cut(UNIT), []);
}

#[test]
fn data_of_another_run_or_of_no_write_are_foreign() {
    let memory = Memory::new();
    let other = Ledger::new(RUN + 1, UNIT, UNITS, Floor::Acknowledged);
    write_all(&&memory, &other, 1);
    let ours = ledger(Floor::Acknowledged);
    assert_eq!(check(&memory, &ours).kinds, [Kind::Foreign]);
    // The same run, but a generation that was never issued.
    write_all(&&memory, &ledger(Floor::Acknowledged), 2);
    assert_eq!(check(&memory, &ours).kinds, [Kind::Foreign]);
}

#[test]
fn errors_may_be_allowed_and_a_failed_write_may_have_been_executed() {
    let report = found(Wrong::Error, 20, Errors::Allowed);
    assert_eq!(report.faults, 0, "{report}");
    assert!(report.write_errors > 10, "{report}");
    let report = found(Wrong::Error, 20, Errors::Fail);
    assert_eq!(
        (report.kinds.as_slice(), report.write_errors),
        ([Kind::Error].as_slice(), 1)
    );
}

#[test]
fn a_failed_write_that_lands_after_a_newer_one_is_found() {
    let report = found(Wrong::LateError, 20, Errors::Allowed);
    assert_eq!(report.kinds, [Kind::Late], "{report}");
}

#[test]
fn a_failed_write_may_be_there_or_not_but_never_go_away_again() {
    let range = Range { first: 5, units: 1 };
    let ledger = ledger(Floor::Acknowledged);
    let claim = ledger.claim(range).unwrap();
    let [old, failed, failed_too, new] = [0; 4].map(|_| vec![0; UNIT]).map(|mut bytes| {
        claim.issue(1, &mut bytes);
        if ledger.save().contains("\n1 0 0 0\n") {
            claim.acknowledge();
        }
        bytes
    });
    let read = |bytes: &[u8]| match ledger.judge(range, &ledger.before(range), bytes) {
        Verdict::Good => None,
        Verdict::Bad(Fault { kind, .. }) | Verdict::Unsettled(Fault { kind, .. }) => Some(kind),
    };
    assert_eq!(read(&old), None);
    assert_eq!(read(&failed), None);
    assert_eq!(read(&old), Some(Kind::Late));
    assert_eq!(read(&failed_too), None);
    claim.acknowledge();
    assert_eq!(read(&failed_too), Some(Kind::Lost));
    assert_eq!(read(&new), None);
    assert_eq!(read(&failed_too), Some(Kind::Late));
}

#[test]
fn what_was_flushed_survives_a_power_failure_and_the_rest_may_go() {
    let memory = Memory::new();
    for (floor, kinds) in [
        (Floor::Flushed, [].as_slice()),
        (Floor::Acknowledged, &[Kind::Lost]),
    ] {
        let ledger = ledger(floor);
        write_all(&&memory, &ledger, 2);
        assert_eq!(flush(&&memory, &ledger).flushes, 1);
        write_all(&&memory, &ledger, 1);
        memory.power_failure();
        let report = check(&memory, &ledger);
        assert_eq!(report.kinds, kinds, "{floor:?}: {report}");
        assert_eq!(
            report.receded,
            if floor == Floor::Flushed { UNITS } else { 0 }
        );
    }
}

#[test]
fn a_flush_that_does_nothing_is_found_by_a_power_failure() {
    let memory = Memory::new();
    let ledger = ledger(Floor::Flushed);
    write_all(&&memory, &ledger, 1);
    flush(&&memory, &ledger);
    write_all(&&memory, &ledger, 1);
    memory.flush_lies.store(true, Relaxed);
    flush(&&memory, &ledger);
    memory.power_failure();
    assert_eq!(check(&memory, &ledger).kinds, [Kind::Lost]);
}

#[test]
fn a_flush_after_a_power_failure_covers_nothing_from_before_it_unless_one_has_failed_first() {
    for told in [false, true] {
        let memory = Memory::new();
        let ledger = ledger(Floor::Flushed);
        write_all(&&memory, &ledger, 1);
        flush(&&memory, &ledger);
        write_all(&&memory, &ledger, 1);
        memory.power_failure();
        if told {
            memory.flush_fails.store(true, Relaxed);
            assert_eq!(flush(&&memory, &ledger).flush_errors, 1);
        }
        // Says that the second generation is safe, unless the failure before has taken that back.
        flush(&&memory, &ledger);
        let kinds: &[Kind] = if told { &[] } else { &[Kind::Lost] };
        assert_eq!(check(&memory, &ledger).kinds, kinds);
        // What is written and flushed now has to stay.
        write_all(&&memory, &ledger, 1);
        flush(&&memory, &ledger);
        memory.power_failure();
        assert_eq!(check(&memory, &ledger).kinds, []);
    }
}

#[test]
fn a_ledger_goes_on_in_another_run() {
    let memory = Memory::new();
    let before = ledger(Floor::Flushed);
    write_all(&&memory, &before, 2);
    flush(&&memory, &before);
    write_all(&&memory, &before, 1);
    let text = before.save();
    let after = Ledger::load(&text, Floor::Acknowledged).unwrap();
    assert_eq!(after.save(), text);
    assert_eq!(check(&memory, &after).kinds, []);
    memory.power_failure();
    assert_eq!(check(&memory, &after).kinds, [Kind::Late]);
    assert_eq!(
        check(&memory, &Ledger::load(&text, Floor::Flushed).unwrap()).kinds,
        []
    );
    for wrong in [
        "",
        "history 1 4096",
        "history 1 4096 1\n1 1 1",
        "history 1 4096 1\n1 1 1 x",
    ] {
        assert!(Ledger::load(wrong, Floor::Flushed).is_none(), "{wrong:?}");
    }
}

#[test]
fn the_program_runs_on_a_file_saves_and_checks() {
    let folder = std::env::temp_dir().join(format!("ferrofabric-history-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let place = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let disk = place("disk");
    fs::write(&disk, vec![0; 1 << 20]).unwrap();
    let said = Mutex::new(Vec::new());
    let call = |words: &str| {
        let words = words.split(' ').map(str::to_owned);
        let all = [disk.clone()].into_iter().chain(words);
        history(all, &|line: &str| {
            said.lock().unwrap().push(line.to_owned())
        })
    };
    let ledger = place("ledger");
    let run = format!("size=1m loops=2 buffered=1 flush-ms=1 flushes=3 save={ledger}");
    assert_eq!(call(&run).unwrap().kinds, []);
    assert_eq!(*said.lock().unwrap(), ["filled", "flushed"]);
    assert_eq!(
        call(&format!("load={ledger} check-only=1 buffered=1"))
            .unwrap()
            .kinds,
        []
    );
    let again = call(&format!("load={ledger} loops=1 buffered=1 inject=lost:50")).unwrap();
    assert!(again.faults > 0, "{again}");
    assert!(again.to_string().starts_with("{\"writes\": "), "{again}");
    for wrong in [
        "size=1",
        "nonsense=1",
        "loops=x",
        "errors=maybe",
        "check-only=1",
        "inject=lost",
        "unit=100",
    ] {
        assert!(call(wrong).is_err(), "{wrong}");
    }
    fs::remove_dir_all(&folder).unwrap();
}
