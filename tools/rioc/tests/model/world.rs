// SPDX-License-Identifier: GPL-2.0

//! The judge: an index with its store, beside arrays of bytes.

mod judge;

use std::collections::{
    BTreeMap,
    BTreeSet, //
};

use rioc::proto::{
    body::{
        CHANGES_MAX,
        WRITE_CHANGES_MAX, //
    },
    entry::{
        self,
        Entry,
        ENTRY_BYTES, //
    },
    index::{
        Edge,
        Index,
        Reading,
        Refused, //
    },
    slot::{
        Slot,
        Stored,
        NONE, //
    },
    span::{
        ObjectId,
        Piece,
        Span,
        BLOCK_BYTES, //
    },
};

use crate::store::{
    Block,
    Objects,
    Storage,
    Store, //
};

pub(crate) type Memory = Index<Vec<Slot>, Vec<u32>>;

/// An operation, on objects by small numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op {
    Create(u64, bool),
    Delete(u64),
    /// Object, offset, bytes, whether it is made.
    Write(u64, u64, u64, bool),
    Truncate(u64, u64),
    /// Source, offset, bytes; destination, offset, whether it is made.
    Copy(u64, u64, u64, u64, u64, bool),
    Snapshot(u64, u64, bool),
    /// A read begins, and ends some operations later.
    BeginRead(u64, u64, u64),
    EndRead,
    /// A step of what is left to be done.
    Reap,
    /// The index is made anew from what a log has kept.
    Restart,
}

#[derive(Clone)]
pub(crate) struct World<S = Store> {
    pub(crate) index: Memory,
    pub(crate) store: S,
    pub(crate) objects: Objects,
    /// Entries that a log has kept.
    table: Vec<Entry>,
    /// The number of the operation, which what it writes is made of.
    step: u64,
    /// Refusals for lack of room are no failures.
    pub(crate) may_be_full: bool,
    /// Some blocks are in files only.
    pub(crate) has_files: bool,
    /// Whether the last operation was refused.
    pub(crate) was_refused: bool,
}

/// A read that has begun, and the bytes that it must give.
pub(crate) struct Held(Reading, Vec<u8>);

pub(crate) fn id(number: u64) -> ObjectId {
    ObjectId {
        high: number >> 2,
        low: number,
    }
}

pub(crate) fn pattern(step: u64, at: usize) -> u8 {
    let mixed = (step * 1009 + at as u64 / 256).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8 | 1
}

impl World {
    pub(crate) fn new(slots: usize) -> Self {
        Self::with(slots, Store::default())
    }
}

impl<S: Storage> World<S> {
    pub(crate) fn with(slots: usize, store: S) -> Self {
        Self {
            index: Index::new(vec![Slot::Free(NONE); slots], vec![NONE; 4], [7, 11]),
            store,
            objects: BTreeMap::new(),
            table: vec![[0; ENTRY_BYTES]; slots],
            step: 0,
            may_be_full: false,
            has_files: false,
            was_refused: false,
        }
    }

    fn bytes(&self, object: u64) -> Option<&Vec<u8>> {
        self.objects.get(&id(object))
    }

    /// Puts a piece over an old block.
    fn merge(&self, old: Option<Block>, piece: &Piece, new: &[u8]) -> Block {
        let mut block = old.unwrap_or([0; BLOCK_BYTES as usize]);
        block[piece.from as usize..piece.to as usize].copy_from_slice(new);
        block
    }

    /// Stores what is written, with what stays at the edges.
    fn put(&mut self, span: &Span, data: &[u8], edges: &[Option<Edge>]) -> Stored {
        let mut all = Vec::new();
        for piece in span.pieces() {
            let edge = edges.iter().flatten().find(|e| e.written == piece);
            let old = edge.map(|edge| self.store.get(&edge.old, 0));
            let at = (u64::from(piece.block) * BLOCK_BYTES).saturating_sub(span.offset());
            let new = &data[at as usize..][..(piece.to - piece.from) as usize];
            all.extend(self.merge(old, &piece, new));
        }
        self.store.put(&all)
    }

    fn write(&mut self, object: u64, span: &Span, creates: bool) -> Result<(), Refused> {
        let data: Vec<_> = (0..span.bytes() as usize)
            .map(|at| pattern(self.step, at))
            .collect();
        let edges = self.index.edges(id(object), span);
        let place = self.put(span, &data, &edges);
        let done = self
            .index
            .write((id(object), creates), span, place, &mut self.store);
        if done.is_err() {
            self.store.take_back(place);
            return done;
        }
        let bytes = self.objects.entry(id(object)).or_default();
        put_bytes(bytes, span.offset() as usize, &data);
        self.note_up_to(WRITE_CHANGES_MAX);
        done
    }

    fn truncate(&mut self, object: u64, size: u64) -> Result<(), Refused> {
        let edge = self.index.new_end(id(object), size);
        let place = edge.map(|edge| {
            let zeroes = vec![0; (edge.written.to - edge.written.from) as usize];
            let block = self.merge(Some(self.store.get(&edge.old, 0)), &edge.written, &zeroes);
            self.store.put(&block)
        });
        let done = self
            .index
            .truncate((id(object), size), place, &mut self.store);
        if let (Err(_), Some(place)) = (done, place) {
            self.store.take_back(place);
        }
        done?;
        self.objects
            .get_mut(&id(object))
            .unwrap()
            .resize(size as usize, 0);
        Ok(())
    }

    fn copy(
        &mut self,
        (source, span): (u64, &Span),
        (destination, offset, creates): (u64, u64, bool),
    ) -> Result<(), Refused> {
        let (from, to) = ((id(source), span), (id(destination), offset));
        let edges = self.index.copy_edges(from, to)?;
        let places = edges.map(|edge| {
            let edge = edge?;
            let zeroes = [0; BLOCK_BYTES as usize];
            let new = edge.new.map_or(zeroes, |new| self.store.get(&new, 0));
            let new = &new[edge.written.from as usize..edge.written.to as usize];
            let old = edge.old.map(|old| self.store.get(&old, 0));
            let block = self.merge(old, &edge.written, new);
            Some(self.store.put(&block))
        });
        let to = (id(destination), offset, creates);
        let done = self.index.copy(from, to, places, &mut self.store);
        if done.is_err() {
            for place in places.into_iter().flatten() {
                self.store.take_back(place);
            }
            return done;
        }
        let mut copied = self.objects[&id(source)].clone();
        copied.resize(copied.len().max(span.end() as usize), 0);
        let copied = &copied[span.offset() as usize..span.end() as usize];
        let bytes = self.objects.entry(id(destination)).or_default();
        put_bytes(bytes, offset as usize, copied);
        done
    }

    fn snapshot(&mut self, source: u64, destination: u64, is_new: bool) -> Result<(), Refused> {
        let to = (id(destination), is_new);
        let hidden = self.index.begin_snapshot(id(source), to, &mut self.store)?;
        let mut from = 0;
        loop {
            // A crash here leaves nothing of it.
            self.note();
            if !self.has_files {
                self.compare(&mut self.restored());
            }
            let at = (hidden, from..u32::MAX);
            let step = self
                .index
                .continue_snapshot(id(source), at, &mut self.store);
            match step {
                Ok(Some(next)) => from = next,
                Ok(None) => break,
                Err(refused) => {
                    self.index.discard(hidden, &mut self.store);
                    return Err(refused);
                }
            }
        }
        self.index.link(hidden, is_new, &mut self.store)?;
        let bytes = self.objects[&id(source)].clone();
        self.objects.insert(id(destination), bytes);
        Ok(())
    }

    /// Returns what must be said to an operation that there is room for.
    fn expected(&self, op: &Op) -> Result<(), Refused> {
        let has = |object: u64| self.bytes(object).map(|_| ()).ok_or(Refused::NoObject);
        match *op {
            Op::Create(object, true) if has(object).is_ok() => Err(Refused::Exists),
            Op::Delete(object) | Op::Truncate(object, _) => has(object),
            Op::Write(object, _, _, false) => has(object),
            Op::Copy(source, from, bytes, destination, to, creates) => {
                has(source)?;
                let first = |at: u64| at / BLOCK_BYTES;
                let end = |at: u64| (at + bytes).div_ceil(BLOCK_BYTES);
                if from % BLOCK_BYTES != to % BLOCK_BYTES {
                    Err(Refused::Misaligned)
                } else if source == destination && first(from) < end(to) && first(to) < end(from) {
                    Err(Refused::Overlaps)
                } else if creates {
                    Ok(())
                } else {
                    has(destination)
                }
            }
            Op::Snapshot(source, destination, is_new) => {
                has(source)?;
                if source == destination {
                    Err(Refused::Overlaps)
                } else if is_new && has(destination).is_ok() {
                    Err(Refused::Exists)
                } else {
                    Ok(())
                }
            }
            _ => Ok(()),
        }
    }

    /// Carries out an operation on both, and compares what is said.
    pub(crate) fn apply(&mut self, op: &Op, held: &mut Vec<Held>) {
        self.step += 1;
        self.was_refused = false;
        let expected = self.expected(op);
        let mut done = self.carry_out(op, held);
        while done == Err(Refused::Shrinking) {
            self.trim();
            done = self.carry_out(op, held);
        }
        self.note();
        let is_full = matches!(done, Err(Refused::NoSlots | Refused::TooManyRanges));
        if is_full && self.may_be_full {
            self.was_refused = true;
        } else {
            assert_eq!(done, expected, "{op:?}");
        }
    }

    fn carry_out(&mut self, op: &Op, held: &mut Vec<Held>) -> Result<(), Refused> {
        let span = |offset, bytes| Span::new(offset, bytes).unwrap();
        match *op {
            Op::Create(object, is_new) => {
                let done = self.index.create((id(object), is_new), &mut self.store);
                if done.is_ok() {
                    self.objects.entry(id(object)).or_default();
                }
                done
            }
            Op::Delete(object) => {
                self.objects.remove(&id(object));
                self.index.delete(id(object), &mut self.store)
            }
            Op::Write(object, offset, bytes, creates) => {
                self.write(object, &span(offset, bytes), creates)
            }
            Op::Truncate(object, size) => self.truncate(object, size),
            Op::Copy(source, from, bytes, destination, to, creates) => {
                self.copy((source, &span(from, bytes)), (destination, to, creates))
            }
            Op::Snapshot(source, destination, is_new) => self.snapshot(source, destination, is_new),
            Op::BeginRead(object, offset, bytes) => {
                if let Ok(reading) = self.index.read(id(object), &span(offset, bytes)) {
                    let all = &self.objects[&id(object)];
                    let asked = offset as usize..(offset + bytes).min(all.len() as u64) as usize;
                    let bytes = all.get(asked).unwrap_or_default().to_vec();
                    held.push(Held(reading, bytes));
                }
                Ok(())
            }
            Op::EndRead => {
                if !held.is_empty() {
                    self.end_read(held.remove(0));
                }
                Ok(())
            }
            Op::Reap => {
                self.index.reap(&mut self.store);
                Ok(())
            }
            Op::Restart => {
                held.drain(..).for_each(|held| self.end_read(held));
                self.note();
                self.index = self.restored();
                Ok(())
            }
        }
    }

    fn end_read(&mut self, Held(reading, bytes): Held) {
        assert_eq!(self.content(&reading), bytes);
        self.index.end_read(reading, &mut self.store);
    }

    /// Carries out all steps of what objects were made shorter by.
    fn trim(&mut self) {
        for slot in 0..self.index.slots().count() {
            while !self.index.trim(slot, &mut self.store) {
                self.note();
            }
            self.note();
        }
    }

    /// Keeps what the log would: nothing else has changed.
    pub(crate) fn note(&mut self) {
        self.note_up_to(CHANGES_MAX);
    }

    fn note_up_to(&mut self, changes_max: usize) {
        let changed: BTreeSet<_> = self.store.take_changed().into_iter().collect();
        assert!(changed.len() <= changes_max);
        for slot in changed {
            self.table[slot as usize] = self.index.entry(slot);
        }
        let entries = (0..self.table.len() as u32).map(|slot| self.index.entry(slot));
        assert!(entries.eq(self.table.iter().copied()));
        let entry = |slot| self.index.entry(slot);
        self.store.settle(&self.objects, &entry);
    }

    /// Makes an index of what the log has kept.
    pub(crate) fn restored(&self) -> Memory {
        let slots = self.table.iter().map(|e| entry::slot(e).unwrap()).collect();
        Index::restore(slots, vec![NONE; 3], [13, 17]).unwrap()
    }

    fn content(&self, reading: &Reading) -> Vec<u8> {
        let Some(span) = reading.span else {
            return Vec::new();
        };
        let (mut all, mut block) = (Vec::new(), span.blocks().start);
        for part in reading.parts() {
            assert_eq!(part.block, block);
            assert!(part.blocks > 0);
            for skipped in 0..part.blocks {
                let bytes = part.source.map(|source| self.store.get(&source, skipped));
                let piece = span.piece(block);
                let bytes = bytes.unwrap_or([0; BLOCK_BYTES as usize]);
                all.extend(&bytes[piece.from as usize..piece.to as usize]);
                block += 1;
            }
        }
        assert_eq!(block, span.blocks().end);
        all
    }

    /// Removes all, and looks for what is left.
    pub(crate) fn end(mut self, held: Vec<Held>) {
        held.into_iter().for_each(|held| self.end_read(held));
        for object in std::mem::take(&mut self.objects).into_keys() {
            self.index.delete(object, &mut self.store).unwrap();
            self.note();
        }
        while self.index.reap(&mut self.store) {
            self.note();
        }
        self.note();
        assert_eq!(self.index.slots().free_count(), self.index.slots().count());
        assert_eq!(self.store.places().len(), 0);
    }
}

pub(crate) fn put_bytes(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    bytes.resize(bytes.len().max(offset + data.len()), 0);
    bytes[offset..offset + data.len()].copy_from_slice(data);
}
