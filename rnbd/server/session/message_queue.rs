// SPDX-License-Identifier: GPL-2.0

//! The message queues of a session: its messages about one device wait for each other, and not for
//! those about another one.
//!
//! OPEN reads from the device, and CLOSE waits for its requests: a device that does not answer
//! blocks either. A queue has the messages about one device name while there are any, in the order
//! of arrival. A session has a limited number of them, and so have all sessions together
//! ([`message_queue`](crate::proto::message_queue)); with more devices at a time the session's own
//! work item answers the messages, as it does those about no device: what follows waits for them,
//! and so does the end of the path and of the session.
//!
//! A queue has copies of its messages. So neither a path nor the session waits for a device when it
//! ends: the operation that would bring the answer is dropped, and what an OPEN has opened after
//! the end of its session is closed again. Until then the queue is one of [`LeftQueues`].
//!
//! An OPEN whose client has said how long it waits is answered then, see [`silent`].

mod in_use;
mod left;
mod silent;

use kernel::{
    prelude::*,
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta,
        Instant,
        Monotonic, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    },
};
use rtrs_server::Operation;

pub(in crate::server) use self::left::LeftQueues;
pub(super) use self::silent::close_untold;
use self::{
    in_use::InUse,
    left::LOOK_MS, //
};
use super::{
    admin::{
        self,
        Answer, //
    },
    Session, //
};
use crate::{
    proto::{
        answer_time::AnswerTime, //
        message::{
            Direction,
            Message, //
        }, //
        message_queue::{
            self,
            Place,
            Step, //
        },
    },
    server::{
        io::direction_of,
        log_limit::LOG_LIMIT, //
    },
};

/// The subject of a message.
struct About {
    /// The name of the device.
    name: KVec<u8>,
    step: Step,
    /// The time after which the client waits no longer, if it has said so.
    answer_time: Option<AnswerTime>,
    /// See [`message_queue::place`].
    may_refuse: bool,
}

/// A copy of a message.
struct Copied {
    /// The bytes of the client; of a CLOSE that no client has sent, the name of the device.
    user: KVec<u8>,
    data_len: u32,
    direction: Direction,
    step: Step,
    answer_time: Option<AnswerTime>,
    arrived: Instant<Monotonic>,
}

impl Copied {
    fn new(operation: Option<&Operation>, about: &About) -> Result<Arc<Self>> {
        let copied = Self {
            step: about.step,
            answer_time: about.answer_time,
            arrived: Instant::now(),
            user: copy(operation.map_or(&about.name, Operation::user)).ok_or(ENOMEM)?,
            data_len: operation.map_or(0, Operation::data_len),
            direction: operation.map_or(Direction::Write, direction_of),
        };
        Ok(Arc::new(copied, GFP_KERNEL)?)
    }
}

/// A message that is being carried out, or waits for that.
struct Waiting {
    message: Arc<Copied>,
    /// `None`: no client gets the answer.
    operation: Option<Operation>,
}

/// The reason for which a message was not queued.
pub(super) enum NotQueued {
    /// No queue has messages about its device, so it need not wait for one.
    NoQueue,
    /// No device is opened beside those of the queues that have messages, of this session or of
    /// all; or there is no memory for one more.
    Refused,
    /// A queue has some, and there is no memory to wait there: the message would overtake them.
    NoMemory,
}

/// The messages about one device.
#[pin_data]
pub(super) struct MessageQueue {
    session: Arc<Session>,
    #[pin]
    work: Work<MessageQueue>,
}

impl_has_work! {
    impl HasWork<Self> for MessageQueue { self.work }
}

impl WorkItem for MessageQueue {
    type Pointer = Arc<MessageQueue>;

    fn run(queue: Arc<MessageQueue>) {
        let (session, queues) = (&queue.session, queue.session.message_queues());
        while let Some(message) = queues.first(&queue) {
            let answer = match message.step {
                Step::CloseUntold(number) => {
                    session.close_untold(number, &message.user);
                    Ok(Answer::Done)
                }
                _ => session.carry_out(&message.user, message.data_len, message.direction),
            };
            queue.answer(&message, answer);
        }
    }
}

impl MessageQueue {
    fn new(session: &Arc<Session>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                session: session.clone(),
                work <- new_work!("rnbd_server::MessageQueue::work"),
            }),
            GFP_KERNEL,
        )
    }
}

/// The device whose messages a queue has.
struct Busy {
    name: KVec<u8>,
    /// Whether it was logged that the device is silent.
    is_logged: bool,
    _in_use: InUse,
}

/// A queue; `None`: it has no messages.
struct Entry {
    busy: Option<Busy>,
    queue: Arc<MessageQueue>,
    /// The first one is being carried out.
    messages: KVec<Waiting>,
}

impl Entry {
    /// Drops the operations of paths that are closed, and the messages that need not be carried out
    /// then.
    fn discard(&mut self) {
        for waiting in &mut self.messages {
            let operation = waiting.operation.as_ref();
            if operation.is_some_and(Operation::is_discarded) {
                // Dropping it releases its chunk.
                waiting.operation = None;
            }
        }
        let mut index = 1;
        while let Some((earlier, [waiting, ..])) = self.messages.split_at_checked(index) {
            let steps = earlier.iter().map(|earlier| earlier.message.step);
            if waiting.operation.is_none() && message_queue::is_stale(waiting.message.step, steps) {
                let _ = self.messages.remove(index);
            } else {
                index = index.saturating_add(1);
            }
        }
    }
}

/// The queues of a session.
///
/// A queue has its session: [`MessageQueues::close`] must be called before the session is dropped,
/// and the last message removes the queue then.
#[pin_data]
pub(super) struct MessageQueues {
    /// Innermost, but for that of [`LeftQueues`].
    #[pin]
    list: Mutex<List>,
}

struct List {
    entries: KVec<Entry>,
    /// The session has ended.
    is_closed: bool,
}

impl List {
    fn entry_of(&mut self, queue: &Arc<MessageQueue>) -> Option<&mut Entry> {
        let mut entries = self.entries.iter_mut();
        entries.find(|entry| Arc::ptr_eq(&entry.queue, queue))
    }

    /// Returns the place of a message for whose device there is no queue.
    fn place(&self, about: &About) -> Place {
        let busy = |entry: &&Entry| entry.busy.is_some();
        let busy = self.entries.iter().filter(busy).count();
        message_queue::place(about.step, about.may_refuse, busy)
    }

    /// Returns whether a message that no client has sent is not needed: the session has ended, or
    /// the queue at an index has one already.
    fn is_needless(&self, step: Step, busy: Option<usize>) -> bool {
        let queue = busy.and_then(|index| self.entries.get(index));
        let waiting = queue.map_or(&[][..], |entry| &*entry.messages);
        let steps = waiting.iter().map(|waiting| waiting.message.step);
        self.is_closed || message_queue::is_stale(step, steps)
    }
}

impl MessageQueues {
    /// Creates an empty list.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            list <- new_mutex!(List {
                entries: KVec::new(),
                is_closed: false,
            }, "rnbd_server::MessageQueues::list"),
        })
    }

    /// Queues a message of `session` about the device `name`, and takes its operation, if it has
    /// one. Returns the queue, whose work item the caller must queue.
    ///
    /// # Errors
    ///
    /// Takes nothing if all queues have messages about other devices, those of this session or of
    /// the server, or there is no memory; see [`NotQueued`].
    fn push(
        &self,
        session: &Arc<Session>,
        about: About,
        operation: &mut Option<Operation>,
    ) -> Result<Arc<MessageQueue>, NotQueued> {
        let message = Copied::new(operation.as_ref(), &about);
        let mut list = self.list.lock();
        let is_of = |busy: &Busy| message_queue::is_same(&busy.name, &about.name);
        let mut entries = list.entries.iter();
        let busy = entries.position(|entry| entry.busy.as_ref().is_some_and(is_of));
        let no_queue = match busy {
            Some(_) => NotQueued::NoMemory,
            None if about.may_refuse => NotQueued::Refused,
            None => NotQueued::NoQueue,
        };
        if operation.is_none() && list.is_needless(about.step, busy) {
            return Err(NotQueued::Refused);
        }
        if busy.is_none() {
            match list.place(&about) {
                Place::Queue => {}
                Place::Session => return Err(NotQueued::NoQueue),
                Place::Refused => return Err(NotQueued::Refused),
            }
        }
        let (Ok(message), Some(entry)) = (message, busy_or_free(&mut list.entries, busy, session))
        else {
            return Err(no_queue);
        };
        if entry.messages.reserve(1, GFP_KERNEL).is_err() {
            return Err(no_queue);
        }
        if entry.busy.is_none() {
            let Some(in_use) = InUse::take(session, about.may_refuse) else {
                return Err(no_queue);
            };
            entry.busy = Some(Busy {
                name: about.name,
                is_logged: false,
                _in_use: in_use,
            });
        }
        // A path that is closed later finds it here.
        let operation = operation
            .take()
            .filter(|operation| !operation.is_discarded());
        // There is room.
        let _ = entry
            .messages
            .push_within_capacity(Waiting { message, operation });
        Ok(entry.queue.clone())
    }

    /// Returns the message of `queue` that is to be carried out; with `None` the queue is free for
    /// another device.
    fn first(&self, queue: &Arc<MessageQueue>) -> Option<Arc<Copied>> {
        let mut list = self.list.lock();
        let is_closed = list.is_closed;
        let entry = list.entry_of(queue)?;
        if let Some(first) = entry.messages.first() {
            return Some(first.message.clone());
        }
        entry.busy = None;
        if is_closed {
            queue.session.server().left_queues().remove(queue);
            list.entries
                .retain(|entry| !Arc::ptr_eq(&entry.queue, queue));
        }
        None
    }

    /// Removes the message of `queue` that was carried out; returns the operation to answer.
    fn take_first(&self, queue: &Arc<MessageQueue>) -> Option<Operation> {
        let mut list = self.list.lock();
        let first = list.entry_of(queue)?.messages.remove(0).ok()?;
        first.operation
    }

    /// Drops what only paths that are closed have sent; see [`Entry::discard`].
    pub(super) fn discard(&self) {
        self.list.lock().entries.iter_mut().for_each(Entry::discard);
    }

    /// Ends the use of queues by `session`, of which no more messages arrive; those that have
    /// messages still are [left](LeftQueues). Sleeps.
    pub(super) fn close(&self, session: &Session) {
        let mut list = self.list.lock();
        list.is_closed = true;
        list.entries.retain(|entry| entry.busy.is_some());
        list.entries.iter_mut().for_each(Entry::discard);
        let left = session.server().left_queues();
        let kept = list.entries.iter().try_for_each(|entry| match &entry.busy {
            Some(busy) => left.add(&entry.queue, &busy.name),
            None => Ok(()),
        });
        drop(list);
        // Without memory to remember them they are waited for.
        while kept.is_err() && !self.list.lock().entries.is_empty() {
            fsleep(Delta::from_millis(LOOK_MS.into()));
        }
    }
}

/// Returns the queue at an index; without one, a queue without messages: creates one if all have
/// some. [`message_queue::place`] limits their number.
fn busy_or_free<'a>(
    list: &'a mut KVec<Entry>,
    busy: Option<usize>,
    session: &Arc<Session>,
) -> Option<&'a mut Entry> {
    let free = || list.iter().position(|entry| entry.busy.is_none());
    let index = match busy.or_else(free) {
        Some(index) => index,
        None => {
            let entry = Entry {
                busy: None,
                queue: MessageQueue::new(session).ok()?,
                messages: KVec::new(),
            };
            list.push(entry, GFP_KERNEL).ok()?;
            list.len().saturating_sub(1)
        }
    };
    list.get_mut(index)
}

/// Answers an admin message, or has the queue of its device answer it. Sleeps.
pub(super) fn route(session: &Arc<Session>, message: Operation) {
    let about = match device_of(session, &message) {
        Ok(Some(about)) => about,
        Ok(None) => return session.answer(message),
        Err(error) => return message.reply(Err(error)),
    };
    if about.step == Step::Open {
        session.note_asked();
    }
    let has_answer_time = about.answer_time.is_some();
    let mut operation = Some(message);
    let pushed = session
        .message_queues()
        .push(session, about, &mut operation);
    match (pushed, operation) {
        (Ok(queue), _) => {
            // If the item is queued already, it will take this message.
            drop(session.server().devices().enqueue::<_, 0>(queue));
            if has_answer_time {
                session.look_later();
            }
        }
        (Err(_), None) => {}
        (Err(NotQueued::NoQueue), Some(message)) => session.answer(message),
        (Err(NotQueued::NoMemory), Some(message)) => message.reply(Err(ENOMEM)),
        (Err(NotQueued::Refused), Some(message)) => {
            if LOG_LIMIT.allow().is_some() {
                pr_err!(
                    "session {}: a device is not opened: too many others are silent\n",
                    session.name()
                );
            }
            message.reply(Err(EAGAIN));
        }
    }
}

/// Returns what a message is about; `None` if there is no device.
fn device_of(session: &Session, message: &Operation) -> Result<Option<About>> {
    let (user, len) = (message.user(), message.data_len());
    let about = match Message::parse(user, len, direction_of(message), session.client().version()) {
        Ok(Message::Open {
            name, answer_time, ..
        }) => {
            let answer_time =
                AnswerTime::from_wire(answer_time).filter(|_| session.client().is_extended());
            let is_open = session.with_mapping(name, |_| ()).is_some();
            About {
                name: copy(name).ok_or(ENOMEM)?,
                step: Step::Open,
                answer_time,
                may_refuse: answer_time.is_some() && !is_open,
            }
        }
        Ok(Message::Close { device_id }) => {
            let name = session.with_number(device_id, |mapping| copy(mapping.path()));
            let Some(name) = name else {
                return Ok(None);
            };
            About {
                name: name.ok_or(ENOMEM)?,
                step: Step::Close(device_id),
                answer_time: None,
                may_refuse: false,
            }
        }
        _ => return Ok(None),
    };
    Ok(Some(about))
}

pub(super) fn copy(name: &[u8]) -> Option<KVec<u8>> {
    let mut copied = KVec::new();
    copied.extend_from_slice(name, GFP_KERNEL).ok()?;
    Some(copied)
}

impl Session {
    /// Answers an admin message. Sleeps.
    fn answer(self: &Arc<Self>, operation: Operation) {
        let (user, len) = (operation.user(), operation.data_len());
        let answer = self.carry_out(user, len, direction_of(&operation));
        self.reply(operation, answer);
    }

    /// Carries out an admin message. Sleeps.
    fn carry_out(self: &Arc<Self>, user: &[u8], len: u32, direction: Direction) -> Result<Answer> {
        match Message::parse(user, len, direction, self.client().version()) {
            Ok(message) => admin::answer(self, message),
            Err(reason) => Err(self.client().log_refusal(reason)),
        }
    }
}
