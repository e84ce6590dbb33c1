// SPDX-License-Identifier: GPL-2.0

//! The reads of a node, as others see them.

use proto::gfarm::{
    attr::{
        FileId,
        Time, //
    },
    cache::{
        address::NodeId,
        pages::PageSet, //
        read_table::{
            Awaited,
            ReadEntry,
            ReadTable,
            SETTLE_US, //
        },
    },
    identity::ContentId,
};

use super::message::node;

const FILE: ContentId = of(9, 1);

/// A content that was written at a time of its own.
const fn of(inum: u64, gen: u64) -> ContentId {
    ContentId {
        file: FileId { inum, gen },
        mtime: Time { sec: 5, nsec: 6 },
    }
}
const NOTHING: Awaited = Awaited {
    pages: PageSet::EMPTY,
    depth: 0,
    is_settling: true,
};

fn table(places: usize) -> ReadTable<Vec<Option<ReadEntry>>> {
    ReadTable::new(vec![None; places])
}

fn asker() -> NodeId {
    node(7)
}

#[test]
fn a_read_is_seen_until_its_pages_are_in_the_cache() {
    let mut table = table(4);
    assert_eq!(table.awaited(FILE, 3, asker(), 0), NOTHING);
    let read_id = table.begin(FILE, 3, PageSet::range(0, 8), 0).unwrap();
    table.extend(read_id, PageSet::range(100, 2));
    let pages = PageSet::range(0, 8).union(PageSet::range(100, 2));
    let seen = table.awaited(FILE, 3, asker(), 1_000_000_000);
    assert_eq!(
        (seen.pages, seen.depth, seen.is_settling),
        (pages, 0, false)
    );
    table.end(read_id, 5);
    let seen = table.awaited(FILE, 3, asker(), 5 + SETTLE_US - 1);
    assert_eq!((seen.pages, seen.is_settling), (pages, true));
    assert_eq!(table.awaited(FILE, 3, asker(), 5 + SETTLE_US), NOTHING);
}

#[test]
fn a_read_is_of_one_content_and_chunk() {
    let mut table = table(4);
    table.begin(FILE, 3, PageSet::range(0, 8), 0).unwrap();
    for (file, chunk) in [
        (FILE, 4),
        (of(8, 1), 3),
        (of(9, 2), 3),
        (
            ContentId {
                mtime: Time { sec: 5, nsec: 7 },
                ..FILE
            },
            3,
        ),
    ] {
        assert_eq!(table.awaited(file, chunk, asker(), 0), NOTHING);
    }
}

#[test]
fn two_nodes_do_not_wait_for_each_other() {
    let mut table = table(4);
    let (own, other) = (PageSet::range(0, 8), PageSet::range(8, 8));
    let read_id = table.begin(FILE, 3, own, 0).unwrap();
    table.begin(FILE, 3, other, 0).unwrap();
    table.waits(read_id, Some((asker(), 4)));
    let seen = table.awaited(FILE, 3, asker(), 0);
    assert_eq!((seen.pages, seen.depth), (other, 0));
    let seen = table.awaited(FILE, 3, node(8), 0);
    assert_eq!((seen.pages, seen.depth), (own.union(other), 5));
    table.waits(read_id, Some((node(8), u8::MAX)));
    assert_eq!(table.awaited(FILE, 3, asker(), 0).depth, u8::MAX);
    table.waits(read_id, None);
    let seen = table.awaited(FILE, 3, asker(), 0);
    assert_eq!((seen.pages, seen.depth), (own.union(other), 0));
}

#[test]
fn what_has_no_place_is_not_seen_and_places_are_used_again() {
    let mut table = table(2);
    let pages = |first| PageSet::range(first, 1);
    let first = table.begin(FILE, 3, pages(0), 0).unwrap();
    table.begin(FILE, 3, pages(1), 0).unwrap();
    assert_eq!(table.begin(FILE, 3, pages(2), 0), None);
    table.end(first, 10);
    assert_eq!(table.begin(FILE, 3, pages(2), 9 + SETTLE_US), None);
    let third = table.begin(FILE, 3, pages(2), 10 + SETTLE_US).unwrap();
    // A read id is valid for one read.
    table.end(first, 0);
    table.extend(first, pages(9));
    table.waits(first, Some((asker(), 0)));
    let seen = table.awaited(FILE, 3, asker(), 10 + SETTLE_US);
    assert_eq!(seen.pages, pages(1).union(pages(2)));
    assert_ne!(first, third);
}
