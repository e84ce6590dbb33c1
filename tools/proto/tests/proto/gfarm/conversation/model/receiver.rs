// SPDX-License-Identifier: GPL-2.0

//! Steps of the receiver, task or worker: takes answers, and makes and loses connections.

use super::{
    Rules,
    Server,
    Task,
    World, //
};

impl World {
    /// Makes all that waits fail, when no one sends.
    pub(super) fn given_up(&self) -> Option<Self> {
        let mut next = match self.is_ready {
            true => self.lost()?,
            false => self.clone(),
        };
        next.interrupts_seen = self.interrupts;
        for call in core::mem::take(&mut next.queue) {
            next.give_back(call);
        }
        Some(next)
    }

    /// Takes an answer, or loses the connection.
    pub(super) fn received(&self, rules: Rules) -> Option<Self> {
        if !self.is_alive {
            return self.lost();
        }
        let told = self.server.tells?;
        self.with(|next| {
            next.server.tells = None;
            let more = core::mem::take(&mut next.server.tells_more);
            let first = next.queue.remove(0);
            if told != (first, self.written[usize::from(first)]) {
                next.out_of_step = Some("the answer to another question");
            }
            let given = next.conversation.answered(());
            if given.is_some() || !rules.given_back_when_whole {
                next.give_back(first);
            }
            // What is behind an answer may be the next one, if one is owed.
            next.has_stray = more && !next.conversation.is_owed();
            if more && !next.has_stray {
                next.is_alive = false;
            }
        })
    }

    /// Sees bytes that belong to no answer.
    pub(super) fn stray_seen(&self, rules: Rules) -> Option<Self> {
        if self.is_alive {
            // Who sends gives up its turn.
            return self.with(|next| next.is_alive = false);
        }
        let mut next = self.clone();
        if !rules.strays_fail_no_question && next.conversation.dropped() {
            next.queue.remove(0);
            next.out_of_step = Some("the error of another question");
        }
        let mut next = next.lost()?;
        next.has_stray = false;
        Some(next)
    }

    /// The connection is lost, when nobody sends. What nobody waits for is dropped.
    pub(super) fn lost(&self) -> Option<Self> {
        if self.turn.is_some() {
            return None;
        }
        self.with(|next| {
            next.is_ready = false;
            let (_, given) = next.conversation.lost();
            if let Some((call, ())) = given {
                next.give_back(call);
            }
            let task = |call: &u8| self.tasks.get(usize::from(*call));
            let is_moot = |call: &u8| task(call).is_none_or(|task| *task == Task::Killed);
            next.queue.retain(|call| !is_moot(call));
            let moot = self.queue.iter().filter(|call| is_moot(call));
            moot.for_each(|call| next.give_back(*call));
        })
    }

    pub(super) fn connected(&mut self) {
        if self.is_interrupted.contains(&true) {
            self.out_of_step = Some("a question is asked again that was made to fail");
        }
        (self.is_ready, self.is_alive) = (true, true);
        self.part = None;
        self.server = Server::NEW;
    }
}
