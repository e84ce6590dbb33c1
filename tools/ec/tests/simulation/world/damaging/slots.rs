// SPDX-License-Identifier: GPL-2.0

//! Superblocks of which two members have lost a slot each, all three being there.

use seglog::members::Members;

use super::{
    Life,
    Tally, //
};
use crate::{
    media::Damage,
    world::assembling::{
        assemble,
        OneByOne, //
    },
};

/// Content of the newer slots of the two members that are left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Newest {
    /// Failure of the third one.
    Failure,
    /// An assembly without the third one.
    Assembly,
}

impl Life {
    /// Lives, loses a member, goes on, is flushed, and loses a slot of each of two members.
    pub(crate) fn run_with_slots(mut self, newest: Newest) -> Tally {
        self.fill();
        for step in 0..self.setting.steps / 2 {
            self.step = step;
            self.happen();
            self.settle();
        }
        self.drain();
        self.stop();
        self.array.fail(1);
        self.settle();
        self.drain();
        if newest == Newest::Assembly {
            let present = Members::ALL.minus(Members::of(1));
            let devices = &mut OneByOne(&mut self.members);
            self.array = assemble(devices, present, &mut self.random).unwrap();
        }
        for first in 0..3 {
            self.write_at(first * 5, 1 + first * 3, false);
            self.settle();
            self.drain();
            self.flush_all();
        }
        let ground = self.ground(Members::of(1));
        let mut tally = Tally::default();
        let mut whole = ground.whole(Members::ALL);
        for (one, other) in [(0, 1), (0, 2), (1, 2)] {
            for slots in 0..4 {
                for how in [Damage::BitOfHead, Damage::Zeroes, Damage::Garbage] {
                    let spoilt = [(one, slots % 2, how), (other, slots / 2, how)];
                    ground.try_damage(&mut whole, &spoilt, &mut tally);
                }
            }
        }
        tally
    }
}
