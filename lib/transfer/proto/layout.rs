// SPDX-License-Identifier: GPL-2.0

//! The memory of each fragment of a transfer.
//!
//! A transfer is a row of whole pages, cut into fragments of equal size, each a datagram. The
//! memory at one side may begin behind the start of the first page, and end before the end of the
//! last: what is outside of it is the *lead* and the *tail*, which only the other side has.

use core::ops::Range;

/// The bytes of a page.
pub const PAGE_LEN: u32 = 4096;

/// The sizes of fragments.
const FRAGMENT_LEN: Range<u32> = 256..PAGE_LEN + 1;

/// The reason why a transfer is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayoutError {
    /// A fragment is a power of two from 256 to 4096 bytes.
    BadFragment,
    /// The memory begins within the first page.
    BadSkip,
    /// No memory is given, or more than fits into the fragments.
    BadLen,
}

/// The layout of a transfer.
///
/// # Invariants
///
/// `fragment_len` divides [`PAGE_LEN`], `skip` is below it, and `skip + memory_len` bytes are not
/// more than the `count` fragments, which are whole pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    skip: u32,
    memory_len: u32,
    fragment_len: u32,
    count: u16,
}

/// The bytes of a fragment, by the range in which they lie; the ranges follow one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Bytes before the memory, counted from the start of the first page.
    pub lead: Range<u32>,
    /// Bytes of the memory.
    pub memory: Range<u32>,
    /// Bytes behind the memory, counted from its end.
    pub tail: Range<u32>,
}

impl Layout {
    /// Returns the layout of a transfer of `memory_len` bytes, which begin `skip` bytes behind the
    /// start of a page, in fragments of `fragment_len` bytes.
    ///
    /// # Errors
    ///
    /// Returns why there is none, also with more than `fragments_max` fragments.
    pub fn new(
        fragment_len: u32,
        skip: u32,
        memory_len: u32,
        fragments_max: u16,
    ) -> Result<Self, LayoutError> {
        if !FRAGMENT_LEN.contains(&fragment_len) || !fragment_len.is_power_of_two() {
            return Err(LayoutError::BadFragment);
        }
        if skip >= PAGE_LEN {
            return Err(LayoutError::BadSkip);
        }
        if memory_len == 0 {
            return Err(LayoutError::BadLen);
        }
        let count = skip
            .checked_add(memory_len)
            .and_then(|end| end.checked_next_multiple_of(PAGE_LEN))
            .and_then(|len| len.checked_div(fragment_len))
            .and_then(|count| u16::try_from(count).ok())
            .filter(|count| *count <= fragments_max)
            .ok_or(LayoutError::BadLen)?;
        // INVARIANT: As checked.
        Ok(Self {
            skip,
            memory_len,
            fragment_len,
            count,
        })
    }

    /// Returns the number of fragments.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// Returns the bytes of a fragment.
    pub fn fragment_len(&self) -> u32 {
        self.fragment_len
    }

    /// Returns what fragment `number` is; [`None`] if there is none of this number.
    #[inline]
    pub fn fragment(&self, number: u16) -> Option<Fragment> {
        if number >= self.count {
            return None;
        }
        let start = u32::from(number).checked_mul(self.fragment_len)?;
        let end = start.checked_add(self.fragment_len)?;
        Some(self.split(start, end))
    }

    /// Returns the fragments of some pages that follow each other, and the part of the memory that
    /// is in them; [`None`] if there is none, or not each of them.
    pub fn pages(&self, pages: Range<u16>) -> Option<(Range<u16>, Range<u32>)> {
        if pages.is_empty() {
            return None;
        }
        let start = u32::from(pages.start).checked_mul(PAGE_LEN)?;
        let end = u32::from(pages.end).checked_mul(PAGE_LEN)?;
        let first = u16::try_from(start.checked_div(self.fragment_len)?).ok()?;
        let last = u16::try_from(end.checked_div(self.fragment_len)?).ok()?;
        if last > self.count {
            return None;
        }
        Some((first..last, self.split(start, end).memory))
    }

    /// Splits the bytes from `start` to `end` of the transfer.
    #[inline]
    fn split(&self, start: u32, end: u32) -> Fragment {
        if self.skip == 0 && end <= self.memory_len {
            // Nearly always: the memory begins and ends with a page.
            return Fragment {
                lead: 0..0,
                memory: start..end,
                tail: 0..0,
            };
        }
        // By the type invariants, this does not overflow.
        let memory_end = self.skip.saturating_add(self.memory_len);
        let from = |at: u32, origin: u32| at.saturating_sub(origin);
        Fragment {
            lead: start.min(self.skip)..end.min(self.skip),
            memory: from(start.min(memory_end), self.skip)..from(end.min(memory_end), self.skip),
            tail: from(start, memory_end)..from(end, memory_end),
        }
    }
}

/// A piece of memory, as the device addresses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The address of its first byte.
    pub addr: u64,
    /// The number of its bytes.
    pub len: u32,
}

/// Cuts a row of pieces into smaller ones, from its begin to its end.
pub struct Cutter<I> {
    pieces: I,
    rest: Piece,
}

impl<I: Iterator<Item = Piece>> Cutter<I> {
    /// Returns a cutter at the begin of `pieces`.
    pub fn new(pieces: I) -> Self {
        Self {
            pieces,
            rest: Piece::default(),
        }
    }

    /// Returns the next piece, of at most `len_max` bytes and at least one; [`None`] at the end, or
    /// for 0 bytes.
    pub fn next(&mut self, len_max: u32) -> Option<Piece> {
        if len_max == 0 {
            return None;
        }
        while self.rest.len == 0 {
            self.rest = self.pieces.next()?;
        }
        let len = self.rest.len.min(len_max);
        let addr = self.rest.addr;
        self.rest = Piece {
            addr: addr.wrapping_add(len.into()),
            len: self.rest.len.saturating_sub(len),
        };
        Some(Piece { addr, len })
    }
}
