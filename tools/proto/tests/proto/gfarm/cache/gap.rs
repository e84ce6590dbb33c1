// SPDX-License-Identifier: GPL-2.0

//! Gaps: the ranges of a part of a file that are left for the file server.

use proto::gfarm::cache::{
    gap::{
        Gap,
        Part,
        ISLAND_LEN_MAX, //
    },
    PAGE_LEN, //
};

/// Begin and end, in the file.
type Range = (u64, u64);

/// Reads what is missing gap by gap, as a driver does: what has come from the file server.
fn read(whole: Part, filled: u32) -> Vec<Range> {
    let is_filled = |page: u64| page < 32 && filled >> page & 1 != 0;
    let mut from_server = Vec::new();
    let (mut part, mut missing) = (whole, 0);
    loop {
        let gap = part.gap(is_filled);
        if gap.len == 0 {
            assert_eq!(missing, whole.missing(is_filled));
            return from_server;
        }
        let start = part.position + gap.passed as u64;
        from_server.push((start, start + gap.len as u64));
        missing += gap.len;
        part = part.behind(&gap);
    }
}

/// The same, page by page.
fn wanted(part: Part, filled: u32) -> Vec<Range> {
    let end = (part.position + part.len as u64).min(part.size);
    let mut ranges: Vec<Range> = Vec::new();
    for page in (0..7).filter(|page| filled >> page & 1 == 0) {
        let start = (page * PAGE_LEN).max(part.position);
        let stop = ((page + 1) * PAGE_LEN).min(end);
        match ranges.last_mut() {
            _ if start >= stop => {}
            Some(last) if last.1 == start => last.1 = stop,
            _ => ranges.push((start, stop)),
        }
    }
    ranges
}

#[test]
fn exactly_what_others_have_not_given_is_missing() {
    // Pages 2 to 6 of a file, from each of these places on, to each of these, with each end.
    for filled in 0..1u32 << 7 {
        for (skip, len, size) in worlds() {
            let position = 2 * PAGE_LEN + skip;
            let part = Part {
                position,
                len,
                size,
            };
            assert_eq!(
                read(part, filled),
                wanted(part, filled),
                "{part:?} {filled:#b}"
            );
        }
    }
}

fn worlds() -> Vec<(u64, usize, u64)> {
    let page = PAGE_LEN as usize;
    let lens = [0, 1, page - 1, page, page + 1, 4 * page, 5 * page];
    let sizes = [1, 2 * PAGE_LEN, 3 * PAGE_LEN + 1, 7 * PAGE_LEN - 1, 1 << 40];
    let mut worlds = Vec::new();
    for skip in [0, 1, PAGE_LEN - 1] {
        for len in lens
            .into_iter()
            .filter(|len| len + skip as usize <= 5 * page)
        {
            worlds.extend(sizes.map(|size| (skip, len, size)));
        }
    }
    worlds
}

#[test]
fn one_lost_page_is_all_that_is_missing() {
    let whole = Part {
        position: 0,
        len: 1 << 20,
        size: u64::MAX,
    };
    for lost in 0..256 {
        let is_filled = |page| page != lost;
        let gap = whole.gap(is_filled);
        let page = PAGE_LEN as usize;
        let (passed, len) = (lost as usize * page, page);
        assert_eq!(gap, Gap { passed, len });
        assert_eq!(whole.missing(is_filled), page);
        assert_eq!(whole.behind(&gap).missing(is_filled), 0);
    }
}

#[test]
fn positions_at_the_end_of_all_numbers_do_no_harm() {
    for (position, size) in [
        (u64::MAX, u64::MAX),
        (u64::MAX - 5000, u64::MAX),
        (u64::MAX, 0),
    ] {
        let part = Part {
            position,
            len: usize::MAX,
            size,
        };
        for filled in [false, true] {
            let gap = part.gap(|_| filled);
            let bytes = gap.passed + gap.len;
            assert_eq!(bytes as u64, size.saturating_sub(position), "{part:?}");
            assert_eq!(part.behind(&gap).missing(|_| filled), 0);
        }
    }
}

#[test]
fn few_pages_between_others_that_are_missing_are_read_with_them() {
    // Pages that are missing before and behind so many that are not, from a place within a page on.
    let most = ISLAND_LEN_MAX / PAGE_LEN;
    for (count, skip) in (1..=most + 2).flat_map(|count| [(count, 0), (count, 7)]) {
        let part = Part {
            position: skip,
            len: (20 * PAGE_LEN - skip) as usize,
            size: u64::MAX,
        };
        let is_island = |page: u64| (3..3 + count).contains(&page);
        let found = part.island(is_island);
        assert_eq!(found, (count <= most).then_some(3..3 + count), "{count}");
        // Others at the begin and at the end stay, and so does one behind it that is too long.
        let is_edge = |page: u64| page < 3 || page > 3 + count;
        assert_eq!(part.island(is_edge), None);
        let is_first_long = |page: u64| page > 1 && page < 3 + most || page == 5 + most;
        assert_eq!(part.island(is_first_long), Some(5 + most..6 + most));
    }
}

#[test]
fn no_islands_are_left_and_all_that_was_missing_still_is() {
    for filled in 0..1u32 << 12 {
        let part = Part {
            position: 100,
            len: 12 * PAGE_LEN as usize - 200,
            size: 1 << 40,
        };
        let mut left: Vec<bool> = (0..12).map(|page| filled >> page & 1 != 0).collect();
        while let Some(pages) = part.island(|page| left[page as usize]) {
            assert!(pages.end > pages.start && pages.end - pages.start <= 8);
            for page in pages {
                assert!(left[page as usize], "{filled:#b}: page {page} twice");
                left[page as usize] = false;
            }
        }
        let (first, last) = (
            filled.trailing_ones() as usize,
            12 - (filled << 20).leading_ones() as usize,
        );
        for (page, is_left) in left.into_iter().enumerate() {
            let was = filled >> page & 1 != 0;
            // Only pages between two that are missing change; here a run of 9 or 10 is too long.
            assert!(!is_left || was);
            if was && (page < first || page >= last) {
                assert!(is_left, "{filled:#b}: page {page} at an edge");
            }
        }
        let missing = part.missing(|page| filled >> page & 1 != 0);
        assert_eq!(missing == 0, filled == (1 << 12) - 1);
    }
}
