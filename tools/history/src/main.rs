// SPDX-License-Identifier: GPL-2.0

//! Loads a disk with several threads and checks that every sector has a history.
//!
//! ```text
//! history DISK NAME=VALUE...
//!
//! size=4m unit=4k span=1           what is used of the disk, from its start; sizes take k and m
//! writers=8 readers=1              threads, each with one request at a time
//! seconds=N loops=N until=FILE     when the load ends; loops=3 without any of them
//! after=100                        writes that must end after that
//! errors=fail|allowed              what an IO error means
//! floor=acknowledged|flushed       from which event on a write must not be lost
//! flush-ms=0 flushes=0             pause between flushes (0: none), and after how many they end
//! load=FILE save=FILE              a ledger from an earlier run, and for a later one
//! check-only=1                     nothing is written (with load=)
//! buffered=1                       through the page cache
//! seed=N                           of what is chance
//! inject=KIND:N                    every Nth write goes wrong: the checker's own test
//! ```
//!
//! Prints `filled` when every unit has been written once, `flushed` after the last flush, and at
//! the end a line of JSON. The status is 0 if nothing is wrong, 1 if something is, 2 if it was
//! called wrongly. `ledger.rs` says what is checked.

mod chance;
mod disk;
mod inject;
mod ledger;
mod report;
mod run;
mod sector;
#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    env,
    fs,
    io::Write,
    path::{
        Path,
        PathBuf, //
    },
    process::ExitCode,
    time::{
        SystemTime,
        UNIX_EPOCH, //
    }, //
};

use disk::Device;
use inject::{
    Injected,
    Wrong, //
};
use ledger::{
    Floor,
    Ledger, //
};
use report::Report;
use run::{
    Errors,
    Options,
    Run, //
};
use sector::SECTOR_SIZE;

/// The words of the command line that have not been used yet.
struct Words(BTreeMap<String, String>);

impl Words {
    fn new(words: impl Iterator<Item = String>) -> Result<Self, String> {
        let pair = |word: String| -> Result<(String, String), String> {
            let (name, value) = word
                .split_once('=')
                .ok_or_else(|| format!("{word} is no NAME=VALUE"))?;
            Ok((name.to_owned(), value.to_owned()))
        };
        words.map(pair).collect::<Result<_, _>>().map(Self)
    }

    fn text(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    fn maybe(&mut self, name: &str) -> Result<Option<u64>, String> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let (digits, factor) = match text.as_bytes().last() {
            Some(b'k') => (text.trim_end_matches('k'), 1 << 10),
            Some(b'm') => (text.trim_end_matches('m'), 1 << 20),
            _ => (text.as_str(), 1),
        };
        let number = digits
            .parse::<u64>()
            .ok()
            .and_then(|number| number.checked_mul(factor));
        number
            .map(Some)
            .ok_or_else(|| format!("{name}={text} is no number"))
    }

    fn number(&mut self, name: &str, default: u64) -> Result<u64, String> {
        Ok(self.maybe(name)?.unwrap_or(default))
    }

    fn count(&mut self, name: &str, default: u64) -> Result<usize, String> {
        let number = self.number(name, default)?;
        usize::try_from(number)
            .ok()
            .filter(|&n| n <= 1 << 30)
            .ok_or_else(|| format!("{name}={number} is too much"))
    }

    fn choice<T: Copy>(&mut self, name: &str, choices: [(&str, T); 2]) -> Result<T, String> {
        let [(first, default), (second, other)] = choices;
        match self.text(name).as_deref() {
            None => Ok(default),
            Some(word) if word == first => Ok(default),
            Some(word) if word == second => Ok(other),
            Some(word) => Err(format!("{name}={word}: there are {first} and {second}")),
        }
    }
}

fn inject(text: &str) -> Result<(Wrong, u64), String> {
    let (kind, every) = text
        .split_once(':')
        .ok_or_else(|| format!("inject={text} is no KIND:N"))?;
    let every = every
        .parse()
        .ok()
        .filter(|&every| every > 0)
        .ok_or_else(|| format!("{every} is no number"))?;
    Ok((kind.parse()?, every))
}

fn options(words: &mut Words) -> Result<Options, String> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_nanos() as u64);
    let mut options = Options {
        writers: words.count("writers", 8)?,
        readers: words.count("readers", 1)?,
        span: words.count("span", 1)?.max(1),
        seconds: words.maybe("seconds")?,
        loops: words.maybe("loops")?,
        until: words.text("until").map(PathBuf::from),
        after: words.number("after", 100)?,
        errors: words.choice(
            "errors",
            [("fail", Errors::Fail), ("allowed", Errors::Allowed)],
        )?,
        flush_ms: words.number("flush-ms", 0)?,
        flushes: words.number("flushes", 0)?,
        seed: words.number("seed", now)?,
    };
    if options.seconds.is_none() && options.until.is_none() {
        options.loops = options.loops.or(Some(3));
    }
    if options.writers == 0 || options.writers + options.readers > 1024 {
        return Err("there are 1 to 1024 threads".to_owned());
    }
    Ok(options)
}

fn new_ledger(words: &mut Words, run: u64, floor: Floor) -> Result<Ledger, String> {
    let (size, unit) = (words.count("size", 4 << 20)?, words.count("unit", 4096)?);
    if unit < SECTOR_SIZE || unit % SECTOR_SIZE != 0 || size < unit {
        return Err(format!(
            "unit={unit} is not whole sectors, or more than size={size}"
        ));
    }
    Ok(Ledger::new(run, unit, size / unit, floor))
}

/// Runs what the command line says.
fn history(
    mut arguments: impl Iterator<Item = String>,
    say: &(dyn Fn(&str) + Sync),
) -> Result<Report, String> {
    let name = arguments
        .next()
        .ok_or("history DISK NAME=VALUE...; src/main.rs lists the names")?;
    let mut words = Words::new(arguments)?;
    let options = options(&mut words)?;
    let floor = words.choice(
        "floor",
        [
            ("acknowledged", Floor::Acknowledged),
            ("flushed", Floor::Flushed),
        ],
    )?;
    let (load, save) = (words.text("load"), words.text("save"));
    let check_only = words.number("check-only", 0)? != 0;
    let buffered = words.number("buffered", 0)? != 0;
    let wrong = words.text("inject").map(|text| inject(&text)).transpose()?;
    let ledger = match &load {
        None => new_ledger(&mut words, options.seed, floor)?,
        Some(file) => {
            let text = fs::read_to_string(file).map_err(|why| format!("{file}: {why}"))?;
            Ledger::load(&text, floor).ok_or_else(|| format!("{file} is no ledger"))?
        }
    };
    if let Some(word) = words.0.keys().next() {
        return Err(format!("there is no {word}= here"));
    }
    if check_only && load.is_none() {
        return Err("check-only= needs load=".to_owned());
    }
    let device =
        Device::open(Path::new(&name), buffered).map_err(|why| format!("{name}: {why}"))?;
    let disk = Injected::new(device, wrong);
    let run = Run::new(&disk, &ledger, &options, say);
    if load.is_none() {
        run.fill();
    }
    if !check_only {
        run.load();
    }
    run.check();
    let report = run.into_report();
    if let Some(file) = save {
        fs::write(&file, ledger.save()).map_err(|why| format!("{file}: {why}"))?;
    }
    Ok(report)
}

/// Prints a line at once; a reader that has gone away is no reason to stop.
fn say(line: &str) {
    let mut out = std::io::stdout();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

fn main() -> ExitCode {
    match history(env::args().skip(1), &say) {
        Ok(report) => {
            say(&report.to_string());
            ExitCode::from(u8::from(report.faults > 0))
        }
        Err(why) => {
            eprintln!("history: {why}");
            ExitCode::from(2)
        }
    }
}
