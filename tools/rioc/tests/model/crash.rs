// SPDX-License-Identifier: GPL-2.0

//! Objects over a log whose power fails: after each crash there are the objects of one batch, none
//! before the last one that was durable, and all their blocks. The log is one that keeps what
//! `seglog` promises and no more, or `seglog` itself, on a device with a volatile cache.

use rioc::proto::{
    entry::Entry,
    index::{
        Index,
        Source, //
    },
    slot::{
        Slot,
        Stored,
        NONE, //
    },
};

use crate::{
    log::{
        Log,
        Mistake, //
    },
    random::Random,
    segments::{
        Fault,
        OnLog, //
    },
    store::{
        Objects,
        Storage, //
    },
    world::{
        Held,
        Op,
        World, //
    },
};

const SLOTS: usize = 96;

/// A store that is a log.
pub(crate) trait Logged: Storage {
    /// Makes sure that there is room for an operation, or for a move, which may use what operations
    /// leave; returns whether there is.
    fn prepare(&mut self, moves: bool, objects: &Objects, entry: &dyn Fn(u32) -> Entry) -> bool;

    /// Whether segments are to be freed before the next operation.
    fn is_low(&self) -> bool;

    /// Returns the segment that is collected next, if one can be.
    fn victim(&self) -> Option<usize>;

    /// Whether an extent is in a segment.
    fn is_in(&self, stored: &Stored, segment: usize) -> bool;

    /// Ends the batch that is filled.
    fn close(&mut self, objects: &Objects, entry: &dyn Fn(u32) -> Entry);

    /// All that has begun becomes durable.
    fn flush(&mut self);

    /// Takes a step of a dump; returns whether it was the last one.
    fn step_dump(&mut self, entry: &dyn Fn(u32) -> Entry) -> bool;

    /// Power fails: returns the slots that the log gives, and the objects that there must be.
    fn crash(&mut self) -> (Vec<Slot>, Objects);

    /// Returns how many segments, or batches, were written so far.
    fn written(&self) -> u64;
}

/// What came of some lives.
#[derive(Default)]
struct Tally {
    lives: u64,
    operations: u64,
    crashes: u64,
    moved: u64,
    written: u64,
    /// The lives that have ended with a log that is full.
    full: u64,
}

fn operation(random: &mut Random) -> Op {
    let object = random.below(3) as u64;
    let other = random.below(3) as u64;
    let offset = [0, 2048][random.below(2)] + random.below(6) as u64 * 4096;
    let bytes = [4096, 8192, 1000, 12288][random.below(4)];
    match random.below(16) {
        0..6 => Op::Write(object, offset, bytes, true),
        6..9 => {
            let to = offset % 4096 + random.below(6) as u64 * 4096;
            Op::Copy(object, offset, bytes, other, to, true)
        }
        9 => Op::Truncate(object, offset),
        10 => Op::Delete(object),
        11 => Op::Snapshot(object, other, false),
        12 if random.below(2) == 0 => Op::BeginRead(object, offset, bytes),
        12 | 13 => Op::EndRead,
        _ => Op::Reap,
    }
}

fn prepare(world: &mut World<impl Logged>, moves: bool) -> bool {
    let index = &world.index;
    let entry = |slot: u32| -> Entry { index.entry(slot) };
    world.store.prepare(moves, &world.objects, &entry)
}

/// Moves what is used in a segment to the end of the log; returns how many extents.
fn collect(world: &mut World<impl Logged>) -> u64 {
    let Some(victim) = world.store.victim() else {
        return 0;
    };
    let mut moved = 0;
    for slot in 0..SLOTS as u32 {
        let is_there = |(stored, _): &(Stored, _)| world.store.is_in(stored, victim);
        if world.index.movable(slot).filter(is_there).is_none() || !prepare(world, true) {
            continue;
        }
        let Some((stored, used)) = world.index.movable(slot) else {
            continue;
        };
        let blocks: Vec<u8> = (0..32)
            .filter(|block| used.contains(*block))
            .flat_map(|first| {
                let source = Source {
                    extent: slot,
                    stored,
                    first,
                };
                world.store.get(&source, 0)
            })
            .collect();
        let to = world.store.put(&blocks);
        let from = (stored, used);
        let is_done = world.index.relocate(slot, from, to, &mut world.store);
        assert!(is_done);
        moved += 1;
        world.note();
    }
    moved
}

/// Lets what has begun end, a dump included.
fn finish_dump(world: &mut World<impl Logged>) {
    world.store.flush();
    let index = &world.index;
    let entry = |slot: u32| -> Entry { index.entry(slot) };
    for _ in 0..2 {
        world.store.close(&world.objects, &entry);
        world.store.flush();
        assert!((0..100).any(|_| world.store.step_dump(&entry)));
    }
}

/// Makes room while there is little: collects, and lets dumps and batches end. `None` if the log is
/// full: it has no good rule yet of what is collected when.
fn make_room(world: &mut World<impl Logged>) -> Option<u64> {
    let mut moved = 0;
    for round in 0..300 {
        if !world.store.is_low() {
            break;
        }
        match round % 8 {
            0 | 4 => moved += collect(world),
            1..7 => world.note(),
            // What was moved is free when a dump has begun behind it.
            _ => finish_dump(world),
        }
        prepare(world, true);
    }
    prepare(world, false).then_some(moved)
}

/// Lives a life; adds what came of it.
fn live<L: Logged>(seed: u64, store: L, tally: &mut Tally) {
    let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9) + 1);
    let mut world = World::with(SLOTS, store);
    world.may_be_full = true;
    let mut held = Vec::<Held>::new();
    for _ in 0..random.below(4) + 1 {
        for _ in 0..random.below(150) {
            let Some(moved) = make_room(&mut world) else {
                world.check(!held.is_empty());
                tally.full += 1;
                return;
            };
            tally.moved += moved;
            // Each read that is held keeps a segment.
            let op = match held.len() {
                0..3 => operation(&mut random),
                _ => Op::EndRead,
            };
            world.apply(&op, &mut held);
            tally.operations += 1;
        }
        world.check(!held.is_empty());
        // Reads end with the machine.
        held.clear();
        let (slots, objects) = world.store.crash();
        let key = [random.next(), random.next()];
        let index = Index::restore(slots, vec![NONE; 5], key).unwrap();
        world.crashed(index, objects);
        tally.crashes += 1;
    }
    tally.lives += 1;
    tally.written += world.store.written();
}

/// Lives as many lives as `RIOC_LIVES` says; each one that fails is named.
fn live_all<L: Logged>(lives: u64, store: impl Fn(u64) -> L + std::panic::RefUnwindSafe) {
    let wanted = std::env::var("RIOC_LIVES");
    let lives = wanted.map_or(lives, |lives| lives.parse().unwrap());
    let mut sum = Tally::default();
    for seed in 0..lives {
        let life = std::panic::catch_unwind(|| {
            let mut tally = Tally::default();
            live(seed, store(seed), &mut tally);
            tally
        });
        let life = life.unwrap_or_else(|_| panic!("life {seed} has failed"));
        sum.lives += life.lives;
        sum.operations += life.operations;
        sum.crashes += life.crashes;
        sum.moved += life.moved;
        sum.written += life.written;
        sum.full += life.full;
    }
    let Tally {
        operations,
        crashes,
        moved,
        written,
        full,
        ..
    } = sum;
    println!("{operations} operations, {crashes} crashes, {moved} moved, {written} written");
    println!("{full} lives were ended by a log that is full");
    assert!(full * 20 < lives);
    assert!(crashes > lives && moved > lives && written > lives);
}

/// Returns the first life that fails with a mistake.
fn find<L: Logged>(store: impl Fn(u64) -> L + std::panic::RefUnwindSafe) -> Option<u64> {
    (0..600).find(|seed| {
        let life = || live(*seed, store(*seed), &mut Tally::default());
        std::panic::catch_unwind(life).is_err()
    })
}

#[test]
fn what_was_durable_is_there_after_every_crash() {
    live_all(1000, |seed| Log::new(SLOTS, seed + 77, Mistake::None));
}

#[test]
fn what_was_durable_is_there_after_every_crash_of_seglog() {
    live_all(300, |seed| OnLog::new(SLOTS, seed + 77, Fault::None));
}

/// What the newer slot of the superblock knew is not given up without a word.
#[test]
fn a_damaged_slot_of_the_superblock_is_told() {
    let (mut told, mut harmless) = (0, 0);
    for seed in 0..1200 {
        let mut random = Random::new(seed + 1);
        let mut world = World::with(SLOTS, OnLog::new(SLOTS, seed + 77, Fault::None));
        world.may_be_full = true;
        for _ in 0..20 + random.below(200) {
            if make_room(&mut world).is_none() {
                break;
            }
            let op = operation(&mut random);
            if !matches!(op, Op::BeginRead(..)) {
                world.apply(&op, &mut Vec::new());
            }
        }
        match world.store.tells_of_a_damaged_slot() {
            true => told += 1,
            false => harmless += 1,
        }
    }
    println!("{told} told, {harmless} harmless");
    assert!(told > 0 && harmless > 0);
}

#[test]
fn mistakes_are_found() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let of_log = [
        Mistake::ReusedBeforeDurable,
        Mistake::ReusedBeforeDump,
        Mistake::DumpBeforeBatches,
        Mistake::StartAtEnd,
    ]
    .map(|mistake| {
        let found = find(|seed| Log::new(SLOTS, seed + 77, mistake));
        (format!("{mistake:?}"), found)
    });
    let of_seglog = [Fault::DumpBeforeBatches, Fault::DumpNotFlushed].map(|fault| {
        let found = find(|seed| OnLog::new(SLOTS, seed + 77, fault));
        (format!("{fault:?} of seglog"), found)
    });
    std::panic::set_hook(before);
    for (mistake, found) in of_log.iter().chain(&of_seglog) {
        println!("{mistake}: life {found:?}");
        assert!(found.is_some(), "{mistake} is not found");
    }
}
