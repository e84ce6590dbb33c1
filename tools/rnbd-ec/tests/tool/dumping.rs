// SPDX-License-Identifier: GPL-2.0

//! `dump`: superblocks, and the log.

use std::path::PathBuf;

use seglog::{
    batch::HEAD_BYTES,
    members::Members, //
};

use crate::{
    image::{
        flip,
        Folder,
        Image,
        UUID_TEXT, //
    },
    json,
    says, //
};

#[test]
fn a_superblock_is_told_in_words() {
    let folder = Folder::new("words");
    let mut image = Image::new(&folder);
    image.write(8, 16);
    image.dump();
    image.fail(0);
    let [one, two, three] = &image.paths;
    let words: &[&str] = &[
        "m1: 10485760 bytes\n",
        "slot 0: older\n",
        "slot 1: the newer one, which counts\n",
        UUID_TEXT,
        "member: 1 of 3, written 3 times",
        "incarnation: 1\n",
        "failed members: 0\n",
        "failed members: none\n",
        "start: dump 1 in area 1; batch ",
        "device of member 2: the first one, since use 0\n",
        "units of 512 bytes; pages of 4096 bytes\n",
    ];
    says(&["dump"], &[two], (0, words));
    let found = json(&["dump"], &[two, one, three], 0);
    let slots = &found["devices"][0]["slots"];
    assert_eq!(
        (&slots[0]["counts"], &slots[1]["counts"]),
        (&false.into(), &true.into())
    );
    let newer = &slots[1]["superblock"];
    assert_eq!(
        (&newer["member"], &newer["uuid"]),
        (&1.into(), &UUID_TEXT.into())
    );
    assert_eq!(newer["parent"], slots[0]["superblock"]["epoch"]);
    assert_eq!(newer["failed"][0], 0);
    assert_eq!(newer["layout"]["blocks"], image.layout.parts().entries);
    assert_eq!(newer["start"]["dump"], 1);
    // The member that has failed was not told.
    assert_eq!(
        found["devices"][1]["slots"][0]["superblock"]["failed"]
            .as_array()
            .unwrap()
            .len(),
        0
    );
}

#[test]
fn what_is_wrong_with_a_slot_is_told() {
    let folder = Folder::new("slot");
    let image = Image::new(&folder);
    let [one, ..] = &image.paths;
    let words: &[&str] = &["slot 1: the newer one, which counts", "slot 0: older"];
    says(&["dump"], &[one], (0, words));
    flip(one, 4096 + 50);
    let words: &[&str] = &[
        "slot 1: its superblock is damaged",
        "slot 0: the one that counts",
    ];
    says(&["dump"], &[one], (1, words));
    flip(one, 0);
    let words: &[&str] = &["slot 0: none", "not usable: its superblock is damaged"];
    says(&["dump"], &[one], (4, words));
    let found = json(&["dump"], &[one], 4);
    assert_eq!(found["devices"][0]["why"], "its superblock is damaged");
    assert_eq!(
        found["devices"][0]["slots"][1]["superblock"],
        serde_json::Value::Null
    );
    says(
        &["dump"],
        &[&folder.path("none")],
        (8, &["none: No such file"]),
    );
    says(&["dump", "--log"], &[one], (8, &["--log lists nothing"]));
}

#[test]
fn batches_and_their_records_are_listed() {
    let folder = Folder::new("log");
    let mut image = Image::new(&folder);
    image.write(0, 1);
    image.dump();
    let striped = image.write(8, 16);
    let mirrored = image.write(40, 2);
    image.discard(8, 3);
    let [one, two, three] = &image.paths;
    let found = json(&["dump", "--log"], &[two, one, three], 0);
    let log = found["log"].as_array().unwrap();
    assert_eq!(log.len(), 3, "{found}");
    assert_eq!(
        (&log[0]["batch"], &log[0]["kind"]),
        (&striped.sequence.into(), &"striped".into())
    );
    let records = log[0]["records"].as_array().unwrap();
    assert_eq!(records.len(), 4);
    assert_eq!(
        (&records[0]["block"], &records[0]["blocks"]),
        (&8.into(), &4.into())
    );
    assert_eq!(
        (&records[0]["codec"], &records[0]["bytes"]),
        (&"raw".into(), &16384.into())
    );
    let members: Vec<_> = mirrored.used.iter().map(serde_json::Value::from).collect();
    assert_eq!(log[1]["members"], serde_json::Value::from(members));
    assert_eq!(log[2]["records"][0]["codec"], "zeroes");
    let words: &[&str] = &[
        "striped on members 0, 1, 2",
        "blocks 8 to 11: raw, 16384 bytes\n",
    ];
    says(&["dump", "--log"], &[one, two, three], (0, words));
    // What is not whole is listed all the same.
    let at = image.at(&striped) + HEAD_BYTES as u64 + 5;
    flip(one, at);
    flip(two, at);
    let words: &[&str] = &["no whole column on members 0, 1; too few columns are whole"];
    let lines = says(&["dump", "--log"], &[one, two, three], (1, words));
    assert_eq!(lines.matches("\nbatch ").count(), 3, "{lines}");
    let found = json(&["dump", "--log"], &[one, two, three], 1);
    // Member 0 has its parity, member 1 its first column.
    assert_eq!(found["log"][0]["lost_columns"], serde_json::json!([0]));
    assert_eq!(found["log"][0]["records"].as_array().unwrap().len(), 2);
}

#[test]
fn the_log_of_one_member_is_what_it_has() {
    let folder = Folder::new("one");
    let mut image = Image::new(&folder);
    image.write(8, 16);
    let image = image.again(Members::ALL);
    let [one, two, ..] = &image.paths;
    let found = json(&["dump", "--log"], &[one], 0);
    assert_eq!(found["log"].as_array().unwrap().len(), 3, "{found}");
    let other = Image::of(&folder, "other", [0x77; 16]);
    says(&["dump"], &[one, &other.paths[1]], (0, &["77777777-"]));
    says(
        &["dump", "--log"],
        &[one, &other.paths[1]],
        (8, &["are of two arrays"]),
    );
    let copy = folder.path("copy");
    std::fs::copy(two, &copy).unwrap();
    says(
        &["dump", "--log"],
        &[two, &copy],
        (8, &["are both member 1"]),
    );
}

/// A later assembly was cut off when one member had its first batch: it does not go before one that
/// is whole.
#[test]
fn a_batch_that_is_whole_goes_before_one_that_is_not() {
    let folder = Folder::new("rank");
    let mut image = Image::new(&folder);
    image.write(0, 1);
    image.flush();
    let before = image
        .paths
        .each_ref()
        .map(|path| std::fs::read(path).unwrap());
    let whole = image.write(8, 16);
    let after = image
        .paths
        .each_ref()
        .map(|path| std::fs::read(path).unwrap());
    let write = |image: &Image, contents: &[Vec<u8>; 3]| {
        let each = image.paths.iter().zip(contents);
        each.for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
    };
    write(&image, &before);
    let image = image.again(Members::ALL);
    let opened = std::fs::read(&image.paths[0]).unwrap();
    write(&image, &after);
    let at = image.layout.segment(whole.next) as usize;
    let mut bytes = after[0].clone();
    bytes[at..at + 512].copy_from_slice(&opened[at..at + 512]);
    std::fs::write(&image.paths[0], bytes).unwrap();
    let [one, two, three] = &image.paths;
    let found = json(&["dump", "--log"], &[one, two, three], 0);
    let log = found["log"].as_array().unwrap();
    assert_eq!(log.last().unwrap()["kind"], "striped", "{found}");
    assert_eq!(log.last().unwrap()["units"], whole.units);
}

/// Damages the superblock of a member that counts.
fn hide(path: &PathBuf) {
    let found = json(&["dump"], &[path], 0);
    let slots = &found["devices"][0]["slots"];
    let newer = usize::from(slots[1]["counts"] == true);
    flip(path, newer as u64 * 4096 + 50);
}

/// The newer slots of two members hide that the third one has failed, or one of them and a stale
/// member agree: the log is that of an assembly.
#[test]
fn the_log_is_listed_of_the_members_that_an_assembly_takes() {
    let folder = Folder::new("takes");
    let mut image = Image::new(&folder);
    image.write(0, 1);
    image.fail(2);
    let last = image.write(8, 16);
    image.flush();
    let [one, two, three] = &image.paths;
    hide(one);
    hide(two);
    let is_listed = |paths: &[&PathBuf], status: u8| {
        let found = json(&["dump", "--log"], paths, status);
        let log = found["log"].as_array().unwrap();
        let found = log.last().unwrap();
        assert_eq!(found["batch"], last.sequence, "{found}");
        found["lacking"].as_array().unwrap().len()
    };
    assert_eq!(is_listed(&[one, two, three], 1), 0);
    // Refused without force, as the one that is missing may know more.
    is_listed(&[one, three], 1);
    says(&["check"], &[one, two, three], (1, &["stale"]));
}

/// Two have gone on without the third. Power has failed when one of them was told the next epoch,
/// and the other one hides the one before.
#[test]
fn a_stale_member_does_not_say_which_log_is_listed() {
    let folder = Folder::new("agrees");
    let two = Members::ALL.minus(Members::of(1));
    let mut image = Image::new(&folder).again(two);
    let last = image.write(8, 16);
    image.flush();
    let before = std::fs::read(&image.paths[2]).unwrap();
    let image = image.again(two);
    std::fs::write(&image.paths[2], before).unwrap();
    let [one, other, three] = &image.paths;
    hide(three);
    let found = json(&["dump", "--log"], &[one, other, three], 1);
    let log = found["log"].as_array().unwrap();
    let found = log.iter().find(|batch| batch["batch"] == last.sequence);
    let found = found.unwrap();
    assert_eq!(
        found["lost_columns"].as_array().unwrap().len(),
        0,
        "{found}"
    );
}
