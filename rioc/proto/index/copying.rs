// SPDX-License-Identifier: GPL-2.0

//! Copies by reference: blocks of one object become blocks of another one, too.
//!
//! A copy of some bytes is done at once, and has a bounded number of ranges. A copy of a whole
//! object fills a hidden one in steps, and gives it the name when it is complete.

use core::ops::Range as Blocks;

use super::{
    super::{
        slot::{
            Life,
            Memory,
            Object,
            Slot,
            Stored, //
        },
        span::{
            ObjectId,
            Piece,
            Span,
            BLOCK_BYTES, //
        },
    },
    backing::ZEROES_MAX,
    data::{
        edge_blocks,
        is_rest_empty,
        Source, //
    },
    ranges::STORE_SLOTS,
    Changes,
    Index,
    Refused,
    STEP_RANGES, //
};

/// The ranges that one copy reads and replaces at most.
pub const COPY_RANGES_MAX: u32 = STEP_RANGES;

/// A block at an edge of a copy, which has to be stored anew: a part of it is from the source, the
/// rest stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEdge {
    /// The bytes of the block of the destination that are written. They are at the same bytes of
    /// the source's block.
    pub written: Piece,
    /// The place of the destination's block before; `None` for zeroes.
    pub old: Option<Source>,
    /// The place of the source's block; `None` for zeroes.
    pub new: Option<Source>,
}

/// The blocks at the edges of a copy.
pub type CopyEdges = [Option<CopyEdge>; 2];

/// A copy that is possible.
struct Plan {
    source: u32,
    /// `None` if it is made.
    destination: Option<u32>,
    written: Span,
    edges: CopyEdges,
    /// The first blocks that are shared, and how many there are.
    from: u32,
    to: u32,
    blocks: u32,
}

impl<S: Memory<Slot>, B: Memory<u32>> Index<S, B> {
    /// Returns where a block of an object is; `None` for a hole, and behind the end.
    fn content(&self, (number, object): &(u32, Object), block: u32) -> Option<Source> {
        let start = u64::from(block).saturating_mul(BLOCK_BYTES);
        (start < object.size).then(|| self.source(*number, block))?
    }

    fn plan(
        &self,
        (source, span): (ObjectId, &Span),
        (destination, offset): (ObjectId, u64),
    ) -> Result<Plan, Refused> {
        let from = self.known(source)?;
        let to = self.known(destination).ok();
        let written = span.moved_to(offset).ok_or(Refused::TooLong)?;
        if span.offset() % BLOCK_BYTES != offset % BLOCK_BYTES {
            return Err(Refused::Misaligned);
        }
        if source == destination && span.whole_blocks().overlaps(&written.whole_blocks()) {
            return Err(Refused::Overlaps);
        }
        let size = to.as_ref().map_or(0, |(_, object)| object.size);
        let is_shrinking = to.as_ref().is_some_and(|(_, object)| object.is_shrinking);
        if is_shrinking && written.end() > size {
            return Err(Refused::Shrinking);
        }
        let edge = |block: u32| {
            let piece = written.piece(block);
            let skipped = block.saturating_sub(written.blocks().start);
            let source_block = span.blocks().start.saturating_add(skipped);
            let stays = !is_rest_empty(&piece, &written, size);
            CopyEdge {
                written: piece,
                old: to
                    .as_ref()
                    .filter(|_| stays)
                    .and_then(|to| self.content(to, block)),
                new: self.content(&from, source_block),
            }
        };
        // A block can be shared where nothing stays of it, and the source ends there, too.
        let is_shared = |edge: &CopyEdge| {
            let is_end = edge.written.from == 0 && span.end() >= from.1.size;
            edge.old.is_none() && (is_end || edge.new.is_none())
        };
        let edges = edge_blocks(&written).map(|block| block.map(edge));
        let edges = edges.map(|edge| edge.filter(|edge| !is_shared(edge)));
        let [first, last] = edges.map(|edge| u32::from(edge.is_some()));
        Ok(Plan {
            source: from.0,
            destination: to.map(|(number, _)| number),
            written,
            edges,
            from: span.blocks().start.saturating_add(first),
            to: written.blocks().start.saturating_add(first),
            blocks: span
                .block_count()
                .saturating_sub(first.saturating_add(last)),
        })
    }

    /// Returns the number of ranges that have some of the blocks, if there are `max` at most.
    fn count(&self, object: u32, (first, blocks): (u32, u32), max: u32) -> Option<u32> {
        let end = first.saturating_add(blocks);
        let (mut block, mut count) = (first, 0u32);
        while let Some((_, range)) = self.range_in(object, block..end) {
            count = count.saturating_add(1);
            if count > max {
                return None;
            }
            block = range.end();
        }
        Some(count)
    }

    /// Returns the blocks at the edges of a copy that have to be stored anew.
    ///
    /// # Errors
    ///
    /// Returns why the copy is not possible.
    pub fn copy_edges(
        &self,
        source: (ObjectId, &Span),
        destination: (ObjectId, u64),
    ) -> Result<CopyEdges, Refused> {
        Ok(self.plan(source, destination)?.edges)
    }

    /// Copies bytes by reference to an offset that differs by whole blocks. Behind the end of the
    /// source there are holes. `stored` are the blocks of [`Self::copy_edges`].
    ///
    /// # Errors
    ///
    /// Returns why it is not done.
    pub fn copy(
        &mut self,
        source: (ObjectId, &Span),
        (destination, offset, creates): (ObjectId, u64, bool),
        stored: [Option<Stored>; 2],
        changes: &mut impl Changes,
    ) -> Result<(), Refused> {
        let plan = self.plan(source, (destination, offset))?;
        if plan.destination.is_none() && !creates {
            return Err(Refused::NoObject);
        }
        let end = self.slots.object(plan.source).map(|object| object.size);
        // What is behind the end of one that is made shorter is no part of it.
        // CAST: At most the blocks of the largest object.
        let end = end.unwrap_or_default().div_ceil(BLOCK_BYTES) as u32;
        let shared = plan.blocks.min(end.saturating_sub(plan.from));
        let too_many = Refused::TooManyRanges;
        let read = self.count(plan.source, (plan.from, shared), COPY_RANGES_MAX);
        let read = read.ok_or(too_many)?;
        let replaced = match plan.destination {
            Some(number) => {
                let max = COPY_RANGES_MAX.saturating_sub(read);
                self.count(number, (plan.to, plan.blocks), max)
            }
            None => Some(0),
        };
        replaced.ok_or(too_many)?;
        // What becomes a hole must not be what its file has.
        let zeroes = self.zeroes(&plan, read);
        if read.saturating_add(zeroes) > COPY_RANGES_MAX {
            return Err(too_many);
        }
        let mut needed = read.saturating_add(zeroes).saturating_add(1);
        for (edge, stored) in plan.edges.iter().zip(stored) {
            if edge.is_some() {
                stored.ok_or(Refused::NoPlace)?;
                needed = needed.saturating_add(STORE_SLOTS);
            }
        }
        self.require(needed.saturating_add(plan.destination.is_none().into()))?;
        let number = match plan.destination {
            Some(number) => number,
            None => self.add(destination, (0, Life::Linked), changes)?,
        };
        let cut = plan.to..plan.to.saturating_add(plan.blocks);
        self.cut(number, &cut, u32::MAX, changes);
        self.share_all(
            (plan.source, plan.from, plan.from.saturating_add(shared)),
            (number, plan.to),
            COPY_RANGES_MAX,
            changes,
        )?;
        self.cover(number, &cut, changes)?;
        for (edge, stored) in plan.edges.iter().zip(stored) {
            if let Some((edge, stored)) = edge.as_ref().zip(stored) {
                let block = edge.written.block;
                let end = block.saturating_add(1);
                self.cut(number, &(block..end), u32::MAX, changes);
                self.store((number, block), (stored, 1), changes)?;
            }
        }
        self.lengthen(number, plan.written.end(), changes);
        Ok(())
    }

    /// Returns how many ranges of zeroes a copy may need, with so many others.
    fn zeroes(&self, plan: &Plan, read: u32) -> u32 {
        let backed = plan
            .destination
            .and_then(|number| self.slots.object(number));
        let backed = backed.map_or(0, |object| object.backed);
        let blocks = backed.saturating_sub(plan.to).min(plan.blocks);
        if blocks == 0 {
            return 0;
        }
        read.saturating_add(1).saturating_add(blocks / ZEROES_MAX)
    }

    /// Shares the ranges between two blocks of an object, `max` of them at most; returns the block
    /// where it goes on, if it does. The destination has holes there.
    fn share_all(
        &mut self,
        (source, from, end): (u32, u32, u32),
        (number, to): (u32, u32),
        max: u32,
        changes: &mut impl Changes,
    ) -> Result<Option<u32>, Refused> {
        let (mut block, mut count) = (from, 0u32);
        while let Some((_, mut range)) = self.range_in(source, block..end) {
            if count == max {
                return Ok(Some(block));
            }
            count = count.saturating_add(1);
            let next = range.end().min(end);
            let first = range.block.max(block);
            // CAST: Below the blocks of the range.
            range.first = range
                .first
                .saturating_add(first.saturating_sub(range.block) as u8);
            range.blocks = next.saturating_sub(first) as u8;
            let moved = to.saturating_add(first.saturating_sub(from));
            self.share((number, moved), &range, changes)?;
            block = next;
        }
        Ok(None)
    }

    /// Begins a copy of a whole object, which will have the name `destination`; returns the slot of
    /// the hidden object. The source must not change before it is complete: its user has a claim.
    ///
    /// # Errors
    ///
    /// Returns why it is not done.
    pub fn begin_snapshot(
        &mut self,
        source: ObjectId,
        (destination, is_new): (ObjectId, bool),
        changes: &mut impl Changes,
    ) -> Result<u32, Refused> {
        let (_, object) = self.known(source)?;
        if source == destination {
            return Err(Refused::Overlaps);
        }
        if is_new && self.find(destination).is_some() {
            return Err(Refused::Exists);
        }
        self.add(destination, (object.size, Life::Hidden), changes)
    }

    /// Takes a step of a copy of a whole object, from a block on, at first 0, to one at most;
    /// returns where the next step begins, or `None` if the copy is complete.
    ///
    /// # Errors
    ///
    /// Returns why it is not done: its user ends it with [`Self::discard`].
    pub fn continue_snapshot(
        &mut self,
        source: ObjectId,
        (hidden, blocks): (u32, Blocks<u32>),
        changes: &mut impl Changes,
    ) -> Result<Option<u32>, Refused> {
        let (number, object) = self.known(source)?;
        // CAST: At most the blocks of the largest object.
        let all = object.size.div_ceil(BLOCK_BYTES) as u32;
        let (from, end) = (blocks.start, blocks.end.min(all));
        let ranges = self.count(number, (from, end.saturating_sub(from)), STEP_RANGES);
        self.require(ranges.unwrap_or(STEP_RANGES))?;
        let next = self.share_all((number, from, end), (hidden, from), STEP_RANGES, changes)?;
        Ok(next.or((end < all).then_some(end)))
    }

    /// Gives a hidden object, which is complete, its name; one that has the name is removed, or is
    /// an error. What it has used is free after [`Self::reap`].
    ///
    /// # Errors
    ///
    /// Returns why it is not done: its user ends it with [`Self::discard`].
    pub fn link(
        &mut self,
        hidden: u32,
        is_new: bool,
        changes: &mut impl Changes,
    ) -> Result<(), Refused> {
        let object = self.hidden(hidden).ok_or(Refused::NoObject)?;
        match self.find(object.id) {
            Some(_) if is_new => return Err(Refused::Exists),
            Some(replaced) => self.doom(replaced, changes),
            None => (),
        }
        self.link_to_bucket(hidden, object.id);
        changes.changed(hidden);
        Ok(())
    }

    /// Gives up a copy of a whole object. What it has used is free after [`Self::reap`].
    pub fn discard(&mut self, hidden: u32, changes: &mut impl Changes) {
        if self.hidden(hidden).is_some() {
            self.doom(hidden, changes);
        }
    }

    fn hidden(&self, number: u32) -> Option<Object> {
        let object = self.slots.object(number);
        object.filter(|object| object.life == Life::Hidden).copied()
    }
}
