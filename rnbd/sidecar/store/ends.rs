// SPDX-License-Identifier: GPL-2.0

//! Ends of IO that several requests wait for.

use core::borrow::BorrowMut;

use super::{
    super::pi_cache::Slot,
    Place,
    Stage,
    Store, //
};

impl<R: BorrowMut<[Place]>, H: BorrowMut<[Slot]>> Store<R, H> {
    /// The writes of the record that was started come to a stage.
    pub(super) fn end_record(&mut self, stage: Stage) {
        for ticket in self.stages.at(Stage::Started).iter() {
            if self.queue.get(ticket).is_some_and(Self::is_write) {
                self.set_stage(ticket, stage);
            }
        }
    }

    /// The requests that have waited for the flush have ended.
    pub(super) fn end_flushes(&mut self, is_ok: bool) {
        for ticket in self.stages.at(Stage::Started).iter() {
            if self.queue.get(ticket).is_some_and(Self::is_flush) {
                self.set_stage(ticket, Stage::Done(is_ok));
            }
        }
    }
}
