// SPDX-License-Identifier: GPL-2.0

//! The requests of a client: each one's device is found by its number.

use kernel::{
    prelude::*,
    str::CStr,
    sync::{
        rcu,
        Arc, //
    }, //
};
use kernel_ext::sync::{
    Lent,
    LentBox,
    RcuArc, //
};
use rtrs_server::Operation;

use super::{
    backlog::Backlog,
    client::Client,
    direction_of,
    plain,
    protection::{
        self,
        has_right_digest, //
    },
    target::Target, //
};
use crate::proto::message::{
    IoRequest,
    Malformed, //
};

/// The targets of a session by number.
type Table = KVec<RcuArc<LentBox<Target>>>;

/// The initial length of a table; a full one is replaced by one of twice the length.
const TABLE_LEN_MIN: usize = 8;

/// A client, and the targets of its requests by number.
///
/// Requests read the table under RCU; the session changes it with its slots locked.
pub(crate) struct Requests {
    client: Client,
    table: RcuArc<Table>,
}

impl Requests {
    /// Creates the requests of the client whose session has the name `name`, without devices.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn new(name: &CStr) -> Result<Self> {
        Ok(Self {
            client: Client::new(name)?,
            table: RcuArc::new(None),
        })
    }

    /// Returns the client.
    #[inline]
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Sets the target of requests for `device_id`. One thread at a time. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub(crate) fn set_target(&self, device_id: u32, target: Arc<LentBox<Target>>) -> Result {
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
    /// finished. One thread at a time.
    pub(crate) fn clear_target(&self, device_id: u32) {
        if let Some(table) = self.table.get() {
            if let Some(entry) = table.get(device_id as usize) {
                drop(entry.replace(None));
            }
        }
    }

    /// Allocates a table of `len` entries with the targets of the current one.
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
    fn target(&self, device_id: u32) -> Option<Lent<Target>> {
        let guard = rcu::read_lock();
        let entry = self.table.read(&guard)?.get(device_id as usize)?;
        entry.read(&guard).map(LentBox::lend)
    }

    /// Starts a usual IO request: a read or a write without protection information.
    #[inline(always)]
    pub(crate) fn start(&self, request: IoRequest, operation: Operation) {
        match self.target(request.device_id) {
            Some(target) if target.allows(request.rw.op) => match target.check_range(request) {
                Ok(()) => plain::submit(target, request, operation),
                Err(reason) => self.client.refuse(reason, operation),
            },
            // A copy: the request itself stays in registers where it is a plain one.
            Some(target) => self.start_careful(target, Some(request), operation),
            None => self.client.refuse_unknown(request.device_id, operation),
        }
    }

    /// Starts an IO request that is no usual one.
    pub(crate) fn start_unusual(&self, operation: Operation) {
        let (user, len) = (operation.user(), operation.data_len());
        let version = self.client.version();
        match IoRequest::parse(user, len, direction_of(&operation), version) {
            Ok(request) => self.start(request, operation),
            Err(reason) => self.start_other(reason, operation),
        }
    }

    /// Starts an IO request that is not one of a device without protection information: of another
    /// device, the data is followed by tuples.
    #[cold]
    fn start_other(&self, reason: Malformed, operation: Operation) {
        let device_id = IoRequest::device_id_of(operation.user());
        let target = device_id.and_then(|id| self.target(id));
        let protection = |target: &Lent<Target>| target.protection().cloned();
        let protection = target.as_ref().and_then(protection);
        match (target, protection, device_id) {
            (Some(target), Some(protection), _) => {
                protection::start(&self.client, target, protection, operation);
            }
            // The client learns that the device is closed, unless the number may be a wrong one.
            (None, _, Some(device_id))
                if has_right_digest(&operation, operation.is_read()) == Some(true) =>
            {
                self.client.refuse_unknown(device_id, operation);
            }
            _ => self.client.refuse(reason, operation),
        }
    }

    /// Starts an IO request that the handler does not submit at once: of a device with protection
    /// information or a queue, or one that has to wait; another device does not permit it.
    #[cold]
    fn start_careful(
        &self,
        target: Lent<Target>,
        request: Option<IoRequest>,
        operation: Operation,
    ) {
        if let Some(protection) = target.protection().cloned() {
            return protection::start(&self.client, target, protection, operation);
        }
        // It is there: `start` copies it.
        let Some(request) = request else {
            return operation.reply(Err(EINVAL));
        };
        if !target.is_permitted(request.rw.op) {
            return self.client.refuse_change(request.device_id, operation);
        }
        match (target.check_range(request), target.queue()) {
            (Ok(()), Some(queue)) => queue.push(operation),
            (Ok(()), None) => Backlog::add(target, operation),
            (Err(reason), _) => self.client.refuse(reason, operation),
        }
    }
}
