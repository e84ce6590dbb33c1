// SPDX-License-Identifier: GPL-2.0

//! The effects of a growth of the device on its requests.

use core::borrow::BorrowMut;

use super::{
    super::{
        growth::Step,
        pi_cache::Slot, //
    },
    Place,
    Store, //
};

impl<R: BorrowMut<[Place]>, H: BorrowMut<[Slot]>> Store<R, H> {
    /// The device has grown to so many blocks, as its records say from now on.
    pub fn grown(&mut self, device_blocks: u64) {
        self.ring.grown(device_blocks);
    }

    /// A step of a growth has failed. One that was not begun says nothing of the device.
    pub fn growth_failed(&mut self, step: Step, was_begun: bool) {
        if was_begun && (step.is_for_all() || step.is_fua() && self.is_volatile) {
            self.fail();
        }
    }
}
