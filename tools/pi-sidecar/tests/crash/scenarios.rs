// SPDX-License-Identifier: GPL-2.0

//! Runs of the application, and what the model finds in each.

use pi_sidecar::volume::Volume;
use proto::sidecar::{
    group::{
        self,
        Blank, //
    },
    layout::{
        Layout,
        Segment, //
    },
    record::{
        Builder,
        Entry,
        Head,
        Unit, //
    },
    ring::Ring,
    superblock::{
        Superblock,
        Version, //
    },
    tuple::Seal,
    Block,
    Checksum,
    BLOCK_BYTES, //
};

use crate::{
    disk::{
        Borders,
        Fast,
        Image,
        Shape,
        TINY_BYTES, //
    },
    explore::{
        Figures,
        Search, //
    },
    recover::Seen,
    setting::{
        content,
        Faults,
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

/// Records of a kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Records {
    version: Version,
    /// The unit of the device, which version 1 does not use.
    unit: Unit,
    /// The bytes at which they can be torn; none: those of other blocks.
    borders: &'static [usize],
    /// The device was formatted with zeroes.
    is_zeroed: bool,
}

pub(crate) const WHOLE: Records = Records {
    version: Version::One,
    unit: Unit::SECTOR,
    borders: &[],
    is_zeroed: false,
};
/// One sector has all entries of these scenarios.
pub(crate) const SECTORS: Records = Records {
    version: Version::Two,
    unit: Unit::SECTOR,
    borders: &[512],
    is_zeroed: true,
};
/// A mark and a record of one entry have two units, one of two entries has three.
const TINY: Records = Records {
    version: Version::Two,
    unit: Unit::new(TINY_BYTES).unwrap(),
    borders: &[TINY_BYTES, 2 * TINY_BYTES, 3 * TINY_BYTES],
    is_zeroed: false,
};
const KINDS: [Records; 3] = [WHOLE, SECTORS, TINY];

/// Returns the bytes at which writes can be torn.
pub(crate) fn borders<'a>(records: Records, others: &'a [usize]) -> Borders<'a> {
    Borders {
        records: match records.borders {
            [] => others,
            borders => borders,
        },
        others,
    }
}

fn layout(groups: u64) -> Layout {
    let segment = Segment { start: 256, groups };
    Layout::from_parts(256 + 257 * groups + 1, SLOTS, &[segment]).unwrap()
}

pub(crate) fn setting(
    records: Records,
    ops: &[Op],
    data: &[u64],
    is_volatile: bool,
    mistake: Mistake,
) -> Setting {
    let groups = data.iter().max().unwrap() / group::GROUP_BLOCKS + 1;
    let superblock = Superblock {
        uuid: *b"crashes of 2 kin",
        version: records.version,
        layout: layout(groups),
    };
    Setting {
        volume: Volume::new(superblock, Fast(mistake)),
        unit: records.unit,
        data: data.to_vec(),
        ops: ops.to_vec(),
        base: vec![Seen::Zeroes; data.len()],
        base_version: 0,
        is_volatile,
        grows: false,
        is_zeroed: records.is_zeroed,
        pauses: false,
        drains: false,
        faults: Faults::None,
        places: 0,
        mistake,
    }
}

/// The mark that has emptied the journal.
const MARK: u64 = 2 * SLOTS as u64 + 1;

/// Writes a record of the first blocks to a slot.
fn put_record(setting: &Setting, slot: &mut Block, head: Head, entries: u64) {
    let (seal, crc): (&Seal, _) = (setting.volume.seal(), setting.volume.checksum());
    let mut buffer = [0x5a; BLOCK_BYTES];
    let unit = setting.volume.superblock().unit(setting.unit);
    let mut builder = Builder::new(&mut buffer, unit);
    for first in A..A + entries {
        let guard = |n: u64| match setting.faults {
            Faults::None | Faults::LateMark => crc.crc64(&(head.sequence + n).to_le_bytes()),
            // The mark behind it may be damaged: it is of what is there.
            Faults::Failures | Faults::All => crc.crc64(&content(0)),
        };
        assert!(builder.push(&Entry {
            first,
            blocks: 1,
            old: seal.data(first, guard(100), 0).unwrap(),
            new: seal.data(first, guard(200), 0).unwrap(),
        }));
    }
    let record = builder.finish(head, seal, crc);
    slot[..record.len()].copy_from_slice(record);
}

/// A formatted device whose journal was in use, and is empty. Behind a record may be the end of a
/// longer one.
pub(crate) fn formatted(shape: &mut Shape, setting: &Setting) -> (Image, Ring) {
    let (mut image, ring) = empty(shape, setting);
    for block in &setting.data {
        let (at, _) = setting.volume.layout().data(*block).unwrap();
        image.extend(shape.split(shape.place(at), &content(0)));
    }
    (image, ring)
}

/// The journal and the PI blocks of a formatted device.
pub(crate) fn empty(shape: &mut Shape, setting: &Setting) -> (Image, Ring) {
    let (layout, seal): (_, Seal) = (*setting.volume.layout(), *setting.volume.seal());
    let mut ring = [[0; BLOCK_BYTES]; SLOTS as usize];
    for sequence in 1..=MARK {
        let slot = &mut ring[sequence as usize % SLOTS as usize];
        let (tail, entries) = match sequence {
            MARK => (MARK, 0),
            _ => (sequence, 1 + (sequence ^ (sequence / u64::from(SLOTS))) % 2),
        };
        put_record(
            setting,
            slot,
            Head {
                sequence,
                tail,
                flushed: 0,
                device_blocks: 0,
            },
            entries,
        );
    }
    let (mut image, mut places) = (Vec::new(), 0..shape.places());
    let mut put = |block: &Block| image.extend(shape.split(places.next().unwrap(), block));
    ring.iter().for_each(&mut put);
    let mut block = [0; BLOCK_BYTES];
    for number in 0..layout.groups() {
        let blank = match setting.is_zeroed {
            true => Blank::Zeroes(Fast::RIGHT.crc64(&[0; BLOCK_BYTES])),
            false => Blank::Unknown,
        };
        group::format(&mut block, number, &seal, blank);
        put(&block);
    }
    let unit = setting.volume.superblock().unit(setting.unit);
    let blocks = layout.device_blocks();
    (image, Ring::after_mark(SLOTS, unit, MARK, blocks))
}

fn search<T>(
    setting: &Setting,
    borders: Borders<'_>,
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

fn run_kind(records: Records, name: &str, others: &[usize], ops: &[Op], data: &[u64]) {
    for is_volatile in [true, false] {
        let setting = setting(records, ops, data, is_volatile, Mistake::None);
        let borders = borders(records, others);
        let figures: Figures = search(&setting, borders, is_volatile, |search| {
            assert!(search.is_right());
            search.figures
        });
        let kind = (records.version, records.unit);
        println!("{name}, {kind:?}, volatile cache {is_volatile}: {figures:?}");
        assert!(figures.states > 10 && figures.crashes > 10);
    }
}

fn run(name: &str, others: &[usize], ops: &[Op], data: &[u64]) {
    for records in KINDS {
        run_kind(records, name, others, ops, data);
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
    run_kind(WHOLE, "torn records", &[96], &ops, &[A]);
}

/// Records of one and of two entries over each other: with data that are torn, and all around the
/// ring.
#[test]
fn lengths_are_mixed() {
    let ops = [Write(A, 2), Fua(A), Write(A, 2), Fua(A), Write(A, 2)];
    let data = [A, A + 1];
    run("mixed lengths", TWO_PARTS, &ops[..3], &data);
    run_kind(TINY, "mixed lengths, all around", &[], &ops, &data);
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
    for (records, is_volatile) in KINDS
        .iter()
        .flat_map(|kind| [(*kind, true), (*kind, false)])
    {
        let ops = [Write(A, 1), Write(A, 1)];
        let first = setting(records, &ops, &[A], is_volatile, Mistake::None);
        let borders = borders(records, TWO_PARTS);
        let mut shape = Shape::new(*first.volume.layout(), &first.data, &[], borders);
        let (image, ring) = formatted(&mut shape, &first);
        let mut search = Search::new(&mut shape, &first);
        search.run(World::new(&first, image, ring));
        assert!(search.is_right());
        for ((image, seen), ring) in std::mem::take(&mut search.ends) {
            let ops = [Write(A, 1), Flush];
            let mut second = setting(records, &ops, &[A], is_volatile, Mistake::None);
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
fn finds(records: Records, mistake: Mistake, ops: &[Op], data: &[u64]) -> bool {
    let setting = setting(records, ops, data, true, mistake);
    let borders = borders(records, TWO_PARTS);
    let found =
        std::panic::catch_unwind(|| search(&setting, borders, true, |search| search.is_right()));
    // A record that is missing is found as well.
    !found.unwrap_or(false)
}

/// The model is worth something: it finds each of these.
#[test]
fn mistakes_are_found() {
    let many = [Fua(A), Fua(A), Fua(A), Fua(A), Write(A, 1), Flush];
    let two = [Write(A, 1), Write(B, 1), Flush, Write(A, 1)];
    let near = [Write(A, 1), Write(A + 1, 1), Flush, Write(A, 1)];
    let long = [Write(A, 2), Fua(A), Write(A, 2)];
    for records in KINDS {
        for mistake in [
            Mistake::FlushLeftOut,
            Mistake::RecordWithoutFua,
            Mistake::DataBeforeRecord,
            Mistake::PiBlockBeforeRecord,
            Mistake::TailTooNew,
            Mistake::MarkBeforePiBlocks,
            Mistake::LastSectorLeftOut,
        ] {
            // Of a PI block the sectors that have changed are written back: its blocks share one.
            let is_found = match mistake {
                Mistake::PiBlockBeforeRecord => finds(records, mistake, &near, &[A, A + 1]),
                _ => finds(records, mistake, &two, &[A, B]),
            };
            assert!(is_found, "{mistake:?} is not found, {records:?}");
        }
        assert!(!finds(records, Mistake::None, &two, &[A, B]));
        assert!(!finds(records, Mistake::None, &many, &[A]));
    }
    for mistake in [
        Mistake::FirstUnitUncovered,
        Mistake::UnitsBetweenUncovered,
        Mistake::LastUnitLeftOut,
    ] {
        let is_found = finds(TINY, mistake, &long, &[A, A + 1]);
        assert!(is_found, "{mistake:?} is not found");
    }
    assert!(!finds(TINY, Mistake::None, &long, &[A, A + 1]));
}
