// SPDX-License-Identifier: GPL-2.0

//! Reads, and what they must give.

use super::*;

impl<D: Readable> Rig<D> {
    /// Begins a read: what it finds is there when its batch is durable.
    pub(crate) fn begin_read(&mut self, object: u64, offset: u64, bytes: u64) {
        let span = Span::new(offset, bytes).unwrap();
        let (found, after) = match self.store.read((id(object), &span)) {
            Ok(look) => {
                let all = &self.objects[&id(object)];
                let asked = offset as usize..(offset + bytes).min(all.len() as u64) as usize;
                let bytes = all.get(asked).unwrap_or_default().to_vec();
                assert_eq!(look.reading.size, all.len() as u64);
                self.held.push(Held(look.reading, bytes));
                (Some(all), look.after)
            }
            Err((errno, after)) => {
                assert_eq!(errno.get(), 2);
                assert!(!self.objects.contains_key(&id(object)));
                (None, after)
            }
        };
        let then = self
            .history
            .range(..=after.max(self.store.medium().durable_up_to()));
        let then = then.last().unwrap().1;
        assert!(then.get(&id(object)) == found, "a read is before its batch");
    }

    pub(crate) fn end_read(&mut self, at: usize) {
        if at < self.held.len() {
            let Held(reading, bytes) = self.held.swap_remove(at);
            assert!(self.content(&reading) == bytes);
            self.store.end_read(reading);
        }
    }

    fn content(&self, reading: &Reading) -> Vec<u8> {
        let mut all = Vec::new();
        let Some(span) = reading.span else {
            return all;
        };
        let mut block = span.blocks().start;
        for part in reading.parts() {
            for skipped in 0..part.blocks {
                let bytes = part.source.map(|source| {
                    let number = source.first + skipped as u8;
                    let medium = self.store.medium();
                    medium.block(&self.begun.disk, &source.stored, number)
                });
                let piece = span.piece(block);
                let bytes = bytes.unwrap_or([0; BLOCK_BYTES as usize]);
                all.extend(&bytes[piece.from as usize..piece.to as usize]);
                block += 1;
            }
        }
        all
    }

    /// Compares all objects with the arrays.
    pub(crate) fn check(&mut self) {
        for (object, bytes) in self.objects.clone() {
            let size = self.store.index().stat(object).unwrap().size;
            assert_eq!(size, bytes.len() as u64);
            for (at, expected) in (0..).zip(bytes.chunks(28 * BLOCK_BYTES as usize)) {
                let from = at * 28 * BLOCK_BYTES;
                let span = Span::new(from, expected.len() as u64).unwrap();
                let look = self.store.read((object, &span)).unwrap();
                assert!(
                    self.content(&look.reading) == expected,
                    "{object:?} at {from}"
                );
                self.store.end_read(look.reading);
            }
        }
        let usage = self.store.index().usage();
        assert_eq!(usage.blocks, self.store.medium().room().0);
        let mut names = [ObjectId::default(); 64];
        let (count, _) = self.store.index().list(0, &mut names);
        assert_eq!(count, self.objects.len());
    }
}
