// SPDX-License-Identifier: GPL-2.0

//! Tests of the program as its users call it: what it prints, and its exit status.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    env,
    fs,
    path::PathBuf,
    process::Command, //
};

use chunk4k::{
    extended,
    strict,
    Chunk,
    CHUNK_LEN,
    RESERVED_LEN, //
};
use chunk4kfsck::checksums::Fast;
use serde_json::{
    json,
    Value, //
};

/// A file that is removed.
struct Medium(PathBuf);

impl Medium {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = env::temp_dir().join(format!("chunk4kfsck-{}-{name}", std::process::id()));
        fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for Medium {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Calls the program; returns its exit status and what it prints.
fn call(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_chunk4kfsck"))
        .args(arguments)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8(text).unwrap(),
    )
}

fn fsck(medium: &Medium, arguments: &[&str]) -> (i32, String) {
    call(&[&[medium.0.to_str().unwrap()], arguments].concat())
}

fn chunk(id: u64, reserved: u8) -> Chunk {
    let mut chunk = [id as u8; CHUNK_LEN];
    strict::encode::<Fast>(
        &mut chunk,
        &strict::Metadata::new(id, [reserved; RESERVED_LEN]),
    );
    chunk
}

fn chunks(count: u64) -> Vec<u8> {
    (0..count).flat_map(|id| chunk(id, 0)).collect()
}

fn object(id: u64, object: u128, generation: u64) -> Chunk {
    let mut chunk = [7; CHUNK_LEN];
    let metadata = extended::Metadata {
        id,
        object,
        generation,
        data_len_bytes: 4048,
        ..Default::default()
    };
    extended::encode::<Fast>(&mut chunk, &metadata).unwrap();
    chunk
}

#[test]
fn a_clean_medium() {
    let medium = Medium::new("clean", &chunks(600));
    let (status, text) = fsck(&medium, &[]);
    let path = medium.0.display();
    assert_eq!(
        text,
        format!("{path}: 600 chunks: 600 good, 0 never written, 0 bad\n")
    );
    assert_eq!(status, 0);
    let (status, text) = fsck(&medium, &["-o", "json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    let expected = json!({
        "path": medium.0.to_str(), "clean": true, "chunks": 600, "good": 600, "blank": 0, "bad": 0,
        "rest_bytes": 0, "listed": [],
    });
    assert_eq!((status, report), (0, expected));
}

#[test]
fn each_bad_chunk_is_named_and_the_others_are_good() {
    let mut bytes = chunks(300);
    bytes[5 * CHUNK_LEN + 100] ^= 1;
    // Behind the first batch.
    bytes[299 * CHUNK_LEN + 4095] ^= 0x80;
    // The fifth where the eighth belongs, whole.
    let misplaced = chunk(4, 0);
    bytes[7 * CHUNK_LEN..8 * CHUNK_LEN].copy_from_slice(&misplaced);
    let medium = Medium::new("bad", &bytes);
    let (status, text) = fsck(&medium, &[]);
    assert_eq!(status, 4);
    let rows: Vec<_> = text
        .lines()
        .map(|row| row.split_whitespace().collect())
        .collect::<Vec<Vec<_>>>();
    assert_eq!(rows[0], ["CHUNK", "OFFSET", "DEFECT", "WHY"]);
    assert_eq!(rows[1][..3], ["5", "20480", "crc"]);
    assert_eq!(
        rows[2],
        ["7", "28672", "id", "it", "is", "chunk", "4,", "and", "not", "7"]
    );
    assert_eq!(rows[3][..3], ["299", "1224704", "crc"]);
    assert!(
        rows[4].ends_with(&["297", "good,", "0", "never", "written,", "3", "bad"]),
        "{text}"
    );
    assert_eq!(rows.len(), 5);

    let (status, text) = fsck(&medium, &["--output=json", "--list", "1"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (status, &report["bad"], &report["clean"]),
        (4, &json!(3), &json!(false))
    );
    assert_eq!(report["listed"].as_array().unwrap().len(), 1);
    assert_eq!(report["listed"][0]["chunk"], 5);
    assert_eq!(report["listed"][0]["offset"], 20480);
    assert_eq!(report["listed"][0]["defect"], "crc");
    let (_, text) = fsck(&medium, &["--list", "1"]);
    assert!(text.contains("\n... and 2 more\n"), "{text}");
}

#[test]
fn chunks_that_were_never_written() {
    let mut bytes = chunks(3);
    bytes.extend([0; 2 * CHUNK_LEN]);
    let medium = Medium::new("blank", &bytes);
    let (status, text) = fsck(&medium, &[]);
    assert!(
        text.ends_with("5 chunks: 3 good, 2 never written, 0 bad\n"),
        "{text}"
    );
    assert_eq!(status, 0);
    let (status, text) = fsck(&medium, &["--all-written"]);
    assert!(
        text.ends_with("5 chunks: 3 good, 0 never written, 2 bad\n"),
        "{text}"
    );
    assert_eq!(status, 4);
}

#[test]
fn a_medium_that_was_cut() {
    let medium = Medium::new("cut", &chunks(2)[..CHUNK_LEN + 7]);
    let (status, text) = fsck(&medium, &[]);
    assert!(text.starts_with("7 bytes behind the last chunk"), "{text}");
    assert_eq!(status, 4);
    let (status, text) = fsck(&Medium::new("empty", b""), &[]);
    assert!(
        text.ends_with("0 chunks: 0 good, 0 never written, 0 bad\n"),
        "{text}"
    );
    assert_eq!(status, 0);
}

#[test]
fn reserved_bytes_are_kept_unless_they_must_be_zero() {
    let bytes = [chunk(9, 0), chunk(10, 3)].concat();
    let medium = Medium::new("reserved", &bytes);
    assert_eq!(fsck(&medium, &["--first-id=9"]).0, 0);
    let (status, text) = fsck(&medium, &["--first-id=9", "--reserved-zero"]);
    assert!(
        text.contains("reserved    byte 4056 is 0x03, and not 0\n"),
        "{text}"
    );
    assert_eq!(status, 4);
    assert_eq!(fsck(&medium, &[]).0, 4, "the first chunk is 9, and not 0");
}

#[test]
fn extended_chunks() {
    let bytes = [
        object(0, 0xabc, 5),
        object(1, 0xabc, 6),
        object(2, 0xabd, 7),
    ]
    .concat();
    let medium = Medium::new("extended", &bytes);
    let extended = ["--layout", "extended"];
    assert_eq!(fsck(&medium, &extended).0, 0);
    let defects = |arguments: &[&str]| {
        let all = [&extended[..], &["-o", "json"], arguments].concat();
        let (status, text) = fsck(&medium, &all);
        let report: Value = serde_json::from_str(&text).unwrap();
        let rows = report["listed"].as_array().unwrap().clone();
        let found = rows
            .iter()
            .map(|row| (row["chunk"].clone(), row["defect"].clone()));
        (status, found.collect::<Vec<_>>())
    };
    let expected = (4, vec![(json!(2), json!("object"))]);
    assert_eq!(defects(&["--object", "0xabc"]), expected);
    let expected = (4, vec![(json!(0), json!("generation"))]);
    assert_eq!(defects(&["--generation-min", "6"]), expected);
    // A strict chunk is no extended one.
    let medium = Medium::new("strict", &chunk(0, 0));
    let (status, text) = fsck(&medium, &extended);
    assert!(text.contains("flags"), "{text}");
    assert_eq!(status, 4);
}

#[test]
fn what_cannot_be_read_and_what_is_not_asked_for() {
    let (status, text) = call(&["/nowhere/at/all"]);
    assert!(
        text.starts_with("chunk4kfsck: /nowhere/at/all: No such file"),
        "{text}"
    );
    assert_eq!(status, 8);
    assert_eq!(call(&["/"]).0, 8, "a folder");
    let wrong = [
        &[][..],
        &["/dev/null", "--no-such-option"],
        &["/dev/null", "--layout", "loose"],
        &["/dev/null", "--object", "1"],
        &["/dev/null", "--generation-min", "1"],
        &["/dev/null", "--layout", "extended", "--reserved-zero"],
        &["/dev/null", "--layout", "extended", "--object", "xyz"],
    ];
    for arguments in wrong {
        assert_eq!(call(arguments).0, 16, "{arguments:?}");
    }
    let (status, text) = call(&["--help"]);
    assert!(status == 0 && text.contains("Exit status:"), "{text}");
}
