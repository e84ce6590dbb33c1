// SPDX-License-Identifier: GPL-2.0

//! Objects that are many, or large.

use rioc::proto::{
    entry,
    index::{
        Index,
        Refused,
        COPY_RANGES_MAX,
        STEP_RANGES, //
    },
    slot::{
        Slot,
        Stored,
        EXTENT_MEMORY_BYTES,
        NONE, //
    },
    span::{
        Span,
        OBJECT_BYTES_MAX, //
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

const TIB: u64 = 1 << 40;

fn index(slots: usize) -> Memory {
    Index::new(vec![Slot::Free(NONE); slots], vec![NONE; slots / 8], [3, 5])
}

fn write(index: &mut Memory, store: &mut Store, object: u64, offset: u64) -> Result<(), Refused> {
    let place = store.put(&[1; 4096]);
    let span = Span::new(offset, 4096).unwrap();
    index.write((id(object), true), &span, place, store)
}

#[test]
fn an_object_of_a_tebibyte_has_holes() {
    let (mut index, mut store) = (index(1000), Store::default());
    write(&mut index, &mut store, 0, TIB - 4096).unwrap();
    write(&mut index, &mut store, 0, TIB / 2).unwrap();
    let stat = index.stat(id(0)).unwrap();
    assert_eq!((stat.size, stat.blocks), (TIB, 2));
    let reading = index.read(id(0), &Span::new(TIB / 2 - 4096, 12288).unwrap());
    let reading = reading.unwrap();
    let stored: Vec<_> = reading
        .parts()
        .iter()
        .map(|part| part.source.is_some())
        .collect();
    assert_eq!(stored, [false, true, false]);
    index.end_read(reading, &mut store);
    index.truncate((id(0), 0), None, &mut store).unwrap();
    assert_eq!(index.stat(id(0)).unwrap().blocks, 0);
}

#[test]
fn the_last_block_of_the_largest_object_is_one() {
    let (mut index, mut store) = (index(1000), Store::default());
    write(&mut index, &mut store, 0, OBJECT_BYTES_MAX - 4096).unwrap();
    assert_eq!(index.stat(id(0)).unwrap().size, OBJECT_BYTES_MAX);
    let span = Span::new(OBJECT_BYTES_MAX - 4096, 4096).unwrap();
    let to = (id(1), OBJECT_BYTES_MAX - 4096, true);
    index
        .copy((id(0), &span), to, [None; 2], &mut store)
        .unwrap();
    assert_eq!(index.stat(id(1)).unwrap().blocks, 1);
    let cut = (id(1), OBJECT_BYTES_MAX - 4096);
    index.truncate(cut, None, &mut store).unwrap();
    assert_eq!(index.stat(id(1)).unwrap().blocks, 0);
    assert!(Span::new(OBJECT_BYTES_MAX - 4096, 4097).is_none());
}

#[test]
fn an_object_without_bytes_is_read() {
    let (mut index, mut store) = (index(10), Store::default());
    index.create((id(0), true), &mut store).unwrap();
    let reading = index.read(id(0), &Span::new(0, 4096).unwrap()).unwrap();
    assert!(reading.span.is_none() && reading.parts().is_empty());
    index.end_read(reading, &mut store);
}

#[test]
fn a_hundred_thousand_objects_are_found_and_listed() {
    const OBJECTS: u64 = 100_000;
    let (mut index, mut store) = (index(3 * OBJECTS as usize + 10), Store::default());
    for object in 0..OBJECTS {
        write(&mut index, &mut store, object, 0).unwrap();
    }
    assert!((0..OBJECTS).all(|object| index.stat(id(object)).is_ok()));
    let (mut count, mut cursor) = (0, Some(0));
    while let Some(at) = cursor {
        let (some, next) = index.list(at, &mut [id(0); 1000]);
        (count, cursor) = (count + some, next);
    }
    assert_eq!(count as u64, OBJECTS);
    let bytes = (index.slots().count() as usize - 10) * size_of::<Slot>();
    assert!(bytes / OBJECTS as usize <= EXTENT_MEMORY_BYTES + size_of::<Slot>());
}

/// The end of a large object goes in steps, while nothing can be added behind it; what is left of
/// it is never seen, after a crash neither.
#[test]
fn a_long_end_goes_in_steps() {
    let (mut index, mut store) = (index(2000), Store::default());
    let ranges = u64::from(3 * STEP_RANGES);
    for block in 0..ranges {
        write(&mut index, &mut store, 0, block * 8192).unwrap();
    }
    let slot = index.truncate((id(0), 4096), None, &mut store).unwrap();
    let slot = slot.expect("more than a step");
    assert_eq!(
        write(&mut index, &mut store, 0, 8192),
        Err(Refused::Shrinking)
    );
    let longer = index.truncate((id(0), 8192), None, &mut store);
    assert_eq!(longer, Err(Refused::Shrinking));
    let all = Span::new(0, 1 << 20).unwrap();
    index
        .copy((id(0), &all), (id(1), 0, true), [None; 2], &mut store)
        .unwrap();
    assert_eq!(index.stat(id(1)).unwrap().blocks, 1);
    let entries = (0..index.slots().count()).map(|slot| index.entry(slot));
    let slots: Vec<_> = entries.map(|e| entry::slot(&e).unwrap()).collect();
    let restored = Index::restore(slots, vec![NONE; 9], [1, 2]).unwrap();
    for mut index in [index.clone(), restored] {
        let mut store = store.clone();
        assert_eq!(
            write(&mut index, &mut store, 0, 8192),
            Err(Refused::Shrinking)
        );
        while !index.trim(slot, &mut store) {}
        assert_eq!(index.stat(id(0)).unwrap().blocks, 1);
        write(&mut index, &mut store, 0, 8192).unwrap();
    }
}

#[test]
fn a_copy_of_too_many_ranges_is_refused_and_a_snapshot_is_not() {
    let (mut index, mut store) = (index(4000), Store::default());
    let ranges = u64::from(COPY_RANGES_MAX) + 1;
    for block in 0..ranges {
        write(&mut index, &mut store, 0, block * 4096).unwrap();
    }
    let mut copy = |blocks: u64, to: u64| {
        let span = Span::new(0, blocks * 4096).unwrap();
        index.copy((id(0), &span), (id(to), 0, true), [None; 2], &mut store)
    };
    assert_eq!(copy(ranges, 1), Err(Refused::TooManyRanges));
    assert_eq!(copy(ranges - 1, 1), Ok(()));
    // What is replaced counts, too.
    assert_eq!(copy(ranges - 1, 1), Err(Refused::TooManyRanges));
    assert_eq!(copy(ranges / 2, 1), Ok(()));
    let hidden = index.begin_snapshot(id(0), (id(2), true), &mut store);
    let hidden = hidden.unwrap();
    let next = index.continue_snapshot(id(0), (hidden, 0..u32::MAX), &mut store);
    let next = next.unwrap().expect("more than a step");
    assert_eq!(index.stat(id(2)), Err(Refused::NoObject));
    let next = index.continue_snapshot(id(0), (hidden, next..u32::MAX), &mut store);
    assert_eq!(next, Ok(None));
    index.link(hidden, true, &mut store).unwrap();
    assert_eq!(index.stat(id(2)).unwrap().blocks, ranges);
}

/// Blocks that no range has are left behind when an extent is moved, unless very many have it.
#[test]
fn an_extent_is_moved_without_what_is_not_used() {
    let (mut index, mut store) = (index(1000), Store::default());
    let place = store.put(&[1; 5 * 4096]);
    let span = Span::new(0, 5 * 4096).unwrap();
    index
        .write((id(0), true), &span, place, &mut store)
        .unwrap();
    write(&mut index, &mut store, 0, 4096).unwrap();
    let slots = 0..index.slots().count();
    let extent = slots.clone().find(|slot| index.movable(*slot).is_some());
    let extent = extent.unwrap();
    let (stored, used) = index.movable(extent).unwrap();
    let some: Vec<_> = (0..5).filter(|block| used.contains(*block)).collect();
    assert_eq!((some, used.count()), (vec![0, 2, 3, 4], 4));
    // The second block was given back when it was written again.
    assert_eq!(index.usage().blocks, 5);
    let moved = store.put(&[1; 4 * 4096]);
    let other = Stored { stamp: 1, ..stored };
    assert!(!index.relocate(extent, (other, used), moved, &mut store));
    // A read goes on with the place before.
    let reading = index.read(id(0), &span).unwrap();
    assert!(index.relocate(extent, (stored, used), moved, &mut store));
    assert_eq!(reading.parts()[0].source.unwrap().stored, stored);
    index.end_read(reading, &mut store);
    assert_eq!(index.usage().blocks, 5);
    for copy in 1..=u64::from(STEP_RANGES) {
        let to = (id(copy), 0, true);
        index
            .copy((id(0), &span), to, [None; 2], &mut store)
            .unwrap();
        index.truncate((id(copy), 4096), None, &mut store).unwrap();
    }
    index.truncate((id(0), 4096), None, &mut store).unwrap();
    let (_, used) = index.movable(extent).unwrap();
    assert_eq!(used.count(), 4);
    index.delete(id(1), &mut store).unwrap();
    assert!(!index.reap(&mut store));
    let (_, used) = index.movable(extent).unwrap();
    assert_eq!(used.count(), 1);
}
