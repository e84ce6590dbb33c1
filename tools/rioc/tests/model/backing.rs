// SPDX-License-Identifier: GPL-2.0

//! Objects whose blocks go to files and come back: after each step the bytes are the same, also
//! after a crash that takes what the files were not synced for, and what is called clean is there.

use rioc::proto::{
    index::{
        Fetch,
        Leaving,
        Source, //
    },
    slot::{
        InFile,
        Life, //
    },
    span::{
        ObjectId,
        Span,
        BLOCK_BYTES, //
    },
};

use crate::{
    random::Random,
    rig::filed::Files,
    store::Storage,
    world::{
        id,
        Held,
        Op,
        World, //
    },
};

const BLOCK: usize = BLOCK_BYTES as usize;

/// A job, and how much of it is done.
struct Job(Leaving, usize);

struct Backed {
    world: World,
    files: Files,
    job: Option<Job>,
    slow: Option<(Fetch, Vec<u8>)>,
    random: Random,
    held: Vec<Held>,
    dropped: u64,
    fetched: u64,
    failed: u64,
    cleaned: u64,
}

/// Fetches blocks that some bytes need.
fn fetch(world: &mut World, files: &Files, object: ObjectId, span: &Span) -> u64 {
    let mut count = 0;
    while let Some(fetch) = world.index.missing(object, span) {
        let bytes = files.blocks(object, fetch.block, fetch.blocks).unwrap();
        let stored = world.store.put(&bytes);
        let done = world.index.fetched(&fetch, stored, &mut world.store);
        assert_eq!(done, Ok(true));
        world.note();
        count += 1;
    }
    count
}

fn check(world: &mut World, files: &Files) {
    for (object, bytes) in world.objects.clone() {
        if let Some(span) = Span::new(0, bytes.len() as u64) {
            fetch(world, files, object, &span);
        }
    }
    world.compare(&mut world.index.clone());
}

impl Backed {
    fn new(seed: u64) -> Self {
        let mut world = World::new(400);
        world.has_files = true;
        world.index.back();
        Self {
            world,
            files: Files::default(),
            job: None,
            slow: None,
            random: Random::new(seed),
            held: Vec::new(),
            dropped: 0,
            fetched: 0,
            failed: 0,
            cleaned: 0,
        }
    }

    /// Carries out an operation, with the blocks that it needs.
    fn apply(&mut self, op: Op) {
        let whole = Span::new(0, 1 << 20).unwrap();
        let needs = match op {
            Op::Write(object, offset, bytes, _) => {
                let span = Span::new(offset, bytes).unwrap();
                let blocks = span.blocks();
                let ends = [blocks.start, blocks.end - 1];
                // What is written as a whole is not needed.
                let ends = ends.map(|block| span.piece(block));
                let parts = ends.into_iter().filter(|piece| !piece.is_whole());
                let one = |block: u32| Span::new(u64::from(block) * BLOCK_BYTES, BLOCK_BYTES);
                parts
                    .map(|piece| (object, one(piece.block).unwrap()))
                    .collect()
            }
            Op::Truncate(object, size) => {
                let block = size / BLOCK_BYTES * BLOCK_BYTES;
                vec![(object, Span::new(block, BLOCK_BYTES).unwrap())]
            }
            Op::Copy(source, _, _, destination, ..) => vec![(source, whole), (destination, whole)],
            Op::Snapshot(source, ..) => vec![(source, whole)],
            _ => Vec::new(),
        };
        for (object, span) in needs {
            self.fetched += fetch(&mut self.world, &self.files, id(object), &span);
        }
        self.world.apply(&op, &mut self.held);
    }

    /// Takes a step of a job: cuts, writes, syncs; it may fail at any moment.
    fn step_job(&mut self) {
        let Some(Job(leaving, done)) = self.job.take() else {
            let object = id(self.random.below(3) as u64);
            let leaving = self.world.index.leave((object, 0), &mut self.world.store);
            self.job = leaving.ok().map(|leaving| Job(leaving, 0));
            self.world.note();
            return;
        };
        if let (0, Some(block)) = (done, leaving.cut_at) {
            self.files.resize(leaving.object, block as usize * BLOCK);
        }
        if self.random.below(12) == 0 {
            self.failed += 1;
            self.world
                .index
                .left(&leaving, false, &mut self.world.store);
            self.world.note();
            return;
        }
        let Some(part) = leaving.parts().get(done) else {
            self.files.resize(leaving.object, leaving.size as usize);
            self.files.sync(leaving.object);
            self.world.index.left(&leaving, true, &mut self.world.store);
            self.world.note();
            return self.check_clean(leaving.object);
        };
        let file = self.files.now.entry(leaving.object).or_default();
        for skipped in 0..part.blocks {
            let bytes = part
                .source
                .map(|source: Source| self.world.store.get(&source, skipped));
            let at = (part.block + skipped) as usize * BLOCK;
            file.resize(file.len().max(at + BLOCK), 0);
            file[at..at + BLOCK].copy_from_slice(&bytes.unwrap_or([0; BLOCK]));
        }
        self.job = Some(Job(leaving, done + 1));
    }

    /// Checks that what is called clean is in the file as it was synced.
    fn check_clean(&mut self, object: ObjectId) {
        let slots = self.world.index.slots();
        for slot in 0..slots.count() {
            let Some(range) = slots.range(slot).filter(|r| r.in_file == InFile::Clean) else {
                continue;
            };
            let of = slots.object(range.object).unwrap();
            if of.id != object || of.life != Life::Linked {
                continue;
            }
            assert!(range.end() <= of.backed);
            self.cleaned += 1;
            let (from, end) = (range.block as usize * BLOCK, range.end() as usize * BLOCK);
            let bytes = &self.world.objects[&object];
            let bytes = &bytes[from.min(bytes.len())..end.min(bytes.len())];
            // Behind its end there are zeroes.
            let mut file = self.files.synced[&object].clone();
            file.resize(file.len().max(end), 0);
            assert!(file[from..].starts_with(bytes));
        }
    }

    fn drop_some(&mut self) {
        let count = self.world.index.slots().count();
        let from = self.random.below(count as usize) as u32;
        for slot in (from..count).chain(0..from) {
            if self
                .world
                .index
                .drop_clean((slot, false), &mut self.world.store)
            {
                self.dropped += 1;
                break;
            }
        }
        self.world.note();
    }

    /// A fetch takes its time, while other things happen: what it brings is used, or is not.
    fn fetch_slowly(&mut self) {
        if let Some((fetch, bytes)) = self.slow.take() {
            let stored = self.world.store.put(&bytes);
            let store = &mut self.world.store;
            if self.world.index.fetched(&fetch, stored, store) != Ok(true) {
                self.world.store.take_back(stored);
            }
            return self.world.note();
        }
        let object = id(self.random.below(3) as u64);
        let whole = Span::new(0, 1 << 20).unwrap();
        self.slow = self.world.index.missing(object, &whole).map(|fetch| {
            let bytes = self.files.blocks(object, fetch.block, fetch.blocks);
            (fetch, bytes.unwrap())
        });
    }

    fn reap(&mut self) {
        self.world.index.reap(&mut self.world.store);
        self.world.note();
        // Jobs and removals of files follow each other.
        if self.job.is_none() {
            if let Some(object) = self.world.index.file_to_remove() {
                self.files.now.remove(&object);
                self.files.synced.remove(&object);
                let store = &mut self.world.store;
                self.world.index.file_removed(object, true, store);
                self.world.note();
            }
        }
    }

    /// Power fails, and the store goes on with what its log has.
    fn crash(&mut self) {
        self.world.index = self.world.restored();
        self.world.index.back();
        self.files = self.files.crashed(&mut self.random);
        (self.job, self.slow) = (None, None);
        // Extents that reads had kept are gone.
        let slots = self.world.index.slots();
        let places: Vec<_> = (0..slots.count())
            .filter_map(|slot| slots.extent(slot))
            .map(|extent| extent.stored.place)
            .collect();
        self.world.store.keep(&places);
        for slot in 0..self.world.index.slots().count() {
            while !self.world.index.trim(slot, &mut self.world.store) {}
        }
        self.world.note();
    }

    /// Compares here, and after a crash of a store with a log.
    fn check(&mut self) {
        check(&mut self.world.clone(), &self.files);
        let mut crashed = self.world.clone();
        crashed.index = self.world.restored();
        crashed.index.back();
        check(&mut crashed, &self.files.crashed(&mut self.random));
    }
}

fn operation(random: &mut Random) -> Op {
    let object = random.below(3) as u64;
    let other = random.below(3) as u64;
    let offset = [0, 2048][random.below(2)] + random.below(8) as u64 * 4096;
    let bytes = [4096, 8192, 1000, 20480][random.below(4)];
    match random.below(12) {
        0..5 => Op::Write(object, offset, bytes, true),
        5..8 => {
            let to = offset % 4096 + random.below(8) as u64 * 4096;
            Op::Copy(object, offset, bytes, other, to, true)
        }
        8 | 9 => Op::Truncate(object, offset),
        10 => Op::Delete(object),
        _ => Op::Snapshot(object, other, false),
    }
}

#[test]
fn objects_with_files_are_as_bytes() {
    let (mut dropped, mut fetched, mut failed, mut cleaned) = (0, 0, 0, 0);
    let lives = std::env::var("RIOC_LIVES").map_or(100, |lives| lives.parse().unwrap());
    for seed in 0..lives {
        let mut life = Backed::new(seed + 5);
        for _ in 0..250 {
            match life.random.below(16) {
                0..3 => {
                    let op = operation(&mut life.random);
                    life.apply(op);
                }
                3..10 => life.step_job(),
                10..13 => life.drop_some(),
                13 | 14 => life.fetch_slowly(),
                _ if life.random.below(3) == 0 => life.crash(),
                _ => life.reap(),
            }
            life.check();
        }
        (dropped, fetched) = (dropped + life.dropped, fetched + life.fetched);
        (failed, cleaned) = (failed + life.failed, cleaned + life.cleaned);
    }
    println!("{dropped} dropped, {fetched} fetched, {failed} failed, {cleaned} clean");
    assert!(dropped > lives * 5 && fetched > lives && failed > lives && cleaned > lives * 10);
}

/// Nothing is clean before the file was synced, and a file that fails loses nothing.
#[test]
fn a_file_that_fails_loses_nothing() {
    let mut world = World::new(100);
    world.index.back();
    world.apply(&Op::Write(1, 0, 8192, true), &mut Vec::new());
    let extent = |world: &World| {
        let slots = world.index.slots();
        (0..slots.count()).find(|slot| slots.extent(*slot).is_some())
    };
    let slot = extent(&world).unwrap();
    for is_synced in [false, true] {
        assert!(!world.index.drop_clean((slot, false), &mut world.store));
        let leaving = world.index.leave((id(1), 0), &mut world.store).unwrap();
        assert_eq!((leaving.cut_at, leaving.size), (Some(0), 8192));
        assert!(!world.index.drop_clean((slot, false), &mut world.store));
        world.index.left(&leaving, is_synced, &mut world.store);
        world.note();
    }
    assert!(world.index.drop_clean((slot, false), &mut world.store));
    assert_eq!(extent(&world), None);
    // What its file alone has is dirty in a copy of it, and a deleted name keeps its file.
    let all = Span::new(0, 8192).unwrap();
    assert_eq!(world.index.missing(id(1), &all).unwrap().blocks, 2);
    world.index.delete(id(1), &mut world.store).unwrap();
    assert!(!world.index.reap(&mut world.store));
    assert_eq!(world.index.file_to_remove(), Some(id(1)));
    assert_eq!(world.index.usage().objects, 1);
    world.index.file_removed(id(1), true, &mut world.store);
    assert!(!world.index.reap(&mut world.store));
    assert_eq!(world.index.usage().objects, 0);
}
