// SPDX-License-Identifier: GPL-2.0

//! Chooses the path of a request.

use kernel::{
    prelude::*,
    sync::rcu, //
};
use kernel_ext::errno;
use rtrs_core::proto::{
    failover::Resent,
    policy::{
        PathLoad,
        Tried, //
    },
    quarantine::Place, //
};

use crate::client::{
    io::{
        prepare::{
            READ,
            WRITE, //
        },
        request::Attempt,
        transfer::{
            AnyTransfer,
            Direction,
            IoQueue,
            Known,
            Outbound,
            Rejected,
            Transfer, //
        }, //
    },
    path::{
        connections::{
            Connections,
            ADMIN, //
        },
        Path, //
    },
    session::{
        paths::Paths,
        Session, //
    }, //
};

impl Connections {
    /// Sends a request on connection `cid`.
    #[inline(always)]
    fn send<const IS_WRITE: bool, T: Outbound>(
        &self,
        guard: &rcu::Guard,
        cid: usize,
        id: u16,
        message: &[u8],
        attempt: Attempt,
        transfer: T,
    ) -> Result<(), Rejected<T>> {
        let Some(to) = self.connection(cid) else {
            return Err(Rejected::new(EINVAL, transfer));
        };
        to.send::<IS_WRITE, T>(
            (&self.requests, guard),
            (cid, id),
            message,
            attempt,
            transfer,
        )
    }
}

impl Path {
    /// Sends a request on connection `cid` of this path.
    #[inline(always)]
    fn send<const IS_WRITE: bool, T: Outbound>(
        &self,
        guard: &rcu::Guard,
        cid: usize,
        id: u16,
        message: &[u8],
        attempt: Attempt,
        transfer: T,
    ) -> Result<(), Rejected<T>> {
        match self.connections.read(guard) {
            Some(connections) => {
                connections.send::<IS_WRITE, T>(guard, cid, id, message, attempt, transfer)
            }
            None => Err(Rejected::new(errno::ECONNABORTED, transfer)),
        }
    }

    /// Returns what the policy chooses by.
    ///
    /// A path that is lost has its connections until its teardown runs. Nothing is sent again on
    /// them: it asks no server about the lives that have ended since it came up, so an earlier copy
    /// of a request may be executed after one that it carries.
    pub(super) fn load(&self, guard: &rcu::Guard) -> PathLoad {
        let connections = self.connections.read(guard);
        PathLoad {
            connected: connections.is_some() && self.is_connected(),
            inflight: connections.map_or(0, |t| t.requests.counted()),
            latency_ns: self.liveness.latency_ns(),
        }
    }
}

/// Returns whether a request that one of `paths` has given back so may be sent on another one.
#[inline(always)]
fn may_try_another(paths: &Paths, error: Error) -> bool {
    paths.all.len() > 1 && error != EBUSY && error != EMSGSIZE
}

impl Session {
    /// Sends a request: `message` for the upper layer's peer, and the data of `transfer`.
    ///
    /// `tag` is below [`Session::io_depth`], and no other request with it is in flight. Any
    /// context.
    ///
    /// On success [`Transfer::done`] is called later, or has been called already. Otherwise the
    /// transfer comes back in [`Rejected`]: all connected paths were tried.
    #[inline(always)]
    pub fn submit<T: Transfer>(
        &self,
        tag: u16,
        io_queue: IoQueue,
        direction: Direction,
        message: &[u8],
        transfer: T,
    ) -> Result<(), Rejected<T>> {
        self.submit_on::<true, T>(tag, io_queue, direction, message, transfer)
    }

    /// Sends a request as [`Self::submit`] does, but tries one path only. If it comes back although
    /// it [may be sent](Self::may_send_again) on another one, the caller makes it anew for
    /// `submit`: what that would need is not kept while the request is sent.
    #[inline(always)]
    pub fn submit_once<T: Transfer>(
        &self,
        tag: u16,
        io_queue: IoQueue,
        direction: Direction,
        message: &[u8],
        transfer: T,
    ) -> Result<(), Rejected<T>> {
        self.submit_on::<false, T>(tag, io_queue, direction, message, transfer)
    }

    /// Returns whether a request that [`Self::submit_once`] has given back with `error` may be sent
    /// on another path. Any context.
    #[cold]
    pub fn may_send_again(&self, error: Error) -> bool {
        let guard = rcu::read_lock();
        let paths = self.paths.read(&guard);
        error != errno::EALREADY && paths.is_some_and(|paths| may_try_another(paths, error))
    }

    #[inline(always)]
    fn submit_on<const ANY: bool, T: Transfer>(
        &self,
        tag: u16,
        io_queue: IoQueue,
        direction: Direction,
        message: &[u8],
        transfer: T,
    ) -> Result<(), Rejected<T>> {
        let cid = self.cid_of(io_queue);
        let Some(id) = self.io_id(tag) else {
            return Err(Rejected::new(EINVAL, transfer));
        };
        if !self.quarantine.is_idle() {
            return self.submit_carefully(id, cid, direction, message, transfer);
        }
        let sent = match direction {
            Direction::Read => {
                let transfer = Known::of_read(transfer);
                self.send_on_route::<READ, ANY, _>(cid, id, message, transfer)
            }
            Direction::Write => {
                let transfer = Known::of_write(transfer);
                self.send_on_route::<WRITE, ANY, _>(cid, id, message, transfer)
            }
        };
        sent.map_err(|back| Rejected::new(back.error, back.transfer.transfer))
    }

    /// Sends a request as [`Self::submit`] does, while chunks of the session are held or requests
    /// paused: in a chunk that is not held, or for a request that was lost in the chunk in which it
    /// was.
    #[cold]
    #[inline(never)]
    fn submit_carefully<T: Transfer>(
        &self,
        id: u16,
        cid: usize,
        direction: Direction,
        message: &[u8],
        transfer: T,
    ) -> Result<(), Rejected<T>> {
        let (ticket, now_ms) = (transfer.ticket(), self.now_ms());
        self.quarantine.end_pause(now_ms);
        if ticket.is_some_and(|ticket| ticket.is_paused(now_ms)) {
            return Err(Rejected::new(errno::EALREADY, transfer));
        }
        let place = if ticket.is_some() || self.quarantine.may_hold(id) {
            self.quarantine.take(id, ticket, now_ms)
        } else {
            Some(Place {
                chunk: id,
                is_again: false,
            })
        };
        let Some(Place { chunk, is_again }) = place else {
            return Err(Rejected::new(errno::EALREADY, transfer));
        };
        let resent = if is_again {
            Resent::REMADE
        } else {
            Resent::NEVER
        };
        let transfer = match direction {
            Direction::Read => Known::of_read(transfer),
            Direction::Write => Known::of_write(transfer),
        };
        let guard = rcu::read_lock();
        let sent = match (self.paths.read(&guard), direction) {
            (None, _) => Err(Rejected::new(errno::ECONNABORTED, transfer)),
            (Some(paths), Direction::Read) => {
                self.send_again::<READ, _>(paths, &guard, cid, chunk, message, resent, transfer)
            }
            (Some(paths), Direction::Write) => {
                self.send_again::<WRITE, _>(paths, &guard, cid, chunk, message, resent, transfer)
            }
        };
        sent.map_err(|back| {
            if is_again {
                self.quarantine.given_back(chunk);
            }
            Rejected::new(back.error, back.transfer.transfer)
        })
    }

    /// Sends an admin message on the path that the policy chooses.
    pub(crate) fn send_admin_on_any_path(
        &self,
        direction: Direction,
        id: u16,
        message: &[u8],
        transfer: AnyTransfer,
    ) -> Result<(), Rejected<AnyTransfer>> {
        match direction {
            Direction::Read => self.send_on_route::<READ, true, _>(ADMIN, id, message, transfer),
            Direction::Write => self.send_on_route::<WRITE, true, _>(ADMIN, id, message, transfer),
        }
    }

    /// Sends a request on the path that the policy chooses, by its connection `cid`; if that gives
    /// it back, on `ANY` other one.
    #[inline(always)]
    fn send_on_route<const IS_WRITE: bool, const ANY: bool, T: Outbound>(
        &self,
        cid: usize,
        id: u16,
        message: &[u8],
        transfer: T,
    ) -> Result<(), Rejected<T>> {
        let guard = rcu::read_lock();
        let Some(paths) = self.paths.read(&guard) else {
            return Err(Rejected::new(errno::ECONNABORTED, transfer));
        };
        let only = match paths.all.as_slice() {
            [path] => Some(path),
            _ => None,
        };
        // The only path has code of its own for usual requests, without a choice and with nothing
        // to count.
        if let (false, Some(path)) = (ANY, only) {
            return path.send::<IS_WRITE, T>(&guard, cid, id, message, Attempt::FIRST, transfer);
        }
        let route = match only {
            Some(path) => (path.connections.read(&guard), Attempt::FIRST),
            None => self.route(paths, &guard),
        };
        let sent = match route {
            (Some(connections), attempt) => {
                connections.send::<IS_WRITE, T>(&guard, cid, id, message, attempt, transfer)
            }
            (None, _) => Err(Rejected::new(errno::ECONNABORTED, transfer)),
        };
        match sent {
            Err(back) if ANY && may_try_another(paths, back.error) => {
                let resent = Resent::NEVER;
                self.send_on_one_of::<IS_WRITE, T>(paths, &guard, cid, id, message, resent, back)
            }
            done => done,
        }
    }

    /// Sends a request that was sent `resent` times before, or never, while there is more to think
    /// of than [`Self::submit`] does.
    #[cold]
    #[expect(clippy::too_many_arguments, reason = "those of a request")]
    pub(crate) fn send_again<const IS_WRITE: bool, T: Outbound>(
        &self,
        paths: &Paths,
        guard: &rcu::Guard,
        cid: usize,
        id: u16,
        message: &[u8],
        resent: Resent,
        transfer: T,
    ) -> Result<(), Rejected<T>> {
        let back = Rejected::new(errno::ECONNABORTED, transfer);
        self.send_on_one_of::<IS_WRITE, T>(paths, guard, cid, id, message, resent, back)
    }

    /// Sends a request on one of the paths, all of which it looks at.
    #[cold]
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "those of a request")]
    fn send_on_one_of<const IS_WRITE: bool, T: Outbound>(
        &self,
        paths: &Paths,
        guard: &rcu::Guard,
        cid: usize,
        id: u16,
        message: &[u8],
        resent: Resent,
        mut back: Rejected<T>,
    ) -> Result<(), Rejected<T>> {
        let policy = self.policy();
        let attempt = Attempt {
            resent,
            is_counted: policy.counts_requests(),
        };
        let mut tried = Tried::NONE;
        loop {
            let last = &self.turns.this_cpu().again;
            let index = usize::try_from(last.get()).unwrap_or(0).checked_sub(1);
            let loads = paths.all.iter().map(|path| path.load(guard));
            let Some(chosen) = policy.choose(index, &tried, loads) else {
                return Err(back);
            };
            let Some(path) = paths.all.get(chosen) else {
                return Err(back);
            };
            tried.insert(chosen);
            last.set((chosen as u64).wrapping_add(1));
            match path.send::<IS_WRITE, T>(guard, cid, id, message, attempt, back.transfer) {
                Err(again) if may_try_another(paths, again.error) => back = again,
                done => return done,
            }
        }
    }

    /// Handles the completions of a poll queue, from 0, on all paths; returns their number.
    ///
    /// Calls [`Transfer::done`] of requests that have ended. Any context that may not sleep.
    pub fn poll(&self, queue: u32) -> u32 {
        let cid = self.cid_of(IoQueue::Poll(queue));
        let guard = rcu::read_lock();
        let Some(paths) = self.paths.read(&guard) else {
            return 0;
        };
        let mut handled = 0u32;
        for path in &paths.all {
            let connections = path.connections.read(&guard);
            if let Some(connection) = connections.and_then(|t| t.connection(cid)) {
                handled = handled.saturating_add(connection.cq.poll(u32::MAX));
            }
        }
        handled
    }
}
