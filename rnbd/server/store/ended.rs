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
    volume::Volume, //
};
use crate::{
    server::log_limit::LOG_LIMIT,
    sidecar::queue::{
        Kind,
        Ticket, //
    }, //
};

/// An IO that has ended.
pub(super) struct Ended {
    /// The IO that has ended.
    pub(super) event: Event,
    pub(super) result: Result,
    /// The IO was not begun, as the device was not to be used. Then `result` is an error.
    pub(super) is_refused: bool,
}

impl Engine {
    /// Takes note of it.
    pub(super) fn ended(&mut self, volume: &Arc<Volume>, ended: Ended) {
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
            Event::PiBlockRead(slot) | Event::PiBlockReadAgain(slot) if is_refused => {
                self.store.pi_block_read(slot, false);
            }
            Event::PiBlockRead(slot) => self.pi_block_read(volume, slot, result, false),
            Event::PiBlockReadAgain(slot) => self.pi_block_read(volume, slot, result, true),
            Event::PiBlockMended(slot) => self.pi_block_mended(volume, slot, is_ok),
            Event::Record => self.store.record_written(is_ok),
            Event::WrittenBack(slot) => self.store.written_back(slot, is_ok),
            Event::Flushed => self.store.flushed(is_ok),
            Event::Grown => self.growth_step_ended(volume, result, !is_refused),
            Event::Data(ticket) if self.is_scrub(ticket) => {
                self.scrub_piece_read(volume, ticket, result);
            }
            Event::Data(ticket) => self.data_ended(ticket, result),
            Event::ReadBack(ticket) => self.block_read_back(volume, ticket, is_ok),
        }
        let is_of_sidecar = !matches!(event, Event::Data(_) | Event::ReadBack(_) | Event::Grown);
        if !is_ok && is_of_sidecar && LOG_LIMIT.allow().is_some() {
            let name = volume.device().name().unwrap_or_default();
            pr_err!("{name}: IO of the sidecar has failed: {:?}\n", result.err());
        }
    }

    /// Takes note of an IO that was not begun; returns `false` if it is as good as one that has
    /// failed.
    #[cold]
    fn refused(&mut self, event: Event) -> bool {
        match event {
            Event::Record => self.store.record_refused(),
            Event::WrittenBack(slot) => self.store.write_back_refused(slot),
            Event::Flushed => self.store.flush_refused(),
            Event::Data(ticket) if !self.is_scrub(ticket) => self.data_refused(ticket),
            Event::ReadBack(ticket) => self.store.read_back_refused(ticket),
            Event::Data(_)
            | Event::PiBlockRead(_)
            | Event::PiBlockReadAgain(_)
            | Event::PiBlockMended(_)
            | Event::Grown => return false,
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
