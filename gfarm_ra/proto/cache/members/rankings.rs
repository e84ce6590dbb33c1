// SPDX-License-Identifier: GPL-2.0

//! Rankings of live nodes that were made for chunks. The nodes of a start storm all ask for the
//! same ones, and not all nodes are looked at for each question.

use super::super::{
    address::NodeId,
    owner::Ranking, //
};

/// The number of rankings that are kept: of the chunks that a file is read from at a time, by a
/// node and by those who ask it, and of their groups.
const RANKINGS: usize = 16;

/// The rankings of the nodes that live.
#[derive(Debug)]
pub(super) struct Rankings {
    /// The number of the changes among live nodes that they are of.
    changes: u64,
    /// The number of nodes that live, beside this one.
    live: usize,
    places: [Option<Ranking>; RANKINGS],
    /// The nodes that were looked at so far.
    looks: u64,
}

impl Rankings {
    /// Returns none, before the first change.
    pub(super) const fn new() -> Self {
        Self {
            changes: 0,
            live: 0,
            places: [None; RANKINGS],
            looks: 0,
        }
    }

    /// Forgets all that are older than the last change. `live` are the nodes of now.
    pub(super) fn renew(&mut self, changes: u64, live: impl Iterator<Item = NodeId>) {
        if self.changes == changes {
            return;
        }
        (self.changes, self.live) = (changes, 0);
        self.places = [None; RANKINGS];
        for _ in live {
            self.live = self.live.saturating_add(1);
            self.looks = self.looks.saturating_add(1);
        }
    }

    /// Returns how many nodes live, beside this one.
    pub(super) const fn live(&self) -> usize {
        self.live
    }

    /// Returns the ranking of `me` and the nodes that live, in the order that `hash` makes.
    pub(super) fn of(
        &mut self,
        hash: u64,
        me: NodeId,
        live: impl Iterator<Item = NodeId>,
    ) -> Ranking {
        // CAST: Below the number of places.
        let place = (hash % RANKINGS as u64) as usize;
        let known = self.places.get(place).copied().flatten();
        if let Some(known) = known.filter(|known| known.hash() == hash) {
            return known;
        }
        let mut ranking = Ranking::new(hash);
        ranking.offer(me);
        for node in live {
            ranking.offer(node);
            self.looks = self.looks.saturating_add(1);
        }
        if let Some(place) = self.places.get_mut(place) {
            *place = Some(ranking);
        }
        ranking
    }

    /// Returns how many nodes were looked at so far.
    pub(super) const fn looks(&self) -> u64 {
        self.looks
    }
}
