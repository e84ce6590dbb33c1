// SPDX-License-Identifier: GPL-2.0

//! The device grows while requests are in flight.

use pi_sidecar::volume::Volume;
use proto::sidecar::{
    layout::{
        Layout,
        Segment,
        SUPERBLOCK, //
    },
    record::Unit,
    ring::Ring,
    superblock::{
        Superblock,
        Version, //
    },
    Block,
    BLOCK_BYTES, //
};

use crate::{
    disk::{
        Borders,
        Fast,
        Image,
        Shape, //
    },
    explore::{
        Figures,
        Search, //
    },
    recover::Seen,
    scenarios::{
        empty,
        SLOTS,
        TWO_PARTS, //
    },
    setting::{
        content,
        Faults,
        Op::{
            self,
            Flush,
            Fua,
            Write, //
        },
        Setting, //
    },
    world::World,
    Mistake, //
};

/// A block that is there from the beginning on, and one of each group that is new.
const A: u64 = 0;
const D: u64 = 256;
const E: u64 = 512;

/// A device of a group that has got room for so many more.
fn layouts(groups: u64) -> (Layout, Layout) {
    let segment = Segment {
        start: 256,
        groups: 1,
    };
    let before = Layout::from_parts(514, SLOTS, &[segment]).unwrap();
    let after = before.grown(768 + 257 * groups + 1).unwrap();
    assert_eq!(after.groups(), 1 + groups);
    (before, after)
}

fn setting(ops: &[Op], data: &[u64], is_volatile: bool, mistake: Mistake) -> Setting {
    let (layout, _) = layouts(data.len() as u64 - 1);
    let superblock = Superblock {
        uuid: *b"crashes of 2 kin",
        version: Version::Two,
        layout,
    };
    let base = |block: &u64| match *block < layout.data_blocks() {
        true => Seen::Zeroes,
        false => Seen::Absent,
    };
    Setting {
        volume: Volume::new(superblock, Fast(mistake)),
        unit: Unit::SECTOR,
        data: data.to_vec(),
        ops: ops.to_vec(),
        base: data.iter().map(base).collect(),
        base_version: 0,
        is_volatile,
        grows: true,
        is_zeroed: false,
        pauses: false,
        drains: false,
        faults: Faults::None,
        places: 0,
        mistake,
    }
}

/// The shape of the device when it has grown, and a device that has not: what is in the new space
/// is of another time.
fn begin(setting: &Setting) -> (Shape, Image, Ring) {
    let (_, after) = layouts(setting.data.len() as u64 - 1);
    let others = [SUPERBLOCK, after.copy()];
    let borders = Borders {
        records: TWO_PARTS,
        others: TWO_PARTS,
    };
    let mut shape = Shape::new(after, &setting.data, &others, borders);
    let (mut image, ring) = empty(&mut shape, setting);
    let before = setting.volume.layout().groups() as usize + SLOTS as usize;
    let mut places = before..shape.places();
    let mut put = |block: &Block| image.extend(shape.split(places.next().unwrap(), block));
    for _ in &setting.data[1..] {
        put(&content(77));
    }
    for _ in &setting.data {
        put(&content(78));
    }
    let mut block = [0; BLOCK_BYTES];
    let superblock = setting.volume.superblock();
    superblock.write(&mut block, SUPERBLOCK, &Fast::RIGHT);
    put(&block);
    put(&content(79));
    (shape, image, ring)
}

fn run(name: &str, ops: &[Op], data: &[u64]) {
    for is_volatile in [true, false] {
        let setting = setting(ops, data, is_volatile, Mistake::None);
        let (mut shape, image, ring) = begin(&setting);
        let mut search = Search::new(&mut shape, &setting);
        search.warm = is_volatile;
        search.run(World::new(&setting, image, ring));
        assert!(search.is_right());
        let figures = search.figures;
        println!("{name}, volatile cache {is_volatile}: {figures:?}");
        assert!(figures.states > 10 && figures.crashes > 10 && figures.repairs > 10);
    }
}

/// Requests to blocks that are there while the device grows.
#[test]
fn old_blocks_are_written_meanwhile() {
    let ops = [Write(A, 1), Flush, Write(A, 1)];
    run("old blocks", &ops, &[A, D]);
}

/// The first write of a new block, as soon as it is there.
#[test]
fn new_blocks_are_used_at_once() {
    run("new blocks", &[Fua(D), Write(D, 1)], &[A, D]);
}

/// Old and new blocks, and a flush of both.
#[test]
fn old_and_new_blocks_are_used_together() {
    let ops = [Write(A, 1), Write(D, 1), Flush];
    run("old and new blocks", &ops, &[A, D]);
}

/// More PI blocks than one are written together.
#[test]
fn several_groups_are_new() {
    run("several groups", &[Write(A, 1), Fua(E)], &[A, D, E]);
}

/// A device whose growth was broken off by a crash grows again, and crashes again.
#[test]
fn it_grows_again_after_a_crash() {
    let mut figures = Figures::default();
    let (mut old, mut new) = (0, 0);
    for is_volatile in [true, false] {
        let first = setting(&[Write(A, 1)], &[A, D], is_volatile, Mistake::None);
        let (mut shape, image, ring) = begin(&first);
        let mut search = Search::new(&mut shape, &first);
        search.run(World::new(&first, image, ring));
        assert!(search.is_right());
        for ((image, seen), ring) in std::mem::take(&mut search.ends) {
            let mut second = setting(&[Fua(D)], &[A, D], is_volatile, Mistake::None);
            second.grows = seen[1] == Seen::Absent;
            if second.grows {
                old += 1;
            } else {
                new += 1;
                let (_, layout) = layouts(1);
                let superblock = Superblock {
                    layout,
                    ..*second.volume.superblock()
                };
                second.volume = Volume::new(superblock, Fast::RIGHT);
            }
            second.base = seen;
            second.base_version = 100;
            let mut search = Search::new(&mut shape, &second);
            search.run(World::new(&second, image, ring));
            assert!(search.is_right());
            figures.states += search.figures.states;
            figures.crashes += search.figures.crashes;
        }
    }
    println!("growth after a crash, {old} with the old size, {new} with the new one: {figures:?}");
    assert!(old > 2 && new > 2);
}

/// A mark of use of a server that had the device before comes at any time, with the superblock from
/// before the growth: what was written to the new space is there, or will be when the superblock is
/// repaired from its copy.
#[test]
fn a_late_mark_writes_the_old_superblock_back() {
    for ops in [[Fua(D), Write(D, 1)], [Write(A, 1), Fua(D)]] {
        for is_volatile in [true, false] {
            let mut setting = setting(&ops, &[A, D], is_volatile, Mistake::None);
            setting.faults = Faults::LateMark;
            let (mut shape, image, ring) = begin(&setting);
            let mut search = Search::new(&mut shape, &setting);
            search.run(World::new(&setting, image, ring));
            assert!(search.is_right());
            let figures = search.figures;
            println!("a late mark, {ops:?}, volatile cache {is_volatile}: {figures:?}");
            assert!(figures.refused > 10);
        }
    }
}

/// Returns whether the model finds a mistake.
fn finds(mistake: Mistake, ops: &[Op]) -> bool {
    let mut setting = setting(ops, &[A, D], true, mistake);
    if mistake == Mistake::SizeNotTold {
        setting.faults = Faults::LateMark;
    }
    let found = std::panic::catch_unwind(|| {
        let (mut shape, image, ring) = begin(&setting);
        let mut search = Search::new(&mut shape, &setting);
        search.run(World::new(&setting, image, ring));
        search.is_right()
    });
    !found.unwrap_or(false)
}

/// The model is worth something: it finds each of these.
#[test]
fn mistakes_in_a_growth_are_found() {
    let ops = [Write(A, 1), Fua(D)];
    for mistake in [
        Mistake::GrowthFlushLeftOut,
        Mistake::SuperblockWithoutFua,
        Mistake::SpaceBeforeSuperblock,
        Mistake::SizeNotTold,
    ] {
        assert!(finds(mistake, &ops), "{mistake:?} is not found");
    }
    assert!(!finds(Mistake::None, &ops));
}
