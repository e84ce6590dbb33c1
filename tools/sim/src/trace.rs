// SPDX-License-Identifier: GPL-2.0

//! The timeline of a run.

use std::{
    collections::BTreeMap,
    fmt, //
};

/// The side that acted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Who {
    App,
    Client,
    Net,
    Server,
    Disk,
    Fault,
    Check,
}

/// The trace of a run; empty unless requested.
#[derive(Default)]
pub(crate) struct Trace {
    /// Keep lines.
    pub(crate) wanted: bool,
    pub(crate) lines: Vec<String>,
    /// The number of times that rare states were reached, as a run that never reaches them shows
    /// nothing.
    pub(crate) reached: BTreeMap<&'static str, u64>,
}

impl Trace {
    pub(crate) fn reached(&mut self, place: &'static str) {
        *self.reached.entry(place).or_insert(0) += 1;
    }

    pub(crate) fn line(&mut self, now_us: u64, who: Who, client: usize, what: fmt::Arguments<'_>) {
        if self.wanted {
            let (s, us) = (now_us / 1_000_000, now_us % 1_000_000);
            let who = match who {
                Who::Client => format!("client{client}"),
                who => format!("{who:?}").to_lowercase(),
            };
            self.lines.push(format!("{s:4}.{us:06} {who:7} {what}"));
        }
    }
}

/// Writes a line of the timeline of a world.
macro_rules! note {
    ($world:expr, $who:ident, $($what:tt)+) => {
        if $world.trace.wanted {
            let (now_us, at) = ($world.now_us, $world.at);
            $world.trace.line(now_us, $crate::trace::Who::$who, at, format_args!($($what)+));
        }
    };
}
pub(crate) use note;
