// SPDX-License-Identifier: GPL-2.0

//! The pages of one read, from other nodes: which node to ask, how long to wait, when to go to the
//! file server instead.
//!
//! ```text
//!   the owner of the chunk  -- Redirect -->  a holder  -- Data -->  pages
//!         |       ^                             |
//!       Fetch     '--- Miss, Busy, silence -----'
//!         v
//!   the file server
//! ```
//!
//! The driver gives each [`Event`] to [`Requester::step`], one at a time, and carries out the
//! [`Effect`]. A read ends exactly once, with [`Effect::Over`]: 2 s after its start or after a
//! holder has told that it waits itself, and [`READ_US`] after its start, at the latest, or, if the
//! device may write to its pages then, when it has stopped. What is missing is read from the file
//! server; a fault of a peer costs time, and is no error.
//!
//! A page is taken only if the reply of the peer that was asked says that it was sent, for this
//! very attempt, with the size that this node knows; and if all of its fragments have arrived. If
//! the node compares [sums](super::sums), then only if it has the one that the reply tells. One
//! that has another is read from the file server.

mod attempt;
mod compare;
pub mod event;
mod judge;
mod limits;
pub mod owners;

pub use self::{
    attempt::DEPTH_MAX,
    limits::{
        ASKS_MAX,
        FRUITLESS_MAX,
        QUIET_US_MAX,
        READ_US,
        READ_US_MAX, //
    }, //
};
use self::{
    attempt::{
        Attempt,
        Limits,
        Progress,
        Verdict, //
    },
    event::{
        Asking,
        Effect,
        Event,
        Heard,
        Landed,
        Step,
        Whom, //
    },
    owners::Owners, //
};
use super::{
    address::NodeId,
    excluded::{
        Excluded,
        Reason, //
    },
    fragment::FragmentLen,
    pages::{
        PageSet,
        PAGES, //
    },
    reassembly::{
        Move,
        Reassembly, //
    },
    reply::{
        Answer,
        Holder, //
    },
    request::{
        Ask,
        Role,
        Wanted, //
    }, //
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The read has not started.
    New,
    /// The driver has an [`Effect::Ask`].
    Asking(Asking),
    /// A request is under way.
    Waiting,
    /// The queue pair is being stopped.
    Stopping,
    /// Fragments are being moved, which makes these pages complete.
    Settling(PageSet),
    /// The read asks for this at a later time.
    Pausing(Asking, u64),
    /// The read has ended.
    Over,
}

/// The pages of one read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requester {
    me: NodeId,
    /// The pages that are read, and the size of the file in bytes.
    pages: PageSet,
    size_bytes: u64,
    /// The pages that are complete.
    got: PageSet,
    /// The pages that the file server is asked for.
    fetch: PageSet,
    excluded: Excluded,
    /// The node that was silent last.
    silent: Option<NodeId>,
    /// The number of requests.
    asks: u8,
    /// The number of the last ones that have brought nothing.
    fruitless: u8,
    owners: Owners,
    /// The reader has left.
    is_cancelled: bool,
    /// The time when the file server is asked, and the latest one to which it can be moved.
    deadline_us: u64,
    end_us: u64,
    /// The time from the start to the latter.
    read_us: u64,
    state: State,
    /// The attempt, in the states `Waiting`, `Stopping` and `Settling`.
    attempt: Option<Attempt>,
    /// The fragments of the attempt, if a holder is asked.
    fragments: Reassembly,
    /// Whether pages are compared with their sums, and these, as the holder has told them.
    compares: bool,
    sums: [u32; PAGES],
}

impl Requester {
    /// Makes the requester of the node `me` before its first read, with fragments of this length.
    pub const fn idle(me: NodeId, fragment_len: FragmentLen) -> Self {
        Self {
            me,
            pages: PageSet::EMPTY,
            size_bytes: 0,
            got: PageSet::EMPTY,
            fetch: PageSet::EMPTY,
            excluded: Excluded::NONE,
            silent: None,
            asks: 0,
            fruitless: 0,
            owners: Owners::NONE,
            is_cancelled: false,
            deadline_us: u64::MAX,
            end_us: u64::MAX,
            read_us: READ_US,
            state: State::Over,
            attempt: None,
            fragments: Reassembly::idle(fragment_len),
            compares: false,
            sums: [0; PAGES],
        }
    }

    /// Makes the requester of a read, see [`renew`](Self::renew); `None` if there are too many
    /// fragments.
    pub fn new(me: NodeId, wanted: Wanted, fragment_len: FragmentLen) -> Option<Self> {
        let mut this = Self::idle(me, fragment_len);
        this.renew(&wanted).then_some(this)
    }

    /// Prepares another read; `false` if its pages have too many fragments for one request. The
    /// last one is forgotten in any state. It is large, so it begins anew where it is.
    pub fn renew(&mut self, wanted: &Wanted) -> bool {
        if !self.fragments.restart(0, wanted.pages()) {
            return false;
        }
        (self.pages, self.size_bytes) = (wanted.pages(), wanted.size_bytes());
        (self.got, self.fetch) = (PageSet::EMPTY, PageSet::EMPTY);
        (self.excluded, self.silent) = (Excluded::NONE, None);
        (self.asks, self.fruitless) = (0, 0);
        (self.owners, self.is_cancelled) = (Owners::NONE, false);
        (self.deadline_us, self.end_us) = (u64::MAX, u64::MAX);
        (self.state, self.attempt) = (State::New, None);
        true
    }

    /// Has all reads from now on go to the file server after this time in any case, in
    /// microseconds, at most [`READ_US_MAX`].
    pub fn set_limit(&mut self, read_us: u64) {
        self.read_us = read_us.min(READ_US_MAX);
    }

    /// Has a node not asked that has not answered other reads. Called before [`Event::Start`], for
    /// [`EXCLUDED_MAX`](super::excluded::EXCLUDED_MAX) nodes at most.
    pub fn avoid(&mut self, node: NodeId) {
        self.excluded.add(node, Reason::NoAnswer);
    }

    /// Returns what this node is asked for, after [`Effect::Ask`].
    pub fn ask_of(&self, node: NodeId) -> Ask {
        let attempt = self.attempt.as_ref().map(Attempt::asking);
        let (role, excluded) = match (self.state, attempt) {
            (State::Asking(asking), _) | (State::Waiting, Some(&asking)) => {
                (asking.role, asking.excluded)
            }
            _ => (Role::Owner, self.excluded),
        };
        Ask {
            role,
            is_retry: role != Role::Holder && self.owners.contains(node),
            wants_sums: role == Role::Holder && self.compares,
            excluded,
        }
    }

    /// Returns whether the peer has said that it has sent all that it sends, and some has not come.
    pub fn misses_fragments(&self) -> bool {
        let attempt = self.attempt.as_ref();
        self.state == State::Waiting && attempt.is_some_and(Attempt::is_answered)
    }

    /// Returns the owners that were asked.
    pub const fn owners(&self) -> &Owners {
        &self.owners
    }

    /// Returns the next copy to make, after [`Effect::Settle`]. It takes effect before the next
    /// one.
    pub fn next_move(&mut self) -> Option<Move> {
        match self.state {
            State::Settling(_) => self.fragments.next_move(),
            _ => None,
        }
    }

    /// Takes an event at `now_us`. An event that the state does not expect changes nothing.
    pub fn step(&mut self, event: Event<'_>, now_us: u64) -> Step {
        if let Event::Replied { from, reply, sums } = event {
            let limits = Limits {
                size_bytes: self.size_bytes,
                has_sums: self.compares,
            };
            let (attempt, fragments) = (self.attempt.as_mut(), &self.fragments);
            let told = (reply, !sums.is_empty());
            let heard = attempt.and_then(|a| a.replied(fragments, from, told, &limits, now_us));
            let Some((progress, heard)) = heard else {
                return Step::quiet(Effect::Wait);
            };
            self.take_sums(sums);
            if matches!(
                (reply.answer, progress),
                (Answer::Wait { .. }, Progress::Timer(_))
            ) {
                let quiet_us = now_us.saturating_add(QUIET_US_MAX);
                self.deadline_us = quiet_us.min(self.end_us);
            }
            return Step {
                effect: self.go_on(progress, now_us),
                note: Some((from, heard)),
            };
        }
        if event == Event::TimerFired && self.state == State::Waiting {
            return self.timer(now_us);
        }
        Step::quiet(self.effect(event, now_us))
    }

    fn effect(&mut self, event: Event<'_>, now_us: u64) -> Effect {
        match (event, self.state) {
            (Event::Cancel, _) => self.cancel(),
            (Event::Start, State::New) => {
                self.deadline_us = now_us.saturating_add(QUIET_US_MAX);
                self.end_us = now_us.saturating_add(self.read_us);
                self.ask_owner(now_us)
            }
            (Event::Sending { node, id, timing }, State::Asking(asking)) => {
                self.note_owner(asking.role, node);
                if asking.role == Role::Holder && !self.fragments.restart(id.tag, asking.pages) {
                    return self.over();
                }
                let attempt = Attempt::new(&asking, node, id, timing, now_us);
                let at_us = attempt.due_us().min(self.deadline_us);
                self.attempt = Some(attempt);
                self.state = State::Waiting;
                Effect::Timer { at_us }
            }
            (Event::Answered(answer), State::Asking(asking)) => {
                self.note_owner(asking.role, self.me);
                self.judge_owner(&asking, self.me, answer, now_us)
            }
            (Event::Unsent { retry_us }, State::Asking(asking)) => match retry_us {
                Some(retry_us) => self.pause(asking, retry_us.into(), now_us),
                None => self.unreachable(&asking, now_us),
            },
            (Event::TimerFired, State::Pausing(asking, until_us)) => {
                if now_us < until_us {
                    return Effect::Timer { at_us: until_us };
                }
                self.repeat(&asking, asking.pages, now_us)
            }
            (Event::Arrived(landed), _) => match self.arrived(landed, now_us) {
                true => Effect::Stop,
                false => Effect::Wait,
            },
            (Event::Stopped, State::Stopping) => self.stopped(now_us),
            (Event::Settled { damaged }, State::Settling(complete)) => {
                // Without its moves a page has other bytes.
                if self.next_move().is_none() {
                    self.got = self.got.union(complete.difference(damaged));
                    self.distrust(complete.intersection(damaged));
                }
                self.judge(now_us)
            }
            _ => Effect::Wait,
        }
    }

    /// Takes a datagram that has come to the queue pair for data, as [`step`](Self::step) does with
    /// [`Event::Arrived`]. Returns whether [`Effect::Stop`] follows: nothing else does. There is
    /// one for each fragment, and an effect is a large value.
    pub fn arrived(&mut self, landed: Landed, now_us: u64) -> bool {
        if !matches!(self.state, State::Waiting | State::Stopping) {
            return false;
        }
        let (attempt, fragments) = (self.attempt.as_mut(), &mut self.fragments);
        let has_ended = attempt.is_some_and(|a| a.arrived(fragments, landed, now_us));
        let is_last = has_ended && self.state == State::Waiting;
        if is_last {
            self.state = State::Stopping;
        }
        is_last
    }

    /// The timer has expired while a request is under way.
    fn timer(&mut self, now_us: u64) -> Step {
        let Some(attempt) = self.attempt.as_mut() else {
            return Step::quiet(Effect::Wait);
        };
        let node = attempt.node();
        let is_due = now_us >= attempt.until_us();
        let progress = if now_us < self.deadline_us {
            attempt.timer(now_us)
        } else {
            attempt.cut();
            Progress::Ended
        };
        // A peer from which fragments come is not silent: its reply is lost.
        let has_nothing = progress == Progress::Ended
            && attempt.verdict() == Verdict::Silent
            && !attempt.has_fragments();
        let is_kept = attempt.is_kept() && now_us >= self.end_us;
        let heard = match (is_kept, is_due) {
            (true, _) => Some(Heard::Kept),
            (false, true) => Some(Heard::Silence),
            (false, false) => None,
        };
        Step {
            effect: self.go_on(progress, now_us),
            note: heard.filter(|_| has_nothing).map(|heard| (node, heard)),
        }
    }

    /// Carries on with the attempt that is under way.
    fn go_on(&mut self, progress: Progress, now_us: u64) -> Effect {
        if self.state != State::Waiting {
            return Effect::Wait;
        }
        match progress {
            Progress::Timer(at_us) => Effect::Timer {
                at_us: at_us.min(self.deadline_us),
            },
            Progress::Again(at_us) => Effect::Again {
                at_us: at_us.min(self.deadline_us),
            },
            Progress::Ended => {
                if self.attempt.as_ref().is_some_and(Attempt::is_transfer) {
                    self.state = State::Stopping;
                    return Effect::Stop;
                }
                self.judge(now_us)
            }
        }
    }

    /// The device writes to no page any more.
    fn stopped(&mut self, now_us: u64) -> Effect {
        let (attempt, fragments) = (self.attempt.as_ref(), &mut self.fragments);
        let complete = attempt.map_or(PageSet::EMPTY, |a| a.stopped(fragments));
        if complete.is_empty() {
            return self.judge(now_us);
        }
        self.state = State::Settling(complete);
        Effect::Settle { complete }
    }

    /// The reader has left.
    fn cancel(&mut self) -> Effect {
        self.is_cancelled = true;
        match self.state {
            State::Waiting if self.attempt.as_ref().is_some_and(Attempt::is_transfer) => {
                self.state = State::Stopping;
                Effect::Stop
            }
            State::Stopping | State::Settling(_) | State::Over => Effect::Wait,
            _ => self.over(),
        }
    }

    fn over(&mut self) -> Effect {
        self.attempt = None;
        self.state = State::Over;
        Effect::Over { got: self.got }
    }

    /// Returns the pages that are neither complete nor read from the file server.
    fn pending(&self) -> PageSet {
        let pages = self.pages;
        pages.difference(self.got).difference(self.fetch)
    }

    const fn asking(&self, whom: Whom, role: Role, pages: PageSet) -> Asking {
        let excluded = self.excluded;
        Asking {
            whom,
            role,
            pages,
            excluded,
        }
    }

    fn ask_owner(&mut self, now_us: u64) -> Effect {
        self.ask(Whom::Owner, Role::Owner, self.pending(), now_us)
    }

    /// Asks the same node in the same role.
    fn repeat(&mut self, asking: &Asking, pages: PageSet, now_us: u64) -> Effect {
        self.ask(asking.whom, asking.role, pages, now_us)
    }

    fn note_owner(&mut self, role: Role, node: NodeId) {
        if role != Role::Holder {
            self.owners.add(node);
        }
    }

    fn ask_holder(&mut self, holder: Holder, pages: PageSet, now_us: u64) -> Effect {
        let reason = self.excluded.reason(holder.node);
        let is_known = matches!(reason, Some(Reason::NotHere | Reason::NoAnswer));
        if holder.node == self.me || is_known {
            // The owner knows no better.
            return self.over();
        }
        let pages = pages.intersection(self.pending());
        self.ask(Whom::Named(holder), Role::Holder, pages, now_us)
    }

    /// Sends a request for pages, unless the file server is asked by now.
    fn ask(&mut self, whom: Whom, role: Role, pages: PageSet, now_us: u64) -> Effect {
        let is_over = pages.is_empty()
            || self.fruitless >= FRUITLESS_MAX
            || self.asks >= ASKS_MAX
            || now_us >= self.deadline_us;
        if is_over {
            return self.over();
        }
        self.asks = self.asks.saturating_add(1);
        let asking = self.asking(whom, role, pages);
        self.state = State::Asking(asking);
        Effect::Ask(asking)
    }
}

impl Step {
    /// Makes a step from which nothing is learned of a peer.
    const fn quiet(effect: Effect) -> Self {
        Self { effect, note: None }
    }
}
