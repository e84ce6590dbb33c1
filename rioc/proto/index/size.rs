// SPDX-License-Identifier: GPL-2.0

//! The size of an object.

use super::{
    super::{
        slot::{
            Memory,
            Slot,
            Stored, //
        },
        span::{
            ObjectId,
            Piece,
            BLOCK_BYTES,
            OBJECT_BYTES_MAX, //
        },
    },
    data::Edge,
    ranges::STORE_SLOTS,
    Changes,
    Index,
    Refused,
    STEP_RANGES, //
};

impl<S: Memory<Slot>, B: Memory<u32>> Index<S, B> {
    /// Returns the block in which an object will end, if bytes of it have to become zeroes.
    pub fn new_end(&self, id: ObjectId, size: u64) -> Option<Edge> {
        let (number, object) = self.known(id).ok()?;
        // CAST: At most the bytes of a block.
        let from = (size % BLOCK_BYTES) as u32;
        let block = u32::try_from(size / BLOCK_BYTES).ok()?;
        if size >= object.size || from == 0 {
            return None;
        }
        let written = Piece {
            block,
            from,
            to: BLOCK_BYTES as u32,
        };
        let old = self.source(number, block)?;
        Some(Edge { written, old })
    }

    /// Sets the size of an object. `stored` is the block of [`Self::new_end`], if there is one,
    /// with zeroes from the end on. Returns the slot for [`Self::trim`] if that must follow.
    ///
    /// # Errors
    ///
    /// Returns why it is not done.
    pub fn truncate(
        &mut self,
        (id, size): (ObjectId, u64),
        stored: Option<Stored>,
        changes: &mut impl Changes,
    ) -> Result<Option<u32>, Refused> {
        let (number, before) = self.known(id)?;
        if size > OBJECT_BYTES_MAX {
            return Err(Refused::TooLong);
        }
        if before.is_shrinking && size > before.size {
            return Err(Refused::Shrinking);
        }
        let end = self.new_end(id, size);
        let end = match end {
            Some(edge) => {
                self.require(STORE_SLOTS)?;
                Some((edge.written.block, stored.ok_or(Refused::NoPlace)?))
            }
            None => None,
        };
        if size == before.size {
            return Ok(before.is_shrinking.then_some(number));
        }
        if let Some(object) = self.slots.object_mut(number) {
            object.is_shrinking |= size < object.size;
            object.size = size;
        }
        if size < before.size {
            self.cut_file(number, size);
        } else {
            self.differ(number);
        }
        changes.changed(number);
        if let Some((block, stored)) = end {
            let end = block.saturating_add(1);
            self.cut(number, &(block..end), u32::MAX, changes);
            self.store((number, block), (stored, 1), changes)?;
        }
        Ok((!self.trim(number, changes)).then_some(number))
    }

    /// Takes a step of the removal of what is behind the end of the object in a slot; returns
    /// whether there is nothing left.
    pub fn trim(&mut self, number: u32, changes: &mut impl Changes) -> bool {
        let object = self.slots.object(number);
        let Some(object) = object.filter(|object| object.is_shrinking).copied() else {
            return true;
        };
        // CAST: At most the blocks of the largest object.
        let end = object.size.div_ceil(BLOCK_BYTES) as u32;
        if !self.cut(number, &(end..u32::MAX), STEP_RANGES, changes) {
            return false;
        }
        if let Some(object) = self.slots.object_mut(number) {
            object.is_shrinking = false;
        }
        true
    }
}
