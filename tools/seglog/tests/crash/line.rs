// SPDX-License-Identifier: GPL-2.0

//! States that an array has had, in their order, and what its superblocks rely on of them.
//!
//! An assembly by force gives up what no member that is there can know of. What was flushed under
//! the newest epoch that they show is there; if slots hide where the log starts, what is in the
//! dump that they show.

use std::collections::HashMap;

use seglog::superblock::{
    Start,
    Superblock, //
};

use crate::{
    setting::Versions,
    world::World, //
};

/// An epoch as it is known.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// The number of epochs that were told before.
    order: usize,
    /// The place in the line of the last state that was flushed under it.
    flushed: usize,
}

/// The line of an array's states.
pub(crate) struct Line {
    states: Vec<Versions>,
    epochs: HashMap<u64, Known>,
    /// The places of the states that dumps have.
    dumps: HashMap<Start, usize>,
    /// The number of the last dump that all members were told.
    told: u64,
    /// The place of the first state of the array that is open, and the number of its batch.
    opened: (usize, u64),
    /// The place of the last state that was flushed.
    flushed: usize,
}

impl Line {
    pub(crate) fn new(state: Versions, first: &Superblock) -> Self {
        let known = Known {
            order: 0,
            flushed: 0,
        };
        Self {
            states: vec![state],
            epochs: HashMap::from([(first.epoch.id, known)]),
            dumps: HashMap::from([(first.start, 0)]),
            told: 0,
            opened: (0, 0),
            flushed: 0,
        }
    }

    /// The array was assembled, and goes on.
    pub(crate) fn open(&mut self, world: &World) {
        self.opened = (self.states.len(), world.history.first);
        self.see(world);
    }

    /// Sees what the array has come to.
    pub(crate) fn see(&mut self, world: &World) {
        let (place, first) = self.opened;
        let history = &world.history;
        self.flushed = place + (history.first - first) as usize;
        self.states.truncate(self.flushed);
        self.states.extend(&history.states);
        let (order, flushed) = (self.epochs.len(), self.flushed);
        let known = self.epochs.entry(world.epoch().id);
        known.or_insert(Known { order, flushed }).flushed = flushed;
        if let Some(dump) = world.dumping() {
            let behind = dump.cursor.sequence.saturating_sub(first + 1);
            self.dumps.insert(dump, place + behind as usize);
        }
        self.told = self.told.max(world.start().generation);
    }

    /// An assembly was cut off that has begun to tell an epoch: it has found what was flushed up to
    /// a place.
    pub(crate) fn cut_off(&mut self, epoch: u64, flushed: usize) {
        let order = self.epochs.len();
        self.epochs.insert(epoch, Known { order, flushed });
    }

    /// The array was assembled by force, and has begun to write over what is behind a state, which
    /// is not older than what was kept.
    pub(crate) fn go_back(&mut self, found: &Versions, kept: usize) {
        let place = self.states.iter().rposition(|state| state == found);
        let place = place.unwrap_or_default().max(kept);
        for known in self.epochs.values_mut() {
            known.flushed = known.flushed.min(place);
        }
    }

    /// Returns the place from which on force keeps what was flushed, by what members show.
    pub(crate) fn kept(&self, shown: &[Superblock]) -> usize {
        let known = |shown: &&Superblock| self.epochs.get(&shown.epoch.id).copied();
        let ordered = shown.iter().filter(|shown| known(shown).is_some());
        let newest = ordered.max_by_key(|shown| known(shown).map(|known| known.order));
        let Some(newest) = newest else {
            return 0;
        };
        let in_sync = newest.epoch.in_sync();
        let in_sync = shown.iter().filter(|shown| in_sync.contains(shown.member));
        let starts = in_sync.map(|shown| shown.start);
        let start = starts.max_by_key(|start| start.generation);
        let dump = start.filter(|start| start.generation < self.told);
        let dump = dump.and_then(|start| self.dumps.get(&start)).copied();
        let flushed = known(&newest).map_or(0, |known| known.flushed);
        dump.map_or(flushed, |dump| dump.min(flushed))
    }

    /// Returns the place of what was flushed last.
    pub(crate) fn flushed(&self) -> usize {
        self.flushed
    }

    /// Returns the states from a place on.
    pub(crate) fn since(&self, place: usize) -> &[Versions] {
        &self.states[place..]
    }
}
