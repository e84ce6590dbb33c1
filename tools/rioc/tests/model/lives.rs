// SPDX-License-Identifier: GPL-2.0

//! Longer lives, by chance: four objects of up to 80 blocks, with room and without.

use proptest::prelude::*;

use crate::world::{
    Op,
    World, //
};

/// An offset: at a block, at half of one, or anywhere.
fn offsets() -> impl Strategy<Value = u64> {
    prop_oneof![
        (0..60u64).prop_map(|block| block * 4096),
        (0..60u64).prop_map(|block| block * 4096 + 2048),
        0..250_000u64,
    ]
}

fn lengths() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(4096u64),
        (1..=28u64).prop_map(|blocks| blocks * 4096),
        1..=6000u64,
        1..=114_688u64,
    ]
}

fn operations() -> impl Strategy<Value = Op> {
    let object = 0..4u64;
    let write = (object.clone(), offsets(), lengths(), any::<bool>());
    let copy = (
        object.clone(),
        offsets(),
        lengths(),
        object.clone(),
        0..60u64,
        any::<bool>(),
    );
    prop_oneof![
        8 => write.prop_map(|(o, offset, bytes, creates)| Op::Write(o, offset, bytes, creates)),
        6 => copy.prop_map(|(source, from, bytes, to, block, creates)| {
            // One of sixteen does not fit to the blocks.
            let part = if from % 16 == 15 { 1 } else { from % 4096 };
            Op::Copy(source, from, bytes, to, block * 4096 + part, creates)
        }),
        3 => (object.clone(), offsets()).prop_map(|(o, size)| Op::Truncate(o, size)),
        2 => (object.clone(), object.clone(), any::<bool>())
            .prop_map(|(from, to, is_new)| Op::Snapshot(from, to, is_new)),
        1 => (object.clone(), any::<bool>()).prop_map(|(o, is_new)| Op::Create(o, is_new)),
        1 => object.clone().prop_map(Op::Delete),
        2 => (object, offsets(), lengths())
            .prop_map(|(o, offset, bytes)| Op::BeginRead(o, offset, bytes)),
        2 => Just(Op::EndRead),
        2 => Just(Op::Reap),
        1 => Just(Op::Restart),
    ]
}

fn live(mut world: World, operations: &[Op]) {
    let mut held = Vec::new();
    for op in operations {
        world.apply(op, &mut held);
        world.check(!held.is_empty());
    }
    world.end(held);
}

proptest! {
    #[test]
    fn objects_are_as_bytes(operations in prop::collection::vec(operations(), 1..60)) {
        live(World::new(2000), &operations);
    }

    #[test]
    fn what_has_no_room_changes_nothing(
        operations in prop::collection::vec(operations(), 1..60),
        slots in 3..40usize,
    ) {
        let mut world = World::new(slots);
        world.may_be_full = true;
        live(world, &operations);
    }
}
