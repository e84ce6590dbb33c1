// SPDX-License-Identifier: GPL-2.0

//! The sums that a node knows, with a table of all that it was told beside it.

use std::collections::HashMap;

use proto::gfarm::{
    cache::{
        pages::PageSet,
        request::Wanted,
        sums::{
            Entry,
            SumTable,
            Verify,
            WAYS, //
        }, //
    },
    identity::ContentId,
};

use crate::chance::Chance;

use super::message::content;

fn table(sets: usize) -> SumTable<Vec<Entry>> {
    SumTable::new(vec![Entry::EMPTY; sets * WAYS])
}

fn wanted(id: ContentId, size_bytes: u64, chunk: u64, pages: PageSet) -> Wanted {
    Wanted::new(id, size_bytes, chunk, pages).unwrap()
}

fn some(chunk: u64, pages: PageSet) -> Wanted {
    wanted(content(7, 1), 1 << 40, chunk, pages)
}

#[test]
fn a_sum_is_known_of_what_it_was_told_of() {
    let (mut table, pages) = (table(4), PageSet::range(3, 20));
    table.put(&some(5, pages), |page| u32::from(page) * 3);
    let all = PageSet::range(0, 256);
    assert_eq!(table.known(&some(5, all)), pages);
    assert_eq!(
        table.known(&some(5, PageSet::range(20, 9))),
        PageSet::range(20, 3)
    );
    let entry = table.find(&some(5, all)).unwrap();
    assert!(pages
        .iter()
        .all(|page| entry.sum(page) == u32::from(page) * 3));
    // Another chunk, object, generation, time or size.
    let id = content(7, 1);
    let mut later = id;
    later.mtime.nsec += 1;
    assert!(table.known(&some(6, all)).is_empty());
    for other in [
        wanted(content(8, 1), 1 << 40, 5, all),
        wanted(content(7, 2), 1 << 40, 5, all),
        wanted(later, 1 << 40, 5, all),
        wanted(id, (1 << 40) - 1, 5, all),
    ] {
        assert!(table.known(&other).is_empty(), "{other:?}");
    }
}

#[test]
fn a_page_with_another_sum_is_damaged_each_time() {
    let mut table = table(1);
    let pages = some(5, PageSet::range(0, 9));
    table.put(&pages, u32::from);
    for _ in 0..2 {
        assert!(table.is_damaged(&pages, 3, 4) && !table.is_damaged(&pages, 3, 3));
    }
    assert!(!table.is_damaged(&pages, 9, 1), "its sum is not known");
    assert!(!table.is_damaged(&some(6, pages.pages()), 3, 4));
    // It is read again.
    table.put(&some(5, PageSet::range(3, 1)), |_| 4);
    assert!(table.is_damaged(&pages, 3, 3) && !table.is_damaged(&pages, 3, 4));
}

#[test]
fn the_chunk_that_was_used_least_lately_makes_room() {
    let (mut table, page) = (table(1), PageSet::range(0, 1));
    for chunk in 0..WAYS as u64 {
        table.put(&some(chunk, page), |_| 1);
    }
    // The first one is used once more, so the second one goes.
    assert_eq!(table.known(&some(0, page)), page);
    table.put(&some(99, page), |_| 2);
    for chunk in 0..WAYS as u64 {
        assert_eq!(table.known(&some(chunk, page)).is_empty(), chunk == 1);
    }
}

#[test]
fn a_table_without_entries_knows_nothing() {
    let (mut table, page) = (table(0), PageSet::range(0, 1));
    table.put(&some(0, page), |_| 1);
    assert!(table.known(&some(0, page)).is_empty());
    assert!(!table.is_damaged(&some(0, page), 0, 2));
}

/// Whatever is told and replaced: what is known is what was told last.
#[test]
fn no_sum_is_known_that_was_not_told() {
    let (mut known, mut all) = (0, 0);
    for seed in 0..200 {
        let mut chance = Chance::new(seed);
        let (mut table, mut told) = (table(1 + chance.below(3)), HashMap::new());
        for step in 0..300u32 {
            let (inum, gen) = (chance.below(2) as u64 + 1, chance.below(2) as u64);
            let chunk = chance.below(5) as u64;
            let first = chance.below(256) as u8;
            let pages = PageSet::range(first, 1 + chance.below(100));
            let wanted = wanted(content(inum, gen), 1 << 30, chunk, pages);
            match chance.below(8) {
                0..5 => {
                    table.put(&wanted, |page| step << 8 | u32::from(page));
                    for page in pages.iter() {
                        told.insert((inum, gen, chunk, page), step << 8 | u32::from(page));
                    }
                }
                _ => {
                    let found = table.known(&wanted);
                    assert!(found.is_subset(pages));
                    (known, all) = (known + found.len(), all + pages.len());
                    for page in found.iter() {
                        let sum = table.find(&wanted).unwrap().sum(page);
                        assert_eq!(Some(&sum), told.get(&(inum, gen, chunk, page)));
                    }
                }
            }
        }
    }
    assert!(known * 5 > all, "{known} of {all}");
}

#[test]
fn the_option_says_what_is_compared() {
    let all = [0, 1, 2].map(Verify::new);
    assert_eq!(all, [Verify::Off, Verify::Received, Verify::Given]);
    assert!(Verify::Off < Verify::Received && Verify::Received < Verify::Given);
}

#[test]
fn a_page_has_the_bytes_up_to_the_end_of_the_file() {
    let size = (1 << 20) + 4096 + 5;
    let last = wanted(content(7, 1), size, 1, PageSet::range(0, 2));
    assert_eq!((last.page_len(0), last.page_len(1)), (4096, 5));
    assert_eq!((last.page_len(2), last.page_len(255)), (0, 0));
}
