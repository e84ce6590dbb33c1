// SPDX-License-Identifier: GPL-2.0

//! Chains of copies, deleted in every order.

use proptest::{
    prelude::*,
    sample::Index as Choice, //
};

use crate::world::{
    Op,
    World, //
};

const BLOCKS: u64 = 8;

/// Makes a chain: each object is a copy of the one before, and then a block of it is written, and a
/// part of another one.
fn chain(depth: u64) -> World {
    let mut world = World::new(8192);
    let mut apply = |op: Op| world.apply(&op, &mut Vec::new());
    apply(Op::Write(0, 0, BLOCKS * 4096, true));
    for object in 1..depth {
        if object % 2 == 0 {
            apply(Op::Snapshot(object - 1, object, true));
        } else {
            apply(Op::Copy(object - 1, 0, BLOCKS * 4096, object, 0, true));
        }
        apply(Op::Write(object, object % BLOCKS * 4096, 4096, false));
        apply(Op::Write(
            object,
            object * 3 % BLOCKS * 4096 + 100,
            200,
            false,
        ));
    }
    world.check(false);
    world
}

fn delete(world: &mut World, object: u64) {
    world.apply(&Op::Delete(object), &mut Vec::new());
    world.apply(&Op::Reap, &mut Vec::new());
    world.check(false);
}

/// Deletes what is left in every order; returns how many orders there were.
fn every_order(world: &World, left: &[u64]) -> u64 {
    if left.is_empty() {
        world.clone().end(Vec::new());
        return 1;
    }
    let orders = left.iter().map(|object| {
        let mut next = world.clone();
        delete(&mut next, *object);
        let others: Vec<_> = left.iter().copied().filter(|o| o != object).collect();
        every_order(&next, &others)
    });
    orders.sum()
}

#[test]
fn a_chain_of_copies_is_deleted_in_every_order() {
    let left: Vec<_> = (0..6).collect();
    assert_eq!(every_order(&chain(6), &left), 720);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn a_chain_of_64_copies_is_deleted_in_any_order(
        choices in prop::collection::vec(any::<Choice>(), 64),
    ) {
        let mut world = chain(64);
        let mut left: Vec<_> = (0..64).collect();
        for choice in choices {
            let object = left.remove(choice.index(left.len()));
            delete(&mut world, object);
        }
        world.end(Vec::new());
    }
}

#[test]
fn a_chain_of_64_copies_is_deleted_from_both_ends() {
    for order in [(0..64).collect::<Vec<_>>(), (0..64).rev().collect()] {
        let mut world = chain(64);
        order
            .into_iter()
            .for_each(|object| delete(&mut world, object));
        world.end(Vec::new());
    }
}
