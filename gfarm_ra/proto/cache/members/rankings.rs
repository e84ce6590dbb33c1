// SPDX-License-Identifier: GPL-2.0

//! Rankings of live nodes that were made for chunks. The nodes of a start storm all ask for the
//! same ones, and not all nodes are looked at for each question.

use super::super::{
    address::{
        Group,
        NodeId, //
    },
    owner::{
        Population,
        Ranking, //
    },
};

/// The number of rankings that are kept: of the chunks that a file is read from at a time, by a
/// node and by those who ask it, and of their groups.
const RANKINGS: usize = 16;

/// The rankings of the nodes that live.
#[derive(Debug)]
pub(super) struct Rankings {
    /// The number of the changes among live nodes that they are of.
    changes: u64,
    population: Population,
    /// Each is of the nodes of a group, or of all.
    places: [Option<(Option<Group>, Ranking)>; RANKINGS],
    /// The nodes that were looked at so far.
    looks: u64,
}

impl Rankings {
    /// Returns none, before the first change.
    pub(super) const fn new() -> Self {
        Self {
            changes: 0,
            population: Population::NONE,
            places: [None; RANKINGS],
            looks: 0,
        }
    }

    /// Forgets all that are older than the last change. `live` are the nodes of now, beside this
    /// one, which is in the group `me`. Returns how many there are.
    pub(super) fn renew(
        &mut self,
        changes: u64,
        me: Group,
        live: impl Iterator<Item = (NodeId, Group)>,
    ) -> Population {
        if self.changes != changes {
            (self.changes, self.population) = (changes, Population::NONE);
            self.places = [None; RANKINGS];
            self.population.add(me);
            for (_, group) in live {
                self.population.add(group);
                self.looks = self.looks.saturating_add(1);
            }
        }
        self.population
    }

    /// Returns the ranking of the nodes that live, of one group or of all, in the order that `hash`
    /// makes.
    pub(super) fn of(
        &mut self,
        hash: u64,
        within: Option<Group>,
        live: impl Iterator<Item = (NodeId, Group)>,
    ) -> Ranking {
        let spread = within.map_or(0, |group| u64::from(group.get()));
        // CAST: Below the number of places.
        let place = (hash.wrapping_add(spread) % RANKINGS as u64) as usize;
        let known = self.places.get(place).copied().flatten();
        let known = known.filter(|(of, known)| *of == within && known.hash() == hash);
        if let Some((_, known)) = known {
            return known;
        }
        let mut ranking = Ranking::new(hash);
        for (node, group) in live {
            if within.is_none_or(|within| within == group) {
                ranking.offer(node);
            }
            self.looks = self.looks.saturating_add(1);
        }
        if let Some(place) = self.places.get_mut(place) {
            *place = Some((within, ranking));
        }
        ranking
    }

    /// Returns how many nodes were looked at so far.
    pub(super) const fn looks(&self) -> u64 {
        self.looks
    }
}
