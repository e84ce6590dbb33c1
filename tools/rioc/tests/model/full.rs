// SPDX-License-Identifier: GPL-2.0

//! An index that is full.

use crate::world::{
    Op,
    World, //
};

/// Fills an index of this many slots with an object of single blocks.
fn filled(slots: usize) -> (World, u64) {
    let mut world = World::new(slots);
    world.may_be_full = true;
    for block in 0.. {
        world.apply(&Op::Write(0, block * 8192, 4096, true), &mut Vec::new());
        if world.was_refused {
            world.check(false);
            return (world, block);
        }
    }
    unreachable!()
}

#[test]
fn a_full_index_is_read_and_made_empty() {
    for slots in 4..40 {
        let (mut world, _) = filled(slots);
        world.apply(&Op::Truncate(0, 0), &mut Vec::new());
        assert!(!world.was_refused);
        world.check(false);
        world.end(Vec::new());
    }
}

#[test]
fn a_full_index_takes_what_a_delete_has_freed() {
    for slots in 8..40 {
        let (mut world, blocks) = filled(slots);
        world.apply(&Op::Delete(0), &mut Vec::new());
        world.apply(&Op::Reap, &mut Vec::new());
        for block in 0..blocks {
            world.apply(&Op::Write(1, block * 8192, 4096, true), &mut Vec::new());
            assert!(!world.was_refused);
        }
        world.check(false);
        world.end(Vec::new());
    }
}
