// SPDX-License-Identifier: GPL-2.0

//! Reads and writes of bytes.

use super::{
    super::{
        slot::{
            Life,
            Memory,
            Slot,
            Stored,
            USES_MAX, //
        },
        span::{
            ObjectId,
            Piece,
            Span,
            BLOCK_BYTES,
            IO_BLOCKS_MAX, //
        },
    },
    ranges::STORE_SLOTS,
    Changes,
    Index,
    Refused, //
};

/// The place of a block that is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// The slot of the extent.
    pub extent: u32,
    /// The place of the extent.
    pub stored: Stored,
    /// The number of the block in it.
    pub first: u8,
}

/// Blocks of an object that are together in one extent, or together are holes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// The first block in the object.
    pub block: u32,
    /// The number of blocks.
    pub blocks: u32,
    /// The place of the first one; `None` for zeroes.
    pub source: Option<Source>,
}

/// A read: its extents are pinned until [`Index::end_read`].
#[derive(Debug, PartialEq, Eq)]
#[must_use = "its extents are pinned"]
pub struct Reading {
    /// The size of the object.
    pub size: u64,
    /// The bytes that are read; `None` if the object ends before them.
    pub span: Option<Span>,
    parts: [Part; IO_BLOCKS_MAX],
    count: usize,
}

impl Reading {
    /// Returns where the blocks are that it reads, in their order and without a gap.
    pub fn parts(&self) -> &[Part] {
        self.parts.get(..self.count).unwrap_or_default()
    }

    fn add(&mut self, part: Part) {
        if let Some(to) = self.parts.get_mut(self.count) {
            *to = part;
            self.count = self.count.saturating_add(1);
        }
    }
}

/// A block at an edge of what is written: the rest of it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The bytes of the block that are written.
    pub written: Piece,
    /// The place of the block before.
    pub old: Source,
}

/// The blocks at the edges. At one that is not here the rest of the block is zeroes.
pub type Edges = [Option<Edge>; 2];

impl<S: Memory<Slot>, B: Memory<u32>> Index<S, B> {
    /// Returns where a block of an object is; `None` for a hole.
    pub(super) fn source(&self, object: u32, block: u32) -> Option<Source> {
        let (_, range) = self.range_at(object, block)?;
        let skipped = block.checked_sub(range.block)?;
        let extent = self.slots.extent(range.extent)?;
        Some(Source {
            extent: range.extent,
            stored: extent.stored,
            // CAST: Below the blocks of the range.
            first: range.first.saturating_add(skipped as u8),
        })
    }

    /// Begins a read: it gives the bytes of this moment, of blocks that are written later, too.
    ///
    /// # Errors
    ///
    /// Returns why it does not.
    pub fn read(&mut self, id: ObjectId, span: &Span) -> Result<Reading, Refused> {
        if !span.is_io() {
            return Err(Refused::TooLong);
        }
        let (number, object) = self.known(id)?;
        self.use_object(number, true);
        let bytes = object.size.min(span.end()).saturating_sub(span.offset());
        let mut reading = Reading {
            size: object.size,
            span: Span::new(span.offset(), bytes),
            parts: [Part::default(); IO_BLOCKS_MAX],
            count: 0,
        };
        let blocks = reading.span.map_or(0..0, |span| span.blocks());
        let mut block = blocks.start;
        while block < blocks.end {
            let found = self.range_at(number, block);
            let end = match found {
                Some((_, range)) if range.block <= block => range.end(),
                Some((_, range)) => range.block,
                None => blocks.end,
            };
            let source = self.source(number, block);
            self.pin(source.as_ref());
            let extent = source.and_then(|source| self.slots.extent_mut(source.extent));
            if let Some(extent) = extent {
                extent.uses = extent.uses.saturating_add(1).min(USES_MAX);
            }
            let end = end.min(blocks.end);
            reading.add(Part {
                block,
                blocks: end.saturating_sub(block),
                source,
            });
            block = end;
        }
        Ok(reading)
    }

    /// Ends a read.
    pub fn end_read(&mut self, reading: Reading, changes: &mut impl Changes) {
        for source in reading.parts().iter().filter_map(|part| part.source) {
            self.unpin(&source, changes);
        }
    }

    /// Keeps an extent, and its blocks, while they are read.
    pub fn pin(&mut self, source: Option<&Source>) {
        let extent = source.and_then(|source| self.slots.extent_mut(source.extent));
        if let Some(extent) = extent {
            extent.pins = extent.pins.saturating_add(1);
        }
    }

    /// Ends a read of an extent.
    pub fn unpin(&mut self, source: &Source, changes: &mut impl Changes) {
        if let Some(extent) = self.slots.extent_mut(source.extent) {
            extent.pins = extent.pins.saturating_sub(1);
        }
        self.settle(source.extent, changes);
    }

    /// Returns the blocks at the edges of a write, of which bytes stay that are not zeroes.
    pub fn edges(&self, id: ObjectId, span: &Span) -> Edges {
        let Some((number, object)) = self.known(id).ok() else {
            return [None; 2];
        };
        edge_blocks(span).map(|block| {
            let written = span.piece(block?);
            if written.is_whole() || is_rest_empty(&written, span, object.size) {
                return None;
            }
            let old = self.source(number, written.block)?;
            Some(Edge { written, old })
        })
    }

    /// Writes: all blocks that `span` touches are as `stored` now. Their bytes that are not in it
    /// are those that [`Self::edges`] has told of.
    ///
    /// # Errors
    ///
    /// Returns why it is not done.
    pub fn write(
        &mut self,
        (id, creates): (ObjectId, bool),
        span: &Span,
        stored: Stored,
        changes: &mut impl Changes,
    ) -> Result<(), Refused> {
        if !span.is_io() {
            return Err(Refused::TooLong);
        }
        let found = self.known(id);
        match found {
            Ok((_, object)) if object.is_shrinking && span.end() > object.size => {
                return Err(Refused::Shrinking);
            }
            Err(refused) if !creates => return Err(refused),
            _ => (),
        }
        self.require(STORE_SLOTS.saturating_add(found.is_err().into()))?;
        let number = match found {
            Ok((number, _)) => number,
            Err(_) => self.add(id, (0, Life::Linked), changes)?,
        };
        self.use_object(number, false);
        let blocks = span.blocks();
        self.cut(number, &blocks, u32::MAX, changes);
        // CAST: At most IO_BLOCKS_MAX.
        let count = span.block_count() as u8;
        self.store((number, blocks.start), (stored, count), changes)?;
        self.lengthen(number, span.end(), changes);
        Ok(())
    }

    /// An object has at least this size.
    pub(super) fn lengthen(&mut self, number: u32, size: u64, changes: &mut impl Changes) {
        if let Some(object) = self.slots.object_mut(number) {
            if object.size < size {
                object.size = size;
                changes.changed(number);
            }
        }
    }
}

/// Returns the blocks in which a span begins and ends, if it has some of one only.
pub(super) fn edge_blocks(span: &Span) -> [Option<u32>; 2] {
    let (blocks, last) = (span.blocks(), span.block_count() > 1);
    let is_part = |block: &u32| !span.piece(*block).is_whole();
    let end = blocks.end.saturating_sub(1);
    [
        Some(blocks.start).filter(is_part),
        Some(end).filter(|block| last && is_part(block)),
    ]
}

/// Whether of a block nothing stays when a piece of it is written, as the object ends there.
pub(super) fn is_rest_empty(written: &Piece, span: &Span, size: u64) -> bool {
    let start = u64::from(written.block).saturating_mul(BLOCK_BYTES);
    start >= size || (written.from == 0 && span.end() >= size)
}
