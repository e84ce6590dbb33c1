// SPDX-License-Identifier: GPL-2.0

//! The treatment of a device that does not flush the connections of a path.
//!
//! Such a device may still use all memory that it was given: it may write into the pages of a read,
//! and send those of a write. So these requests are neither answered nor sent again, and the
//! connections stay, until a later drain succeeds (decision 0014). The path starts no attempt to
//! connect before that, and is not closed.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use crate::client::{
    io::table::RequestTable,
    path::{
        connections::{
            hang_up,
            Connection,
            Connections, //
        },
        error::PathError,
        resources::Resources,
        Path, //
    }, //
};

/// Connections whose queue pairs the device has not flushed in time, with the memory that it may
/// still use.
pub(crate) enum Undrained {
    /// The connections of an attempt to connect that carried no request.
    Setup(KVec<Connection>, Option<Arc<RequestTable>>),
    /// The connections of a life, whose requests wait.
    Life(Arc<Connections>),
}

impl Path {
    /// Logs that connections could not be drained, and stores them.
    #[cold]
    pub(crate) fn keep_undrained(
        &self,
        resources: &mut Resources,
        undrained: Undrained,
        error: Error,
    ) {
        pr_err!(
            "session {}: the device does not end the work requests of the path to {} ({error:?}), \
             its requests wait until it does\n",
            self.session.name(),
            self.dst()
        );
        // There is none yet: no connection is made before it is drained.
        resources.undrained = Some(undrained);
    }

    /// Tries again to drain what could not be drained, if there is anything, and releases it. The
    /// requests go back to the upper layer. `attempts` is locked; sleeps.
    pub(crate) fn drain_again(&self, resources: &mut Resources) -> Result<(), PathError> {
        let Some(undrained) = resources.undrained.take() else {
            return Ok(());
        };
        match undrained {
            Undrained::Setup(connections, requests) => {
                if hang_up(&connections).is_err() {
                    resources.undrained = Some(Undrained::Setup(connections, requests));
                    return Err(PathError::Undrained);
                }
                drop(connections);
                if let Some(requests) = requests {
                    resources.take_back(requests);
                }
            }
            Undrained::Life(connections) => {
                if !self.give_back_all(&connections) {
                    resources.undrained = Some(Undrained::Life(connections));
                    return Err(PathError::Undrained);
                }
                Self::end_life(resources, connections);
            }
        }
        pr_info!(
            "session {}: the work requests of the path to {} have ended\n",
            self.session.name(),
            self.dst()
        );
        Ok(())
    }

    /// Drains connections and gives their requests back to the upper layer; `false` if they could
    /// not be drained.
    fn give_back_all(&self, connections: &Connections) -> bool {
        let Ok(drained) = connections.hang_up() else {
            return false;
        };
        // It was drained so late that there may have been an outage meanwhile.
        self.give_on(connections, &drained, None);
        true
    }
}
