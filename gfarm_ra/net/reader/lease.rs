// SPDX-License-Identifier: GPL-2.0

//! Waits for the right to a descriptor.

use kernel::prelude::*;

use super::Reader;

impl Reader {
    /// Takes the right to a descriptor, if the file has none. One that is opened `again` has two
    /// descriptors then, so few others may wait to be closed. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// Returns `ENFILE` if all that there may be are in use, `EIO` if waits are interrupted,
    /// `ERESTARTSYS` when the task is killed.
    pub(super) fn take_lease(&mut self, again: bool, interrupts: u32) -> Result {
        let client = &self.client;
        if again {
            client.link().await_closes(interrupts)?;
        }
        if self.lease.is_none() {
            self.lease = Some(client.descriptors().take(interrupts)?);
        }
        Ok(())
    }
}
