// SPDX-License-Identifier: GPL-2.0

//! `check` where something is damaged.

use std::{
    fs::{
        self,
        File, //
    },
    os::unix::fs::FileExt,
};

use rnbd_ec_tool::{
    checksum::Crc,
    words::Words, //
};
use seglog::{
    batch::{
        Head,
        HEAD_BYTES, //
    },
    members::{
        member_of,
        MEMBERS,
        PARITY, //
    },
    table::{
        write_page,
        Table, //
    },
    ArrayTag, //
};
use serde_json::Value;

use crate::{
    image::{
        flip,
        Folder,
        Image, //
    },
    json,
    says, //
};

const TAG: ArrayTag = ArrayTag(0x5a << 32 | 7);

/// An array with a striped batch that a dump is behind, and a mirrored one.
fn array(folder: &Folder) -> (Image, Head, Head) {
    let mut image = Image::new(folder);
    let striped = image.write(8, 16);
    let mirrored = image.write(0, 1);
    image.dump();
    (image, striped, mirrored)
}

fn check(image: &Image, status: u8) -> Value {
    let [one, two, three] = &image.paths;
    json(&["check"], &[one, two, three], status)
}

/// Returns what is counted of a member.
fn counts(found: &Value, member: usize) -> [u64; 4] {
    let of = &found["members"][member];
    [
        "wrong_columns",
        "wrong_records",
        "wrong_pages",
        "log_columns",
    ]
    .map(|what| of[what].as_u64().unwrap())
}

#[test]
fn a_flipped_bit_of_data_or_parity_is_corrected_by_the_others() {
    for column in 0..=PARITY {
        let folder = Folder::new(&format!("flip-{column}"));
        let (image, head, _) = array(&folder);
        let member = member_of(head.place.segment, column);
        flip(
            &image.paths[member],
            image.at(&head) + HEAD_BYTES as u64 + 300,
        );
        let found = check(&image, 1);
        assert_eq!(found["verdict"], "degraded");
        let wrong_records = u64::from(column != PARITY);
        assert_eq!(counts(&found, member), [1, wrong_records, 0, 0], "{found}");
        for other in (0..MEMBERS).filter(|other| *other != member) {
            assert_eq!(counts(&found, other), [0, 0, 0, 0], "{found}");
        }
        assert_eq!(
            (&found["wrong_parity"], &found["wrong_rebuilds"]),
            (&0.into(), &0.into())
        );
        let note = found["notes"][0].as_str().unwrap();
        let expected = format!(
            "member {member}: byte {}: its column of batch",
            image.at(&head)
        );
        assert!(note.contains(&expected), "{note}");
        // Without another member it is lost.
        let others = image.paths.iter().enumerate();
        let others: Vec<_> = others
            .filter(|(n, _)| *n != (member + 1) % MEMBERS)
            .collect();
        let others = [others[0].1, others[1].1];
        let status = if column == PARITY { [1, 4] } else { [4, 4] };
        let found = crate::run(&["check", "-o", "json"], &others).0;
        assert!(status.contains(&found), "{found}");
    }
}

#[test]
fn a_record_of_which_both_ways_are_gone_is_lost() {
    let folder = Folder::new("lost");
    let (image, head, _) = array(&folder);
    let at = image.at(&head) + HEAD_BYTES as u64;
    // The first records of both data columns, which are on two members.
    for column in 0..PARITY {
        flip(
            &image.paths[member_of(head.place.segment, column)],
            at + 300,
        );
    }
    let found = check(&image, 4);
    assert_eq!(found["verdict"], "damaged");
    // Each column has two records of four blocks.
    assert_eq!(found["lost_blocks"], 8, "{found}");
    let [one, two, three] = &image.paths;
    let words: &[&str] = &[
        "lost: 8 blocks: 8 to 15\n",
        "damaged\n",
        "block 8: no member has",
    ];
    says(&["check"], &[one, two, three], (4, words));
    assert_eq!(found["lost"][0]["first"], 8);
    assert_eq!(found["lost"][0]["last"], 15);
}

#[test]
fn records_of_a_batch_without_a_head_are_read_and_told() {
    let folder = Folder::new("heads");
    let (image, head, mirrored) = array(&folder);
    for path in &image.paths {
        flip(path, image.at(&head) + 20);
    }
    let found = check(&image, 1);
    assert_eq!(
        (&found["live_blocks"], &found["headless_records"]),
        (&17.into(), &4.into())
    );
    let [one, two, three] = &image.paths;
    let words: &[&str] = &["records of batches without a head, which cannot be moved: 4\n"];
    says(&["check"], &[one, two, three], (1, words));
    for member in mirrored.used.iter() {
        flip(
            &image.paths[member],
            image.at(&mirrored) + HEAD_BYTES as u64 + 300,
        );
    }
    let found = check(&image, 4);
    assert_eq!(found["lost_blocks"], 1, "{found}");
    assert_eq!(found["lost"][0]["first"], 0);
}

#[test]
fn parity_that_is_not_that_of_its_columns_is_found() {
    let folder = Folder::new("parity");
    let (image, mut head, _) = array(&folder);
    let member = member_of(head.place.segment, PARITY);
    let bytes = head.column_bytes(&image.layout);
    let (mut column, at) = (vec![0; bytes], image.at(&head));
    let file = File::options()
        .read(true)
        .write(true)
        .open(&image.paths[member])
        .unwrap();
    file.read_exact_at(&mut column, at).unwrap();
    column[HEAD_BYTES + 300] ^= 1;
    // Each column has a head that says that this is its parity.
    head.bodies[PARITY] = crc32c::crc32c(&column[HEAD_BYTES..]);
    file.write_all_at(&column, at).unwrap();
    let (bytes, _) = head.bytes(TAG, &Crc);
    for path in &image.paths {
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(&bytes, at).unwrap();
    }
    let found = check(&image, 1);
    assert_eq!(found["wrong_parity"], 1, "{found}");
    assert_eq!(found["wrong_rebuilds"], 2, "{found}");
    let [one, two, three] = &image.paths;
    says(
        &["check"],
        &[one, two, three],
        (1, &["its parity is not theirs"]),
    );
}

#[test]
fn a_page_of_the_table_is_on_two_members() {
    let folder = Folder::new("pages");
    let (image, ..) = array(&folder);
    let at = image.layout.page(1, 0) + 100;
    flip(&image.paths[1], at);
    let found = check(&image, 1);
    assert_eq!(counts(&found, 1), [0, 0, 1, 0]);
    assert_eq!(counts(&found, 0), [0, 0, 0, 0]);
    let [one, two, three] = &image.paths;
    says(
        &["check"],
        &[one, two, three],
        (1, &["1 damaged page of the table"]),
    );
    flip(&image.paths[0], at);
    let words: &[&str] = &[
        "cannot be assembled: page 0 of the table",
        "lost: ",
        "0 to ",
    ];
    says(&["check"], &[one, two, three], (4, words));
    let found = check(&image, 4);
    assert_eq!(found["lost_blocks"], found["blocks"]);
}

#[test]
fn a_slot_of_a_superblock_is_one_of_two() {
    let folder = Folder::new("slots");
    let (image, ..) = array(&folder);
    let [one, two, three] = &image.paths;
    for slot in 0..2u8 {
        flip(two, u64::from(slot) * 4096 + 0x18);
        let found = check(&image, 1);
        let slots: Vec<u8> = (0..=slot).collect();
        if slot == 0 {
            assert_eq!(
                found["members"][1]["damaged_slots"],
                Value::from(slots),
                "{found}"
            );
            assert_eq!(found["members"][1]["state"], "in_sync");
            says(
                &["check"],
                &[one, two, three],
                (1, &["slot 0 of its superblock"]),
            );
            continue;
        }
        // Two are there: it can only be the third.
        assert_eq!(found["members"][1]["state"], "unusable", "{found}");
        assert_eq!(found["members"][1]["why"], "its superblock is damaged");
        assert_eq!(found["members"][1]["device"], two.to_str().unwrap());
        says(
            &["check"],
            &[one, two],
            (8, &["add the member that is missing"]),
        );
    }
    for path in [one, three] {
        flip(path, 0x18);
        flip(path, 4096 + 0x18);
    }
    let words: &[&str] = &[
        "array: unknown",
        "no device has a superblock that can be used",
    ];
    says(&["check"], &[one, two, three], (4, words));
}

#[test]
fn a_member_that_was_cut_counts_as_missing() {
    let folder = Folder::new("cut");
    let (image, ..) = array(&folder);
    let [one, two, three] = &image.paths;
    let file = File::options().write(true).open(three).unwrap();
    file.set_len(5 << 20).unwrap();
    let found = check(&image, 1);
    assert_eq!(found["members"][2]["state"], "unusable");
    says(&["check"], &[one, two, three], (1, &["it was truncated"]));
    says(
        &["check"],
        &[one, three],
        (8, &["fewer than 2 are in sync"]),
    );
}

#[test]
fn what_is_not_one_array_is_refused() {
    let folder = Folder::new("refused");
    let (image, ..) = array(&folder);
    let other = Image::of(&folder, "other", [0x77; 16]);
    let [one, two, three] = &image.paths;
    says(
        &["check"],
        &[one, &other.paths[1], three],
        (8, &["is of another array than"]),
    );
    let copy = folder.path("copy");
    fs::copy(one, &copy).unwrap();
    says(&["check"], &[one, two, &copy], (8, &["are both member 0"]));
    let link = folder.path("link");
    std::os::unix::fs::symlink(one, &link).unwrap();
    says(&["check"], &[one, &link], (8, &["are the same"]));
    let empty = folder.path("empty");
    File::create(&empty).unwrap().set_len(10 << 20).unwrap();
    says(
        &["check"],
        &[one, two, &empty],
        (8, &["it is no member of an array: leave it out"]),
    );
    says(
        &["check"],
        &[one, two, &folder.path("none")],
        (8, &["No such file"]),
    );
    let null = std::path::PathBuf::from("/dev/null");
    says(
        &["check"],
        &[one, &null],
        (8, &["neither a block device nor a file"]),
    );
}

#[test]
fn a_log_that_is_damaged_in_the_middle_is_not_cut_short() {
    let folder = Folder::new("middle");
    let mut image = Image::new(&folder);
    let head = image.write(8, 16);
    image.flush();
    image.write(32, 16);
    let at = image.at(&head);
    flip(&image.paths[0], at);
    flip(&image.paths[1], at);
    let [one, two, three] = &image.paths;
    let words: &[&str] = &["cannot be assembled: the log is damaged", "lost: "];
    says(&["check"], &[one, two, three], (4, words));
}

#[test]
fn an_entry_that_makes_no_sense_is_a_lost_block() {
    let folder = Folder::new("entry");
    let (image, ..) = array(&folder);
    // As a writer that is wrong would have it.
    let mut words = Words::new(&image.layout).unwrap();
    words.set(5, u64::MAX);
    let mut page = [0; 4096];
    let with = (&image.layout, TAG);
    write_page(&mut page, (0, 1), &words, with, &Crc);
    for path in &image.paths[..2] {
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(&page, image.layout.page(1, 0)).unwrap();
    }
    let found = check(&image, 4);
    assert_eq!(
        (&found["lost_blocks"], &found["lost"][0]["first"]),
        (&1.into(), &5.into())
    );
    let [one, two, three] = &image.paths;
    let words: &[&str] = &["block 5: its entry in the table makes no sense"];
    says(&["check"], &[one, two, three], (4, words));
}
