// SPDX-License-Identifier: GPL-2.0

//! The cache of PI blocks: which group is in which slot, and which ones must be written back.
//!
//! The number of slots is fixed. A slot is pinned by the requests that use it, and stays until
//! its tuples are written back.
//!
//! A block is *fresh* from its first write until a flush: its data may still be what was there
//! before, which no tuple describes.

use core::{
    borrow::BorrowMut,
    mem, //
};

use super::{
    group::{
        Index,
        GROUP_BLOCKS, //
    },
    record::Unit,
    sectors::{
        Part,
        Sectors, //
    },
};

/// A set of blocks of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Blocks([u64; Blocks::WORDS]);

impl Blocks {
    const WORDS: usize = (GROUP_BLOCKS / u64::BITS as u64) as usize;

    fn bit(index: Index) -> (usize, u64) {
        let word = usize::from(index) / u64::BITS as usize;
        (word, 1 << (u32::from(index) % u64::BITS))
    }

    fn set(&mut self, index: Index, is_member: bool) {
        let (word, bit) = Self::bit(index);
        if let Some(word) = self.0.get_mut(word) {
            *word = if is_member { *word | bit } else { *word & !bit };
        }
    }

    fn has(&self, index: Index) -> bool {
        let (word, bit) = Self::bit(index);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }

    fn add(&mut self, other: &Self) {
        for (to, from) in self.0.iter_mut().zip(other.0) {
            *to |= from;
        }
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A slot of the memory for PI blocks; at first it is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    group: u64,
    state: State,
    pins: u16,
    /// The lowest record with a tuple that the last write-back did not have.
    dirty: Option<u64>,
    /// The sectors of these tuples.
    changed: Sectors,
    /// The lowest record with a tuple that the write-back in flight has.
    writing: Option<u64>,
    /// Blocks that are fresh: for the flush in flight, and for the next one.
    fresh_before: Blocks,
    fresh: Blocks,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum State {
    #[default]
    Free,
    /// The PI block must be read.
    Wanted,
    Loading,
    Ready,
    /// The PI block could not be read; the requests that pin it fail.
    Failed,
}

impl Slot {
    fn has_fresh(&self) -> bool {
        !self.fresh.is_empty() || !self.fresh_before.is_empty()
    }

    /// Returns whether the slot is wanted, not written back, and being written.
    fn counts(&self) -> (bool, bool, bool) {
        let is_writing = self.writing.is_some();
        let is_dirty = self.dirty.is_some() || is_writing;
        (self.state == State::Wanted, is_dirty, is_writing)
    }
}

/// The state of a slot for a request that has pinned it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// The PI block is not read yet.
    Pending,
    /// The PI block is in memory.
    Ready,
    /// The PI block could not be read.
    Failed,
}

/// The numbers of slots in the states that the store asks for often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Counts {
    wanted: usize,
    /// Slots that are not written back, or being written.
    dirty: usize,
    writing: usize,
}

impl Counts {
    fn count(&mut self, slot: &Slot) {
        let (wanted, dirty, writing) = slot.counts();
        self.wanted = self.wanted.saturating_add(wanted.into());
        self.dirty = self.dirty.saturating_add(dirty.into());
        self.writing = self.writing.saturating_add(writing.into());
    }

    fn uncount(&mut self, slot: &Slot) {
        let (wanted, dirty, writing) = slot.counts();
        self.wanted = self.wanted.saturating_sub(wanted.into());
        self.dirty = self.dirty.saturating_sub(dirty.into());
        self.writing = self.writing.saturating_sub(writing.into());
    }
}

/// The slots, in an array or a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PiCache<P> {
    slots: P,
    counts: Counts,
    /// The slot at which the search for a free one begins, so that all are used in turn.
    hand: usize,
}

impl<P: BorrowMut<[Slot]>> PiCache<P> {
    /// No PI block is in memory; all of the slots are free.
    pub const fn new(slots: P) -> Self {
        Self {
            slots,
            counts: Counts {
                wanted: 0,
                dirty: 0,
                writing: 0,
            },
            hand: 0,
        }
    }

    /// Changes a slot, and what is counted.
    fn change(&mut self, at: usize, change: impl FnOnce(&mut Slot)) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(at) {
            self.counts.uncount(slot);
            change(slot);
            self.counts.count(slot);
        }
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> usize {
        self.slots.borrow().len()
    }

    /// The slot that a group is given if it is free: there it is found without a search.
    fn first_choice(&self, group: u64) -> usize {
        let slots = self.slots() as u64;
        // CAST: it is below the number of slots.
        group.checked_rem(slots).unwrap_or(0) as usize
    }

    fn find(&self, group: u64) -> Option<usize> {
        let has_it = |slot: &Slot| slot.state != State::Free && slot.group == group;
        let slots = self.slots.borrow();
        let first = self.first_choice(group);
        if slots.get(first).is_some_and(has_it) {
            return Some(first);
        }
        slots.iter().position(has_it)
    }

    /// The slot that many behind the hand.
    fn turned(&self, offset: usize) -> usize {
        let at = self.hand.wrapping_add(offset);
        at.checked_rem(self.slots()).unwrap_or(0)
    }

    /// A slot for a group that is free, or whose PI block is written back and not in use.
    fn spare(&self, group: u64, except: Option<usize>) -> Option<usize> {
        let is_spare = |slot: &Slot| {
            let is_written_back = slot.dirty.is_none() && slot.writing.is_none();
            let is_idle = is_written_back && slot.pins == 0 && !slot.has_fresh();
            is_idle && matches!(slot.state, State::Free | State::Ready | State::Failed)
        };
        let slots = self.slots.borrow();
        let first = self.first_choice(group);
        let is_free = |slot: &Slot| slot.state == State::Free;
        if Some(first) != except && slots.get(first).is_some_and(is_free) {
            return Some(first);
        }
        (0..slots.len())
            .map(|offset| self.turned(offset))
            .find(|at| Some(*at) != except && slots.get(*at).is_some_and(is_spare))
    }

    /// Pins the slots of one or two groups, all of them or none; `None` if there are too few slots.
    pub fn pin(&mut self, groups: [Option<u64>; 2]) -> Option<[Option<usize>; 2]> {
        let [first, second] = groups.map(|group| group.and_then(|group| self.find(group)));
        // A slot that has one of the two groups is no spare one for the other.
        let first = match (first, groups) {
            (None, [Some(group), _]) => Some(self.spare(group, second)?),
            _ => first,
        };
        let second = match (second, groups) {
            (None, [_, Some(group)]) => Some(self.spare(group, first)?),
            _ => second,
        };
        let found = [first, second];
        for (at, group) in found.iter().zip(groups) {
            let (Some(at), Some(group)) = (*at, group) else {
                continue;
            };
            let mut is_new = false;
            self.change(at, |slot| {
                is_new = slot.state == State::Free || slot.group != group;
                if is_new {
                    *slot = Slot {
                        group,
                        state: State::Wanted,
                        ..Slot::default()
                    };
                }
                slot.pins = slot.pins.saturating_add(1);
            });
            if is_new {
                self.hand = self.turned(1);
            }
        }
        Some(found)
    }

    /// Ends the use of a slot by a request.
    pub fn unpin(&mut self, at: usize) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(at) {
            slot.pins = slot.pins.saturating_sub(1);
            if slot.pins == 0 && slot.state == State::Failed {
                *slot = Slot::default();
            }
        }
    }

    /// Returns the state of a slot that is pinned.
    pub fn load(&self, at: usize) -> Load {
        match self.slots.borrow().get(at).map(|slot| slot.state) {
            Some(State::Ready) => Load::Ready,
            Some(State::Wanted | State::Loading) => Load::Pending,
            Some(State::Free | State::Failed) | None => Load::Failed,
        }
    }

    /// Returns the group that a slot has; `None` of a free one.
    pub fn group(&self, at: usize) -> Option<u64> {
        let slots = self.slots.borrow();
        let slot = slots.get(at).filter(|slot| slot.state != State::Free)?;
        Some(slot.group)
    }

    /// Returns a slot that must be read now, and its group.
    pub fn start_load(&mut self) -> Option<(usize, u64)> {
        if self.counts.wanted == 0 {
            return None;
        }
        let is_wanted = |slot: &Slot| slot.state == State::Wanted;
        let at = self.slots.borrow().iter().position(is_wanted)?;
        self.change(at, |slot| slot.state = State::Loading);
        Some((at, self.slots.borrow().get(at)?.group))
    }

    /// The PI block of a slot was read, or cannot be read.
    pub fn end_load(&mut self, at: usize, is_read: bool) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(at) {
            slot.state = if is_read { State::Ready } else { State::Failed };
        }
    }

    /// The tuple of a block of the record `sequence` was set in a slot.
    pub fn dirty(&mut self, at: usize, index: Index, sequence: u64) {
        self.change(at, |slot| {
            slot.dirty = Some(slot.dirty.map_or(sequence, |first| first.min(sequence)));
            slot.changed.add(index);
        });
    }

    /// A block of a slot is fresh, or is not any more.
    pub fn set_fresh(&mut self, at: usize, index: Index, is_fresh: bool) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(at) {
            slot.fresh.set(index, is_fresh);
            slot.fresh_before.set(index, false);
        }
    }

    /// Returns whether a block of a slot is fresh.
    pub fn is_fresh(&self, at: usize, index: Index) -> bool {
        let slot = self.slots.borrow().get(at);
        slot.is_some_and(|slot| slot.fresh.has(index) || slot.fresh_before.has(index))
    }

    /// Returns whether any block is fresh.
    pub fn has_fresh(&self) -> bool {
        self.slots.borrow().iter().any(Slot::has_fresh)
    }

    /// A flush starts: it covers the data of the blocks that are fresh now.
    pub fn start_flush(&mut self) {
        for slot in self.slots.borrow_mut() {
            slot.fresh_before.add(&slot.fresh);
            slot.fresh = Blocks::default();
        }
    }

    /// The flush was not begun: the next one covers what it was to.
    pub fn undo_flush(&mut self) {
        for slot in self.slots.borrow_mut() {
            slot.fresh.add(&slot.fresh_before);
            slot.fresh_before = Blocks::default();
        }
    }

    /// The flush has ended, and what it covers is durable.
    pub fn end_flush(&mut self) {
        for slot in self.slots.borrow_mut() {
            slot.fresh_before = Blocks::default();
        }
    }

    /// No block is fresh any more: it counts for writes only, and there are none.
    pub fn forget_fresh(&mut self) {
        for slot in self.slots.borrow_mut() {
            (slot.fresh, slot.fresh_before) = (Blocks::default(), Blocks::default());
        }
    }

    /// Returns the slot that should be written back now, which is that of the oldest record, its
    /// group, and what of its PI block has changed. The caller copies that before it changes again.
    pub fn start_write(&mut self, unit: Unit) -> Option<(usize, u64, Part)> {
        // An older version of a PI block must not be written last.
        let numbered = self
            .slots
            .borrow()
            .iter()
            .scan(0, |next: &mut usize, slot| {
                Some((mem::replace(next, next.saturating_add(1)), slot))
            });
        let (at, group) = numbered
            .filter(|(_, slot)| slot.dirty.is_some() && slot.writing.is_none())
            .min_by_key(|(_, slot)| slot.dirty)
            .map(|(at, slot)| (at, slot.group))?;
        let mut changed = Sectors::ALL;
        self.change(at, |slot| {
            slot.writing = slot.dirty.take();
            changed = mem::take(&mut slot.changed);
        });
        Some((at, group, changed.part(unit)))
    }

    /// The write-back of a slot has ended.
    pub fn end_write(&mut self, at: usize, is_written: bool) {
        self.change(at, |slot| {
            let sequence = slot.writing.take();
            if !is_written {
                slot.dirty = [sequence, slot.dirty].into_iter().flatten().min();
                slot.changed = Sectors::ALL;
            }
        });
    }

    /// Returns the lowest record with a tuple that is not written back.
    pub fn floor(&self) -> Option<u64> {
        let both = |slot: &Slot| [slot.dirty, slot.writing];
        self.slots.borrow().iter().flat_map(both).flatten().min()
    }

    /// Returns the number of slots that are not written back.
    pub const fn dirty_count(&self) -> usize {
        self.counts.dirty
    }

    /// Returns the number of write-back in flight.
    pub const fn writing_count(&self) -> usize {
        self.counts.writing
    }
}
