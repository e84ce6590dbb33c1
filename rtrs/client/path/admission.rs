// SPDX-License-Identifier: GPL-2.0

//! The admission of connections to the senders of a session.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use rtrs_core::proto::recovery::{
    record::Operation,
    Action,
    Event,
    StaleConnection, //
};

use crate::client::path::{
    connections::Connections,
    error::PathError,
    Path, //
};

impl Path {
    /// Publishes connections to senders, when their server has been asked about all lives that were
    /// given up, and the upper layer has admitted them. Does both anew where another path is lost
    /// meanwhile. Returns `false` if the path is not to come up. Sleeps.
    pub(super) fn come_up(
        self: &Arc<Self>,
        connections: &Arc<Connections>,
    ) -> Result<bool, PathError> {
        let session = &self.session;
        loop {
            self.fence_lost_lives(connections)?;
            let admission = session.admit(self, connections)?;
            let mut stale_connection = StaleConnection::Leave;
            let is_up = session.path_up(admission, connections, || {
                let effects = self.decide(Event::Established);
                stale_connection = effects.stale_connection;
                let live = effects.action == Action::GoLive;
                if live {
                    self.did(Operation::GoLive);
                    drop(self.connections.replace(Some(connections.clone())));
                    session.refresh_routes();
                }
                live
            });
            self.carry_out(stale_connection);
            if let Some(is_up) = is_up {
                if is_up {
                    // A message may have ended its wait before its answer came.
                    self.queue_put_aside();
                    self.queue_poll_send_cqs();
                }
                return Ok(is_up);
            }
        }
    }
}
