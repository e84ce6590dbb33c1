// SPDX-License-Identifier: GPL-2.0

//! Tells what a connection to gfmd has sent of the questions that are asked, and when a question is
//! given back to who has asked it.
//!
//! Questions and answers have the same order and no marks between them: a byte too many, or too
//! few, makes each later answer that to another question. Four rules keep them in step:
//!
//! - A question that was begun is sent to its end before the next one, also by another task: that
//!   which began it may have been killed.
//! - gfmd may refuse a question of which it has a part only. It is not given back before the rest
//!   was sent: who has asked would write the next question over it.
//! - Who receives does not send: gfmd takes no question while its answers are not taken.
//! - Who has to wait for gfmd to take bytes has another thread receive meanwhile.
//!
//! Who cannot send says so: nothing else tells the receiver that the connection is lost while gfmd
//! owes no answer.

/// A question that is being sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Begun<Q, A> {
    question: Q,
    /// The number of bytes that gfmd was sent.
    bytes: usize,
    /// The answer of gfmd to these.
    answer: Option<A>,
}

/// The questions of a connection, which are in a queue until they are answered.
///
/// `Q` refers to one of them, `A` is what an answer has told. One thread at a time sends, and one
/// receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conversation<Q, A> {
    /// The number of questions at the front of the queue that were sent, or begun.
    sent: usize,
    /// The last one that was begun, until all of it was sent.
    begun: Option<Begun<Q, A>>,
    /// The connection cannot be sent on.
    is_broken: bool,
}

/// The question to send next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Next<Q> {
    /// The question.
    pub question: Q,
    /// The number of its bytes that were sent before.
    pub bytes: usize,
    /// gfmd owes no answer, so it has to be silent.
    pub is_first: bool,
}

/// The action of the receiver for questions that wait, on a connection that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Receiver {
    /// The receiver receives an answer, or finds the connection lost.
    Receive,
    /// The receiver lets another thread send, which queues the receiver again, and ends.
    HaveSent,
    /// The receiver ends.
    Rest,
}

impl<Q, A> Default for Conversation<Q, A> {
    fn default() -> Self {
        Self::NEW
    }
}

impl<Q, A> Conversation<Q, A> {
    /// A connection that was asked nothing.
    pub const NEW: Self = Self {
        sent: 0,
        begun: None,
        is_broken: false,
    };

    /// Returns whether gfmd owes an answer, or the connection its end.
    pub const fn is_owed(&self) -> bool {
        self.sent != 0 || self.is_broken
    }

    /// Returns whether something is to be sent, of a queue of this length, and can be.
    pub const fn is_behind(&self, queued: usize) -> bool {
        !self.is_broken && (self.begun.is_some() || self.sent < queued)
    }

    /// Returns what the receiver does, while the queue has this length.
    pub const fn receiver(&self, queued: usize) -> Receiver {
        if self.is_owed() {
            Receiver::Receive
        } else if self.is_behind(queued) {
            Receiver::HaveSent
        } else {
            Receiver::Rest
        }
    }

    /// Takes note that the last question was sent to its end. Returns it if it was answered before:
    /// it is given back now.
    pub fn sent(&mut self) -> Option<(Q, A)> {
        let begun = self.begun.take()?;
        Some((begun.question, begun.answer?))
    }

    /// Takes note that the thread that sends the last question gives up when gfmd has so many bytes
    /// of it: another one goes on. A question of which gfmd has nothing was not begun, so gfmd is
    /// to be silent before it is.
    pub fn left(&mut self, bytes: usize) {
        match &mut self.begun {
            Some(begun) if bytes == 0 && begun.answer.is_none() => {
                self.begun = None;
                self.sent = self.sent.saturating_sub(1);
            }
            Some(begun) => begun.bytes = bytes,
            None => {}
        }
    }

    /// Takes note that nothing can be sent any more.
    pub fn broken(&mut self) {
        self.is_broken = true;
    }

    /// Takes note that the answer to the first question of the queue is there, which leaves the
    /// queue. Returns the answer if the question is given back now; if not, [`Self::sent`] or
    /// [`Self::lost`] gives it back.
    pub fn answered(&mut self, answer: A) -> Option<A> {
        let is_last = self.sent <= 1;
        self.sent = self.sent.saturating_sub(1);
        match &mut self.begun {
            Some(begun) if is_last && begun.answer.is_none() => {
                begun.answer = Some(answer);
                None
            }
            _ => Some(answer),
        }
    }

    /// Takes note that the first question of the queue leaves it without an answer, as the
    /// connection is to be lost. Returns whether it was sent or begun.
    pub fn dropped(&mut self) -> bool {
        let was_begun = self.sent != 0;
        self.sent = self.sent.saturating_sub(1);
        was_begun
    }

    /// The connection is lost. Returns how many questions another one is asked again, and the one
    /// that was answered although gfmd has a part of it only: it is given back. No thread sends.
    pub fn lost(&mut self) -> (usize, Option<(Q, A)>) {
        let again = core::mem::replace(&mut self.sent, 0);
        self.is_broken = false;
        (again, self.sent())
    }
}

impl<Q: Clone, A> Conversation<Q, A> {
    /// Begins to send, or goes on with what was begun; [`Self::sent`] or [`Self::left`] ends it.
    /// `at` returns the question at a place of the queue.
    pub fn next(&mut self, at: impl FnOnce(usize) -> Option<Q>) -> Option<Next<Q>> {
        if self.is_broken {
            return None;
        }
        if let Some(begun) = &self.begun {
            return Some(Next {
                question: begun.question.clone(),
                bytes: begun.bytes,
                is_first: false,
            });
        }
        let question = at(self.sent)?;
        self.begun = Some(Begun {
            question: question.clone(),
            bytes: 0,
            answer: None,
        });
        let is_first = self.sent == 0;
        self.sent = self.sent.saturating_add(1);
        Some(Next {
            question,
            bytes: 0,
            is_first,
        })
    }
}
