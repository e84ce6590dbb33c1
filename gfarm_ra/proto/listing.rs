// SPDX-License-Identifier: GPL-2.0

//! Whether the reading of a directory comes to an end.
//!
//! gfmd numbers the entries of a directory, and is asked for those from a position on until it has
//! no more. A server that brings the same entries again and again, or none but `.` and `..`, would
//! be asked without end by one system call.

use core::fmt;

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
    /// It has more than [`ENTRIES_MAX`] entries.
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
    /// Nothing was read yet.
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
