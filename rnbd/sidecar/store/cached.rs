// SPDX-License-Identifier: GPL-2.0

//! Records whose data were written, and may not be durable, and devices that say that they are not.

use core::borrow::BorrowMut;

use super::{
    super::{
        pi_cache::Slot,
        queue::Queued, //
    },
    Place,
    State,
    Store, //
};

/// The lowest of these records, by what makes them durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Cached {
    /// The next flush.
    next: Option<u64>,
    /// The flush in flight.
    in_flight: Option<u64>,
    /// No flush: the first and the last one with a write that has failed. What is there is known of
    /// their blocks, and may be older data, which are right until their tuples are written back.
    failed: Option<(u64, u64)>,
}

impl Cached {
    /// No data were written.
    pub(super) const NONE: Self = Self {
        next: None,
        in_flight: None,
        failed: None,
    };

    /// Data of a record were written, and may be in the device's cache only.
    pub(super) fn add(&mut self, sequence: u64) {
        self.next = Some(self.next.map_or(sequence, |first| first.min(sequence)));
    }

    /// Data of a record could not be written; `settled` is the lowest one that a replay needs.
    pub(super) fn add_failed(&mut self, sequence: u64, settled: u64) {
        let (first, last) = self.unsettled(settled).unwrap_or((sequence, sequence));
        self.failed = Some((first.min(sequence), last.max(sequence)));
    }

    /// A flush starts: it covers what was written before.
    pub(super) fn start_flush(&mut self) {
        let both = [self.in_flight, self.next.take()];
        self.in_flight = both.into_iter().flatten().min();
    }

    /// The flush has ended.
    pub(super) fn end_flush(&mut self) {
        self.in_flight = None;
    }

    /// The flush was not begun.
    pub(super) fn undo_flush(&mut self) {
        let both = [self.in_flight.take(), self.next];
        self.next = both.into_iter().flatten().min();
    }

    /// Returns the first and the last record with a write that has failed, while a replay needs
    /// the last one.
    fn unsettled(&self, settled: u64) -> Option<(u64, u64)> {
        self.failed.filter(|(_, last)| *last >= settled)
    }

    /// Returns the lowest of the records; `settled` is the lowest one that a replay needs.
    pub(super) fn lowest(&self, settled: u64) -> Option<u64> {
        let failed = self.unsettled(settled).map(|(first, _)| first);
        [self.next, self.in_flight, failed]
            .into_iter()
            .flatten()
            .min()
    }
}

impl<R: BorrowMut<[Place]>, H: BorrowMut<[Slot]>> Store<R, H> {
    /// Returns whether the data of a request were read, written or discarded, as the device says.
    /// One without FUA of its own flushes behind a write with FUA: the failure of that flush may be
    /// all that is said of a lost cache, and what ends well after it may have been there.
    pub(super) fn is_believed(&mut self, queued: &Queued<State>, is_ok: bool) -> bool {
        if !self.is_volatile || !Self::is_fua(queued) {
            return is_ok;
        }
        if !is_ok {
            self.fail();
        }
        !self.has_failed
    }
}
