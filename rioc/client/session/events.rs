// SPDX-License-Identifier: GPL-2.0

//! Events of RTRS.

use kernel::prelude::*;
use rtrs_client::{
    OnePath,
    SessionEvents, //
};

use super::{
    Session,
    State, //
};

impl SessionEvents for Session {
    fn connected(&self) -> Result {
        self.attach_again()?;
        self.set_state(State::Connected);
        Ok(())
    }

    fn disconnected(&self) {
        self.set_state(State::Waiting);
    }

    fn validate_path(&self, path: &OnePath<'_>) -> Result<bool> {
        loop {
            let before = self.attached()?;
            let now = self.attach(path)?;
            let is_same = (before.boot, before.client) == (now.boot, now.client);
            if is_same && now.knows_operations_of(&before) {
                return Ok(true);
            }
            // The server uses that store for all paths of the session from now on.
            if self.use_attached(Some(before), &now) {
                return Ok(false);
            }
        }
    }

    fn io_failed(&self) {
        self.set_state(State::Failing);
    }

    fn carries_swap(&self) -> bool {
        false
    }
}
