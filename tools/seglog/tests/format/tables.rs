// SPDX-License-Identifier: GPL-2.0

//! Pages of the table, dumps, and which segments may be written again.

use seglog::{
    collect::{
        reserve,
        Purpose, //
    },
    cursor::Cursor,
    layout::{
        Layout,
        Parts, //
    },
    members::{
        Members,
        MEMBERS, //
    },
    record::Entry,
    segments::{
        Segment,
        Segments, //
    },
    superblock::Start,
    table::{
        lose,
        page_members,
        page_words,
        read_page,
        write_page,
        SegmentUse,
        Table, //
    },
    ArrayTag, //
};

use crate::{
    Crc,
    TAG, //
};

const SEGMENTS: u32 = 8;
const ENTRIES: u64 = 100;

fn layout() -> Layout {
    Layout::new(Parts {
        unit_bytes: 512,
        segment_units: 8,
        segments: SEGMENTS,
        page_bytes: 512,
        entries: ENTRIES,
    })
    .unwrap()
}

struct Words(Vec<u64>);

impl Words {
    fn empty() -> Self {
        Self(vec![0; layout().words() as usize])
    }
}

impl Table for Words {
    fn word(&self, index: u64) -> u64 {
        self.0.get(index as usize).copied().unwrap_or_default()
    }

    fn set(&mut self, index: u64, word: u64) {
        self.0[index as usize] = word;
    }
}

fn start(generation: u64, segment_sequence: u64) -> Start {
    Start {
        generation,
        area: (generation % 2) as u8,
        cursor: Cursor {
            segment_sequence,
            ..Cursor::first()
        },
    }
}

#[test]
fn pages_are_read_as_they_were_written_and_nowhere_else() {
    let layout = layout();
    let words = Words((0..layout.words()).map(|n| n * 0x0101_0101).collect());
    assert_eq!((layout.page_words(), layout.pages()), (62, 2));
    let mut found = Words::empty();
    for page in 0..layout.pages() {
        let mut bytes = [0xff; 512];
        write_page(&mut bytes, (page, 9), &words, (&layout, TAG), &Crc);
        let mut read = |bytes: &[u8], page, generation, tag| {
            let of = (page, &start(generation, 0));
            read_page(bytes, of, &mut found, (&layout, tag), &Crc)
        };
        assert!(read(&bytes, page, 9, TAG));
        assert!(!read(&bytes, page + 1, 9, TAG));
        assert!(!read(&bytes, page, 8, TAG));
        assert!(!read(&bytes, page, 9, ArrayTag(TAG.0 ^ 1)));
        for at in 0..bytes.len() {
            let mut changed = bytes;
            changed[at] ^= 0x10;
            assert!(!read(&changed, page, 9, TAG), "byte {at}");
        }
    }
    assert_eq!(found.0, words.0);
    assert_eq!(page_words(1, &layout), 62..108);
}

#[test]
fn each_page_is_on_two_members_and_all_have_as_many() {
    let mut counts = [0; MEMBERS];
    for page in 0..6 {
        assert_eq!(page_members(page).count(), 2);
        page_members(page)
            .iter()
            .for_each(|member| counts[member] += 1);
    }
    assert_eq!(counts, [4, 4, 4]);
}

#[test]
fn members_of_a_segment_are_those_of_all_its_batches() {
    let first = SegmentUse::from_word(0).unwrap().with(7, Members::ALL);
    assert_eq!((first.sequence, first.members), (7, Members::ALL));
    let two = Members::ALL.minus(Members::of(1));
    assert_eq!(first.with(7, two).members, two);
    assert_eq!(first.with(7, two).with(7, Members::ALL).members, two);
    assert_eq!(
        first.with(7, two).with(8, Members::ALL).members,
        Members::ALL
    );
    assert_eq!(SegmentUse::from_word(first.word()), Some(first));
    assert_eq!(SegmentUse::from_word(8), None);
}

/// An entry for a record of 32 bytes at the first place of a segment: in units of 16 bytes, two
/// columns of 4096 bytes for each segment, behind a head of 96.
fn entry(segment: u64) -> Entry {
    Entry::from_word((segment * 512 + 6) | 2 << 42)
}

#[test]
fn a_segment_is_free_when_all_that_it_had_is_durably_elsewhere() {
    let (layout, mut table) = (layout(), Words::empty());
    // Segments 0 to 4 were used in turn; segment 5 never.
    for segment in 0..5 {
        let known = SegmentUse::default().with(segment + 1, Members::ALL);
        table.set(ENTRIES + segment, known.word());
    }
    table.set(3, entry(1).word());
    // Segments 6 and 7 are in the log, and have something.
    for segment in 6..8 {
        let known = SegmentUse::default().with(segment, Members::ALL);
        table.set(ENTRIES + segment, known.word());
        table.set(segment, entry(segment).word());
    }
    let memory = vec![Segment::default(); SEGMENTS as usize];
    let mut segments = Segments::count(memory, &table, &layout).unwrap();
    let end = Cursor {
        segment: 3,
        unit: 2,
        next: 4,
        sequence: 50,
        ..Cursor::first()
    };
    let free = |segments: &Segments<Vec<Segment>>, end, from| {
        segments.free(Purpose::Collect, end, (&start(1, from), &layout))
    };
    let all = |segments: &Segments<Vec<Segment>>, from| {
        let mut known = Vec::new();
        let mut end = end;
        // The next one counts as in use, so each that is free shows itself once.
        while let Some(free) = segments.free_behind(&end, (&start(1, from), &layout)) {
            if known.contains(&free) {
                break;
            }
            known.push(free);
            end.next = free;
        }
        known
    };
    // Only what was never written, before the start has moved.
    assert_eq!(all(&segments, 1), [5]);
    // 0 and 2 have nothing, and the start is behind them; 1 has something.
    assert_eq!(all(&segments, 4), [5, 0, 2]);
    assert_eq!(free(&segments, (&end, 50), 4), Some(5));
    // One is kept for the next assembly.
    assert_eq!(free(&segments, (&end, 50), 1), None);
    // Batch 51 writes the entry elsewhere.
    let live_bytes = segments.live_bytes();
    assert!(live_bytes > 0);
    segments.assign((entry(1), entry(3)), 51, &layout);
    assert_eq!(segments.live_bytes(), live_bytes);
    let mut emptied = segments.clone();
    emptied.assign((entry(3), Entry::ZEROES), 52, &layout);
    assert_eq!(emptied.live_bytes(), live_bytes / 3 * 2);
    let end = Cursor { next: 0, ..end };
    assert_eq!(free(&segments, (&end, 50), 4), Some(2));
    assert_eq!(free(&segments, (&end, 51), 4), Some(1));
    segments.begin_read(1);
    assert_eq!(free(&segments, (&end, 51), 4), Some(2));
    segments.end_read(1);
    assert_eq!(free(&segments, (&end, 51), 4), Some(1));
    // It is written again: it is free when its batches are gone, and the start is behind it.
    segments.begin(1, (9, 1), Members::ALL);
    assert_eq!(free(&segments, (&end, 60), 10), Some(2));
    segments.acknowledge(1, 60);
    assert_eq!(free(&segments, (&end, 59), 10), Some(2));
    assert_eq!(free(&segments, (&end, 60), 9), Some(2));
    assert_eq!(free(&segments, (&end, 60), 10), Some(1));
}

#[test]
fn writes_leave_what_collecting_needs() {
    let (layout, table) = (layout(), Words::empty());
    let memory = vec![Segment::default(); SEGMENTS as usize];
    let mut segments = Segments::count(memory, &table, &layout).unwrap();
    let mut end = Cursor {
        segment: 0,
        unit: 2,
        next: 1,
        sequence: 9,
        ..Cursor::first()
    };
    let free = |segments: &Segments<Vec<Segment>>, end: &Cursor, purpose| {
        segments.free(purpose, (end, 8), (&start(0, 1), &layout))
    };
    segments.begin(end.next, (1, 1), Members::ALL);
    assert_eq!(reserve(&layout), 3);
    let mut taken = Vec::new();
    for purpose in [Purpose::Write, Purpose::Reserved, Purpose::Collect] {
        while let Some(segment) = free(&segments, &end, purpose) {
            taken.push((purpose, segment));
            end.next = segment;
            segments.begin(segment, (1, 1), Members::ALL);
        }
    }
    let expected = [
        (Purpose::Write, 2),
        (Purpose::Write, 3),
        (Purpose::Write, 4),
        (Purpose::Collect, 5),
        (Purpose::Collect, 6),
    ];
    // The last one is for the next assembly.
    assert_eq!(taken, expected);
}

#[test]
fn what_lacks_a_column_is_collected_first_and_what_is_least() {
    let (layout, mut table) = (layout(), Words::empty());
    let two = Members::ALL.minus(Members::of(2));
    for (segment, members) in [(0, Members::ALL), (1, two), (2, Members::ALL), (3, two)] {
        let known = SegmentUse::default().with(segment + 1, members);
        table.set(ENTRIES + segment, known.word());
    }
    for (index, segment) in [0, 0, 1, 1, 2, 3, 3, 3].into_iter().enumerate() {
        table.set(index as u64, entry(segment).word());
    }
    let memory = vec![Segment::default(); SEGMENTS as usize];
    let mut segments = Segments::count(memory, &table, &layout).unwrap();
    let victim = |segments: &Segments<Vec<Segment>>, members, wanted, before| {
        let bytes_max = if wanted { u64::MAX } else { 0 };
        segments.victim((members, bytes_max), before)
    };
    assert_eq!(victim(&segments, Members::ALL, false, 9), Some(1));
    assert_eq!(victim(&segments, Members::ALL, true, 2), Some(0));
    // All have what these two want.
    assert_eq!(victim(&segments, two, false, 9), None);
    assert_eq!(victim(&segments, two, true, 9), Some(2));
    assert!(segments.lacks(Members::of(2)) && !segments.lacks(two));
    let lacking = [0, 2, SEGMENTS].map(|from| segments.lacking(Members::of(2), from));
    assert_eq!(lacking, [Some(1), Some(3), Some(1)]);
    for block in [2, 3] {
        segments.assign((entry(1), Entry::ZEROES), 9, &layout);
        assert_eq!(
            victim(&segments, Members::ALL, false, 9),
            Some(if block == 2 { 1 } else { 3 })
        );
    }
    // Another member has lost what it had of the first use.
    segments.lose(Members::of(0), 1..2);
    assert!(segments.lacks(Members::of(0)) && !segments.lacks(Members::of(1)));
    assert_eq!(victim(&segments, two, false, 9), Some(0));
    lose(&mut table, Members::of(0), 1..2, &layout);
    let known = |segment| SegmentUse::from_word(table.word(ENTRIES + segment)).unwrap();
    assert_eq!(known(0).members, Members::ALL.minus(Members::of(0)));
    assert_eq!(known(1).members, two);
}

#[test]
fn words_that_are_not_possible_are_refused() {
    let memory = || vec![Segment::default(); SEGMENTS as usize];
    let mut table = Words::empty();
    table.set(ENTRIES, 0x80);
    assert!(Segments::count(memory(), &table, &layout()).is_err());
    for word in [
        u64::MAX,
        entry(SEGMENTS.into()).word(),
        1,
        6,
        6 | 1 << 42,
        entry(0).word() | 1 << 63,
    ] {
        let mut table = Words::empty();
        table.set(0, word);
        assert!(
            Segments::count(memory(), &table, &layout()).is_err(),
            "{word:x}"
        );
    }
    let mut table = Words::empty();
    table.set(0, entry(0).word());
    assert!(Segments::count(memory(), &table, &layout()).is_ok());
}
