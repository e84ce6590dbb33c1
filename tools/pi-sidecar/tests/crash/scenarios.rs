// SPDX-License-Identifier: GPL-2.0

//! What the application does, and what the model finds then.

use pi_sidecar::volume::Volume;
use proto::sidecar::{
    group,
    layout::{
        Layout,
        Segment, //
    },
    record::{
        Builder,
        Head, //
    },
    ring::Ring,
    superblock::Superblock,
    tuple::Seal,
    BLOCK_BYTES, //
};

use crate::{
    disk::{
        Fast,
        Image,
        Shape, //
    },
    explore::{
        Figures,
        Search, //
    },
    recover::Seen,
    setting::{
        content,
        Op::{
            self,
            Discard,
            Flush,
            Fua,
            Write, //
        },
        Setting, //
    },
    world::World,
    Mistake, //
};

/// Slots of the journal: as few as can be.
pub(crate) const SLOTS: u32 = 4;
/// A block whose tuple is in the first sector of the PI block, one in the second, one in the next
/// group.
const A: u64 = 0;
const B: u64 = 32;
const C: u64 = 256;
/// One border is enough to tear a write, as it does not matter where a mixture has its border:
/// behind the first sector.
pub(crate) const TWO_PARTS: &[usize] = &[512];
const EIGHT_PARTS: &[usize] = &[512, 1024, 1536, 2048, 2560, 3072, 3584];

fn layout(groups: u64) -> Layout {
    let segment = Segment { start: 256, groups };
    Layout::from_parts(256 + 257 * groups + 1, SLOTS, &[segment]).unwrap()
}

fn setting(ops: &[Op], data: &[u64], is_volatile: bool, mistake: Mistake) -> Setting {
    let groups = data.iter().max().unwrap() / group::GROUP_BLOCKS + 1;
    let superblock = Superblock {
        uuid: *b"crashes of 2 kin",
        layout: layout(groups),
    };
    Setting {
        volume: Volume::new(superblock, Fast),
        data: data.to_vec(),
        ops: ops.to_vec(),
        base: vec![Seen::Zeroes; data.len()],
        base_version: 0,
        is_volatile,
        grows: false,
        mistake,
    }
}

/// A formatted device.
fn formatted(shape: &mut Shape, setting: &Setting) -> (Image, Ring) {
    let (mut image, ring) = empty(shape, setting);
    for _ in &setting.data {
        image.extend(shape.split(&content(0)));
    }
    (image, ring)
}

/// The journal and the PI blocks of a formatted device.
pub(crate) fn empty(shape: &mut Shape, setting: &Setting) -> (Image, Ring) {
    let (layout, seal): (_, Seal) = (*setting.volume.layout(), *setting.volume.seal());
    let mut image = Vec::new();
    let mut block = [0; BLOCK_BYTES];
    for slot in 0..u64::from(SLOTS) {
        block.fill(0);
        if slot == 1 {
            let head = Head {
                sequence: 1,
                tail: 1,
            };
            Builder::new(&mut block).finish(head, &seal, &Fast);
        }
        image.extend(shape.split(&block));
    }
    for number in 0..layout.groups() {
        group::format(&mut block, number, &seal);
        image.extend(shape.split(&block));
    }
    (image, Ring::after_mark(SLOTS, 1))
}

fn search<T>(
    setting: &Setting,
    borders: &[usize],
    warm: bool,
    then: impl FnOnce(Search<'_>) -> T,
) -> T {
    let mut shape = Shape::new(*setting.volume.layout(), &setting.data, &[], borders);
    let (image, ring) = formatted(&mut shape, setting);
    let mut search = Search::new(&mut shape, setting);
    search.warm = warm;
    search.run(World::new(setting, image, ring));
    then(search)
}

fn run(name: &str, borders: &[usize], ops: &[Op], data: &[u64]) {
    for is_volatile in [true, false] {
        let setting = setting(ops, data, is_volatile, Mistake::None);
        let figures: Figures = search(&setting, borders, is_volatile, |search| {
            assert!(search.is_right());
            search.figures
        });
        println!("{name}, volatile cache {is_volatile}: {figures:?}");
        assert!(figures.states > 10 && figures.crashes > 10);
    }
}

/// Writes of a block, one after the other: the second one while nothing is durable.
#[test]
fn one_block() {
    let ops = [Write(A, 1), Write(A, 1), Flush, Write(A, 1)];
    run("one block", TWO_PARTS, &ops, &[A]);
}

/// Each sector of the data, of the record and of the PI block can be torn off.
#[test]
fn every_sector() {
    run("every sector", EIGHT_PARTS, &[Fua(A), Write(A, 1)], &[A]);
}

/// A border in an entry of the record, as if it were a long one.
#[test]
fn torn_records() {
    let ops = [Fua(A), Write(A, 1)];
    run("torn records", &[96], &ops, &[A]);
}

/// A block is discarded between writes.
#[test]
fn discards() {
    let ops = [Write(A, 1), Flush, Discard(A), Write(A, 1)];
    run("discards", TWO_PARTS, &ops, &[A]);
}

/// Blocks with tuples in two sectors of a PI block.
#[test]
fn two_blocks() {
    let ops = [Write(A, 1), Write(B, 1), Flush, Write(A, 1)];
    run("two blocks", TWO_PARTS, &ops, &[A, B]);
}

/// Blocks of two groups: more PI blocks than one, and a request to both.
#[test]
fn two_groups() {
    let ops = [Write(C - 1, 2), Flush, Write(C, 1)];
    run("two groups", TWO_PARTS, &ops, &[C - 1, C]);
}

/// FUA instead of a flush.
#[test]
fn fua() {
    let ops = [Fua(A), Write(A, 1), Fua(A)];
    run("FUA", TWO_PARTS, &ops, &[A]);
}

/// More records than the journal has slots.
#[test]
fn the_ring_wraps() {
    let ops = [Fua(A), Fua(A), Fua(A), Fua(A), Fua(A)];
    run("the ring wraps", TWO_PARTS, &ops, &[A]);
}

/// After a crash and a replay the device is used, and crashes again.
#[test]
fn two_crashes() {
    let mut figures = Figures::default();
    for is_volatile in [true, false] {
        let first = setting(
            &[Write(A, 1), Write(A, 1)],
            &[A],
            is_volatile,
            Mistake::None,
        );
        let mut shape = Shape::new(*first.volume.layout(), &first.data, &[], TWO_PARTS);
        let (image, ring) = formatted(&mut shape, &first);
        let mut search = Search::new(&mut shape, &first);
        search.run(World::new(&first, image, ring));
        assert!(search.is_right());
        for ((image, seen), ring) in std::mem::take(&mut search.ends) {
            let mut second = setting(&[Write(A, 1), Flush], &[A], is_volatile, Mistake::None);
            second.base = seen;
            second.base_version = 100;
            let mut search = Search::new(&mut shape, &second);
            search.run(World::new(&second, image, ring));
            assert!(search.is_right());
            figures.states += search.figures.states;
            figures.crashes += search.figures.crashes;
            figures.torn += search.figures.torn;
        }
    }
    println!("two crashes: {figures:?}");
    assert!(figures.torn > 10);
}

/// Returns whether the model finds a mistake in a scenario.
fn finds(mistake: Mistake, ops: &[Op], data: &[u64]) -> bool {
    let setting = setting(ops, data, true, mistake);
    let found =
        std::panic::catch_unwind(|| search(&setting, TWO_PARTS, true, |search| search.is_right()));
    // A record that is missing is found as well.
    !found.unwrap_or(false)
}

/// The model is worth something: it finds each of these.
#[test]
fn mistakes_are_found() {
    let many = [Fua(A), Fua(A), Fua(A), Fua(A), Write(A, 1), Flush];
    let two = [Write(A, 1), Write(B, 1), Flush, Write(A, 1)];
    for (mistake, ops, data) in [
        (Mistake::FlushLeftOut, &two[..], &[A, B][..]),
        (Mistake::RecordWithoutFua, &two, &[A, B]),
        (Mistake::DataBeforeRecord, &two, &[A, B]),
        (Mistake::HomeBeforeRecord, &two, &[A, B]),
        (Mistake::TailTooNew, &two, &[A, B]),
        (Mistake::MarkBeforeHomes, &two, &[A, B]),
    ] {
        assert!(finds(mistake, ops, data), "{mistake:?} is not found");
    }
    assert!(!finds(Mistake::None, &two, &[A, B]) && !finds(Mistake::None, &many, &[A]));
}
