// SPDX-License-Identifier: GPL-2.0

//! One client session: the devices that it has open, by number.

mod admin;
mod look;
pub(super) mod message_queue;

use kernel::{
    prelude::*,
    str::CStr,
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
    time::{
        Instant,
        Monotonic, //
    },
    workqueue::{
        impl_has_work,
        new_delayed_work,
        new_work,
        DelayedWork,
        Work,
        WorkItem, //
    },
};
use kernel_ext::{
    errno,
    sync::{
        atomic::{
            AtomicBool,
            AtomicU64,
            Ordering::Relaxed, //
        },
        LentBox, //
    },
    workqueue, //
};
use rtrs_server::{
    Operation,
    OperationQueue,
    SessionService, //
};

use self::message_queue::MessageQueues;
use super::{
    device::mapping::{
        Description,
        Mapping,
        Owner, //
    },
    io::{
        client::Client,
        direction_of,
        requests::Requests,
        target::Target, //
    },
    log_limit::CHANGES_LIMIT,
    sysfs,
    Server, //
};
use crate::proto::{
    message::IoRequest,
    slot::Slot, //
};

/// A client session.
///
/// The client's messages, which open and close devices, wait in `messages` for the work item, and
/// from there those about one device in a message queue, which handles one at a time. So the only
/// concurrent users of a device are `force_close` and the end of the session; and a CLOSE of a
/// client that sends OPEN for another device meanwhile.
///
/// Locking: `slots` is held only while a number changes its state, and its target among `requests`.
/// The lock is not held while a thread waits for the users of a mapping's files, since the writer
/// of `force_close` takes it.
#[pin_data]
pub(crate) struct Session {
    requests: Requests,
    server: Arc<Server>,
    #[pin]
    slots: Mutex<KVec<Slot<Mapping>>>,
    #[pin]
    messages: OperationQueue,
    #[pin]
    work: Work<Session>,
    #[pin]
    message_queues: MessageQueues,
    /// Looks for silent devices while a message has said how long its client waits, and for those
    /// that no client knows of.
    #[pin]
    look: DelayedWork<Session, { look::LOOK }>,
    begun: Instant<Monotonic>,
    /// The time of the last OPEN since then, in milliseconds.
    asked_ms: AtomicU64,
    /// No device is opened any more.
    has_ended: AtomicBool,
}

impl_has_work! {
    impl HasWork<Self> for Session { self.work }
}

impl WorkItem for Session {
    type Pointer = Arc<Session>;

    fn run(session: Arc<Session>) {
        while let Some(operation) = session.messages.pop() {
            message_queue::route(&session, operation);
        }
    }
}

impl Session {
    /// Creates the session of the client with the name `name`, without devices. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(super) fn new(server: Arc<Server>, name: &CStr) -> Result<Arc<Self>> {
        let requests = Requests::new(name)?;
        Arc::pin_init(
            pin_init!(Self {
                requests,
                server,
                slots <- new_mutex!(KVec::new()),
                messages <- OperationQueue::new(),
                work <- new_work!("rnbd_server::Session::work"),
                message_queues <- MessageQueues::new(),
                look <- new_delayed_work!("rnbd_server::Session::look"),
                begun: Instant::now(),
                asked_ms: AtomicU64::new(0),
                has_ended: AtomicBool::new(false),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the client.
    pub(super) fn client(&self) -> &Client {
        self.requests.client()
    }

    /// Returns the name that the client chose.
    pub(super) fn name(&self) -> &CStr {
        self.client().name()
    }

    /// Returns the state that all sessions share.
    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// Calls `f` with the mapping of the path `path`, if there is one.
    pub(super) fn with_mapping<R>(
        &self,
        path: &[u8],
        f: impl FnOnce(&mut Mapping) -> R,
    ) -> Option<R> {
        self.slots
            .lock()
            .iter_mut()
            .filter_map(Slot::device_mut)
            .find(|mapping| mapping.path() == path)
            .map(f)
    }

    /// Returns `ENOTCONN` if the session has ended.
    pub(super) fn check_not_ended(&self) -> Result {
        match self.has_ended.load(Relaxed) {
            true => Err(errno::ENOTCONN),
            false => Ok(()),
        }
    }

    /// Reserves the lowest free device number of the session until the result is dropped. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`, and `ENOSPC` after 2^32 devices.
    pub(super) fn reserve(&self) -> Result<Reservation<'_>> {
        let mut slots = self.slots.lock();
        let reserved = slots.iter_mut().position(Slot::reserve);
        let index = match reserved {
            Some(index) => index,
            None => {
                slots.push(Slot::Reserved, GFP_KERNEL)?;
                slots.len().saturating_sub(1)
            }
        };
        let device_id = u32::try_from(index).map_err(|_| ENOSPC)?;
        Ok(Reservation {
            session: self,
            device_id,
        })
    }

    /// Assigns `mapping` to a reserved number, with its files, and `target` to its requests.
    ///
    /// # Errors
    ///
    /// Those of sysfs and of the allocator, `ENOTCONN` if the session has ended; `mapping` is
    /// closed then, and the number is free.
    pub(super) fn publish(
        &self,
        reservation: Reservation<'_>,
        mut mapping: Mapping,
        target: Arc<LentBox<Target>>,
    ) -> Result {
        let device_id = reservation.device_id;
        // Until the lock is dropped no thread finds the device: a CLOSE finds a number that is
        // reserved, a writer of `force_close` waits.
        let mut slots = self.slots.lock();
        let prepared = self
            .check_not_ended()
            .and_then(|()| sysfs::show(&mut mapping))
            .and_then(|()| self.requests.set_target(device_id, target));
        let unused = match (prepared, slots.get_mut(device_id as usize)) {
            (Ok(()), Some(slot)) => {
                // With the lock: it is not closed before that is logged.
                mapping.log_opened();
                slot.open(mapping).map_err(|mapping| (ENOENT, mapping))
            }
            (Ok(()), None) => Err((ENOENT, mapping)),
            (Err(error), _) => Err((error, mapping)),
        };
        let Err((error, mapping)) = unused else {
            reservation.used();
            return Ok(());
        };
        self.requests.clear_target(device_id);
        // Drops the lock first: the drop of a mapping waits for the writers of `force_close`.
        drop(slots);
        drop(mapping);
        Err(error)
    }

    /// Closes device `device_id`; sleeps until its requests have ended. With `retire` the number is
    /// not reused. Returns `false` if the number has no open device.
    pub(super) fn close(&self, device_id: u32, retire: bool) -> bool {
        self.close_if(device_id, retire, |_| true)
    }

    /// Closes device `device_id` if its mapping matches.
    pub(super) fn close_if(
        &self,
        device_id: u32,
        retire: bool,
        is_right: impl FnOnce(&Mapping) -> bool,
    ) -> bool {
        self.close_and_reserve(device_id, retire, is_right)
            .is_some()
    }

    /// Closes device `device_id` as [`Self::close_if`] does, and returns its number if it is to be
    /// used again: it is free when that is dropped.
    pub(super) fn close_and_reserve(
        &self,
        device_id: u32,
        retire: bool,
        is_right: impl FnOnce(&Mapping) -> bool,
    ) -> Option<Option<Reservation<'_>>> {
        let mut slots = self.slots.lock();
        let slot = slots.get_mut(device_id as usize)?;
        let closed = slot.close(retire, is_right)?;
        let reservation = (!retire).then(|| Reservation {
            session: self,
            device_id,
        });
        self.requests.clear_target(device_id);
        // Drops the lock first: the drop of the mapping waits for a writer of `force_close`, who
        // takes it.
        drop(slots);
        drop(closed);
        Some(reservation)
    }

    /// Queues a message for the work item. Any context. Not inlined, so that IO requests do not use
    /// the stack for it.
    #[cold]
    #[inline(never)]
    fn defer(self: &Arc<Self>, message: Operation) {
        self.messages.push(message);
        // If the item is queued already, it will take this message.
        let _ = self.server.messages().enqueue::<Arc<Self>, 0>(self.clone());
    }

    /// Returns the queues of messages about devices.
    fn message_queues(&self) -> &MessageQueues {
        &self.message_queues
    }

    /// Calls `f` with the mapping of a number, if there is one.
    pub(super) fn with_number<R>(
        &self,
        device_id: u32,
        f: impl FnOnce(&mut Mapping) -> R,
    ) -> Option<R> {
        let mut slots = self.slots.lock();
        slots.get_mut(device_id as usize)?.device_mut().map(f)
    }

    /// Closes all devices; no more messages arrive. What a queue is about to open it closes again.
    /// Sleeps, but for no device that does not answer an OPEN in a queue.
    fn close_all(self: &Arc<Self>) {
        // Before the waits: what is not open yet need not be opened. And before `slots` is locked,
        // with which `publish` looks.
        self.has_ended.store(true, Relaxed);
        // The item may not have returned from the last message yet.
        workqueue::flush::<_, 0>(self);
        self.message_queues.close(self);
        // It has nothing to look for any more: all paths are closed.
        drop(workqueue::cancel_delayed_sync::<_, { look::LOOK }>(self));
        let mut device_id = 0;
        while (device_id as usize) < self.slots.lock().len() {
            self.close(device_id, false);
            device_id = device_id.wrapping_add(1);
        }
    }

    /// Serves a request that is no usual IO request.
    #[cold]
    #[inline(never)]
    fn request_unusual(self: &Arc<Self>, operation: Operation) {
        match IoRequest::is_one(operation.user()) {
            true => self.requests.start_unusual(operation),
            false => self.defer(operation),
        }
    }
}

impl Owner for Session {
    fn name(&self) -> &CStr {
        self.client().name()
    }

    fn version(&self) -> u8 {
        self.client().version()
    }

    fn force_close(&self, description: &Description) -> bool {
        self.close_if(description.device_id, true, |mapping| {
            mapping.is(description)
        })
    }
}

/// A number of a session that the owner of this has reserved: it opens a device under the number,
/// or closes one. Dropping it frees the number. The drop takes `Session::slots`.
pub(super) struct Reservation<'a> {
    session: &'a Session,
    device_id: u32,
}

impl Reservation<'_> {
    /// Returns the number.
    pub(super) fn device_id(&self) -> u32 {
        self.device_id
    }

    /// Ends the reservation of a number that a device has now.
    fn used(self) {
        core::mem::forget(self);
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if let Some(slot) = self.session.slots.lock().get_mut(self.device_id as usize) {
            slot.release();
        }
    }
}

/// The session's implementation of the RTRS session service.
pub(super) struct SessionHandler(pub(super) Arc<Session>);

impl SessionService for SessionHandler {
    #[inline]
    fn request(&self, operation: Operation) {
        let session = &self.0;
        let (user, len) = (operation.user(), operation.data_len());
        let version = session.client().version();
        match IoRequest::parse_usual(user, len, direction_of(&operation), version) {
            Some(request) => session.requests.start(request, operation),
            None => session.request_unusual(operation),
        }
    }

    fn path_closing(&self) {
        self.0.message_queues.discard();
    }

    fn link_down(&self) {
        self.0.close_all();
        if CHANGES_LIMIT.allow().is_some() {
            pr_info!("session {} ended\n", self.0.name());
        }
    }
}
