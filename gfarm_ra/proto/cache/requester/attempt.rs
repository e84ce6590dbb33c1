// SPDX-License-Identifier: GPL-2.0

//! One request that is under way: its timer, its reply and its fragments.

use super::{
    super::{
        address::NodeId,
        pages::PageSet,
        reassembly::{
            Arrival,
            Reassembly, //
        },
        reply::{
            Answer,
            Refusal,
            Reply, //
        },
        request::{
            RequestId,
            Role, //
        },
        rtt::Timing, //
    },
    event::{
        Asking,
        Heard,
        Landed, //
    }, //
};

/// The number of times that one request is sent to an owner. Of two datagrams of which 5 % are lost
/// one is in 10 cases: no owner is taken for silent that answers one of these, but once in 1,000.
const SENDS_MAX: u8 = 3;

/// The factor by which an attempt may take longer than its time limit while fragments arrive.
const SLOW_FACTOR: u64 = 4;

/// The number of nodes that wait for each other in a row; more are taken for a circle.
pub const DEPTH_MAX: u8 = 32;

/// The end of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The peer has sent these pages.
    Sent(PageSet),
    /// The node has given another answer.
    Said(Answer),
    /// The node has not answered.
    Silent,
}

/// The consequence of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The timer expires at another time, in microseconds.
    Timer(u64),
    /// The request is sent once more, and the timer expires at this time.
    Again(u64),
    /// The attempt has ended: no fragment is to come any more.
    Ended,
}

/// The time after which a peer that has kept a request without giving anything counts as one that
/// has kept it until the end of the read, in microseconds: a third of that.
const KEPT_US_MIN: u64 = super::READ_US / 3;

/// The terms on which answers with pages, or that a node waits, are taken.
pub(super) struct Limits {
    /// The size of the file, in bytes.
    pub(super) size_bytes: u64,
    /// Whether pages come with their sums.
    pub(super) has_sums: bool,
}

/// A request that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    asking: Asking,
    node: NodeId,
    id: RequestId,
    timing: Timing,
    /// The time when it was sent.
    sent_us: u64,
    /// The number of times that it was sent, and the time at which it is sent again.
    sends: u8,
    again_us: u64,
    /// The time when it ends, if nothing comes before.
    until_us: u64,
    /// The time when it ends although fragments come.
    cap_us: u64,
    /// The peer has said that it keeps the request.
    is_kept: bool,
    /// A fragment has come.
    has_fragments: bool,
    verdict: Option<Verdict>,
}

impl Attempt {
    /// Starts when the request is about to be sent.
    pub(super) fn new(
        asking: &Asking,
        node: NodeId,
        id: RequestId,
        timing: Timing,
        now_us: u64,
    ) -> Self {
        let timeout_us = u64::from(timing.timeout_us);
        Self {
            asking: *asking,
            node,
            id,
            timing,
            sent_us: now_us,
            sends: 1,
            again_us: now_us.saturating_add(timing.again_us.into()),
            until_us: now_us.saturating_add(timeout_us),
            cap_us: now_us.saturating_add(timeout_us.saturating_mul(SLOW_FACTOR)),
            is_kept: false,
            has_fragments: false,
            verdict: None,
        }
    }

    /// Returns what was asked for.
    pub(super) const fn asking(&self) -> &Asking {
        &self.asking
    }

    /// Returns the node that was asked.
    pub(super) const fn node(&self) -> NodeId {
        self.node
    }

    /// Returns the time when it ends, if nothing comes before.
    pub(super) const fn until_us(&self) -> u64 {
        self.until_us
    }

    /// Returns the time when the timer is to expire next.
    pub(super) fn due_us(&self) -> u64 {
        if self.may_repeat() {
            self.again_us.min(self.until_us)
        } else {
            self.until_us
        }
    }

    /// Returns whether the request may be sent once more. A holder is asked once: it would send the
    /// pages twice.
    fn may_repeat(&self) -> bool {
        !self.is_transfer() && self.sends < SENDS_MAX && self.again_us < self.until_us
    }

    /// Returns how it has ended.
    pub(super) fn verdict(&self) -> Verdict {
        self.verdict.unwrap_or(Verdict::Silent)
    }

    /// Returns whether the peer has said which pages it has sent.
    pub(super) const fn is_answered(&self) -> bool {
        matches!(self.verdict, Some(Verdict::Sent(_)))
    }

    /// Returns the pages that the peer has said to have sent.
    pub(super) const fn sent(&self) -> PageSet {
        match self.verdict {
            Some(Verdict::Sent(sent)) => sent,
            _ => PageSet::EMPTY,
        }
    }

    /// Returns whether the peer has kept the request, and said so.
    pub(super) const fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// Returns whether a fragment has come, so the peer has answered although its reply is lost.
    pub(super) const fn has_fragments(&self) -> bool {
        self.has_fragments
    }

    /// Returns whether the device may write to pages: whether a holder is asked.
    pub(super) fn is_transfer(&self) -> bool {
        self.asking.role == Role::Holder
    }

    /// Takes a datagram that has come to the queue pair for data. Returns whether it was the last
    /// one.
    pub(super) fn arrived(
        &mut self,
        fragments: &mut Reassembly,
        landed: Landed,
        now_us: u64,
    ) -> bool {
        if !self.is_transfer() {
            return false;
        }
        let Landed {
            slot,
            imm,
            len_bytes,
        } = landed;
        if fragments.received(slot, imm, len_bytes) == Arrival::New {
            self.has_fragments = true;
            let more_us = if self.verdict.is_some() {
                self.timing.grace_us
            } else {
                self.timing.timeout_us
            };
            let until_us = now_us.saturating_add(more_us.into()).min(self.cap_us);
            // The timer is set anew when it expires, not for each fragment.
            self.until_us = self.until_us.max(until_us);
        }
        self.has_all(fragments)
    }

    /// Returns whether all has come that can.
    fn has_all(&self, fragments: &Reassembly) -> bool {
        match &self.verdict {
            Some(Verdict::Sent(sent)) => fragments.is_idle() || sent.is_subset(fragments.whole()),
            _ => false,
        }
    }

    /// Takes a reply, with sums or without; `None` if it is not for this attempt, or comes too
    /// late.
    pub(super) fn replied(
        &mut self,
        fragments: &Reassembly,
        from: NodeId,
        (reply, has_sums): (&Reply, bool),
        limits: &Limits,
        now_us: u64,
    ) -> Option<(Progress, Heard)> {
        let is_ours = from == self.node && reply.id == self.id;
        if !is_ours || self.verdict.is_some_and(|v| v != Verdict::Silent) {
            return None;
        }
        let took_us = u32::try_from(now_us.saturating_sub(self.sent_us)).ok();
        // Nor can it be told which of several requests a reply answers.
        let rtt_us = took_us.filter(|_| !self.is_kept && self.sends == 1);
        let is_for_nothing = self.is_kept_for_nothing(&reply.answer, now_us);
        let progress = match reply.answer {
            Answer::Wait { wait_ms, depth } if self.is_transfer() && depth < DEPTH_MAX => {
                self.keep(wait_ms, now_us);
                Progress::Timer(self.until_us)
            }
            // One who was asked for sums gives no page without.
            Answer::Data { .. } if has_sums != limits.has_sums => {
                self.verdict = Some(Verdict::Said(Answer::Refused(Refusal::Invalid)));
                Progress::Ended
            }
            answer => {
                let is_same_size = reply.size_bytes == limits.size_bytes;
                self.end(fragments, answer, is_same_size, now_us)
            }
        };
        // A node that waits for others says nothing of the time that it takes itself.
        let heard = match is_for_nothing {
            true => Heard::Kept,
            false => Heard::Answer {
                rtt_us: rtt_us.filter(|_| !self.is_kept),
            },
        };
        Some((progress, heard))
    }

    /// Returns whether the peer has kept the request for long, and now has nothing for it.
    fn is_kept_for_nothing(&self, answer: &Answer, now_us: u64) -> bool {
        let has_nothing = !matches!(answer, Answer::Wait { .. } | Answer::Data { .. });
        self.is_kept && has_nothing && now_us.saturating_sub(self.sent_us) >= KEPT_US_MIN
    }

    /// The peer waits for the pages itself.
    fn keep(&mut self, wait_ms: u16, now_us: u64) {
        self.is_kept = true;
        self.until_us = now_us.saturating_add(u64::from(wait_ms).saturating_mul(1000));
        let timeout_us = u64::from(self.timing.timeout_us);
        self.cap_us = self
            .until_us
            .saturating_add(timeout_us.saturating_mul(SLOW_FACTOR));
    }

    /// Takes the last answer.
    fn end(
        &mut self,
        fragments: &Reassembly,
        answer: Answer,
        is_same_size: bool,
        now_us: u64,
    ) -> Progress {
        let asked = self.asking.pages;
        let is_valid = match answer {
            Answer::Data { pages } => self.is_transfer() && pages.is_subset(asked),
            Answer::Redirect { pages, fetch, .. } => {
                !self.is_transfer() && pages.union(fetch).is_subset(asked)
            }
            Answer::Fetch { pages } => !self.is_transfer() && pages.is_subset(asked),
            Answer::OtherOwner(_) => self.asking.role == Role::Owner,
            Answer::Wait { .. } => self.is_transfer(),
            Answer::Busy { .. } | Answer::Miss | Answer::Refused(_) => true,
        };
        self.verdict = Some(match answer {
            _ if !is_valid => Verdict::Said(Answer::Refused(Refusal::Invalid)),
            // Another size is another content.
            Answer::Data { .. } if !is_same_size => Verdict::Said(Answer::Miss),
            Answer::Data { pages } => Verdict::Sent(pages),
            answer => Verdict::Said(answer),
        });
        let Some(Verdict::Sent(_)) = self.verdict else {
            return Progress::Ended;
        };
        if self.has_all(fragments) {
            return Progress::Ended;
        }
        // The reply was sent behind the fragments: what is missing is late, or lost.
        self.until_us = now_us.saturating_add(self.timing.grace_us.into());
        self.cap_us = now_us.saturating_add(self.timing.timeout_us.into());
        Progress::Timer(self.until_us)
    }

    /// The timer has expired.
    pub(super) fn timer(&mut self, now_us: u64) -> Progress {
        if now_us < self.until_us {
            if !self.may_repeat() || now_us < self.again_us {
                return Progress::Timer(self.due_us());
            }
            self.sends = self.sends.saturating_add(1);
            self.again_us = now_us.saturating_add(self.timing.again_us.into());
            return Progress::Again(self.due_us());
        }
        if self.verdict.is_none() {
            self.verdict = Some(Verdict::Silent);
        }
        Progress::Ended
    }

    /// Ends the attempt, as the time of the read is over or its reader has left.
    pub(super) fn cut(&mut self) {
        if self.verdict.is_none() {
            self.verdict = Some(Verdict::Silent);
        }
    }

    /// Takes note that the device writes to no page any more. Returns the pages that the moves make
    /// complete.
    pub(super) fn stopped(&self, fragments: &mut Reassembly) -> PageSet {
        fragments.stopped();
        fragments.settle(self.sent()).unwrap_or(PageSet::EMPTY)
    }
}
