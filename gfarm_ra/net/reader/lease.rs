// SPDX-License-Identifier: GPL-2.0

//! Waits for the right to a descriptor, or leaves that to the first read.

use kernel::prelude::*;

use super::Reader;
use crate::{
    net::content::Seen,
    proto::{
        error::GfarmError,
        open_file::Event,
        retry::Fault, //
    }, //
};

impl Reader {
    /// Has the label judge the object that is found by the first read: it was opened before, by
    /// another reader.
    pub(in crate::net) fn opened_later(mut self) -> Self {
        self.was_opened = true;
        self
    }

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

    /// Opens the file at gfmd; once more if that had no room, when other files have given their
    /// descriptors back.
    pub(super) fn open_with_room(
        &mut self,
        interrupts: u32,
        take: &mut dyn FnMut(&Seen<'_>),
    ) -> Result<Event> {
        let event = self.open_at_gfmd(take)?;
        let full = Fault::Server(GfarmError::TOO_MANY_OPEN_FILES);
        match event {
            Event::GfmdFailed(failure) if failure.fault == full => {}
            event => return Ok(event),
        }
        match self.client.descriptors().make_room(interrupts) {
            Ok(()) => self.open_at_gfmd(take),
            Err(ENFILE) => Ok(event),
            Err(error) => Err(error),
        }
    }
}
