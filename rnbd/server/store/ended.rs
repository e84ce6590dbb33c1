// SPDX-License-Identifier: GPL-2.0

//! Ends of the engine's IO.

use kernel::{
    prelude::*,
    sync::Arc, //
};

use super::{
    engine::{
        Engine,
        Event, //
    },
    shared::Core, //
};
use crate::{
    server::session::LOG_LIMIT,
    sidecar::queue::{
        Kind,
        Ticket, //
    }, //
};

/// An IO that has ended.
pub(super) struct Ended {
    /// Whose it was.
    pub(super) event: Event,
    pub(super) result: Result,
    /// It was not begun: the device was not to be used. Then `result` is an error.
    pub(super) is_refused: bool,
}

impl Engine {
    /// Takes note of it.
    pub(super) fn ended(&mut self, core: &Arc<Core>, ended: Ended) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let Ended {
            event,
            result,
            is_refused,
        } = ended;
        let result = match (event, result) {
            (Event::Data(ticket), Err(_)) if self.store.needs_no_data(ticket, &self.pages) => {
                Ok(())
            }
            _ => result,
        };
        let is_ok = result.is_ok();
        if is_refused && !is_ok && self.refused(event) {
            return;
        }
        match event {
            Event::HomeRead(slot) => {
                let is_ok = is_ok && self.pages.load(slot).is_ok();
                self.store.home_read(slot, is_ok);
            }
            Event::Record => self.store.record_written(is_ok),
            Event::HomeWritten(slot) => self.store.home_written(slot, is_ok),
            Event::Flushed => self.store.flushed(is_ok),
            Event::Grown => self.growth_step_ended(core, result, !is_refused),
            Event::Data(ticket) if self.is_scrub(ticket) => {
                self.scrub_piece_read(core, ticket, result);
            }
            Event::Data(ticket) => self.data_ended(ticket, result),
            Event::ReadBack(ticket) => self.block_read_back(core, ticket, is_ok),
        }
        let is_of_sidecar = !matches!(event, Event::Data(_) | Event::ReadBack(_) | Event::Grown);
        if !is_ok && is_of_sidecar && LOG_LIMIT.allow().is_some() {
            let name = core.device().name().unwrap_or_default();
            pr_err!("{name}: IO of the sidecar has failed: {:?}\n", result.err());
        }
    }

    /// Takes note of an IO that was not begun; returns `false` if it is as good as one that has
    /// failed.
    #[cold]
    fn refused(&mut self, event: Event) -> bool {
        match event {
            Event::Record => self.store.record_refused(),
            Event::HomeWritten(slot) => self.store.home_refused(slot),
            Event::Flushed => self.store.flush_refused(),
            Event::Data(ticket) if !self.is_scrub(ticket) => self.data_refused(ticket),
            Event::ReadBack(ticket) => self.store.read_back_refused(ticket),
            Event::Data(_) | Event::HomeRead(_) | Event::Grown => return false,
        }
        true
    }

    fn data_refused(&mut self, ticket: Ticket) {
        let piece = self.pieces.get(ticket).copied().flatten();
        if let Some(piece) = piece.filter(|piece| piece.kind != Kind::Discard) {
            self.fail(&piece, EIO);
        }
        self.store.data_refused(ticket, &mut self.pages);
    }
}
