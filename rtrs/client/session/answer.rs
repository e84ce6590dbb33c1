// SPDX-License-Identifier: GPL-2.0

//! The answers of admin messages: those that a task waits for, and those that none waits for any
//! more.

use kernel::{
    alloc::AllocError,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    errno,
    new_irq_lock,
    sync::{
        Completion,
        IrqLock, //
    }, //
};
use rtrs_core::proto::permit::ADMIN_MAX;

/// The answer of a message, which the sender waits for.
#[pin_data]
pub(super) struct Answer {
    #[pin]
    arrived: Completion,
    #[pin]
    result: IrqLock<Option<Result>>,
    /// Whether the sender waits no more.
    #[pin]
    is_given_up: IrqLock<bool>,
}

impl Answer {
    /// Creates the answer of a message that is about to be sent.
    pub(super) fn new() -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                arrived <- Completion::new(),
                result <- new_irq_lock!(None),
                is_given_up <- new_irq_lock!(false),
            }),
            GFP_KERNEL,
        )
    }

    /// Ends the message. Any context.
    pub(super) fn end(&self, result: Result) {
        *self.result.lock() = Some(result);
        self.arrived.complete_all();
    }

    /// Waits for the end of the message, at most `timeout_ms`; sleeps, and can be killed.
    ///
    /// # Errors
    ///
    /// That of the message, `ETIMEDOUT` or `ERESTARTSYS`.
    pub(super) fn wait(&self, timeout_ms: u32) -> Result {
        self.arrived.wait_killable_timeout_ms(timeout_ms)?;
        let result = *self.result.lock();
        result.unwrap_or(Err(EIO))
    }

    /// Returns whether the sender waits no more. Any context.
    pub(super) fn is_given_up(&self) -> bool {
        *self.is_given_up.lock()
    }

    fn has_ended(&self) -> bool {
        self.arrived.is_done()
    }

    /// Returns whether the server has answered with an error. Without one it has carried out the
    /// message, or may do so.
    fn is_refused(&self) -> bool {
        let result = *self.result.lock();
        matches!(result, Some(Err(error)) if error != errno::ECONNABORTED)
    }
}

/// A message that was sent and whose answer is not known: its sender has given up, or its path was
/// lost.
#[derive(Clone)]
pub struct Unheard(Arc<Answer>);

impl Unheard {
    /// Waits until the answer has come, the path is lost or the session is closed, at most
    /// `timeout_ms`; sleeps, and can be killed. Returns whether the answer is an error; `None` if
    /// the message is under way still.
    pub fn end(&self, timeout_ms: u32) -> Option<bool> {
        let _ = self.0.arrived.wait_killable_timeout_ms(timeout_ms);
        self.0.has_ended().then(|| self.0.is_refused())
    }
}

/// The fate of a message that has no answer, or an error.
pub enum Fate {
    /// The message was not sent.
    NotSent,
    /// The server has answered with the error.
    Refused,
    /// The message may have its effect on the server.
    Unheard(Unheard),
}

impl Fate {
    /// Returns the message if it may have its effect on the server.
    pub fn unheard(self) -> Option<Unheard> {
        match self {
            Self::Unheard(unheard) => Some(unheard),
            Self::NotSent | Self::Refused => None,
        }
    }
}

/// A message failed.
pub struct NotAnswered {
    /// The reason.
    pub error: Error,
    /// The fate of the message.
    pub fate: Fate,
}

impl NotAnswered {
    /// Returns the failure of a message that was sent.
    pub(super) fn after_send(error: Error, answer: Arc<Answer>) -> Self {
        let fate = match answer.is_refused() {
            true => Fate::Refused,
            false => Fate::Unheard(Unheard(answer)),
        };
        Self { error, fate }
    }
}

impl From<Error> for NotAnswered {
    fn from(error: Error) -> Self {
        Self {
            error,
            fate: Fate::NotSent,
        }
    }
}

impl From<AllocError> for NotAnswered {
    fn from(error: AllocError) -> Self {
        Error::from(error).into()
    }
}

impl From<NotAnswered> for Error {
    fn from(failed: NotAnswered) -> Self {
        failed.error
    }
}

/// The messages of a session that are under way although their senders have given up.
#[pin_data]
pub(crate) struct GivenUp {
    #[pin]
    list: Mutex<KVec<(KVec<u8>, Arc<Answer>)>>,
}

impl GivenUp {
    /// Returns an empty list. Nothing is allocated later with it locked: a task that connects, and
    /// without which no memory may be freed, takes the lock, too.
    pub(super) fn new() -> Result<impl PinInit<Self>> {
        let list = KVec::with_capacity(ADMIN_MAX.into(), GFP_KERNEL)?;
        Ok(pin_init!(Self {
            list <- new_mutex!(list, "GivenUp::list"),
        }))
    }

    /// Adds a message about `subject` whose sender gives up, unless it has ended. It is not sent
    /// again when its path is lost. Without memory the next one about that does not wait for it.
    /// Sleeps.
    pub(super) fn add(&self, subject: &[u8], answer: &Arc<Answer>) {
        *answer.is_given_up.lock() = true;
        let mut bytes = KVec::new();
        if answer.has_ended() {
            return;
        }
        if bytes.extend_from_slice(subject, GFP_KERNEL).is_err() {
            return;
        }
        let mut list = self.list.lock();
        let ended = list.iter().position(|(_, answer)| answer.has_ended());
        let ended = ended.and_then(|index| list.remove(index).ok());
        // There are as many places as ids, and each that is under way has an id.
        let full = list.push_within_capacity((bytes, answer.clone()));
        drop(list);
        drop((ended, full));
    }

    /// Waits until none about `subject` is under way, at most `timeout_ms` for each: on another
    /// path the server may carry the new one out before it, and the client has few ids. Sleeps, and
    /// can be killed.
    ///
    /// # Errors
    ///
    /// `ETIMEDOUT` or `ERESTARTSYS`.
    pub(super) fn wait_for(&self, subject: &[u8], timeout_ms: u32) -> Result {
        while let Some(answer) = self.find(subject) {
            // What the server says counts for the sender that has given up.
            answer.arrived.wait_killable_timeout_ms(timeout_ms)?;
        }
        Ok(())
    }

    fn find(&self, subject: &[u8]) -> Option<Arc<Answer>> {
        let list = self.list.lock();
        let mut under_way = list.iter().filter(|(_, answer)| !answer.has_ended());
        let same = under_way.find(|(bytes, _)| **bytes == *subject);
        same.map(|(_, answer)| answer.clone())
    }
}
