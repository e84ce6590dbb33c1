// SPDX-License-Identifier: GPL-2.0

//! Entries of a log that is damaged, or was written by another program.

use ferro_proto::errno::Errno;
use rioc::proto::{
    entry,
    index::{
        Damage,
        Index, //
    },
    slot::{
        Blocks,
        Extent,
        InFile,
        Kept,
        Life,
        Object,
        Range,
        Slot,
        Stored,
        NONE, //
    },
    span::ObjectId, //
};

const FREE: Slot = Slot::Free(NONE);

fn object(low: u64, life: Life) -> Slot {
    Slot::Object(Object {
        id: ObjectId { high: 0, low },
        size: 40960,
        root: NONE,
        next: NONE,
        blocks: 0,
        life,
        is_shrinking: false,
        uses: 0,
        backed: 0,
        is_cut: false,
        is_leaving: false,
        has_file: false,
        has_failed: false,
    })
}

fn range(object: u32, block: u32, extent: u32, (first, blocks): (u8, u8)) -> Slot {
    Slot::Range(Range::new((object, block), extent, (first, blocks)))
}

fn clean(object: u32, block: u32, extent: u32) -> Slot {
    let mut range = Range::new((object, block), extent, (0, 1));
    range.in_file = InFile::Clean;
    Slot::Range(range)
}

fn extent(blocks: u8) -> Slot {
    Slot::Extent(Extent {
        stored: Stored { place: 1, stamp: 2 },
        references: 1,
        ranges: NONE,
        pins: 0,
        used: Blocks::of(0, blocks),
        blocks,
        uses: 0,
    })
}

fn restore(slots: &[Slot]) -> Result<(), Damage> {
    let entries = slots.iter().map(entry::entry);
    let slots: Vec<_> = entries.map(|e| entry::slot(&e).unwrap()).collect();
    Index::restore(slots, vec![NONE; 2], [1, 2]).map(|_| ())
}

#[test]
fn what_does_not_fit_is_named() {
    let (one, linked) = (object(1, Life::Linked), Life::Linked);
    assert_eq!(restore(&[one, range(0, 0, 2, (1, 2)), extent(3)]), Ok(()));
    for (slots, expected) in [
        (vec![one, one], Damage::Name(1)),
        (
            vec![FREE, range(0, 0, 2, (0, 1)), extent(1)],
            Damage::NoObject(1),
        ),
        (
            vec![one, range(9, 0, 2, (0, 1)), extent(1)],
            Damage::NoObject(1),
        ),
        (vec![one, range(0, 0, 2, (0, 1)), FREE], Damage::NoExtent(1)),
        (vec![one, range(0, 0, 0, (0, 1)), FREE], Damage::NoExtent(1)),
        (vec![one, range(0, 0, 9, (0, 1)), FREE], Damage::NoExtent(1)),
        (
            vec![one, range(0, 0, 2, (1, 2)), extent(2)],
            Damage::NoExtent(1),
        ),
        (
            vec![one, range(0, 0, 2, (255, 2)), extent(2)],
            Damage::NoExtent(1),
        ),
        (vec![one, extent(2)], Damage::Unused(1)),
        // The file of object 0 is meant for no block.
        (vec![one, clean(0, 0, 2), extent(2)], Damage::NotInFile(1)),
        (
            vec![
                one,
                range(0, 3, 3, (0, 2)),
                range(0, 4, 3, (0, 2)),
                extent(2),
            ],
            Damage::Overlap(2),
        ),
        (
            vec![
                one,
                range(0, 4, 3, (0, 2)),
                range(0, 3, 3, (0, 2)),
                extent(2),
            ],
            Damage::Overlap(2),
        ),
        (
            vec![
                one,
                range(0, 3, 3, (0, 2)),
                range(0, 3, 3, (0, 1)),
                extent(2),
            ],
            Damage::Overlap(2),
        ),
    ] {
        assert_eq!(restore(&slots), Err(expected), "{slots:?}");
        assert_eq!(expected.errno(), Errno::EUCLEAN);
        assert!(expected.to_string().contains("slot"));
    }
    // Two names differ, or one is no name any more.
    assert_eq!(restore(&[one, object(2, linked)]), Ok(()));
    assert_eq!(restore(&[one, object(1, Life::Doomed)]), Ok(()));
    assert_eq!(restore(&[one, object(1, Life::Hidden)]), Ok(()));
}

#[test]
fn each_byte_of_an_entry_counts() {
    let all = [
        FREE,
        object(1, Life::Linked),
        range(1, 2, 3, (4, 5)),
        extent(6),
        clean(1, 2, 3),
        Slot::Ticket(Kept {
            client: [1, 2],
            word: 3 << 16,
            incarnation: 5,
            next: NONE,
        }),
    ];
    for slot in all {
        let good = entry::entry(&slot);
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut entry = good;
                entry[at] ^= 1 << bit;
                // It is none, or another one: never the same.
                let parsed = entry::slot(&entry);
                assert!(parsed != entry::slot(&good));
                if let (Ok(other), false) = (parsed, matches!(slot, Slot::Extent(_))) {
                    assert_eq!(entry::entry(&other), entry);
                }
            }
        }
    }
    for blocks in [0, 30, 255] {
        assert!(entry::slot(&entry::entry(&extent(blocks))).is_err());
        assert!(entry::slot(&entry::entry(&range(0, 0, 1, (0, blocks)))).is_err());
    }
    assert!(entry::slot(&entry::entry(&range(0, u32::MAX, 1, (0, 1)))).is_err());
}
