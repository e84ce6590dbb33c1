// SPDX-License-Identifier: GPL-2.0

//! The tuples that a replay keeps.

use proto::sidecar::{
    layout::Layout,
    record::{
        Builder,
        Entry,
        Head,
        Unit, //
    },
    recovery::Scratch,
    replay::{
        settle,
        Found,
        Live,
        Mention, //
    },
    tuple::{
        Meaning,
        Seal,
        Tuple, //
    },
    BLOCK_BYTES, //
};

use super::Sum;

fn seal() -> Seal {
    Seal::new(b"0123456789abcdef", &Sum)
}

fn layout() -> Layout {
    Layout::new(2000, 8).unwrap()
}

fn data(block: u64, guard: u64) -> Tuple {
    seal().data(block, guard, 0).unwrap()
}

/// The ring after these records, one entry each, and what is listed.
fn list(entries: &[Entry]) -> Vec<Mention> {
    list_flushed(entries, 0)
}

/// The same; the data of records below a number were flushed.
fn list_flushed(entries: &[Entry], flushed: u64) -> Vec<Mention> {
    let mut ring = vec![[0; BLOCK_BYTES]; 8];
    for (sequence, entry) in (1..).zip(entries) {
        let mut builder = Builder::new(&mut ring[sequence as usize % 8], Unit::SECTOR);
        assert!(builder.push(entry));
        builder.finish(
            Head {
                sequence,
                tail: 1,
                flushed: flushed.min(sequence),
                device_blocks: 0,
            },
            &seal(),
            &Sum,
        );
    }
    let live = Live::find(&ring, &layout(), &seal(), &Sum).unwrap();
    let mut all = vec![Mention::default(); 800];
    let (listed, missing) = live.list(&ring, &layout(), &seal(), &Sum, &mut all);
    assert_eq!(missing, 0);
    listed.to_vec()
}

fn change(old: Tuple, new: Tuple, blocks: u16) -> Entry {
    Entry {
        first: 5,
        blocks,
        old,
        new,
    }
}

#[test]
fn the_newest_tuple_that_fits_is_kept() {
    let entries = [
        change(data(5, 1), data(5, 2), 1),
        change(data(5, 2), data(5, 3), 1),
    ];
    let mentions = list(&entries);
    for (crc, expected) in [
        (Some(3), (data(5, 3), Found::Newest)),
        (Some(2), (data(5, 2), Found::Older)),
        (Some(1), (data(5, 1), Found::Older)),
        (Some(4), (seal().lost(5), Found::Torn)),
        (None, (seal().lost(5), Found::Unreadable)),
    ] {
        assert_eq!(settle(&mentions, 5, &seal(), || crc), Some(expected));
    }
    assert_eq!(settle(&mentions, 6, &seal(), || Some(3)), None);
}

#[test]
fn no_data_is_believed_before_one_write_only() {
    let none = seal().unwritten(5);
    let once = list(&[change(none, data(5, 1), 1)]);
    let is = |mentions: &[Mention], crc| {
        let (tuple, _) = settle(mentions, 5, &seal(), || Some(crc)).unwrap();
        seal().meaning(&tuple, 5)
    };
    assert_eq!(is(&once, 9), Meaning::Unwritten);
    // No one has looked at the data, which may be those of the write.
    let unread = settle(&once, 5, &seal(), || None);
    assert_eq!(unread, Some((seal().lost(5), Found::Unreadable)));
    let twice = list(&[
        change(none, data(5, 1), 1),
        change(data(5, 1), data(5, 2), 1),
    ]);
    assert_eq!(is(&twice, 9), Meaning::Lost);
    assert_eq!(is(&twice, 1), Meaning::Data { guard: 1, app: 0 });
    let discarded = list(&[change(data(5, 1), none, 3), change(none, data(5, 2), 1)]);
    assert_eq!(is(&discarded, 1), Meaning::Unwritten);
    assert_eq!(is(&discarded, 2), Meaning::Data { guard: 2, app: 0 });
    // The other blocks of the run need no CRC.
    let (tuple, found) = settle(&discarded, 7, &seal(), || None).unwrap();
    assert_eq!((tuple, found), (seal().unwritten(7), Found::Newest));
}

#[test]
fn a_journal_without_a_record_is_told_from_an_empty_one() {
    let mut ring = vec![[0; BLOCK_BYTES]; 8];
    assert!(Live::find(&ring, &layout(), &seal(), &Sum).is_none());
    let head = |sequence, tail| Head {
        sequence,
        tail,
        flushed: 0,
        device_blocks: 0,
    };
    Builder::new(&mut ring[1], Unit::SECTOR).finish(head(9, 9), &seal(), &Sum);
    let live = Live::find(&ring, &layout(), &seal(), &Sum).unwrap();
    assert_eq!(live.clean(&[]), Some(9));
    assert_eq!(
        live.mark(&layout()),
        Head::of_mark(10, layout().device_blocks())
    );
    // A record in another's slot was misdirected, and is not the newest.
    Builder::new(&mut ring[3], Unit::SECTOR).finish(head(12, 12), &seal(), &Sum);
    let live = Live::find(&ring, &layout(), &seal(), &Sum).unwrap();
    assert_eq!(
        live.mark(&layout()),
        Head::of_mark(10, layout().device_blocks())
    );
    // Records 10 and 11 were durable before 12, and are gone: 10 to what was there before.
    Builder::new(&mut ring[2], Unit::SECTOR).finish(head(2, 2), &seal(), &Sum);
    Builder::new(&mut ring[4], Unit::BLOCK).finish(head(12, 9), &seal(), &Sum);
    let live = Live::find(&ring, &layout(), &seal(), &Sum).unwrap();
    let mut all = vec![Mention::default(); 800];
    let (_, missing) = live.list(&ring, &layout(), &seal(), &Sum, &mut all);
    assert_eq!(missing, 2);
}

/// The memory is that of the documents: 2.4 MiB, and not quite 10 MiB.
#[test]
fn the_memory_of_a_replay_is_known() {
    for (slots, kib) in [(255u32, 2414), (1023, 9686)] {
        let list = Scratch::mentions(&Layout::new(9000, slots).unwrap()) * size_of::<Mention>();
        let ring = slots as usize * BLOCK_BYTES;
        assert_eq!((list + ring) / 1024, kib);
    }
}

/// The tuple of a block after records, of which those below a number were flushed.
fn after_flush(entries: &[Entry], flushed: u64, crc: u64) -> (Meaning, Found) {
    let (tuple, found) = settle(&list_flushed(entries, flushed), 5, &seal(), || Some(crc)).unwrap();
    (seal().meaning(&tuple, 5), found)
}

/// Data that are older than what was flushed are those of a write that the device has lost.
#[test]
fn older_data_than_those_that_were_flushed_are_lost() {
    let entries = [
        change(data(5, 1), data(5, 2), 1),
        change(data(5, 2), data(5, 3), 1),
        change(data(5, 3), data(5, 4), 1),
    ];
    for (flushed, oldest) in [(0, 1), (1, 1), (2, 2), (3, 3)] {
        for crc in 1..=4 {
            let expected = match crc {
                4 => (Meaning::Data { guard: 4, app: 0 }, Found::Newest),
                _ if crc >= oldest => (Meaning::Data { guard: crc, app: 0 }, Found::Older),
                _ => (Meaning::Lost, Found::Stale),
            };
            let found = after_flush(&entries, flushed, crc);
            assert_eq!(found, expected, "{crc} is there, flushed: {flushed}");
        }
        assert_eq!(after_flush(&entries, flushed, 9).1, Found::Torn);
    }
    // No data fit everything, but not after a flush.
    let first = [
        change(seal().unwritten(5), data(5, 1), 1),
        change(data(6, 1), data(6, 2), 1),
    ];
    let second = |entry: Entry| Entry { first: 6, ..entry };
    let entries = [first[0], second(first[1])];
    assert_eq!(
        after_flush(&entries, 0, 9),
        (Meaning::Unwritten, Found::Older)
    );
    assert_eq!(after_flush(&entries, 2, 9), (Meaning::Lost, Found::Torn));
}

/// A first write has failed and left nothing, and the next one was cut off.
#[test]
fn each_entry_says_what_was_there_before() {
    let none = seal().unwritten(5);
    let failed = [change(none, data(5, 1), 1), change(none, data(5, 2), 1)];
    assert_eq!(
        after_flush(&failed, 0, 9),
        (Meaning::Unwritten, Found::Older)
    );
    let failed = [
        change(data(5, 1), data(5, 2), 1),
        change(data(5, 1), data(5, 3), 1),
    ];
    for crc in [1, 2, 3] {
        assert!(matches!(
            after_flush(&failed, 0, crc).0,
            Meaning::Data { .. }
        ));
    }
}
