// SPDX-License-Identifier: GPL-2.0

//! The judge: an index with its store, beside arrays of bytes.

use std::collections::{
    BTreeMap,
    BTreeSet, //
};

use rioc::proto::{
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
        Life,
        Slot,
        Stored,
        NONE, //
    },
    span::{
        ObjectId,
        Piece,
        Span,
        BLOCK_BYTES,
        IO_BYTES_MAX, //
    },
};

use crate::store::{
    Block,
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
pub(crate) struct World {
    pub(crate) index: Memory,
    pub(crate) store: Store,
    pub(crate) objects: BTreeMap<ObjectId, Vec<u8>>,
    /// What a log has kept.
    table: Vec<Entry>,
    /// The number of the operation, which what it writes is made of.
    step: u64,
    /// Refusals for lack of room are no failures.
    pub(crate) may_be_full: bool,
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

fn pattern(step: u64, at: usize) -> u8 {
    let mixed = (step * 1009 + at as u64 / 256).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as u8 | 1
}

impl World {
    pub(crate) fn new(slots: usize) -> Self {
        Self {
            index: Index::new(vec![Slot::Free(NONE); slots], vec![NONE; 4], [7, 11]),
            store: Store::default(),
            objects: BTreeMap::new(),
            table: vec![[0; ENTRY_BYTES]; slots],
            step: 0,
            may_be_full: false,
            was_refused: false,
        }
    }

    fn bytes(&self, object: u64) -> Option<&Vec<u8>> {
        self.objects.get(&id(object))
    }

    /// Puts a piece over an old block.
    fn merge(&self, old: Option<&Block>, piece: &Piece, new: &[u8]) -> Block {
        let mut block = old.copied().unwrap_or([0; BLOCK_BYTES as usize]);
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
            let new = edge.new.map_or(zeroes, |new| *self.store.get(&new, 0));
            let new = &new[edge.written.from as usize..edge.written.to as usize];
            let old = edge.old.map(|old| *self.store.get(&old, 0));
            let block = self.merge(old.as_ref(), &edge.written, new);
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
            self.compare(&mut self.restored());
            let at = (hidden, from);
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
            while !self.index.trim(slot, &mut self.store) {}
        }
    }

    /// Keeps what the log would: nothing else has changed.
    fn note(&mut self) {
        for slot in std::mem::take(&mut self.store.changed) {
            self.table[slot as usize] = self.index.entry(slot);
        }
        let entries = (0..self.table.len() as u32).map(|slot| self.index.entry(slot));
        assert!(entries.eq(self.table.iter().copied()));
    }

    /// Makes an index of what the log has kept.
    fn restored(&self) -> Memory {
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
                let bytes = bytes.copied().unwrap_or([0; BLOCK_BYTES as usize]);
                all.extend(&bytes[piece.from as usize..piece.to as usize]);
                block += 1;
            }
        }
        assert_eq!(block, span.blocks().end);
        all
    }

    /// Compares all objects of an index with the arrays.
    fn compare(&self, index: &mut Memory) {
        let mut ends = Store::default();
        for (object, bytes) in &self.objects {
            let stat = index.stat(*object).unwrap();
            assert_eq!(stat.size, bytes.len() as u64);
            for (at, expected) in (0..).zip(bytes.chunks(IO_BYTES_MAX as usize)) {
                let span = Span::new(at * IO_BYTES_MAX, expected.len() as u64).unwrap();
                let reading = index.read(*object, &span).unwrap();
                assert!(self.content(&reading) == expected, "{object:?} at {at}");
                index.end_read(reading, &mut ends);
            }
        }
        assert!(ends.changed.is_empty());
        let (mut listed, mut cursor) = (BTreeSet::new(), Some(0));
        while let Some(at) = cursor {
            let mut names = [ObjectId::default(); 3];
            let (count, next) = index.list(at, &mut names);
            names[..count]
                .iter()
                .for_each(|name| assert!(listed.insert(*name)));
            cursor = next;
        }
        assert!(listed.iter().eq(self.objects.keys()));
    }

    /// Checks that counts are right, and that no block is lost.
    fn check_slots(&self, has_reads: bool) {
        let (slots, mut references) = (self.index.slots(), BTreeMap::new());
        let (mut free, mut blocks, mut places) = (0, 0, BTreeMap::new());
        let mut per_object = BTreeMap::<u32, u32>::new();
        for number in 0..slots.count() {
            match *slots.get(number).unwrap() {
                Slot::Free(_) => free += 1,
                Slot::Range(range) => {
                    *references.entry(range.extent).or_insert(0) += 1;
                    *per_object.entry(range.object).or_insert(0) += u32::from(range.blocks);
                    let object = slots.object(range.object).unwrap();
                    let end = object.size.div_ceil(BLOCK_BYTES) as u32;
                    assert!(
                        range.end() <= end || object.is_shrinking || object.life == Life::Doomed
                    );
                }
                _ => (),
            }
        }
        for number in 0..slots.count() {
            if let Some(extent) = slots.extent(number) {
                let known = references.get(&number).copied().unwrap_or(0);
                assert_eq!(extent.references, known);
                assert!(known > 0 || (has_reads && extent.pins > 0));
                assert!(extent.pins == 0 || has_reads);
                places.insert(extent.stored.place, usize::from(extent.blocks));
                blocks += u64::from(extent.blocks);
            }
            if let Some(object) = slots.object(number) {
                let known = per_object.get(&number).copied().unwrap_or(0);
                assert_eq!(object.blocks, known);
            }
        }
        let usage = self.index.usage();
        assert_eq!(free, slots.free_count());
        assert_eq!(
            free + usage.objects + usage.ranges + usage.extents,
            slots.count()
        );
        assert_eq!(blocks, usage.blocks);
        assert!(places.into_iter().eq(self.store.places()));
    }

    /// Compares everything, here and after a crash at this moment.
    pub(crate) fn check(&self, has_reads: bool) {
        self.check_slots(has_reads);
        self.compare(&mut self.index.clone());
        self.compare(&mut self.restored());
    }

    /// Removes all, and looks for what is left.
    pub(crate) fn end(mut self, held: Vec<Held>) {
        held.into_iter().for_each(|held| self.end_read(held));
        for object in std::mem::take(&mut self.objects).into_keys() {
            self.index.delete(object, &mut self.store).unwrap();
        }
        while self.index.reap(&mut self.store) {}
        self.note();
        assert_eq!(self.index.slots().free_count(), self.index.slots().count());
        assert_eq!(self.store.places().count(), 0);
    }
}

fn put_bytes(bytes: &mut Vec<u8>, offset: usize, data: &[u8]) {
    bytes.resize(bytes.len().max(offset + data.len()), 0);
    bytes[offset..offset + data.len()].copy_from_slice(data);
}
