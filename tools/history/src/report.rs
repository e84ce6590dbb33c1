// SPDX-License-Identifier: GPL-2.0

//! The result of a run, for people and for programs.

use std::fmt;

use crate::sector::Stamp;

/// Faults that the report shows one by one; all are counted.
const SHOWN_MAX: usize = 16;

/// The kind of a fault of a sector, or of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// An acknowledged write is not there: older data are, and nothing newer was ever read.
    Lost,
    /// Older data are there than were read before: an old write has landed again.
    Late,
    /// Part of a write is there, part is not.
    Torn,
    /// Data of another place.
    Swapped,
    /// Data of another writer, or of a write that was never issued.
    Foreign,
    /// A request has failed.
    Error,
}

/// A fault and where it was found.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// Its kind.
    pub(crate) kind: Kind,
    /// The unit.
    pub(crate) unit: usize,
    /// The first sector of it that is wrong.
    pub(crate) sector: u64,
    /// The stamp that stands there, if it can be read.
    pub(crate) found: Option<Stamp>,
    /// The oldest generation that may stand there.
    pub(crate) least: u64,
    /// The newest.
    pub(crate) most: u64,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "lost",
            Self::Late => "late",
            Self::Torn => "torn",
            Self::Swapped => "swapped",
            Self::Foreign => "foreign",
            Self::Error => "error",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            unit,
            sector,
            found,
            least,
            most,
        } = self;
        write!(f, "{kind}: unit {unit}, sector {sector}: ")?;
        match found {
            Some(stamp) => write!(
                f,
                "generation {} of sector {} by writer {} of run {:x}",
                stamp.generation, stamp.sector, stamp.writer, stamp.run
            )?,
            None => write!(f, "nothing that can be read")?,
        }
        write!(f, ", expected generation {least} to {most}")
    }
}

/// The result of a run; prints as one line of JSON.
#[derive(Default, Debug)]
pub(crate) struct Report {
    /// Writes, reads and flushes that have succeeded, those of the fill and of the last check
    /// included.
    pub(crate) writes: u64,
    pub(crate) reads: u64,
    pub(crate) flushes: u64,
    /// Writes, reads and flushes that have failed.
    pub(crate) write_errors: u64,
    pub(crate) read_errors: u64,
    pub(crate) flush_errors: u64,
    /// The longest request of the load, in microseconds.
    pub(crate) worst_us: u64,
    /// Units that have gone back to an older generation, as a lost cache makes them.
    pub(crate) receded: usize,
    /// Sectors that were read while a write to them was under way, and were neither old nor new.
    pub(crate) unsettled: u64,
    /// The number of faults, their kinds, and the first ones in words.
    pub(crate) faults: usize,
    pub(crate) kinds: Vec<Kind>,
    pub(crate) shown: Vec<String>,
}

impl Report {
    /// Counts a fault.
    pub(crate) fn add(&mut self, kind: Kind, text: String) {
        self.faults += 1;
        if self.shown.len() < SHOWN_MAX {
            self.shown.push(text);
        }
        if !self.kinds.contains(&kind) {
            self.kinds.push(kind);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |texts: Vec<String>| {
            let quoted = texts
                .iter()
                .map(|text| format!("\"{}\"", text.replace(['"', '\\'], "'")));
            quoted.collect::<Vec<_>>().join(", ")
        };
        let numbers = [
            ("writes", self.writes),
            ("reads", self.reads),
            ("flushes", self.flushes),
            ("write_errors", self.write_errors),
            ("read_errors", self.read_errors),
            ("flush_errors", self.flush_errors),
            ("worst_us", self.worst_us),
            ("receded", self.receded as u64),
            ("unsettled", self.unsettled),
            ("faults", self.faults as u64),
        ];
        write!(f, "{{")?;
        for (name, number) in numbers {
            write!(f, "\"{name}\": {number}, ")?;
        }
        let kinds = list(self.kinds.iter().map(Kind::to_string).collect());
        write!(
            f,
            "\"kinds\": [{kinds}], \"shown\": [{}]}}",
            list(self.shown.clone())
        )
    }
}
