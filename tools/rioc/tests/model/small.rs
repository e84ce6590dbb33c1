// SPDX-License-Identifier: GPL-2.0

//! Small worlds, in which every sequence of a few operations is carried out.

use crate::world::{
    Op,
    World, //
};

/// The operations on two objects of two blocks, at whole and half blocks.
fn operations() -> Vec<Op> {
    let mut all = vec![
        Op::Create(0, true),
        Op::Delete(0),
        Op::Delete(1),
        Op::Reap,
        Op::Restart,
        Op::Snapshot(0, 1, false),
        Op::Snapshot(0, 1, true),
        Op::Snapshot(1, 0, false),
        Op::BeginRead(0, 0, 8192),
        Op::EndRead,
    ];
    for (offset, bytes) in [
        (0, 4096),
        (0, 8192),
        (0, 1000),
        (2048, 1),
        (2048, 4096),
        (4096, 4096),
        (4096, 12288),
        (8192, 100),
    ] {
        all.push(Op::Write(0, offset, bytes, true));
    }
    all.push(Op::Write(1, 0, 8192, true));
    all.push(Op::Write(1, 1000, 6000, false));
    for size in [0, 1, 2048, 4096, 8192, 16384] {
        all.push(Op::Truncate(0, size));
    }
    all.push(Op::Truncate(1, 3000));
    for (from, bytes, to) in [
        (0, 8192, 0),
        (0, 4096, 4096),
        (4096, 4096, 0),
        (0, 1000, 0),
        (0, 1000, 4096),
        (2048, 4096, 2048),
        (2048, 2048, 6144),
        (1000, 96, 1000),
        (0, 16384, 4096),
        (0, 4096, 2048),
    ] {
        all.push(Op::Copy(0, from, bytes, 1, to, true));
    }
    all.push(Op::Copy(1, 0, 8192, 0, 0, false));
    all.push(Op::Copy(1, 0, 2048, 0, 4096, false));
    all.push(Op::Copy(0, 0, 4096, 0, 8192, false));
    all.push(Op::Copy(0, 0, 6000, 0, 4096, true));
    all
}

/// Carries out each sequence that begins with what the world has; returns how many there were.
fn go_on(world: &World, begun: &[Op], operations: &[Op], depth: usize) -> u64 {
    let slots = world.index.slots().count() as usize;
    let mut count = 0;
    for op in operations {
        let mut sequence = begun.to_vec();
        sequence.push(*op);
        // A read cannot be cloned: where one has begun, the sequence is carried out anew.
        let has_reads = sequence.iter().any(|op| matches!(op, Op::BeginRead(..)));
        let (mut next, mut held) = (world.clone(), Vec::new());
        if has_reads {
            next = World::new(slots);
            next.may_be_full = world.may_be_full;
            sequence.iter().for_each(|op| next.apply(op, &mut held));
        } else {
            next.apply(op, &mut held);
        }
        next.check(has_reads);
        count += 1;
        if depth > 1 {
            count += go_on(&next, &sequence, operations, depth - 1);
        }
        next.end(held);
    }
    count
}

#[test]
fn every_sequence_of_three_operations_is_as_on_bytes() {
    let operations = operations();
    let count = go_on(&World::new(40), &[], &operations, 3);
    println!("{count} sequences");
    assert!(count > 50_000);
}

/// Operations that are refused for lack of a slot have changed nothing.
#[test]
fn every_sequence_of_two_operations_is_as_a_whole_or_not_at_all() {
    let operations = operations();
    let counts = (0..14).map(|slots| {
        let mut world = World::new(slots);
        world.may_be_full = true;
        let mut begun = world.clone();
        begun.apply(&Op::Write(0, 0, 12288, true), &mut Vec::new());
        begun.apply(&Op::Write(0, 4096, 4096, true), &mut Vec::new());
        go_on(&world, &[], &operations, 2) + without_reads(&begun, &operations)
    });
    println!("{} sequences", counts.sum::<u64>());
}

/// Carries out each sequence of two operations that are no reads.
fn without_reads(world: &World, operations: &[Op]) -> u64 {
    let is_read = |op: &&Op| !matches!(op, Op::BeginRead(..) | Op::EndRead);
    let others: Vec<_> = operations.iter().filter(is_read).copied().collect();
    go_on(world, &[], &others, 2)
}
