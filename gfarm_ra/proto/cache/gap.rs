// SPDX-License-Identifier: GPL-2.0

//! The bytes of a part of a file that are left for the file server, when other nodes have given
//! some of its pages: those of the other pages, up to the end of the file, and of few pages between
//! them.

use core::ops::Range;

use super::PAGE_LEN;

/// The most bytes between two gaps that are read once more, with both, instead of a request for
/// each gap: the file server is asked for one after the other, and a request takes longer than
/// these bytes do on a link of 10 Gbit/s.
pub const ISLAND_LEN_MAX: u64 = 8 * PAGE_LEN;

/// A part of a file whose pages come from several places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The position in the file of the first byte that is not accounted for.
    pub position: u64,
    /// The number of bytes from there on.
    pub len: usize,
    /// The size of the file, in bytes.
    pub size: u64,
}

/// The next bytes that are missing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gap {
    /// The number of bytes before them, which are there.
    pub passed: usize,
    /// Their number; 0 if nothing is missing.
    pub len: usize,
}

impl Part {
    /// Returns the first bytes that are missing; `is_filled` tells whether a page of the file, by
    /// its number, has been filled.
    pub fn gap(&self, is_filled: impl Fn(u64) -> bool) -> Gap {
        // CAST: From 64 bits to 64.
        let end = self.position.saturating_add(self.len as u64);
        let end = end.min(self.size.max(self.position));
        let start = run(self.position, end, &is_filled);
        let stop = run(start, end, |page| !is_filled(page));
        Gap {
            // CAST: Both are at most `len`.
            passed: start.saturating_sub(self.position) as usize,
            len: stop.saturating_sub(start) as usize,
        }
    }

    /// Returns what comes behind a gap.
    pub fn behind(&self, gap: &Gap) -> Self {
        let bytes = gap.passed.saturating_add(gap.len);
        Self {
            // CAST: From 64 bits to 64.
            position: self.position.saturating_add(bytes as u64),
            len: self.len.saturating_sub(bytes),
            size: self.size,
        }
    }

    /// Returns the first pages of the file that have been filled, but are few, and between others
    /// that have not: they are to be read with these. As pages are never in part from both, those
    /// at the begin and at the end of the part are none.
    pub fn island(&self, is_filled: impl Fn(u64) -> bool) -> Option<Range<u64>> {
        let gap = self.gap(&is_filled);
        let (mut gap, mut part) = (gap, self.behind(&gap));
        while gap.len != 0 {
            gap = part.gap(&is_filled);
            // CAST: From 64 bits to 64.
            if gap.len != 0 && gap.passed as u64 <= ISLAND_LEN_MAX {
                let end = part.position.saturating_add(gap.passed as u64);
                return Some(part.position / PAGE_LEN..end / PAGE_LEN);
            }
            part = part.behind(&gap);
        }
        None
    }

    /// Returns the number of bytes that are missing in all.
    pub fn missing(&self, is_filled: impl Fn(u64) -> bool) -> usize {
        let (mut part, mut missing) = (*self, 0usize);
        loop {
            let gap = part.gap(&is_filled);
            if gap.len == 0 {
                return missing;
            }
            missing = missing.saturating_add(gap.len);
            part = part.behind(&gap);
        }
    }
}

/// Returns the position, at most `end`, of the first byte from `from` on whose page is another one
/// than these.
fn run(from: u64, end: u64, is_one: impl Fn(u64) -> bool) -> u64 {
    let mut at = from;
    while at < end && is_one(at / PAGE_LEN) {
        let in_page = at % PAGE_LEN;
        at = at.saturating_add(PAGE_LEN.saturating_sub(in_page)).min(end);
    }
    at
}
