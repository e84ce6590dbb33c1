// SPDX-License-Identifier: GPL-2.0

//! Blocks that a copy shares, and those that it has to store anew.

use rioc::proto::{
    index::Index,
    slot::{
        Slot,
        NONE, //
    },
    span::{
        Piece,
        Span, //
    },
};

use crate::{
    store::{
        Storage,
        Store, //
    },
    world::{
        id,
        Memory, //
    },
};

/// An object of so many bytes, in one extent.
fn object(bytes: u64) -> (Memory, Store) {
    let mut index = Index::new(vec![Slot::Free(NONE); 100], vec![NONE; 4], [3, 5]);
    let mut store = Store::default();
    write(&mut index, &mut store, 0, (0, bytes));
    (index, store)
}

fn write(index: &mut Memory, store: &mut Store, object: u64, (offset, bytes): (u64, u64)) {
    let span = Span::new(offset, bytes).unwrap();
    let stored = store.put(&vec![1; 4096 * span.block_count() as usize]);
    let written = index.write((id(object), true), &span, stored, store);
    written.unwrap();
}

/// Returns the blocks that a copy stores anew: their numbers, and which bytes of them are written.
fn anew(index: &Memory, (from, bytes): (u64, u64), to: u64) -> Vec<(u32, u32, u32)> {
    let span = Span::new(from, bytes).unwrap();
    let edges = index.copy_edges((id(0), &span), (id(1), to)).unwrap();
    let pieces = edges.into_iter().flatten().map(|edge| edge.written);
    pieces
        .map(|Piece { block, from, to }| (block, from, to))
        .collect()
}

#[test]
fn whole_blocks_are_shared() {
    let (index, _) = object(5 * 4096);
    assert_eq!(anew(&index, (0, 5 * 4096), 0), []);
    assert_eq!(anew(&index, (4096, 8192), 40960), []);
}

#[test]
fn the_last_block_is_shared_where_both_objects_end() {
    let (mut index, mut store) = object(10_000);
    assert_eq!(anew(&index, (0, 10_000), 0), []);
    assert_eq!(anew(&index, (8192, 1808), 4096), []);
    // What is asked for beyond the end of the source is zeroes.
    assert_eq!(anew(&index, (0, 11_000), 0), []);
    // The source goes on.
    assert_eq!(anew(&index, (0, 9000), 0), [(2, 0, 808)]);
    // Something of the destination stays.
    write(&mut index, &mut store, 1, (0, 12_000));
    assert_eq!(anew(&index, (0, 10_000), 0), [(2, 0, 1808)]);
    assert_eq!(anew(&index, (0, 10_000), 4096), []);
    let all = Span::new(0, 10_000).unwrap();
    let to = (id(1), 4096, false);
    index
        .copy((id(0), &all), to, [None; 2], &mut store)
        .unwrap();
    assert_eq!(store.places().len(), 2);
}

#[test]
fn the_first_block_is_stored_anew() {
    let (index, _) = object(5 * 4096);
    assert_eq!(
        anew(&index, (100, 8192), 100),
        [(0, 100, 4096), (2, 0, 100)]
    );
    assert_eq!(anew(&index, (100, 200), 4196), [(1, 100, 300)]);
}

#[test]
fn holes_stay_holes() {
    let (mut index, mut store) = object(4096);
    write(&mut index, &mut store, 0, (40960, 4096));
    assert_eq!(anew(&index, (8292, 8192), 100), []);
    let span = Span::new(8292, 8192).unwrap();
    let to = (id(1), 100, true);
    index
        .copy((id(0), &span), to, [None; 2], &mut store)
        .unwrap();
    let stat = index.stat(id(1)).unwrap();
    assert_eq!((stat.size, stat.blocks), (8292, 0));
    // What is there becomes zeroes.
    write(&mut index, &mut store, 1, (0, 12_288));
    assert_eq!(
        anew(&index, (8292, 8192), 100),
        [(0, 100, 4096), (2, 0, 100)]
    );
}
