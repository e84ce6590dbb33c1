// SPDX-License-Identifier: GPL-2.0

//! What is left for the file server of a part of a file.

use proto::gfarm::cache::{
    gap::{
        Gap,
        Part, //
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
