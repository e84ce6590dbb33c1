// SPDX-License-Identifier: GPL-2.0

//! `check` where nothing is damaged: arrays that are whole, and such of which members are missing.

use std::fs;

use seglog::{
    batch::Kind,
    members::{
        member_of,
        Members, //
    },
};

use crate::{
    image::{
        Folder,
        Image,
        UUID_TEXT, //
    },
    json,
    says, //
};

#[test]
fn a_new_array_is_clean() {
    let folder = Folder::new("new");
    let image = Image::new(&folder);
    let [one, two, three] = &image.paths;
    let lines = says(
        &["check"],
        &[two, three, one],
        (0, &["0 with data", "\nclean\n"]),
    );
    assert!(lines.contains(UUID_TEXT), "{lines}");
    let found = json(&["check"], &[one, two, three], 0);
    assert_eq!(found["verdict"], "clean");
    assert_eq!(found["uuid"], UUID_TEXT);
    assert_eq!(found["live_blocks"], 0);
    assert_eq!(found["members"][2]["state"], "in_sync");
}

#[test]
fn all_that_is_live_is_read_by_each_way_and_nothing_is_written() {
    let folder = Folder::new("clean");
    let mut image = Image::new(&folder);
    let mirrored = image.write(0, 2);
    let striped = image.write(8, 16);
    assert_eq!((mirrored.kind, striped.kind), (Kind::Mirror, Kind::Striped));
    image.dump();
    image.write(9, 1);
    image.write(100, 3);
    image.discard(16, 2);
    image.flush();
    let before = image.paths.each_ref().map(|path| fs::read(path).unwrap());
    let [one, two, three] = &image.paths;
    let found = json(&["check"], &[three, one, two], 0);
    assert_eq!(found["verdict"], "clean", "{found}");
    // 0 and 1; 8, 10 and 11, 12 to 15, 18 and 19, 20 to 23; 9; 100 to 102.
    assert_eq!(found["live_blocks"], 2 + 13 + 1 + 3);
    assert_eq!(found["records"], 1 + 5 + 1 + 1);
    // Each has its column, and a copy or the other two.
    assert_eq!(found["ways"], 16);
    assert_eq!(found["lost_blocks"], 0);
    let live = found["segments"]["live"].as_u64().unwrap();
    let free = found["segments"]["free"].as_u64().unwrap();
    let all = u64::from(image.layout.parts().segments);
    assert_eq!(found["segments"]["all"], all);
    assert!(live >= 1 && free < all && free > all / 2, "{found}");
    let after = image.paths.each_ref().map(|path| fs::read(path).unwrap());
    assert!(before == after, "something was written");
}

#[test]
fn an_array_without_a_member_is_degraded() {
    let folder = Folder::new("two");
    let mut image = Image::new(&folder);
    image.write(8, 16);
    image.dump();
    let [one, two, three] = &image.paths;
    let words: &[&str] = &["degraded: nothing is lost", "2       -", "missing"];
    says(&["check"], &[two, one], (1, words));
    let found = json(&["check"], &[one, three], 1);
    assert_eq!(found["members"][1]["state"], "missing");
    // Of striped data, a third needs both others.
    assert_eq!(
        (&found["lost_blocks"], &found["live_blocks"]),
        (&0.into(), &16.into())
    );
    says(&["check"], &[one], (8, &["DEVICE"]));
}

#[test]
fn a_member_that_has_failed_is_stale_and_lacks_segments() {
    let folder = Folder::new("failed");
    let mut image = Image::new(&folder);
    image.write(8, 16);
    image.dump();
    image.fail(1);
    image.write(100, 16);
    image.dump();
    let [one, two, three] = &image.paths;
    let found = json(&["check"], &[one, two, three], 1);
    assert_eq!(found["members"][1]["state"], "stale");
    assert_eq!(found["members"][0]["state"], "in_sync");
    assert!(
        found["members"][1]["lacking_segments"].as_u64() > Some(0),
        "{found}"
    );
    assert_eq!(found["members"][0]["lacking_segments"], 0);
    assert_eq!(found["live_blocks"], 32);
    says(
        &["check"],
        &[one, two, three],
        (1, &["stale: it has to be resynchronised"]),
    );
    // It alone with one that knows that it has failed is not enough, and the third one helps.
    let why = "fewer than 2 are in sync: add the member that is missing";
    says(&["check"], &[one, two], (8, &[why]));
    // All three are given, and only one can be used.
    crate::image::flip(three, 0x18);
    crate::image::flip(three, 4096 + 0x18);
    let words: &[&str] = &["cannot be assembled", why, "lost: ", "damaged\n"];
    says(&["check"], &[one, two, three], (4, words));
}

#[test]
fn what_the_next_assembly_writes_is_told() {
    let folder = Folder::new("behind");
    let mut image = Image::new(&folder);
    let head = image.write(8, 16);
    // A crash has taken the records of one member.
    let member = member_of(head.place.segment, 0);
    crate::image::flip(&image.paths[member], image.at(&head) + 400);
    let [one, two, three] = &image.paths;
    let found = json(&["check"], &[one, two, three], 1);
    assert_eq!(found["members"][member]["log_columns"], 1);
    assert_eq!(found["members"][member]["wrong_columns"], 0);
    assert_eq!(found["members"][member]["wrong_records"], 0);
    assert_eq!(found["wrong_rebuilds"], 0);
    says(
        &["check"],
        &[one, two, three],
        (1, &["1 column of the log"]),
    );
    let image = image.again(Members::ALL);
    let [one, two, three] = &image.paths;
    says(&["check"], &[one, two, three], (0, &["\nclean\n"]));
}

#[test]
fn remnants_behind_the_end_of_the_log_are_no_damage() {
    let folder = Folder::new("remnant");
    let mut image = Image::new(&folder);
    image.write(8, 16);
    let lost = image.write(32, 16);
    let at = image.at(&lost);
    // It was not flushed, and two members have lost it: it never was.
    crate::image::flip(&image.paths[0], at);
    crate::image::flip(&image.paths[2], at);
    let [one, two, three] = &image.paths;
    let found = json(&["check"], &[one, two, three], 0);
    assert_eq!(found["live_blocks"], 16, "{found}");
}

#[test]
fn what_is_in_turn_in_two_segments_is_in_two() {
    let folder = Folder::new("turns");
    let mut image = Image::new(&folder);
    image.write(0, 16);
    image.flush();
    // An assembly begins a segment.
    let mut image = image.again(Members::ALL);
    for block in [1, 6, 11] {
        image.write(block, 1);
    }
    let [one, two, three] = &image.paths;
    let found = json(&["check"], &[one, two, three], 0);
    assert_eq!(
        (&found["segments"]["live"], &found["live_blocks"]),
        (&2.into(), &16.into())
    );
    assert_eq!(found["batches"], 1 + 1 + 1 + 3, "{found}");
}
