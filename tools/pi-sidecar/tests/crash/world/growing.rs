// SPDX-License-Identifier: GPL-2.0

//! The growth of the device.

use proto::sidecar::{
    growth::Step,
    layout::SUPERBLOCK,
    BLOCK_BYTES, //
};

use super::{
    Fault,
    Purpose,
    World,
    GROWTH, //
};
use crate::{
    disk::{
        Fast,
        Shape, //
    },
    setting::Setting,
    Mistake, //
};

impl World {
    /// Takes a step of the growth, as the server does.
    pub(super) fn grow(&mut self, setting: &Setting, shape: &mut Shape, step: Step) {
        let (seal, mistake) = (*setting.volume.seal(), setting.mistake);
        let Some(place) = self.growth.place(step) else {
            return self.flush(
                setting,
                shape,
                GROWTH,
                mistake != Mistake::GrowthFlushLeftOut,
            );
        };
        let mut block = [0; BLOCK_BYTES];
        for (index, at) in (0..step.blocks()).zip(place..) {
            self.growth
                .fill(step, index, &mut block, &seal, &Fast::RIGHT);
            let fua = step.is_fua() && mistake != Mistake::SuperblockWithoutFua;
            self.put(shape, at, &block, fua, Purpose::Growth);
        }
        if step == Step::Superblock && mistake == Mistake::SpaceBeforeSuperblock {
            self.layout = *self.growth.layout().unwrap();
        }
    }

    pub(super) fn growth_step_ended(&mut self) {
        if let Some(superblock) = self.growth.ended(true) {
            self.layout = superblock.layout;
            self.store.grown(superblock.layout.device_blocks());
        }
    }

    /// A mark of use of a server that had the device before comes now: where it is written with the
    /// superblock that is the one of its look, before the growth.
    pub(super) fn mark_comes(&mut self, setting: &Setting, shape: &mut Shape) {
        self.fault = Some(Fault::LateMark);
        let mut block = [0; BLOCK_BYTES];
        let superblock = setting.volume.superblock();
        superblock.write(&mut block, SUPERBLOCK, &Fast::RIGHT);
        self.put(shape, SUPERBLOCK, &block, false, Purpose::None);
    }
}
