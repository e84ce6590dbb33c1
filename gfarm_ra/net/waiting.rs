// SPDX-License-Identifier: GPL-2.0

//! The reads of an open file that wait: for a worker that asks other nodes, and for the one that
//! reads from a gfsd.

use kernel::prelude::*;

use super::ring::Ring;

/// The number of reads of a file that may wait; a task with another one waits itself.
const READS_MAX: usize = 23;

/// The most bytes of their places, of which an open file has one set or two: the next larger
/// allocation takes twice as many.
const READS_BYTES: usize = 8 << 10;

/// The longest time for which a read waits for a worker, in milliseconds. After it no node is
/// asked: those of other files may all keep their requests, and each worker waits for one.
pub(super) const ASKED_WITHIN_MS: u32 = 200;

/// The beginning of a read.
#[derive(Clone, Copy)]
pub(super) struct Began {
    /// The count of interrupts.
    pub(super) interrupts: u32,
    /// The time in milliseconds, of which the upper bits are cut off.
    pub(super) at_ms: u32,
}

/// The reads that wait. There is a place in `missing` for each that is in `unasked` or with a
/// worker.
pub(super) struct Waiting<P> {
    /// The reads for which nodes are to be asked, each by a worker of its own.
    unasked: Ring<(P, Began)>,
    /// The number of reads for which workers ask.
    asking: usize,
    /// The reads for which the gfsd is to be asked, each with the count of interrupts at which it
    /// has begun.
    missing: Ring<(P, u32)>,
}

impl<P> Waiting<P> {
    /// Makes the places. No node is asked for reads unless `asks_nodes`.
    pub(super) fn new(asks_nodes: bool) -> Result<Self> {
        const { assert!(Ring::<(P, Began)>::bytes(READS_MAX) <= READS_BYTES) };
        Ok(Self {
            unasked: Ring::new(if asks_nodes { READS_MAX } else { 0 })?,
            asking: 0,
            missing: Ring::new(READS_MAX)?,
        })
    }

    /// Returns the number of reads, those included for which workers ask.
    fn len(&self) -> usize {
        let waiting = self.unasked.len().saturating_add(self.missing.len());
        waiting.saturating_add(self.asking)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= READS_MAX
    }

    /// Adds a read for which the gfsd is to be asked.
    ///
    /// # Errors
    ///
    /// Returns it if there is no place.
    pub(super) fn push(&mut self, pages: P, interrupts: u32) -> Result<(), P> {
        match self.is_full() {
            true => Err(pages),
            false => self.push_missing(pages, interrupts),
        }
    }

    fn push_missing(&mut self, pages: P, interrupts: u32) -> Result<(), P> {
        let pushed = self.missing.push((pages, interrupts));
        pushed.map_err(|(pages, _)| pages)
    }

    /// Adds a read for which nodes are to be asked first.
    ///
    /// # Errors
    ///
    /// Returns it if there is no place.
    pub(super) fn push_unasked(&mut self, pages: P, began: Began) -> Result<(), P> {
        if self.is_full() {
            return Err(pages);
        }
        let pushed = self.unasked.push((pages, began));
        pushed.map_err(|(pages, _)| pages)
    }

    /// Takes the next read for which nodes are to be asked, which [`asked`](Self::asked) follows.
    pub(super) fn ask(&mut self) -> Option<(P, Began)> {
        let taken = self.unasked.pop()?;
        self.asking = self.asking.saturating_add(1);
        Some(taken)
    }

    /// Takes back what the gfsd is to be asked for, if anything: nodes have been asked.
    pub(super) fn asked(&mut self, missing: Option<P>, interrupts: u32) -> Result<(), P> {
        self.asking = self.asking.saturating_sub(1);
        missing.map_or(Ok(()), |pages| self.push_missing(pages, interrupts))
    }

    /// Has the gfsd asked for a read for which nodes were to be: there is no worker for it.
    pub(super) fn pass(&mut self) -> Result<(), P> {
        let next = self.unasked.pop();
        next.map_or(Ok(()), |(pages, began)| {
            self.push_missing(pages, began.interrupts)
        })
    }

    /// Takes the next read for which the gfsd is to be asked, of those that have begun at such a
    /// count of interrupts.
    pub(super) fn pop(&mut self, is_it: impl Fn(u32) -> bool) -> Option<P> {
        let taken = self.missing.take(|(_, began)| is_it(*began));
        taken.map(|(pages, _)| pages)
    }
}
