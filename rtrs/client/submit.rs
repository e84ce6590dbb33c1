// SPDX-License-Identifier: GPL-2.0

//! How a request finds its path.

use core::sync::atomic::Ordering;

use kernel::{
    prelude::*,
    sync::{
        rcu,
        Arc, //
    },
};
use kernel_ext::errno;
use rtrs_core::proto::policy::{
    PathLoad,
    Tried, //
};

use crate::{
    path::Path,
    request::{
        READ,
        WRITE, //
    },
    session::Session,
    transfer::{
        AnyTransfer,
        Direction,
        Lane,
        Rejected,
        Transfer, //
    },
};

impl Path {
    /// Sends a request on this path; `None` is the lane of admin messages.
    #[inline(always)]
    fn send<const IS_WRITE: bool>(
        &self,
        guard: &rcu::Guard,
        lane: Option<Lane>,
        id: u16,
        message: &[u8],
        resent: u8,
        transfer: &mut Option<AnyTransfer>,
    ) -> Result {
        let transport = self.transport.read(guard).ok_or(errno::ECONNABORTED)?;
        let connection = match lane {
            Some(lane) => transport.connection(lane),
            None => transport.admin(),
        };
        connection.ok_or(EINVAL)?.send::<IS_WRITE>(
            &transport.exchange,
            id,
            message,
            resent,
            transfer,
        )
    }

    /// What the choice among paths looks at.
    fn load(&self, guard: &rcu::Guard) -> PathLoad {
        let transport = self.transport.read(guard);
        PathLoad {
            connected: transport.is_some(),
            inflight: transport.map_or(0, |t| t.exchange.inflight.load(Ordering::Relaxed)),
            latency_ns: self.pulse.latency_ns(),
        }
    }
}

impl Session {
    /// Sends a request: `message` for the upper layer's peer, and the data of `transfer`.
    ///
    /// `tag` is below [`Session::io_depth`], and no other request with it is in flight. Any
    /// context.
    ///
    /// On success [`Transfer::done`] is called later, or has been called already. Otherwise the
    /// transfer comes back in [`Rejected`].
    #[inline]
    pub fn submit<T: Transfer>(
        &self,
        tag: u16,
        lane: Lane,
        direction: Direction,
        message: &[u8],
        transfer: T,
    ) -> Result<(), Rejected<T>> {
        let mut transfer = Some(AnyTransfer::new(transfer));
        let done = match direction {
            Direction::Read => self.submit_read(tag, lane, message, &mut transfer),
            Direction::Write => self.submit_write(tag, lane, message, &mut transfer),
        };
        match done {
            Ok(()) => Ok(()),
            Err(error) => match transfer.and_then(AnyTransfer::into_inner) {
                Some(transfer) => Err(Rejected { error, transfer }),
                // A request that was taken is not rejected.
                None => Ok(()),
            },
        }
    }

    /// [`Self::submit`] without the type, for reads.
    fn submit_read(
        &self,
        tag: u16,
        lane: Lane,
        message: &[u8],
        transfer: &mut Option<AnyTransfer>,
    ) -> Result {
        let id = self.io_id(tag).ok_or(EINVAL)?;
        self.send_on_any_path::<READ>(Some(lane), id, message, transfer)
    }

    /// [`Self::submit`] without the type, for writes.
    fn submit_write(
        &self,
        tag: u16,
        lane: Lane,
        message: &[u8],
        transfer: &mut Option<AnyTransfer>,
    ) -> Result {
        let id = self.io_id(tag).ok_or(EINVAL)?;
        self.send_on_any_path::<WRITE>(Some(lane), id, message, transfer)
    }

    /// Sends an admin message on the path that the policy chooses.
    pub(crate) fn send_admin_on_any_path(
        &self,
        direction: Direction,
        id: u16,
        message: &[u8],
        transfer: &mut Option<AnyTransfer>,
    ) -> Result {
        match direction {
            Direction::Read => self.send_on_any_path::<READ>(None, id, message, transfer),
            Direction::Write => self.send_on_any_path::<WRITE>(None, id, message, transfer),
        }
    }

    /// Sends a request on the path that the policy chooses; `None` is the lane of admin messages.
    #[inline(always)]
    fn send_on_any_path<const IS_WRITE: bool>(
        &self,
        lane: Option<Lane>,
        id: u16,
        message: &[u8],
        transfer: &mut Option<AnyTransfer>,
    ) -> Result {
        let guard = rcu::read_lock();
        let paths = self.paths.read(&guard).ok_or(errno::ECONNABORTED)?;
        match paths.0.as_slice() {
            [path] => path.send::<IS_WRITE>(&guard, lane, id, message, 0, transfer),
            paths => self.send_on_one_of::<IS_WRITE>(paths, &guard, lane, id, message, 0, transfer),
        }
    }

    /// As [`Self::send_on_any_path`], for sessions of several paths and for requests that were
    /// `resent` so often before.
    #[inline(never)]
    #[expect(clippy::too_many_arguments, reason = "a tail call of the IO path")]
    pub(crate) fn send_on_one_of<const IS_WRITE: bool>(
        &self,
        paths: &[Arc<Path>],
        guard: &rcu::Guard,
        lane: Option<Lane>,
        id: u16,
        message: &[u8],
        resent: u8,
        transfer: &mut Option<AnyTransfer>,
    ) -> Result {
        let policy = self.policy();
        let mut tried = Tried::NONE;
        let mut result = Err(errno::ECONNABORTED);
        loop {
            let last = &self.last_path.this_cpu().0;
            let index = usize::try_from(last.get()).unwrap_or(0).checked_sub(1);
            let loads = paths.iter().map(|path| path.load(guard));
            let Some(chosen) = policy.choose(index, &tried, loads) else {
                return result;
            };
            let Some(path) = paths.get(chosen) else {
                return result;
            };
            tried.insert(chosen);
            last.set((chosen as u64).wrapping_add(1));
            result = path.send::<IS_WRITE>(guard, lane, id, message, resent, transfer);
            match result {
                Err(e) if e != EBUSY && e != EMSGSIZE => {}
                _ => return result,
            }
        }
    }

    /// Handles the completions of a poll queue, from 0, on all paths; returns how many there were.
    ///
    /// Calls [`Transfer::done`] of what has ended. Any context that may not sleep.
    pub fn poll(&self, queue: u32) -> u32 {
        let guard = rcu::read_lock();
        let Some(paths) = self.paths.read(&guard) else {
            return 0;
        };
        let mut handled = 0u32;
        for path in &paths.0 {
            let transport = path.transport.read(&guard);
            if let Some(connection) = transport.and_then(|t| t.connection(Lane::Poll(queue))) {
                handled = handled.saturating_add(connection.cq.poll(u32::MAX));
            }
        }
        handled
    }
}
