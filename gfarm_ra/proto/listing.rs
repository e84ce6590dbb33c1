// SPDX-License-Identifier: GPL-2.0

//! Decides where the reading of a directory goes on, and whether it comes to an end.
//!
//! gfmd numbers the entries of a directory in the order of their names, and is asked for those from
//! a position on. Each answer is of one moment; between two of them names may come and go, and the
//! positions of all behind them change. So a reader goes on behind the last *name*: it asks from
//! that one's position on, takes what is behind it in the order, and looks elsewhere if the answer
//! begins behind it ([`Onward`]). Each name that is there all the time is then read exactly once.
//!
//! A server that brings the same entries again and again, or none but `.` and `..`, would be asked
//! without end by one system call.

use core::{
    cmp::Ordering::{
        Equal,
        Greater, //
    },
    fmt, //
};

use super::{
    attr::EntryName,
    name::NAME_LEN_MAX, //
};

/// The number of entries that a directory may have: more than a gfmd has memory for.
pub const ENTRIES_MAX: u64 = 1 << 28;

/// The number of answers in a row that bring nothing new, after which no more are asked for.
///
/// `.` and `..` may come alone, each by itself; and while names are added before those that were
/// read, an answer may begin like the one before it.
const IDLE_MAX: u8 = 4;

/// The directory has no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endless {
    /// The directory has more than [`ENTRIES_MAX`] entries.
    Long,
    /// The last answers have brought nothing new.
    Idle,
}

impl fmt::Display for Endless {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Long => write!(f, "directory has more than {ENTRIES_MAX} entries"),
            Self::Idle => f.write_str("directory without end: the same entries again and again"),
        }
    }
}

/// The progress of a reader of a directory, whose answers follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The first name of the last answer that had one.
    name: [u8; NAME_LEN_MAX],
    /// Its length; 0 if there is none.
    len: usize,
    /// The answer that is being read has a name.
    has_name: bool,
    /// The first one is another than that of the answer before.
    has_news: bool,
    /// The number of answers since the last news.
    idle: u8,
}

impl Default for Progress {
    fn default() -> Self {
        Self::NEW
    }
}

impl Progress {
    /// The progress before the first entry.
    pub const NEW: Self = Self {
        name: [0; NAME_LEN_MAX],
        len: 0,
        has_name: false,
        has_news: false,
        idle: 0,
    };

    /// Returns whether there may be entries at a position, where a user may have gone by itself.
    pub const fn may_ask(position: u64) -> bool {
        position <= ENTRIES_MAX
    }

    /// An answer begins.
    pub fn begin(&mut self) {
        self.has_name = false;
        self.has_news = false;
    }

    /// The answer has this entry.
    pub fn entry(&mut self, name: EntryName<'_>) {
        let EntryName::Name(name) = name else {
            return;
        };
        if core::mem::replace(&mut self.has_name, true) {
            return;
        }
        let bytes = name.as_bytes();
        self.has_news = self.name.get(..self.len) != Some(bytes);
        self.len = bytes.len();
        for (to, from) in self.name.iter_mut().zip(bytes) {
            *to = *from;
        }
    }

    /// The answer is over, with so many entries; `next` is the position behind them. Returns
    /// whether they were the last ones.
    pub fn end(&mut self, next: u64, entries: u32) -> Result<bool, Endless> {
        if entries == 0 {
            return Ok(true);
        }
        if next > ENTRIES_MAX {
            return Err(Endless::Long);
        }
        self.idle = match self.has_news {
            true => 0,
            false => self.idle.saturating_add(1),
        };
        match self.idle {
            IDLE_MAX.. => Err(Endless::Idle),
            _ => Ok(false),
        }
    }
}

/// The entry behind which a reader goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Last {
    name: [u8; NAME_LEN_MAX],
    len: usize,
    /// Its position in the answer that has brought it.
    position: u64,
}

impl Last {
    /// Returns the entry with this name, which is not longer than names are.
    fn new(name: &[u8], position: u64) -> Self {
        let mut last = Self {
            name: [0; NAME_LEN_MAX],
            len: name.len().min(NAME_LEN_MAX),
            position,
        };
        for (to, from) in last.name.iter_mut().zip(name) {
            *to = *from;
        }
        last
    }

    fn name(&self) -> &[u8] {
        self.name.get(..self.len).unwrap_or_default()
    }
}

/// The next step after an answer. It is on one stack, and copied once.
#[expect(clippy::large_enum_variant)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// The entries that were taken come next; none was taken if the directory ends here. The reader
    /// goes on behind this entry.
    Read(Option<Last>),
    /// The entries from this position on are asked for, before the reader gets any.
    Ask(u64),
}

/// The way from the last entry that a reader has got to the next ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Onward {
    /// `None` at the begin, and behind a position that is no entry's.
    last: Option<Last>,
    /// The position of the next entry of the answer.
    position: u64,
    /// The last entry of the answer.
    told: Option<Last>,
    /// The answer begins at the begin, or not behind the last entry.
    is_joined: bool,
    /// The answer has had the last entry: the others are behind it, however they are ordered.
    is_found: bool,
    /// The number of entries that were taken.
    taken: u32,
    /// The positions by which the next question goes back, if the answer begins too late.
    step: u64,
    /// The number of answers of which nothing was taken.
    asked: u16,
}

/// The positions by which the first question goes back.
const STEP: u64 = 64;

/// The number of answers of which nothing was taken, after which a gap is not looked into: others
/// change the directory faster than it is read.
const ASKED_MAX: u16 = 1000;

impl Onward {
    /// Goes on behind an entry, or, without one, at a position.
    pub const fn new(last: Option<Last>, position: u64) -> Self {
        Self {
            last,
            position: match last {
                Some(last) => last.position,
                None => position,
            },
            told: None,
            is_joined: false,
            is_found: false,
            taken: 0,
            step: STEP,
            asked: 0,
        }
    }

    /// Returns the position that is asked for.
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// The answer has this entry: returns whether the reader gets it.
    pub fn entry(&mut self, name: EntryName<'_>) -> bool {
        let name = name.as_bytes();
        // Byte by byte: that of slices subtracts their lengths, which could panic.
        let order = self.last.map(|last| name.iter().cmp(last.name()));
        let is_new = self.is_found && order != Some(Equal) || order.is_none_or(|o| o == Greater);
        self.is_found |= order == Some(Equal);
        self.is_joined |=
            !is_new || self.position == 0 || self.last.is_none() || self.asked == ASKED_MAX;
        self.told = Some(Last::new(name, self.position));
        self.position = self.position.saturating_add(1);
        // Behind a gap there may be others before it.
        let is_taken = is_new && self.is_joined;
        self.taken = self.taken.saturating_add(is_taken.into());
        is_taken
    }

    /// The answer is over, which began at `at` and could have had `max` entries.
    pub fn end(&mut self, at: u64, max: u32) -> Next {
        let count = self.position.saturating_sub(at);
        let is_late = self.last.is_some() && at != 0 && !self.is_joined;
        if is_late {
            // The directory has become shorter, or the last entry is gone.
            self.position = at.saturating_sub(self.step);
            self.step = self.step.saturating_mul(2);
        } else if self.taken != 0 || count < max.into() {
            return Next::Read(self.told.filter(|_| self.taken != 0).or(self.last));
        } else {
            // Names have come before the last entry. Others may go while the next answer is made,
            // which has to begin before it as well.
            self.position = at.saturating_add((count / 2).max(1));
        }
        self.asked = self.asked.saturating_add(1).min(ASKED_MAX);
        (self.is_joined, self.is_found, self.told) = (false, false, None);
        Next::Ask(self.position)
    }
}
