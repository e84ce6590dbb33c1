// SPDX-License-Identifier: GPL-2.0

//! A driver that does what was decided agrees with the replay; one that leaves anything out, or
//! does more, does not.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a test that panics has failed"
)]

use std::fmt;

use proto::common::record::{
    Entry,
    Machine,
    Words, //
};
use replay::judge;

mod admin_lock;
mod availability;
mod path;
mod server_path;
mod words;

/// A line of a record.
#[derive(Clone, Debug, PartialEq)]
enum Told<O> {
    /// The text of a step, and how many words of it come before the effect.
    Step(String, usize),
    Did(O),
}

impl<O: Words> fmt::Display for Told<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Step(text, _) => f.write_str(text),
            Self::Did(operation) => {
                f.write_str("did")?;
                operation.write(f)
            }
        }
    }
}

struct InWords<'a, T>(&'a T);

impl<T: Words> fmt::Display for InWords<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write(f)
    }
}

/// A machine with its record: what `rtrs_core::trace` is in the kernel.
struct Traced<M: Machine> {
    machine: M,
    record: Vec<Told<M::Operation>>,
}

impl<M: Machine> Traced<M> {
    fn new(machine: M) -> Self {
        Self {
            machine,
            record: Vec::new(),
        }
    }

    fn step(&mut self, event: M::Event) -> M::Effect {
        let effect = self.machine.handle(event);
        let after = &self.machine;
        let words = 1 + InWords(&event).to_string().split_whitespace().count();
        let entry = Entry::Step {
            event,
            effect,
            after,
        };
        self.record.push(Told::Step(entry.to_string(), words));
        effect
    }

    fn did(&mut self, operation: M::Operation) {
        self.record.push(Told::Did(operation));
    }
}

/// The kernel log with this record; `kind` is what is before the number of the machine.
fn log<O: Words>(kind: &str, record: &[Told<O>]) -> String {
    let lines = record.iter().enumerate();
    let lines = lines.map(|(n, entry)| format!("[ 1.2] {kind} 00ab {n} {entry}\n"));
    lines.collect()
}

fn is_refused<O: Words>(kind: &str, record: &[Told<O>]) -> bool {
    let verdict = judge(&log(kind, record));
    assert_eq!((verdict.whole + verdict.wrong.len(), verdict.cut), (1, 0));
    verdict.whole == 0
}

fn assert_agrees<O: Words + fmt::Debug>(kind: &str, record: &[Told<O>]) {
    let verdict = judge(&log(kind, record));
    assert_eq!(verdict.wrong, Vec::<String>::new(), "{record:?}");
    assert_eq!((verdict.whole, verdict.lines), (1, record.len()));
}

/// The record disagrees without any one operation for which `leaves_out` says so, and with any
/// twice for which `repeats` does.
fn assert_each_counts<O: Words + Clone + fmt::Debug>(
    kind: &str,
    record: &[Told<O>],
    leaves_out: impl Fn(&O) -> bool,
    repeats: impl Fn(&O) -> bool,
) {
    for at in 0..record.len() {
        let Told::Did(operation) = &record[at] else {
            continue;
        };
        if leaves_out(operation) {
            let mut less = record.to_vec();
            less.remove(at);
            let refused = is_refused(kind, &less);
            assert!(refused, "without {operation:?}, {at}: {record:?}");
        }
        if repeats(operation) {
            let mut more = record.to_vec();
            more.insert(at, record[at].clone());
            let refused = is_refused(kind, &more);
            assert!(refused, "{operation:?} twice, {at}: {record:?}");
        }
    }
}

/// Any other effect or state of a step is found, and a further word.
fn assert_words_count<O: Words>(kind: &str, record: &[Told<O>], at: usize) {
    let Told::Step(text, first) = &record[at] else {
        return;
    };
    let lines = log(kind, record);
    let words: Vec<&str> = text.split(' ').collect();
    for word in *first..words.len() {
        for bit in [0, 31, 63] {
            let value = u64::from_str_radix(words[word], 16).unwrap() ^ 1 << bit;
            let value = format!("{value:x}");
            let mut other = words.clone();
            other[word] = &value;
            let verdict = judge(&with_line(&lines, at, text, &other.join(" ")));
            assert_eq!(verdict.wrong.len(), 1, "{text}, word {word}, bit {bit}");
        }
    }
    let longer = judge(&with_line(&lines, at, text, &format!("{text} 0")));
    assert_eq!(longer.wrong.len(), 1);
}

/// The log in which one line says something else.
fn with_line(log: &str, at: usize, text: &str, other: &str) -> String {
    let mut lines: Vec<String> = log.lines().map(str::to_owned).collect();
    let head = lines[at].strip_suffix(text).unwrap();
    lines[at] = format!("{head}{other}");
    lines.join("\n")
}

#[test]
fn records_of_several_machines_are_told_apart() {
    let one = "did 7\n";
    let log = format!("rtrs_client: path 1 0 {one}rtrs_client: path 2 0 {one}");
    let verdict = judge(&log);
    assert_eq!((verdict.whole, verdict.lines), (2, 2));
    let twice = "rtrs_client: path 1 0 did 7\n".repeat(2);
    assert!(judge(&twice).wrong[0].contains("there are two"));
}
