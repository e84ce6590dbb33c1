// SPDX-License-Identifier: GPL-2.0

//! Objects without names whose ranges are gone, and whose files are to be removed.

use super::{
    super::{
        slot::{
            Memory,
            Slot,
            NONE, //
        },
        span::ObjectId,
    },
    Changes,
    Index, //
};

impl<S: Memory<Slot>, B: Memory<u32>> Index<S, B> {
    /// An object without a name has no ranges any more: its file follows, behind those of others.
    pub(super) fn unfile(&mut self, number: u32) {
        let [first, last] = self.unfiled;
        if let Some(object) = self.slots.object_mut(number) {
            object.next = NONE;
        }
        self.unfiled = match self.slots.object_mut(last) {
            Some(before) => {
                before.next = number;
                [first, number]
            }
            None => [number; 2],
        };
    }

    /// Takes the first one of these.
    pub(super) fn next_unfiled(&mut self) -> Option<u32> {
        let [first, last] = self.unfiled;
        let next = self.slots.object(first)?.next;
        self.unfiled = if next == NONE {
            [NONE; 2]
        } else {
            [next, last]
        };
        Some(first)
    }

    /// Returns the object without a name whose file is to be removed before it is gone; of one
    /// whose name another object has the file is that one's.
    pub fn file_to_remove(&self) -> Option<ObjectId> {
        let [first, _] = self.unfiled;
        let object = self.slots.object(first)?;
        let is_alone = object.has_file && self.find(object.id).is_none();
        is_alone.then_some(object.id)
    }

    /// The file of [`Self::file_to_remove`] was removed, and that is durable (`is_gone`), or could
    /// not be: those of others are tried before it is again.
    pub fn file_removed(&mut self, id: ObjectId, is_gone: bool, changes: &mut impl Changes) {
        if self.file_to_remove() != Some(id) {
            return;
        }
        let [first, _] = self.unfiled;
        match self.slots.object_mut(first) {
            Some(object) if is_gone => {
                (object.has_file, object.is_leaving) = (false, false);
                changes.changed(first);
            }
            _ => {
                if let Some(first) = self.next_unfiled() {
                    self.unfile(first);
                }
            }
        }
    }
}
