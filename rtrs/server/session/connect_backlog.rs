// SPDX-License-Identifier: GPL-2.0

//! The backlog of connect requests that begin a path: workers answer them, in the order of
//! `proto::connect_backlog`.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    cm::{
        ConnectRequest,
        Pending, //
    },
    DeviceId, //
};
use rtrs_core::proto::{
    addr::Addr,
    connect_backlog::{
        self,
        Left, //
    },
    handshake::Connect, //
};

use crate::server::{
    listener::refuse_pending,
    path::connections::Events,
    session::table::{
        Origin,
        Registry, //
    }, //
};

/// A connect request that waits.
struct WaitingConnect {
    connect: Connect,
    origin: Origin,
    pending: Pending,
    events: Arc<Events>,
}

/// Connect requests that wait, the oldest first, and the devices that have a worker: each has one
/// for all of its requests.
pub(super) struct ConnectBacklog {
    list: KVec<WaitingConnect>,
    busy: KVec<DeviceId>,
    left: Left,
}

impl ConnectBacklog {
    pub(super) const fn new() -> Self {
        Self {
            list: KVec::new(),
            busy: KVec::new(),
            left: Left::NONE,
        }
    }

    /// Returns the index of the request to give up for a new one, if one is.
    fn replaced(&self, newest: &Connect) -> Option<usize> {
        let waiting = self.list.iter();
        let waiting = waiting.map(|older| (&older.connect, older.origin.name.src));
        connect_backlog::replaced(newest, waiting)
    }

    /// Adds a request. Returns one that is given up for it, for which it has a [`Place`], and
    /// whether the device needs a worker. In one go: requests at other devices come meanwhile.
    fn add(&mut self, newest: WaitingConnect) -> Result<(Option<WaitingConnect>, bool)> {
        let device = newest.origin.device.id();
        self.list.reserve(1, GFP_KERNEL)?;
        self.busy.reserve(1, GFP_KERNEL)?;
        let replaced = self.replaced(&newest.connect);
        if replaced.is_some() && !self.left.add(newest.origin.name.src) {
            return Err(EBUSY);
        }
        let given_up = replaced.and_then(|index| self.list.remove(index).ok());
        self.list.push_within_capacity(newest).map_err(|_| ENOMEM)?;
        let is_busy = self.busy.contains(&device);
        if !is_busy {
            self.busy.push_within_capacity(device).map_err(|_| ENOMEM)?;
        }
        Ok((given_up, !is_busy))
    }

    /// Takes the next request at `device`; without one its worker ends.
    fn take(&mut self, device: DeviceId) -> Option<WaitingConnect> {
        let of_device = |waiting: &WaitingConnect| waiting.origin.device.id() == device;
        let next = connect_backlog::next(self.list.iter().map(of_device));
        let taken = next.and_then(|index| self.list.remove(index).ok());
        if taken.is_none() {
            self.busy.retain(|busy| *busy != device);
        }
        taken
    }
}

/// A place among the requests that work items drop, until this is dropped.
struct Place {
    registry: Arc<Registry>,
    /// The address for whose newest request it is.
    source: Addr,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.registry.backlog.lock().left.dropped(self.source);
    }
}

impl Registry {
    /// Has a worker answer a request that begins a path. Sleeps.
    ///
    /// # Errors
    ///
    /// `EBUSY` if too many requests are being dropped for others from its address, `ENOMEM`; the
    /// request is rejected then.
    pub(crate) fn answer_later(
        self: &Arc<Self>,
        connect: Connect,
        origin: Origin,
        request: ConnectRequest<'_>,
    ) -> Result {
        let (device, source) = (origin.device.id(), origin.name.src);
        let events = Events::new()?;
        let waiting = WaitingConnect {
            connect,
            origin,
            pending: request.prepare(events.clone())?,
            events,
        };
        let (given_up, needs_worker) = self.backlog.lock().add(waiting)?;
        if let Some(given_up) = given_up {
            let place = Place {
                registry: self.clone(),
                source,
            };
            // Not here, where the handler locks of the listener and of the newest request are held:
            // the drop takes that of the older one. Without memory for a work item it is dropped
            // here all the same: no handler of it waits for those two.
            let _ = self
                .shared
                .queue
                .try_spawn(GFP_KERNEL, move || drop((given_up, place)));
        }
        if needs_worker {
            let registry = self.clone();
            let answer = move || registry.answer_all(device);
            if self.shared.queue.try_spawn(GFP_KERNEL, answer).is_err() {
                self.answer_all(device);
            }
        }
        Ok(())
    }

    /// Answers all requests that wait at a device.
    fn answer_all(self: &Arc<Self>, device: DeviceId) {
        loop {
            let next = self.backlog.lock().take(device);
            match next {
                Some(waiting) => self.answer(waiting),
                None => return,
            }
        }
    }

    /// Answers a request. Dropping it rejects it.
    fn answer(self: &Arc<Self>, waiting: WaitingConnect) {
        let WaitingConnect {
            connect,
            origin,
            pending,
            events,
        } = waiting;
        if events.is_over() {
            return;
        }
        let found = self.path_for(&connect, &origin);
        // An error is one of the identifier, which rejects the request.
        let _ = pending.handle(|pending| match found {
            Ok(path) => path.join(&connect, pending, &events),
            Err(refusal) => refuse_pending(pending, &refusal),
        });
    }
}
