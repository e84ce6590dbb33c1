// SPDX-License-Identifier: GPL-2.0

//! The return of a member: what it takes until an epoch may call it in sync.
//!
//! It was away, has lost its cache, or is a new device. First it is told that it has failed, by the
//! epoch, so that an epoch which calls it in sync finds its parent there; [`Log::take_back`] has it
//! written from then on. Resynchronising is collecting: what is live in segments of which it has no
//! columns is moved. Then a dump has to name a start behind all batches that it does not have, and
//! has to be on it, too. Whenever that is cut off it begins anew, with what is left to be moved.

use super::{
    log::Log,
    members::Members,
    segments::{
        Segment,
        Segments, //
    },
    superblock::Start, //
};

/// The next need of a member that returns. The user asks for it after each event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The acknowledgement of batches that began before; for good if fewer members live than it
    /// takes.
    Wait,
    /// A batch, if need be without records: the log has to go on in a segment that it has.
    Batch,
    /// The collection of segments of which it has no columns.
    Collect,
    /// The end of a dump, which begins now or goes on.
    Dump,
    /// Nothing: it has failed again.
    Over,
    /// [`Log::join`], and an epoch that calls it in sync, to all members that are written.
    Join,
}

/// A member that returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resync {
    member: usize,
    /// The first batch that it has.
    from: u64,
    /// The count of the dump that was the last one to begin when nothing lacked its columns any
    /// more; `None` before.
    complete: Option<u64>,
    /// A segment that lacked its columns when it was looked for: it is looked at first, as what is
    /// next is asked for after each event, and a look may go through all segments.
    lacking: u32,
}

impl Resync {
    /// A member was taken back.
    pub fn begin(member: usize, log: &Log) -> Self {
        Self {
            member,
            from: log.next_sequence(),
            complete: None,
            lacking: 0,
        }
    }

    /// Returns the member.
    pub fn member(&self) -> usize {
        self.member
    }

    /// Returns what is next. `held` is the start that all members hold which are written, `dumping`
    /// that of a dump in progress.
    pub fn step<S: AsRef<[Segment]> + AsMut<[Segment]>>(
        &mut self,
        log: &Log,
        segments: &Segments<S>,
        (held, dumping): (&Start, Option<&Start>),
    ) -> Step {
        if !log.written_members().contains(self.member) {
            return Step::Over;
        }
        // For good, as fewer live than it takes.
        if !log.failing().is_empty() {
            return Step::Wait;
        }
        let Some(complete) = self.complete else {
            if log.next_sequence() == self.from {
                return Step::Batch;
            }
            if log.acknowledged().saturating_add(1) < self.from {
                return Step::Wait;
            }
            let lacking = segments.lacking(Members::of(self.member), self.lacking);
            if let Some(lacking) = lacking {
                self.lacking = lacking;
                return Step::Collect;
            }
            self.complete = Some(dumping.unwrap_or(held).generation);
            return Step::Dump;
        };
        if held.generation > complete {
            Step::Join
        } else {
            Step::Dump
        }
    }
}
