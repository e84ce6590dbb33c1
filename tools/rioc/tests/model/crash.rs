// SPDX-License-Identifier: GPL-2.0

//! Objects over a log whose power fails: after each crash there are the objects of one batch, none
//! before the last one that was durable, and all their blocks.

use rioc::proto::{
    entry::Entry,
    index::{
        Index,
        Source, //
    },
    slot::NONE, //
};

use crate::{
    log::{
        Log,
        Mistake, //
    },
    random::Random,
    store::Storage,
    world::{
        Held,
        Op,
        World, //
    },
};

const SLOTS: usize = 96;

/// What came of a life.
#[derive(Default)]
struct Tally {
    operations: u64,
    crashes: u64,
    moved: u64,
    reused: u64,
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

fn prepare(world: &mut World<Log>) -> bool {
    let index = &world.index;
    let entry = |slot: u32| -> Entry { index.entry(slot) };
    world.store.prepare(&world.objects, &entry)
}

/// Moves what is used in a segment to the end of the log; returns how many extents.
fn collect(world: &mut World<Log>) -> u64 {
    let Some(victim) = world.store.victim() else {
        return 0;
    };
    let mut moved = 0;
    for slot in 0..SLOTS as u32 {
        let Some((stored, used)) = world.index.movable(slot) else {
            continue;
        };
        if !world.store.is_in(&stored, victim) || !prepare(world) {
            continue;
        }
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
        let is_done = world
            .index
            .relocate(slot, (stored, used), to, &mut world.store);
        assert!(is_done);
        moved += 1;
        world.note();
    }
    moved
}

/// Makes room while there is little: collects, and lets dumps and batches end.
fn make_room(world: &mut World<Log>) -> u64 {
    let mut moved = 0;
    for round in 0..200 {
        if world.store.free_segments() > 4 && !world.store.is_full {
            return moved;
        }
        if round % 3 == 2 {
            world.store.flush();
        }
        if world.store.free_segments() > 1 {
            moved += collect(world);
        }
        world.note();
    }
    assert!(prepare(world), "the log is full");
    moved
}

fn live(seed: u64, mistake: Mistake) -> Tally {
    let mut random = Random::new(seed.wrapping_mul(0x9e37_79b9) + 1);
    let mut world = World::with(SLOTS, Log::new(SLOTS, seed + 77, mistake));
    world.may_be_full = true;
    let (mut held, mut tally) = (Vec::<Held>::new(), Tally::default());
    for _ in 0..random.below(4) + 1 {
        for _ in 0..random.below(150) {
            tally.moved += make_room(&mut world);
            let op = operation(&mut random);
            world.apply(&op, &mut held);
            tally.operations += 1;
        }
        world.check(!held.is_empty());
        // Reads end with the machine.
        held.clear();
        let (slots, objects) = world.store.crash();
        let index = Index::restore(slots, vec![NONE; 5], [random.next(), random.next()]);
        world.crashed(index.unwrap(), objects);
        tally.crashes += 1;
    }
    tally.reused = world.store.reused;
    tally
}

#[test]
fn what_was_durable_is_there_after_every_crash() {
    let lives = std::env::var("RIOC_LIVES").map_or(1000, |lives| lives.parse().unwrap());
    let mut sum = Tally::default();
    for seed in 0..lives {
        let life = std::panic::catch_unwind(|| live(seed, Mistake::None));
        let life = life.unwrap_or_else(|_| panic!("life {seed} has failed"));
        sum.operations += life.operations;
        sum.crashes += life.crashes;
        sum.moved += life.moved;
        sum.reused += life.reused;
    }
    let Tally {
        operations,
        crashes,
        moved,
        reused,
    } = sum;
    println!("{operations} operations, {crashes} crashes");
    println!("{moved} extents moved, {reused} segments written again");
    assert!(crashes > lives && moved > lives && reused > lives);
}

#[test]
fn mistakes_are_found() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| ()));
    let missed: Vec<_> = [
        Mistake::ReusedBeforeDurable,
        Mistake::ReusedBeforeDump,
        Mistake::DumpBeforeBatches,
        Mistake::StartAtEnd,
    ]
    .into_iter()
    .filter(|mistake| {
        let is_found = |seed: &u64| std::panic::catch_unwind(|| live(*seed, *mistake)).is_err();
        let found = (0..600).find(is_found);
        println!("{mistake:?}: life {found:?}");
        found.is_none()
    })
    .collect();
    std::panic::set_hook(before);
    assert!(missed.is_empty(), "{missed:?}");
}
