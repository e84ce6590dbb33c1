// SPDX-License-Identifier: GPL-2.0

//! Sends requests on a connection: each alone, or several by one call into the driver.

use kernel::{
    prelude::*,
    sync::rcu, //
};
use rdma::{
    Batch,
    WrBuffer, //
};

use crate::client::{
    io::{
        connection::ConnectionContext,
        request::Attempt,
        send::{
            relay,
            Outgoing, //
        },
        table::RequestTable,
        transfer::{
            Outbound,
            Rejected, //
        }, //
    },
    path::{
        connections::Connection,
        error::PathError, //
    }, //
};

impl Connection {
    /// Posts the work requests of committed requests.
    #[inline(always)]
    pub(super) fn post<const N: usize, const S: usize>(
        &self,
        chain: &mut Batch<'_, ConnectionContext, N, S>,
    ) {
        if let Err(e) = chain.post() {
            // Part of them may be posted: the teardown of the path ends the requests.
            self.qp.handler().fail(PathError::Post(e));
        }
    }

    /// Sends a request for chunk `id`; this is connection `cid` of its path.
    ///
    /// On success `transfer` is taken; a completion or the teardown ends it. On failure it is
    /// returned with `EBUSY` if the chunk is in use, `EMSGSIZE`, `EINVAL`, or the error of mapping
    /// its memory. Any context.
    #[inline(always)]
    pub(crate) fn send<const IS_WRITE: bool, T: Outbound>(
        &self,
        (requests, _guard): (&RequestTable, &rcu::Guard),
        (cid, id): (usize, u16),
        message: &[u8],
        attempt: Attempt,
        mut transfer: T,
    ) -> Result<(), Rejected<T>> {
        let Some(entry) = requests.entries.get(usize::from(id)) else {
            return Err(Rejected::new(EINVAL, transfer));
        };
        let Some(held) = entry.acquire() else {
            return Err(Rejected::new(EBUSY, transfer));
        };
        let outgoing = Outgoing {
            connection: self,
            requests,
            entry,
            cid,
            id,
            message,
            attempt,
        };
        if IS_WRITE {
            return match transfer.is_one_piece() {
                true => outgoing.send_piece(held, transfer),
                false => relay(outgoing.send_write(held, transfer)),
            };
        }
        let data_len = transfer.data_len();
        if outgoing.is_copied(&held, data_len) {
            outgoing.send_copied(held, data_len, transfer)
        } else {
            relay(outgoing.send_read(held, transfer))
        }
    }
}

/// The most requests that are posted together. Their work requests are on the stack.
pub(crate) const TOGETHER_MAX: usize = 8;
/// A request that is posted together with others has one work request, with its data and its
/// message.
const SEGMENTS: usize = TOGETHER_MAX * 2;

/// The memory for the work requests of [`Together`].
pub(crate) type Space = WrBuffer<TOGETHER_MAX, SEGMENTS>;

/// Requests that are sent together on one connection, at most [`TOGETHER_MAX`].
///
/// Each is in flight from its [`add`](Self::add) on, as one whose thread was interrupted before the
/// post: the drop posts them, or the teardown ends them.
pub(crate) struct Together<'a> {
    connection: &'a Connection,
    requests: &'a RequestTable,
    cid: usize,
    attempt: Attempt,
    chain: Batch<'a, ConnectionContext, TOGETHER_MAX, SEGMENTS>,
}

impl<'a> Together<'a> {
    /// Begins with none; `connection` is that with the number `cid` of its path. Who holds the
    /// guard has it until the drop.
    #[inline(always)]
    pub(crate) fn new(
        (connection, requests, _guard): (&'a Connection, &'a RequestTable, &'a rcu::Guard),
        cid: usize,
        attempt: Attempt,
        space: &'a mut Space,
    ) -> Self {
        Self {
            connection,
            requests,
            cid,
            attempt,
            chain: connection.qp.batch(space),
        }
    }

    /// Adds a request for chunk `id`. One that needs more than one work request, or a key, is sent
    /// alone. Fails as [`Connection::send`] does.
    #[inline(always)]
    pub(crate) fn add<const IS_WRITE: bool, T: Outbound>(
        &mut self,
        id: u16,
        message: &[u8],
        mut transfer: T,
    ) -> Result<(), Rejected<T>> {
        let Some(entry) = self.requests.entries.get(usize::from(id)) else {
            return Err(Rejected::new(EINVAL, transfer));
        };
        let Some(held) = entry.acquire() else {
            return Err(Rejected::new(EBUSY, transfer));
        };
        let outgoing = Outgoing {
            connection: self.connection,
            requests: self.requests,
            entry,
            cid: self.cid,
            id,
            message,
            attempt: self.attempt,
        };
        if IS_WRITE {
            if !transfer.is_one_piece() {
                return relay(outgoing.send_write(held, transfer));
            }
            return match outgoing.map_piece(&mut transfer) {
                Ok(()) => outgoing.add_piece(&mut self.chain, held, transfer),
                Err(e) => Err(Rejected::new(e, transfer)),
            };
        }
        let data_len = transfer.data_len();
        if outgoing.is_copied(&held, data_len) {
            outgoing.add_copied(&mut self.chain, held, data_len, transfer)
        } else {
            relay(outgoing.send_read(held, transfer))
        }
    }
}

impl Drop for Together<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        self.connection.post(&mut self.chain);
    }
}
