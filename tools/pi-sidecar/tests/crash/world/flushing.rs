// SPDX-License-Identifier: GPL-2.0

//! Flushes in flight: of the store, and of a growth.

use super::{
    World,
    STORE, //
};
use crate::{
    disk::Shape,
    setting::Setting, //
};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Flushing {
    /// The set of the writes that are durable when it ends: those that had ended when it started.
    pub(super) covered: usize,
    /// Whether the device does what it shall.
    pub(super) settles: bool,
}

impl World {
    pub(super) fn flush(&mut self, setting: &Setting, shape: &Shape, whose: usize, settles: bool) {
        let covered = self.writes.iter().enumerate();
        let covered = covered.filter(|(_, write)| write.is_done);
        let covered = covered.fold(0usize, |set, (number, _)| set | 1 << number);
        self.flushing[whose] = Some(Flushing { covered, settles });
        if !setting.is_volatile {
            self.flush_ends(shape, whose);
        }
    }

    pub(super) fn flush_ends(&mut self, shape: &Shape, whose: usize) {
        let Some(flushing) = self.flushing[whose].take() else {
            return;
        };
        if flushing.settles {
            let covered = (0..self.writes.len()).rev();
            let covered: Vec<_> = covered.filter(|n| flushing.covered >> n & 1 != 0).collect();
            // Oldest first, so that the newest one stays.
            for (removed, number) in covered.into_iter().rev().enumerate() {
                self.apply(shape, number - removed);
            }
        }
        match whose {
            STORE => self.store.flushed(true),
            _ => self.growth_step_ended(),
        }
    }
}
