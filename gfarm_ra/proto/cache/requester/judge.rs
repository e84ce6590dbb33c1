// SPDX-License-Identifier: GPL-2.0

//! Decides what follows from the end of a request: which node is asked next, and for which pages.

use super::{
    super::{
        address::NodeId,
        excluded::Reason,
        pages::PageSet,
        reply::Answer,
        request::Role, //
    },
    attempt::Verdict,
    event::{
        Asking,
        Effect,
        Whom, //
    },
    Requester,
    State, //
};

impl Requester {
    /// Decides what follows the attempt that has ended.
    pub(super) fn judge(&mut self, now_us: u64) -> Effect {
        let Some(attempt) = self.attempt.take() else {
            return self.over();
        };
        let (asking, node) = (*attempt.asking(), attempt.node());
        match attempt.verdict() {
            _ if self.is_cancelled => self.over(),
            Verdict::Sent(sent) => self.judge_data(&asking, node, sent, now_us),
            Verdict::Silent if attempt.has_fragments() => {
                self.failed();
                self.repeat(&asking, asking.pages, now_us)
            }
            Verdict::Silent => self.judge_silence(node, attempt.is_kept(), now_us),
            Verdict::Said(answer) if attempt.is_transfer() => {
                self.judge_holder(node, answer, now_us)
            }
            Verdict::Said(answer) => self.judge_owner(&asking, node, answer, now_us),
        }
    }

    /// A request has brought nothing.
    fn failed(&mut self) {
        self.fruitless = self.fruitless.saturating_add(1);
    }

    /// A holder has sent pages, of which some may be lost.
    fn judge_data(&mut self, asking: &Asking, node: NodeId, sent: PageSet, now_us: u64) -> Effect {
        if !asking.pages.is_subset(sent) {
            self.excluded.add(node, Reason::NotHere);
        }
        // What is damaged is read from the file server.
        let lost = sent.difference(self.got).difference(self.fetch);
        if lost.is_empty() {
            self.fruitless = 0;
            return self.ask_owner(now_us);
        }
        if lost == sent {
            self.failed();
        } else {
            self.fruitless = 0;
        }
        self.repeat(asking, lost, now_us)
    }

    fn judge_silence(&mut self, node: NodeId, is_kept: bool, now_us: u64) -> Effect {
        self.failed();
        // One datagram may be lost, and a holder may be the owner, whom no other one replaces. One
        // that has kept the request has been silent more than once.
        if is_kept || self.silent == Some(node) {
            self.excluded.add(node, Reason::NoAnswer);
        } else {
            self.silent = Some(node);
        }
        self.ask_owner(now_us)
    }

    /// A holder has no pages to send.
    fn judge_holder(&mut self, node: NodeId, answer: Answer, now_us: u64) -> Effect {
        if matches!(answer, Answer::Wait { .. }) {
            // Nodes wait for each other, in a circle.
            return self.over();
        }
        self.failed();
        let reason = match answer {
            Answer::Busy { .. } => Reason::Busy,
            Answer::Miss => Reason::NotHere,
            _ => Reason::NoAnswer,
        };
        self.excluded.add(node, reason);
        self.ask_owner(now_us)
    }

    /// An owner, possibly this node, has told who has the pages.
    pub(super) fn judge_owner(
        &mut self,
        asking: &Asking,
        node: NodeId,
        answer: Answer,
        now_us: u64,
    ) -> Effect {
        match answer {
            Answer::Redirect {
                holder,
                pages,
                fetch,
            } => {
                self.fetch = self.fetch.union(fetch);
                self.ask_holder(holder, pages, now_us)
            }
            Answer::OtherOwner(holder) if asking.role == Role::Owner => {
                let whom = Whom::Named(holder);
                self.ask(whom, Role::NamedOwner, asking.pages, now_us)
            }
            Answer::Busy { wait_ms } => {
                let pause_us = u64::from(wait_ms).saturating_mul(1000);
                // By then they may have room.
                self.excluded.forget_busy();
                let first = self.asking(Whom::Owner, Role::Owner, self.pending());
                self.pause(first, pause_us, now_us)
            }
            Answer::Refused(_) if node != self.me => {
                self.failed();
                self.excluded.add(node, Reason::NoAnswer);
                self.ask_owner(now_us)
            }
            _ => self.over(),
        }
    }

    /// The node cannot be sent anything.
    pub(super) fn unreachable(&mut self, asking: &Asking, now_us: u64) -> Effect {
        match asking.whom {
            // There is no owner.
            Whom::Owner => self.over(),
            Whom::Named(holder) => {
                self.failed();
                self.excluded.add(holder.node, Reason::NoAnswer);
                self.ask_owner(now_us)
            }
        }
    }

    /// Asks later.
    pub(super) fn pause(&mut self, asking: Asking, pause_us: u64, now_us: u64) -> Effect {
        let until_us = now_us.saturating_add(pause_us);
        if until_us >= self.deadline_us {
            return self.over();
        }
        self.state = State::Pausing(asking, until_us);
        Effect::Timer { at_us: until_us }
    }
}
