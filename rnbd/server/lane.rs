// SPDX-License-Identifier: GPL-2.0

//! The lanes of a session: its messages about one device wait for each other, and not for those
//! about another one.
//!
//! OPEN reads from the device, and CLOSE waits for its requests: a device that does not answer
//! holds either. A lane has the messages about one device name while there are any, in the order of
//! arrival. There are a few of them for a session and for all of them
//! ([`lanes`](crate::proto::lanes)); with more devices at a time the messages are answered by the
//! session's own work item, as those that are about no device.

use kernel::{
    prelude::*,
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    },
};
use kernel_ext::{
    sync::atomic::Ordering::Relaxed,
    workqueue, //
};
use rtrs_server::{
    Operation,
    OperationQueue, //
};

use super::{
    io::direction_of,
    session::Session, //
};
use crate::proto::{
    lanes,
    message::Message, //
};

/// The messages about one device.
#[pin_data]
pub(super) struct Lane {
    session: Arc<Session>,
    #[pin]
    messages: OperationQueue,
    #[pin]
    work: Work<Lane>,
}

impl_has_work! {
    impl HasWork<Self> for Lane { self.work }
}

impl WorkItem for Lane {
    type Pointer = Arc<Lane>;

    fn run(lane: Arc<Lane>) {
        while let Some(message) = lane.session.lanes().next(&lane) {
            lane.session.answer(message);
        }
    }
}

impl Lane {
    fn new(session: &Arc<Session>) -> Result<Arc<Self>> {
        Arc::pin_init(
            pin_init!(Self {
                session: session.clone(),
                messages <- OperationQueue::new(),
                work <- new_work!("rnbd_server::Lane::work"),
            }),
            GFP_KERNEL,
        )
    }
}

/// One of the lanes that the server has for all sessions; free again when this is dropped.
struct InUse(Arc<Session>);

impl InUse {
    /// Takes one for a session, if one is free.
    fn take(session: &Arc<Session>) -> Option<Self> {
        let before = session.server().lanes_in_use().fetch_add(1, Relaxed);
        let taken = Self(session.clone());
        lanes::is_free(before).then_some(taken)
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.server().lanes_in_use().fetch_sub(1, Relaxed);
    }
}

/// The device whose messages a lane has.
struct Busy {
    name: KVec<u8>,
    _in_use: InUse,
}

/// A lane; `None`: it has no messages.
struct Entry {
    busy: Option<Busy>,
    lane: Arc<Lane>,
}

/// The lanes of a session.
///
/// A lane has its session, so [`Lanes::close`] must be called before the session is dropped.
#[pin_data]
pub(super) struct Lanes {
    /// Innermost.
    #[pin]
    list: Mutex<KVec<Entry>>,
}

impl Lanes {
    /// Creates an empty list.
    pub(super) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            list <- new_mutex!(KVec::new(), "rnbd_server::Lanes::list"),
        })
    }

    /// Queues a message of `session` about the device `name`, and returns the lane, whose work item
    /// is to be queued.
    ///
    /// # Errors
    ///
    /// Returns the message if all lanes have messages about other devices, those of this session or
    /// of the server, or there is no memory.
    pub(super) fn push(
        &self,
        session: &Arc<Session>,
        name: KVec<u8>,
        message: Operation,
    ) -> Result<Arc<Lane>, Operation> {
        let mut list = self.list.lock();
        let is_of = |busy: &Busy| lanes::is_same(&busy.name, &name);
        let mut busy = list
            .iter()
            .filter(|entry| entry.busy.as_ref().is_some_and(is_of));
        if let Some(entry) = busy.next() {
            entry.lane.messages.push(message);
            return Ok(entry.lane.clone());
        }
        let Some(in_use) = InUse::take(session) else {
            return Err(message);
        };
        let Some(entry) = free_entry(&mut list, session) else {
            return Err(message);
        };
        entry.busy = Some(Busy {
            name,
            _in_use: in_use,
        });
        entry.lane.messages.push(message);
        Ok(entry.lane.clone())
    }

    /// Takes the next message of `lane`; with `None` the lane is free for another device.
    fn next(&self, lane: &Arc<Lane>) -> Option<Operation> {
        let mut list = self.list.lock();
        let next = lane.messages.pop();
        let entry = list.iter_mut().find(|entry| Arc::ptr_eq(&entry.lane, lane));
        if let (None, Some(entry)) = (&next, entry) {
            entry.busy = None;
        }
        next
    }

    /// Waits until no work item of a lane runs any more, when all messages have been answered and
    /// no more arrive. Sleeps.
    pub(super) fn close(&self) {
        let entries = core::mem::take(&mut *self.list.lock());
        for entry in entries.iter() {
            workqueue::flush(&entry.lane);
        }
    }
}

/// Returns a lane without messages; makes one if all have some and there are not too many.
fn free_entry<'a>(list: &'a mut KVec<Entry>, session: &Arc<Session>) -> Option<&'a mut Entry> {
    let free = list.iter().position(|entry| entry.busy.is_none());
    let index = match free {
        Some(index) => index,
        None if list.len() >= lanes::OF_SESSION_MAX => return None,
        None => {
            let lane = Lane::new(session).ok()?;
            list.push(Entry { busy: None, lane }, GFP_KERNEL).ok()?;
            list.len().saturating_sub(1)
        }
    };
    list.get_mut(index)
}

/// Answers an admin message, or has the lane of its device answer it. Sleeps.
pub(super) fn route(session: &Arc<Session>, message: Operation) {
    let Some(name) = device_of(session, &message) else {
        return session.answer(message);
    };
    match session.lanes().push(session, name, message) {
        // If the item is queued already, it will take this message.
        Ok(lane) => drop(session.server().messages().enqueue::<_, 0>(lane)),
        Err(message) => session.answer(message),
    }
}

/// Returns the name of the device that a message is about; `None` if there is none, or no memory
/// for its name.
fn device_of(session: &Session, message: &Operation) -> Option<KVec<u8>> {
    let (user, len) = (message.user(), message.data_len());
    let parsed = Message::parse(user, len, direction_of(message), session.version()).ok()?;
    match parsed {
        Message::Open { name, .. } => copy(name),
        Message::Close { device_id } => session.with_path_of(device_id, copy)?,
        _ => None,
    }
}

fn copy(name: &[u8]) -> Option<KVec<u8>> {
    let mut copied = KVec::new();
    copied.extend_from_slice(name, GFP_KERNEL).ok()?;
    Some(copied)
}
