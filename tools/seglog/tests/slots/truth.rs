// SPDX-License-Identifier: GPL-2.0

//! Promises of an array: the batches that were flushed, and what force may give up of them.

use std::collections::BTreeMap;

use seglog::superblock::Superblock;

/// A batch that was written, by the CRC of its body: no two have the same.
pub(crate) type Batch = u32;

/// An epoch as it is known.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The number of epochs that were told before.
    pub(crate) order: u32,
    /// The batches that were flushed under it, and before, and were not given up since.
    pub(crate) kept: Vec<Batch>,
    /// The ones that were flushed, also if they were given up: force may find them that goes back.
    had: Vec<Batch>,
}

/// Result that an assembly by force is to have: what it keeps, and that or more of what was under
/// an epoch that it is shown.
#[derive(Clone, Debug)]
pub(crate) struct Kept<'a> {
    kept: &'a [Batch],
    had: Vec<&'a [Batch]>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Truth {
    /// The batches that were flushed, and count.
    pub(crate) line: Vec<Batch>,
    /// One that was not flushed: it may be found behind them, or not.
    pub(crate) maybe: Option<Batch>,
    /// Batches that were not, before: force may find them that goes back.
    once: Vec<Batch>,
    /// Results of assemblies by force that were cut off: each may count instead.
    pub(crate) given: Vec<Vec<Batch>>,
    pub(crate) epochs: BTreeMap<u64, Known>,
    /// The batches that dumps have, by their numbers, and the last one that all members were told.
    pub(crate) dumps: BTreeMap<u64, Vec<Batch>>,
    pub(crate) told: u64,
    /// The batches that were written.
    pub(crate) written: u32,
}

/// Returns how many batches two have in common at first.
fn common(one: &[Batch], other: &[Batch]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}

impl Truth {
    /// Returns a number that no epoch has that is known.
    pub(crate) fn unused_id(&self) -> u64 {
        let mut ids = 6..;
        let is_known = |id: u64| self.epochs.contains_key(&id);
        ids.find(|id| !is_known(*id) && !is_known(id ^ 1 << 63))
            .unwrap()
    }

    /// An epoch is told: what is kept counts under it.
    pub(crate) fn tell(&mut self, id: u64, kept: &[Batch]) {
        let last = self.epochs.values().map(|known| known.order).max();
        let known = Known {
            order: last.map_or(0, |last| last + 1),
            kept: kept.to_vec(),
            had: kept.to_vec(),
        };
        self.epochs.insert(id, known);
    }

    /// Returns what an assembly by force keeps of what members show: what was flushed under the
    /// epoch that was told last; if all hide where the last dump has begun the log anew, what is in
    /// the one that they show.
    pub(crate) fn kept(&self, shown: &[Superblock]) -> Kept<'_> {
        let known = |shown: &Superblock| self.epochs.get(&shown.epoch.id);
        let had = shown
            .iter()
            .filter_map(|shown| Some(&known(shown)?.had[..]));
        let had = had.collect();
        let newest = shown
            .iter()
            .filter_map(|shown| Some((shown, known(shown)?)))
            .max_by_key(|(_, known)| known.order);
        let Some((newest, known)) = newest else {
            return Kept { kept: &[], had };
        };
        let in_sync = newest.epoch.in_sync();
        let in_sync = shown.iter().filter(|shown| in_sync.contains(shown.member));
        let start = in_sync.map(|shown| shown.start.generation).max();
        let dump = start.filter(|start| *start < self.told);
        let dump = dump.and_then(|start| self.dumps.get(&start));
        let same = dump.map(|dump| common(dump, &known.kept));
        let kept = &known.kept[..same.unwrap_or(known.kept.len())];
        Kept { kept, had }
    }

    /// Whether what an assembly without force has found counts.
    pub(crate) fn counts(&self, found: &[Batch]) -> bool {
        let mut all = self.given.iter().chain([&self.line]);
        all.any(|all| {
            let rest = found.strip_prefix(all.as_slice());
            rest.is_some_and(|rest| rest.iter().all(|batch| Some(*batch) == self.maybe))
        })
    }

    /// Whether what an assembly has found may be; `kept` is of one by force.
    pub(crate) fn allows(&self, found: &[Batch], kept: Option<&Kept<'_>>) -> bool {
        let is_loose = |batch: &Batch| Some(*batch) == self.maybe || self.once.contains(batch);
        let is_kept = kept.is_some_and(|Kept { kept, had }| {
            let of = |all: &[Batch]| {
                let rest = &found[common(found, all)..];
                let is_of_it = rest.is_empty() || found.starts_with(all);
                is_of_it && rest.iter().all(is_loose)
            };
            found.starts_with(kept) && (of(&self.line) || had.iter().any(|had| of(had)))
        });
        is_kept || self.counts(found)
    }

    /// Returns the results that an assembly may have.
    pub(crate) fn answers(&self, kept: Option<&Kept<'_>>) -> Vec<Vec<Batch>> {
        let mut answers = self.given.clone();
        match kept {
            Some(Kept { kept, .. }) if self.line.starts_with(kept) => {
                let each = kept.len()..=self.line.len();
                answers.extend(each.map(|len| self.line[..len].to_vec()));
            }
            _ => answers.push(self.line.clone()),
        }
        answers
    }

    /// An assembly has begun to tell an epoch, and was cut off.
    pub(crate) fn cut_off(
        &mut self,
        found: &[Batch],
        is_forced: bool,
        told: impl Iterator<Item = u64>,
    ) {
        let flushed = found.iter().filter(|batch| Some(**batch) != self.maybe);
        let flushed: Vec<Batch> = flushed.copied().collect();
        for id in told {
            self.tell(id, &flushed);
        }
        if is_forced && !self.counts(found) {
            self.given.push(flushed);
        }
    }

    /// An assembly has ended well: what it has found counts, and nothing else.
    pub(crate) fn open(&mut self, found: &[Batch], told: impl Iterator<Item = u64>) {
        for known in self.epochs.values_mut() {
            let same = common(&known.kept, found);
            known.kept.truncate(same);
        }
        self.line = found.to_vec();
        self.given.clear();
        self.once.extend(self.maybe.take());
        told.for_each(|id| self.tell(id, found));
    }

    /// A batch is flushed under an epoch.
    pub(crate) fn flushed(&mut self, batch: Batch, id: u64) {
        self.line.push(batch);
        if let Some(known) = self.epochs.get_mut(&id) {
            known.kept.clone_from(&self.line);
            known.had.clone_from(&self.line);
        }
    }
}
