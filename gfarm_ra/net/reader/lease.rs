// SPDX-License-Identifier: GPL-2.0

//! Waits for the right to a descriptor.

use kernel::prelude::*;

use super::Reader;

impl Reader {
    /// Takes the right to a descriptor, if the file has none; waits as long as gfmd is to close
    /// others. One that is opened `again` has two descriptors then, so few others may wait to be
    /// closed. Sleeps, killable.
    ///
    /// # Errors
    ///
    /// Returns `ENFILE` if all that there may be are in use, `ERESTARTSYS` when the task is killed.
    pub(super) fn take_lease(&mut self, again: bool, interrupts: u32) -> Result {
        let client = &self.client;
        if again {
            client.link().await_closes(interrupts)?;
        }
        while self.lease.is_none() {
            match client.descriptors().take() {
                Ok(lease) => self.lease = Some(lease),
                Err(ENFILE)
                    if client.link().is_closing() && client.setup().interrupts() == interrupts => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
