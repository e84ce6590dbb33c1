// SPDX-License-Identifier: GPL-2.0

//! One fault a run, at any time: a write that fails, with nothing, a part or all of it on the
//! device; one that is lost though it was acknowledged; a flush that fails; a block of tuples that
//! cannot be read; a bit that changes. Then the power fails, or the device is closed.
//!
//! What comes of it is what the table in `Documentation/protection.md` says. Of all that is wrong
//! one thing is permitted: before a record has said that a flush has ended, a write that was lost
//! is taken for one that was not flushed.

use crate::{
    disk::Shape,
    explore::{
        Figures,
        Search, //
    },
    scenarios::{
        borders,
        formatted,
        setting,
        Records,
        SECTORS,
        TWO_PARTS,
        WHOLE, //
    },
    setting::{
        Faults,
        Op::{
            self,
            Flush,
            Fua,
            Write, //
        },
    },
    world::World,
    Mistake, //
};

const A: u64 = 0;
const B: u64 = 32;
const C: u64 = 1;
/// The second one while the first one is not durable.
const TWICE: [Op; 2] = [Write(A, 1), Write(A, 1)];
const ZEROED: Records = SECTORS;
/// Records of a device that was formatted without zeroes, as it cannot make them.
const UNKNOWN: Records = WHOLE;

/// Searches with a fault; what is wrong, and what was seen.
fn search(
    (records, faults): (Records, Faults),
    mistake: Mistake,
    is_volatile: bool,
    ops: &[Op],
    data: &[u64],
) -> (Option<String>, Figures) {
    let mut setting = setting(records, ops, data, is_volatile, mistake);
    setting.pauses = true;
    // With more operations these would be too many states.
    setting.drains = ops.len() == 2;
    setting.faults = faults;
    let borders = borders(records, TWO_PARTS);
    let mut shape = Shape::new(*setting.volume.layout(), &setting.data, &[], borders);
    setting.places = shape.places();
    let (image, ring) = formatted(&mut shape, &setting);
    let mut search = Search::new(&mut shape, &setting);
    search.run(World::new(&setting, image, ring));
    (search.wrong.take(), search.figures)
}

fn run(name: &str, ops: &[Op], data: &[u64]) {
    for is_volatile in [true, false] {
        let (wrong, figures) = search((ZEROED, Faults::All), Mistake::None, is_volatile, ops, data);
        println!("faults, {name}, volatile cache {is_volatile}: {figures:?}");
        assert_eq!(wrong, None);
        assert!(figures.refused > 10 && figures.errors > 10);
    }
}

/// The first write of a block, and a flush.
#[test]
fn a_first_write_that_was_flushed() {
    run("a first write", &[Write(A, 1), Flush], &[A]);
}

/// A block that has data is written again.
#[test]
fn a_second_write() {
    run("a second write", &[Fua(A), Write(A, 1), Flush], &[A]);
}

/// A write that was not flushed, beside one that was.
#[test]
fn two_blocks() {
    run("two blocks", &[Write(A, 1), Write(B, 1), Flush], &[A, B]);
}

/// A write with FUA that fails, and all that is said of the loss of what was written before: what
/// is flushed then is not there. Two of them at a time: the one that ends well may be lost, too.
#[test]
fn a_cache_that_is_lost() {
    for ops in [[Write(A, 1), Fua(B), Flush], [Write(A, 1), Fua(B), Fua(C)]] {
        let how = (ZEROED, Faults::Failures);
        let (wrong, figures) = search(how, Mistake::None, true, &ops, &[A, B, C]);
        println!("a lost cache, {ops:?}: {figures:?}");
        assert_eq!(wrong, None);
    }
}

/// Searches blocks without data, whose place may have anything: a failure is known at least.
#[test]
fn blocks_without_data() {
    for is_volatile in [true, false] {
        let how = (UNKNOWN, Faults::Failures);
        let (wrong, figures) = search(how, Mistake::None, is_volatile, &TWICE, &[A]);
        println!("failures, blocks without data, volatile cache {is_volatile}: {figures:?}");
        assert_eq!(wrong, None);
    }
}

/// The model is worth something: it finds each of these, and that blocks without data can be wrong.
#[test]
fn mistakes_are_found() {
    let first = [Write(A, 1), Flush];
    for (records, faults, mistake, ops) in [
        (ZEROED, Faults::All, Mistake::FlushesNotTold, first),
        (ZEROED, Faults::All, Mistake::FlushesToldTooEarly, TWICE),
        (UNKNOWN, Faults::All, Mistake::None, first),
        (UNKNOWN, Faults::Failures, Mistake::OldTuplesLeftOut, TWICE),
    ] {
        let (wrong, _) = search((records, faults), mistake, true, &ops, &[A]);
        println!("{mistake:?}: {wrong:?}");
        assert!(wrong.is_some(), "{mistake:?} is not found");
    }
}
