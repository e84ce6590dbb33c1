// SPDX-License-Identifier: GPL-2.0

//! One client session: the devices that it has open, by number.

mod look;

use kernel::{
    prelude::*,
    str::{
        CStr,
        CString, //
    },
    sync::{
        new_mutex,
        rcu,
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
            AtomicU32,
            AtomicU64,
            Ordering::Relaxed, //
        },
        Lent,
        LentBox,
        RcuArc, //
    },
    workqueue, //
};
use rtrs_server::{
    Operation,
    OperationQueue,
    SessionService, //
};

use super::{
    io::{
        self,
        direction_of,
        Target, //
    },
    log_limit::CHANGES_LIMIT,
    mapping::{
        Description,
        Mapping, //
    },
    message_queue::{
        self,
        MessageQueues, //
    },
    Server, //
};
use crate::proto::{
    message::IoRequest,
    slot::Slot,
    VERSION, //
};

/// The targets of a session by number, for requests.
type Table = KVec<RcuArc<LentBox<Target>>>;

/// The initial length of a table; a full one is replaced by one of twice the length.
const TABLE_LEN_MIN: usize = 8;

/// A client session.
///
/// The client's messages, which open and close devices, wait in `messages` for the work item, and
/// from there those about one device in a message queue, which handles one at a time. So the only
/// concurrent users of a device are `force_close` and the end of the session; and a CLOSE of a
/// client that sends OPEN for another device meanwhile.
///
/// Locking: `slots` is held only while a number changes its state; requests read `table` under RCU.
/// The lock is not held while a thread waits for the users of a mapping's files, since the writer
/// of `force_close` takes it.
#[pin_data]
pub(crate) struct Session {
    name: CString,
    server: Arc<Server>,
    /// The protocol version agreed on.
    version: AtomicU32,
    /// Whether the client supports the extension in reserved bytes.
    is_extended: AtomicBool,
    table: RcuArc<Table>,
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
        let name = CString::try_from(name)?;
        Arc::pin_init(
            pin_init!(Self {
                name,
                server,
                version: AtomicU32::new(u32::from(VERSION)),
                is_extended: AtomicBool::new(false),
                table: RcuArc::new(None),
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

    /// Returns the name that the client chose.
    pub(super) fn name(&self) -> &CStr {
        &self.name
    }

    /// Returns the state that all sessions share.
    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// Stores the protocol version agreed on, and whether the client supports the extension in
    /// reserved bytes.
    pub(super) fn agree(&self, version: u8, is_extended: bool) {
        self.version.store(u32::from(version), Relaxed);
        self.is_extended.store(is_extended, Relaxed);
    }

    /// Returns whether the client supports the extension in reserved bytes.
    pub(super) fn is_extended(&self) -> bool {
        self.is_extended.load(Relaxed)
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
            .and_then(|()| mapping.show_files())
            .and_then(|()| self.set_target(device_id, target));
        let unused = match (prepared, slots.get_mut(device_id as usize)) {
            (Ok(()), Some(slot)) => slot.open(mapping).map_err(|mapping| (ENOENT, mapping)),
            (Ok(()), None) => Err((ENOENT, mapping)),
            (Err(error), _) => Err((error, mapping)),
        };
        let Err((error, mapping)) = unused else {
            reservation.used();
            return Ok(());
        };
        self.clear_target(device_id);
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

    /// Closes the mapping of `description` and retires its number, unless the client has closed the
    /// mapping meanwhile and the number has another state.
    pub(super) fn force_close(&self, description: &Description) -> bool {
        self.close_if(description.device_id, true, |mapping| {
            mapping.is(description)
        })
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
        self.clear_target(device_id);
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
    pub(super) fn message_queues(&self) -> &MessageQueues {
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

    /// Sets the target of requests for `device_id`. The caller holds `slots`.
    fn set_target(&self, device_id: u32, target: Arc<LentBox<Target>>) -> Result {
        let index = device_id as usize;
        let guard = rcu::read_lock();
        let len = self.table.read(&guard).map_or(0, |table| table.len());
        drop(guard);
        if index >= len {
            let len = len.saturating_mul(2).max(TABLE_LEN_MIN);
            let table = self.longer_table(len.max(index.saturating_add(1)))?;
            drop(self.table.replace(Some(Arc::new(table, GFP_KERNEL)?)));
        }
        let table = self.table.get().ok_or(ENOENT)?;
        drop(table.get(index).ok_or(ENOENT)?.replace(Some(target)));
        Ok(())
    }

    /// Clears the target of requests for `device_id`; sleeps until concurrent lookups have
    /// finished. The caller holds `slots`.
    fn clear_target(&self, device_id: u32) {
        if let Some(table) = self.table.get() {
            if let Some(entry) = table.get(device_id as usize) {
                drop(entry.replace(None));
            }
        }
    }

    /// Allocates a table of `len` entries with the targets of the current one. The caller holds
    /// `slots`.
    fn longer_table(&self, len: usize) -> Result<Table> {
        let old = self.table.get();
        let mut table = Table::with_capacity(len, GFP_KERNEL)?;
        for index in 0..len {
            let entry = old.as_ref().and_then(|old| old.get(index));
            let target = entry.and_then(RcuArc::get);
            table.push(RcuArc::new(target), GFP_KERNEL)?;
        }
        Ok(table)
    }

    /// Returns the target of requests to `device_id`.
    #[inline]
    pub(super) fn target(&self, device_id: u32) -> Option<Lent<Target>> {
        let guard = rcu::read_lock();
        let entry = self.table.read(&guard)?.get(device_id as usize)?;
        entry.read(&guard).map(LentBox::lend)
    }

    /// Returns the protocol version agreed on.
    #[inline]
    pub(super) fn version(&self) -> u8 {
        // CAST: `agree` stored a byte.
        self.version.load(Relaxed) as u8
    }

    /// Serves a request that is no usual IO request.
    #[cold]
    #[inline(never)]
    fn request_unusual(self: &Arc<Self>, operation: Operation) {
        let (user, len) = (operation.user(), operation.data_len());
        if !IoRequest::is_one(user) {
            return self.defer(operation);
        }
        match IoRequest::parse(user, len, direction_of(&operation), self.version()) {
            Ok(request) => self.start(request, operation),
            Err(reason) => self.start_other(reason, operation),
        }
    }

    /// Starts an IO request.
    #[inline(always)]
    fn start(&self, request: IoRequest, operation: Operation) {
        match self.target(request.device_id) {
            Some(target) if target.allows(request.rw.op) => match target.check_range(request) {
                Ok(()) => io::submit(target, request, operation),
                Err(reason) => self.refuse(reason, operation),
            },
            Some(target) => {
                self.start_protected(target, request.device_id, Some(request), operation)
            }
            None => self.refuse_unknown(request.device_id, operation),
        }
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
        match IoRequest::parse_usual(user, len, direction_of(&operation), session.version()) {
            Some(request) => session.start(request, operation),
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
