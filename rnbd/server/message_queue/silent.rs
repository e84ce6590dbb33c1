// SPDX-License-Identifier: GPL-2.0

//! Devices that do not answer their OPEN: what their clients are told, and what becomes of them.
//!
//! An OPEN whose client waits no longer ([`answer_time`](crate::proto::answer_time)) is answered
//! with `ETIMEDOUT`, so that the client can use its chunk. The thread of the queue goes on opening
//! the device. If that succeeds the device is open although no client was told so: the next OPEN
//! finds it, and without one it is closed again after a while. So a client that does not ask again,
//! as its user has given up, keeps no device.

use kernel::{
    prelude::*,
    str::BStr,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    },
};
use rtrs_server::Operation;

use super::{
    copy,
    Entry,
    MessageQueue,
    MessageQueues,
    Waiting, //
};
use crate::{
    proto::{
        answer_time::UNTOLD_MS, //
        message_queue,
    },
    server::{
        admin::Answer,
        log_limit::LOG_LIMIT,
        session::Session, //
    },
};

/// The time after which a thread that waits for an OPEN looks again.
const AGAIN_MS: u32 = 100;

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

impl MessageQueues {
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

    /// Waits until `queue` has a message; returns `false` if it gets none while `left_ms` pass,
    /// which becomes less. Sleeps.
    fn await_message(&self, queue: &Arc<MessageQueue>, left_ms: &mut u32) -> bool {
        while *left_ms != 0 {
            let mut list = self.list.lock();
            let has_none = |entry: &mut Entry| entry.messages.is_empty();
            // The end of a session closes all its devices.
            if list.is_closed || !list.entry_of(queue).is_some_and(has_none) {
                return true;
            }
            drop(list);
            fsleep(Delta::from_millis(AGAIN_MS.into()));
            *left_ms = left_ms.saturating_sub(AGAIN_MS);
        }
        false
    }
}

/// The number under which the device of a queue is open without a client that was told so, and the
/// time for which it stays so.
pub(super) struct Untold {
    number: Option<u32>,
    left_ms: u32,
}

impl Untold {
    /// No number.
    pub(super) const NONE: Self = Self {
        number: None,
        left_ms: 0,
    };

    /// Notes what a message has opened, and whether its client is told.
    pub(super) fn note(&mut self, answer: &Result<Answer>, is_told: bool) {
        match answer {
            Ok(Answer::Opened { device, .. }) if is_told => {
                let is_other = |number: &u32| *number != device.device_id.get();
                self.number = self.number.filter(is_other);
            }
            Ok(Answer::Opened { device, is_new }) if *is_new => {
                self.number = Some(device.device_id.get());
                self.left_ms = UNTOLD_MS;
            }
            // One that is refused, as the device is open under another spelling of its name, does
            // not make it stay open for longer.
            _ => {}
        }
    }

    /// Waits for a message if there is such a device, and closes it if none comes. Sleeps.
    pub(super) fn close_unless_asked_for(&mut self, queue: &Arc<MessageQueue>) {
        let session = &queue.session;
        let queues = session.message_queues();
        let left_ms = &mut self.left_ms;
        let is_over = |_: &u32| !queues.await_message(queue, left_ms);
        let Some(number) = self.number.filter(is_over) else {
            return;
        };
        self.number = None;
        if let Some(name) = queues.name_of(queue) {
            session.close_if(number, false, |mapping| {
                message_queue::is_same(mapping.path(), &name)
            });
        }
    }
}

impl MessageQueues {
    /// Returns the name of the device whose messages a queue has.
    fn name_of(&self, queue: &Arc<MessageQueue>) -> Option<KVec<u8>> {
        let mut list = self.list.lock();
        let busy = list.entry_of(queue)?.busy.as_ref()?;
        copy(&busy.name)
    }
}

impl Session {
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
