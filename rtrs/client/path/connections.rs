// SPDX-License-Identifier: GPL-2.0

//! The connections of a connected path.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rdma::{
    cm::CmId,
    Cq,
    DeviceId,
    Drained,
    OwnedQp,
    Qp, //
};
use rtrs_core::proto::{
    fence::{
        Life,
        Place, //
    },
    imm::Imm, //
};

use crate::client::io::{
    connection::ConnectionContext,
    postponed::Aside,
    table::RequestTable, //
};

/// One connection: identifier, queue pair and completion queue.
///
/// Fields are dropped in declaration order: first no more events, then no more completions.
pub(crate) struct Connection {
    pub(crate) id: CmId,
    pub(crate) qp: OwnedQp<ConnectionContext>,
    pub(crate) cq: Arc<Cq>,
}

/// Disconnects and drains these connections: no completion can come any more, unless it fails;
/// sleeps.
pub(crate) fn hang_up(list: &[Connection]) -> Result {
    // All at once: the peers' answers overlap.
    for connection in list {
        // It fails where the connection was never up, or is down already.
        let _ = connection.id.disconnect();
    }
    drain(list)
}

fn drain(list: &[Connection]) -> Result {
    Qp::close_all(list.iter().map(|connection| &*connection.qp))
}

/// The number of the connection for admin messages.
pub(crate) const ADMIN: usize = 0;

/// The connections of a connected path. Senders read it under RCU; the path's teardown withdraws
/// it and shuts it down.
pub(crate) struct Connections {
    /// The connections by number: the admin connection, those of the IO queues, those of the poll
    /// queues.
    list: KVec<Connection>,
    pub(crate) requests: Arc<RequestTable>,
    /// The session at the server that they have reached.
    pub(crate) place: Place,
}

impl Connections {
    pub(crate) fn new(
        list: KVec<Connection>,
        requests: Arc<RequestTable>,
        place: Place,
    ) -> Result<Arc<Self>> {
        let connections = Self {
            list,
            requests,
            place,
        };
        Ok(Arc::new(connections, GFP_KERNEL)?)
    }

    /// Returns the connection for admin messages.
    #[inline]
    pub(crate) fn admin(&self) -> Option<&Connection> {
        self.list.first()
    }

    /// Returns the connection of this number, [`ADMIN`] or
    /// [that of a queue](crate::client::session::Session::cid_of); `None` if there is none.
    #[inline(always)]
    pub(crate) fn connection(&self, cid: usize) -> Option<&Connection> {
        self.list.get(cid)
    }

    /// Returns the name of this life at a server that knows the fence message.
    pub(crate) fn life(&self) -> Option<Life> {
        self.place.life()
    }

    /// Returns the number of connections.
    pub(crate) fn count(&self) -> u32 {
        // CAST: at most `CONNECTIONS_MAX`.
        self.list.len() as u32
    }

    /// Sends an empty message on the admin connection.
    pub(crate) fn send_admin_imm(&self, imm: Imm) -> Result {
        match self.admin() {
            Some(admin) => admin.qp.handler().send_imm(&admin.qp, imm),
            None => Ok(()),
        }
    }

    /// Goes on with the answers that were put aside, as far as their requests are posted. Returns
    /// whether others stay: for those a grace period is to be waited for before the next call.
    pub(crate) fn take_up_answers(&self) -> bool {
        let mut are_others = false;
        for (id, entry) in (0..=u16::MAX).zip(self.requests.entries.iter()) {
            let held = match entry.look_aside() {
                Aside::None => continue,
                Aside::Waits => {
                    are_others = true;
                    continue;
                }
                Aside::Posted(held) => held,
            };
            // It was sent on one of these.
            match self.list.get(usize::from(held.sent.cid)) {
                Some(Connection { qp, .. }) => qp.handler().invalidate_posted(qp, held, id),
                None => held.arm(),
            }
        }
        are_others
    }

    /// Handles the completions of sends, now and when more come that requests wait for.
    pub(crate) fn poll_send_cq_or_notify(&self) {
        for connection in &self.list {
            connection.qp.handler().poll_send_cq_or_notify();
        }
    }

    /// Disconnects and drains: no completion can come any more, and no memory of a request is
    /// reached; sleeps. Fails if the device does not flush a queue pair; may be called again.
    ///
    /// No context sends any more: the path has withdrawn this from its readers.
    pub(crate) fn hang_up(&self) -> Result<Drained<'_>> {
        hang_up(&self.list)?;
        self.drained()
    }

    /// Drains as [`Self::hang_up`] does, without a disconnect.
    pub(crate) fn drain(&self) -> Result<Drained<'_>> {
        drain(&self.list)?;
        self.drained()
    }

    fn drained(&self) -> Result<Drained<'_>> {
        self.requests.pd.drained().ok_or(EBUSY)
    }

    /// Disconnects and frees drained connections. Returns the request table, and the identifier of
    /// the admin connection, which is kept: where the link is down the disconnects of the others
    /// are lost, while this one is sent when the link works again. A server closes a path that
    /// loses one of its connections.
    ///
    /// `None` if another context still has a reference; its drop ends them.
    pub(crate) fn end(this: Arc<Self>) -> Option<(Arc<RequestTable>, Option<CmId>)> {
        let mut connections = Arc::into_unique_or_drop(this)?;
        let connections = connections.as_mut().get_mut();
        let mut stale_connection = None;
        for connection in core::mem::take(&mut connections.list) {
            // The queue pair ends here, and the identifier with it unless it is kept.
            let Connection { id, qp, cq } = connection;
            if stale_connection.is_none() {
                stale_connection = Some(id);
            } else {
                drop(id);
            }
            drop(qp);
            drop(cq);
        }
        Some((connections.requests.clone(), stale_connection))
    }

    /// Returns whether the connections use this port; [`None`]: any of the device.
    pub(crate) fn is_over(&self, device: DeviceId, port: Option<u32>) -> bool {
        let on_port = |port| {
            self.admin()
                .is_some_and(|admin| admin.id.port_number() == port)
        };
        self.requests.pd.device().id() == device && port.is_none_or(on_port)
    }
}
