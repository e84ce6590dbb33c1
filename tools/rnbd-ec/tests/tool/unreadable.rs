// SPDX-License-Identifier: GPL-2.0

//! `check` of members of which some bytes cannot be read.

use std::{
    fs::File,
    io,
    ops::Range,
    path::PathBuf, //
};

use rnbd_ec_tool::{
    check::{
        check,
        Report,
        State,
        Verdict, //
    },
    media::{
        Medium,
        ReadAt, //
    },
};
use seglog::batch::HEAD_BYTES;

use crate::image::{
    flip,
    Folder,
    Image, //
};

#[derive(Debug)]
struct Bad {
    file: File,
    range: Range<u64>,
}

impl ReadAt for Bad {
    fn read(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        let end = at + to.len() as u64;
        if at < self.range.end && self.range.start < end {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.file.read(at, to)
    }
}

/// Checks an array of which one member cannot be read at some bytes.
fn check_with(image: &Image, (bad, range): (usize, Range<u64>)) -> Report {
    let media = image
        .paths
        .iter()
        .enumerate()
        .map(|(member, path): (_, &PathBuf)| {
            let file = File::open(path).unwrap();
            let bytes = file.metadata().unwrap().len();
            let range = if member == bad { range.clone() } else { 0..0 };
            Medium::new(path, Box::new(Bad { file, range }), bytes)
        });
    check(media.collect(), |_, _| {}).unwrap()
}

#[test]
fn a_slot_that_cannot_be_read_is_one_of_two() {
    let folder = Folder::new("no-slot");
    let mut image = Image::new(&folder);
    image.write(8, 16);
    let report = check_with(&image, (1, 4096..4608));
    assert_eq!(report.verdict, Verdict::Degraded);
    assert_eq!(report.members[1].state, State::InSync);
    assert_eq!(report.members[1].damaged_slots, [1]);
    let report = check_with(&image, (1, 0..8192));
    assert_eq!(report.verdict, Verdict::Degraded);
    assert_eq!(report.members[1].state, State::Unusable);
    let why = report.members[1].why.as_ref().unwrap();
    assert!(why.contains("its superblock cannot be read"), "{why}");
    assert_eq!(report.lost_blocks, 0);
}

#[test]
fn a_column_that_cannot_be_read_is_read_from_the_others() {
    let folder = Folder::new("no-column");
    let mut image = Image::new(&folder);
    let head = image.write(8, 16);
    image.dump();
    let at = image.at(&head);
    let report = check_with(&image, (2, at..at + 512));
    assert_eq!(report.verdict, Verdict::Degraded);
    assert_eq!(report.members[2].state, State::InSync);
    assert_eq!(report.members[2].wrong_columns, 1, "{report:?}");
    // The next two records of it are in units that can be read.
    assert_eq!(report.members[2].wrong_records, 1, "{report:?}");
    assert_eq!((report.lost_blocks, report.wrong_rebuilds), (0, 0));
    let page = image.layout.page(1, 1);
    let report = check_with(&image, (2, page..page + 512));
    assert_eq!(report.members[2].wrong_pages, 1, "{report:?}");
}

#[test]
fn where_the_log_may_go_on_unread_the_others_are_asked() {
    let folder = Folder::new("no-end");
    let mut image = Image::new(&folder);
    let head = image.write(8, 16);
    let at = image.at(&head) + head.column_bytes(&image.layout) as u64;
    let report = check_with(&image, (0, at..at + 512));
    assert_eq!(report.verdict, Verdict::Clean, "{report:?}");
    assert_eq!(report.members[0].state, State::InSync);
    assert_eq!((report.live_blocks, report.lost_blocks), (16, 0));
    // Another column of the last batch is damaged, too: nothing is left to choose from.
    flip(&image.paths[1], image.at(&head) + HEAD_BYTES as u64 + 9);
    let report = check_with(&image, (0, 0..8192));
    assert_eq!(report.members[0].state, State::Unusable);
    assert_eq!(report.live_blocks, 0);
}
