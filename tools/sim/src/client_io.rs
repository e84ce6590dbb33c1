// SPDX-License-Identifier: GPL-2.0

//! The ends of the client's requests: answers, and the loss of their path.
//!
//! Stands for `rtrs/client/{io/completion,session/failover}.rs` and `rnbd/client/retry.rs`. The
//! decisions are those of `proto::failover`, and of `rnbd`'s `retry` and `cache`.

use proto::common::errno::Errno;
use proto::rnbd::retry::{
    may_wait,
    pause_ms,
    AGAIN_MS, //
};
use proto::rtrs::{
    failover::{
        Resent,
        RESENDS_MAX, //
    },
    imm::Response,
    outage::FastIoFail, //
};

use crate::{
    app::Answer, check::Kind, client::Slot, event::MS, message::Deed, network::ConnId,
    settings::Mutation, trace::note, world::World,
};

impl World {
    /// Handles a response on a connection of a path: what it brings, and which request it is for.
    pub(crate) fn response(&mut self, at: (usize, ConnId), r: Response, content: u64, truth: u64) {
        let chunk = self.geometry.chunk_id(r.msg_id);
        let found = chunk.and_then(|c| self.clients[self.at].user_of(c));
        let (Some(chunk), Some((tag, slot))) = (chunk, found) else {
            let what = format!("answer to r{truth} in a free chunk, p{}", at.0);
            self.check.fail(Kind::WrongReply, what);
            return;
        };
        let request = slot.body.request;
        if slot.on != Some(at) || request != truth {
            let what = format!("answer to r{truth} taken for r{request}, p{}", at.0);
            self.check.fail(Kind::WrongReply, what);
            return;
        }
        let path = at.0;
        note!(self, Client, "r{request} chunk {chunk} answered on p{path}");
        if slot.resent.was_lost() {
            self.clients[self.at].quarantine.answered(chunk);
            self.settle();
        }
        let errno = Errno::new(r.errno.into());
        if slot.body.deed.is_admin() {
            self.clients[self.at].slots[usize::from(tag)] = None;
            let answer = errno.map_or(Ok(content), Err);
            return self.task_answer(slot.task, answer);
        }
        match (errno, slot.body.deed.device(self.settings.volatile.len())) {
            (None, Some(device)) => {
                self.acknowledged(device, slot.note);
                self.end_io(tag, Answer::Done(content));
            }
            (Some(Errno::ENOTCONN), Some(device)) => {
                self.not_open_there(device, slot.body.number);
                self.end_io(tag, Answer::Refused);
            }
            (errno, _) => {
                let what = format!("r{request} answered with {errno:?}");
                self.check.fail(Kind::Refused, what);
            }
        }
    }

    /// Ends a request of the application.
    pub(crate) fn end_io(&mut self, tag: u16, answer: Answer) {
        let Some(slot) = self.clients[self.at].slots[usize::from(tag)].take() else {
            return;
        };
        let answer = match answer {
            Answer::Unknown if slot.ticket.is_none() => Answer::Never,
            // A flush that fails because of a lost cache was not sent.
            Answer::Refused if slot.on.is_none() && slot.ticket.is_some() => Answer::Unknown,
            answer => answer,
        };
        self.io_done(slot.body, answer);
        if answer == Answer::Unknown {
            self.clients[self.at].failed[usize::from(slot.chunk)] = Some(slot.body);
            self.settle();
        }
    }

    /// Handles that a path's queue pairs are drained, and the server too if it is to be asked:
    /// `Session::requests_down` of the driver, or the end of a set-up. Requests in flight are sent
    /// again, if the path `has_others`, or given back.
    pub(crate) fn fail_over(&mut self, path: usize, has_others: bool) {
        let tags: Vec<u16> = self.clients[self.at].in_flight(path).collect();
        for tag in tags {
            if self.settings.broken(Mutation::NoFailOver) {
                continue;
            }
            if let Some(slot) = self.clients[self.at].slots[usize::from(tag)].take() {
                self.lost_on(path, has_others, tag, slot);
            }
        }
    }

    /// Handles a request that was lost on a path.
    fn lost_on(&mut self, path: usize, has_others: bool, mut tag: u16, mut slot: Slot) {
        self.trace.reached("a request fails over");
        let request = slot.body.request;
        note!(self, Client, "r{request} fails over from p{path}");
        let mut chunk = slot.chunk;
        slot.ticket = Some(self.lost(chunk, path));
        slot.on = None;
        if self.settings.broken(Mutation::ReuseChunkEarly) && !slot.body.deed.is_admin() {
            if let Some(other) = self.clients[self.at].free(self.partition().io_ids()) {
                (tag, chunk) = (other, other);
            }
        }
        let is_possible = has_others && self.is_valid(&slot);
        let resent = match self.settings.broken(Mutation::NoResendLimit) {
            true => Resent::NEVER.again(is_possible),
            false => slot.resent.again(is_possible),
        };
        if let Some(resent) = resent {
            slot.resent = resent;
            slot.resendings += 1;
            self.check.require(
                slot.resendings <= RESENDS_MAX.into(),
                Kind::TooOften,
                || format!("r{request} is sent again the {}th time", slot.resendings),
            );
        } else if has_others {
            self.trace.reached("a request is not sent again any more");
        }
        self.clients[self.at].slots[usize::from(tag)] = Some(slot.clone());
        if resent.is_some() && self.send_on_any_path(tag, &slot, chunk) {
            return;
        }
        self.clients[self.at].quarantine.given_back(chunk);
        if slot.body.deed.is_admin() {
            self.clients[self.at].slots[usize::from(tag)] = None;
            self.task_answer(slot.task, Err(Errno::ECONNABORTED));
        } else {
            self.requeue(tag);
        }
    }

    /// Says whether a request's message is still valid for the server: `Transfer::is_valid`.
    fn is_valid(&mut self, slot: &Slot) -> bool {
        let Some(device) = slot.body.deed.device(self.settings.volatile.len()) else {
            return true;
        };
        let io_state = self.clients[self.at].devices[device].io_state;
        let is_valid = io_state.is_number(slot.body.number);
        if !is_valid {
            self.trace
                .reached("a request is made anew for another number");
        }
        is_valid
    }

    /// Handles a request that was sent and will not be answered: `Device::requeue` of the driver.
    fn requeue(&mut self, tag: u16) {
        let (limit_ms, now_ms) = (self.fast_io_fail_ms(), self.now_ms());
        let client = &mut self.clients[self.at];
        if let Some(slot) = &mut client.slots[usize::from(tag)] {
            slot.lost = slot.lost.saturating_add(1);
            let pause_ms = pause_ms(slot.lost);
            if pause_ms != AGAIN_MS {
                let until_ms = now_ms + u64::from(pause_ms);
                let paused = |t| client.quarantine.pause(t, until_ms);
                slot.ticket = slot.ticket.map(paused);
                self.trace.reached("a request is paused");
            }
        }
        if self.waits_on(tag, limit_ms) {
            self.keep(tag);
        } else {
            self.end_io(tag, Answer::Unknown);
        }
    }

    /// Says whether a request may wait on that has been lost or refused for some time.
    pub(crate) fn waits_on(&mut self, tag: u16, limit_ms: Option<u64>) -> bool {
        let (now_us, may_recover) = (self.now_us, self.may_recover(tag));
        let Some(slot) = &mut self.clients[self.at].slots[usize::from(tag)] else {
            return false;
        };
        let waited_ms = (now_us - *slot.since_us.get_or_insert(now_us)) / MS;
        may_wait(may_recover, waited_ms, limit_ms)
    }

    pub(crate) fn fast_io_fail_ms(&self) -> Option<u64> {
        match self.settings.fast_io_fail {
            FastIoFail::Off => None,
            FastIoFail::After(s) => Some(u64::from(s) * 1000),
        }
    }

    /// Sends the requests that the block layer keeps, as far as possible.
    pub(crate) fn flush(&mut self) {
        for tag in std::mem::take(&mut self.clients[self.at].waiting) {
            if self.is_quiesced(tag) {
                self.clients[self.at].waiting.push_back(tag);
            } else {
                let tag = self.another_tag(tag);
                self.submit(tag);
            }
        }
    }

    /// The device of a tag's request.
    pub(crate) fn device_of(&self, tag: u16) -> Option<usize> {
        let slot = self.clients[self.at].slots[usize::from(tag)].as_ref()?;
        let deed: Deed = slot.body.deed;
        deed.device(self.settings.volatile.len())
    }
}
