// SPDX-License-Identifier: GPL-2.0

//! Devices that do not answer their OPEN: what their clients are told, and what becomes of them.
//!
//! An OPEN whose client waits no longer ([`answer_time`](crate::proto::answer_time)) is answered
//! with `ETIMEDOUT`, so that the client can use its chunk. The thread of the queue goes on opening
//! the device. If that succeeds the device is open although no client was told so: see
//! [`told`](crate::proto::told). No thread waits meanwhile. If it fails, the error is the answer to
//! the message with which its client has asked again.

use kernel::{
    prelude::*,
    str::BStr,
    sync::Arc, //
};
use rtrs_server::Operation;

use super::{
    copy,
    About,
    Copied,
    Entry,
    MessageQueue,
    MessageQueues,
    Waiting, //
};
use crate::{
    proto::message_queue::Step,
    server::{
        log_limit::LOG_LIMIT,
        session::{
            admin::Answer,
            Session, //
        }, //
    }, //
};

/// The result of a look for messages whose clients wait no longer.
enum Look {
    /// No message is answered before its device answers.
    Nothing,
    /// Some messages are, and none of them is due.
    Later,
    /// One is due. With a name: the device's, which is to be logged.
    Due(Operation, Option<KVec<u8>>),
}

impl Waiting {
    /// Returns whether its client waits no longer; `None` if it waits for the device.
    fn is_due(&self) -> Option<bool> {
        let answer_time = self
            .message
            .answer_time
            .filter(|_| self.operation.is_some())?;
        let waited_ms = self.message.arrived.elapsed().as_millis();
        Some(answer_time.is_over(u64::try_from(waited_ms).unwrap_or(0)))
    }
}

impl Entry {
    /// Takes an operation that is due. Of the message only what is being carried out stays.
    fn look(&mut self) -> Look {
        let is_due = |waiting: &Waiting| waiting.is_due() == Some(true);
        let Some(index) = self.messages.iter().position(is_due) else {
            let is_any = self.messages.iter().any(|one| one.is_due().is_some());
            return if is_any { Look::Later } else { Look::Nothing };
        };
        let due = self.messages.get_mut(index);
        let operation = due.and_then(|waiting| waiting.operation.take());
        if index > 0 {
            let _ = self.messages.remove(index);
        }
        let unlogged = self.busy.as_mut().filter(|busy| !busy.is_logged);
        let name = unlogged.and_then(|busy| {
            busy.is_logged = true;
            copy(&busy.name)
        });
        match operation {
            Some(operation) => Look::Due(operation, name),
            // There is one.
            None => Look::Later,
        }
    }
}

impl MessageQueue {
    /// Answers the message that was carried out, and not with the lock of the queues. The error of
    /// an OPEN answers those that have asked for the same meanwhile, too: a device that fails
    /// slowly would be opened anew for each, and be silent for each.
    pub(super) fn answer(self: &Arc<Self>, message: &Copied, answer: Result<Answer>) {
        let (session, queues) = (&self.session, self.session.message_queues());
        let failed = answer.as_ref().err().copied();
        match queues.take_first(self) {
            Some(operation) => session.reply(operation, answer),
            None => session.keep_untold(&answer),
        }
        while let Some(error) = failed.filter(|_| queues.is_asked_again(self, message)) {
            if let Some(operation) = queues.take_first(self) {
                session.reply(operation, Err(error));
            }
        }
    }
}

impl MessageQueues {
    /// Writes an answer into the chunk of its message; `None` if the path is being closed. Under
    /// the lock of [`Self::discard`]: after that the client may use the chunk for another message.
    fn write(&self, operation: &mut Operation, answer: &Result<Answer>) -> Option<Result> {
        let _list = self.list.lock();
        if operation.is_discarded() {
            return None;
        }
        Some(match answer {
            Ok(answer) => answer.write_to(operation),
            Err(error) => Err(*error),
        })
    }

    /// Returns whether the first message of `queue` is an OPEN as `message`.
    fn is_asked_again(&self, queue: &Arc<MessageQueue>, message: &Copied) -> bool {
        let mut list = self.list.lock();
        let first = list
            .entry_of(queue)
            .and_then(|entry| entry.messages.first());
        first.is_some_and(|first| {
            let first = &first.message;
            message.step == Step::Open
                && (first.step, &*first.user) == (Step::Open, &*message.user)
                && first.data_len == message.data_len
        })
    }

    fn look(&self) -> Look {
        let mut list = self.list.lock();
        let mut all = Look::Nothing;
        for entry in list.entries.iter_mut() {
            match entry.look() {
                Look::Nothing => {}
                Look::Later => all = Look::Later,
                due @ Look::Due(..) => return due,
            }
        }
        all
    }

    /// Has the session look for what is open for no one, unless it has ended.
    fn look_later(&self, session: &Arc<Session>) {
        let list = self.list.lock();
        if !list.is_closed {
            session.look_later();
        }
    }
}

/// Queues the CLOSE of device `device_id`, with this name, which is carried out if no client knows
/// of the device then. Without a queue for that it is tried again at the next look.
pub(in crate::server) fn close_untold(session: &Arc<Session>, device_id: u32, name: KVec<u8>) {
    let about = About {
        name,
        step: Step::CloseUntold(device_id),
        answer_time: None,
        may_refuse: false,
    };
    if let Ok(queue) = session.message_queues().push(session, about, &mut None) {
        drop(session.server().devices().enqueue::<_, 0>(queue));
    }
}

impl Session {
    /// Answers a message, or, as its path is being closed, keeps what it has opened for a while.
    pub(super) fn reply(self: &Arc<Self>, mut operation: Operation, answer: Result<Answer>) {
        match self.message_queues().write(&mut operation, &answer) {
            Some(result) => operation.reply(result),
            None => self.keep_untold(&answer),
        }
    }

    /// Keeps a device for a while that an OPEN has opened, or found, without a client that waits
    /// for the answer.
    pub(super) fn keep_untold(self: &Arc<Self>, answer: &Result<Answer>) {
        if let Ok(Answer::Opened {
            device,
            is_untold: true,
        }) = answer
        {
            self.note_untold(device.device_id.get());
            self.message_queues().look_later(self);
        }
    }

    /// Answers the messages whose clients wait no longer; returns whether others may wait so long.
    pub(in crate::server) fn answer_due(&self) -> bool {
        loop {
            match self.message_queues().look() {
                Look::Nothing => return false,
                Look::Later => return true,
                Look::Due(operation, name) => {
                    if let Some(name) = name.filter(|_| LOG_LIMIT.allow().is_some()) {
                        pr_err!(
                            "session {}: device '{}' is silent: the client is told ETIMEDOUT, and \
                             may ask again\n",
                            self.name(),
                            BStr::from_bytes(&name)
                        );
                    }
                    operation.reply(Err(ETIMEDOUT));
                }
            }
        }
    }
}
