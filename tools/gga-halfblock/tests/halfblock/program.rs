// SPDX-License-Identifier: GPL-2.0

//! The program as its users call it: what it prints, its exit status, and what is in the files.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::noise;

/// A folder that is removed.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Folder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("gga_halfblock-{}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Members that have zeroes only.
    fn raw(&self, bytes: usize) {
        for name in ["d1", "d2", "dp"] {
            fs::write(self.path(name), vec![0; bytes]).unwrap();
        }
    }

    /// Calls the program with the three members; returns status, output and complaints.
    fn call(&self, arguments: &[&str]) -> (i32, Vec<u8>, String) {
        let (command, rest) = arguments.split_first().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_gga_halfblock"))
            .arg(command)
            .args(["--data-1", &self.path("d1"), "--data-2", &self.path("d2")])
            .args(["--data-p", &self.path("dp")])
            .args(rest)
            .output()
            .unwrap();
        let complaints = String::from_utf8(output.stderr).unwrap();
        (output.status.code().unwrap(), output.stdout, complaints)
    }

    fn json(&self, arguments: &[&str]) -> (i32, Value) {
        let (status, text, complaints) = self.call(&join(&[arguments, &["-o", "json"]]));
        let value = serde_json::from_slice(&text);
        (status, value.unwrap_or_else(|_| complaints.into()))
    }
}

fn join<'a>(parts: &[&[&'a str]]) -> Vec<&'a str> {
    parts.concat()
}

/// A line of a table.
fn row(name: &str, value: u32) -> String {
    format!("{name:<28} {value}\n")
}

fn plain() -> Vec<u8> {
    let line = |n: u32| format!("line {n} of what is stored in half blocks\n");
    let mut text: Vec<u8> = (0..900).flat_map(|n| line(n).into_bytes()).collect();
    text.truncate(30_000);
    text
}

#[test]
fn what_is_generated_is_read_also_without_a_half() {
    for matrix in ["vandermonde", "cauchy"] {
        let folder = Folder::new(&format!("generate-{matrix}"));
        let input = folder.path("input");
        fs::write(&input, plain()).unwrap();
        let of_matrix = ["--matrix-type", matrix];
        let generate = join(&[&["generate", "--original-input-data", &input], &of_matrix]);
        let (status, found) = folder.json(&generate);
        assert_eq!((status, &found["blocks"]), (0, &8.into()));
        let first = fs::read(folder.path("d1")).unwrap();
        assert_eq!(first.len(), 16 + 8 * 2048);
        assert_eq!(
            first[..16],
            [0xde, 0xad, 0xf0, 0x0d, 0x13, 0x37, 0xfa, 0xde, 0, 0, 8, 0, 0, 0, 0, 8]
        );
        // What is there is not overwritten.
        assert_eq!(folder.call(&generate).0, 2);
        assert_eq!(folder.call(&join(&[&generate, &["--force"]])).0, 0);

        let (status, found) = folder.json(&join(&[&["stats"], &of_matrix]));
        assert_eq!(
            (status, &found["good"], &found["stale_parity"]),
            (0, &8.into(), &0.into())
        );
        let run = [
            "run",
            "--execution-strategy",
            "read_only_data_validity_test",
            "--plain",
            &input,
            "--recover-every-n",
            "2",
        ];
        let (status, report) = folder.json(&join(&[&run, &of_matrix]));
        assert_eq!(status, 0, "{report}");
        let core = &report["cores"][0];
        assert_eq!(
            (&core["operations"], &core["recoveries"]),
            (&8.into(), &4.into())
        );

        let mut expected = plain();
        expected.resize(32 << 10, 0);
        for lost in ["d1", "d2"] {
            let aside = fs::read(folder.path(lost)).unwrap();
            fs::remove_file(folder.path(lost)).unwrap();
            assert_eq!(folder.call(&["read"]).0, 2);
            let lost_name = format!("data-{}", &lost[1..]);
            let read = join(&[&["read", "--lost", &lost_name], &of_matrix]);
            let (status, data, complaints) = folder.call(&read);
            assert_eq!((status, complaints.as_str()), (0, ""));
            assert_eq!(data, expected);
            fs::write(folder.path(lost), aside).unwrap();
        }
    }
}

#[test]
fn blocks_are_written_and_read_in_place() {
    let folder = Folder::new("write");
    folder.raw(16 * 256);
    let (from, to) = (folder.path("from"), folder.path("to"));
    fs::write(&from, &plain()[..1500]).unwrap();
    let size = ["--block-size", "512"];
    let write = ["write", "--first", "3", "--from", &from, size[0], size[1]];
    assert_eq!(folder.call(&write), (0, Vec::new(), String::new()));
    let read = [
        "read", "--first", "3", "--blocks", "3", "--to", &to, size[0], size[1],
    ];
    assert_eq!(folder.call(&read), (0, Vec::new(), String::new()));
    let mut expected = plain()[..1500].to_vec();
    expected.resize(1536, 0);
    assert_eq!(fs::read(&to).unwrap(), expected);
    let (status, found) = folder.json(&["stats", size[0], size[1]]);
    assert_eq!(status, 0);
    assert_eq!((&found["good"], &found["blank"]), (&3.into(), &13.into()));
    let (status, table, _) = folder.call(&["stats", size[0], size[1]]);
    assert_eq!(status, 0);
    assert!(String::from_utf8(table)
        .unwrap()
        .contains(&row("blank", 13)));

    // A byte of the parity is another: all reads are well, but the statistics say so.
    let mut parity = fs::read(folder.path("dp")).unwrap();
    parity[3 * 256 + 7] ^= 1;
    fs::write(folder.path("dp"), parity).unwrap();
    assert_eq!(folder.call(&read).0, 0);
    let (status, found) = folder.json(&["stats", size[0], size[1]]);
    assert_eq!((status, &found["listed"][0]["block"]), (1, &3.into()));
    assert_eq!(found["stale_parity"], 1);

    // What was never written, and what is behind the end.
    let (status, _, complaints) = folder.call(&["read", size[0], size[1]]);
    assert_eq!(status, 1);
    assert!(complaints.contains("block 0: the length of its data is 0: it was never written"));
    for range in [
        ["--first", "17"],
        ["--first", "16"],
        ["--first", "18446744073709551615"],
    ] {
        let read = join(&[&["read", "--blocks", "1"], &size, &range]);
        let (status, _, complaints) = folder.call(&read);
        assert_eq!(
            (status, complaints.as_str()),
            (2, "gga_halfblock: there are 16 blocks only\n")
        );
    }
}

#[test]
fn what_cannot_be_compressed_is_not_stored() {
    let folder = Folder::new("incompressible");
    let input = folder.path("input");
    let mut data = plain()[..8192].to_vec();
    data[4096..].copy_from_slice(&noise(5, 4096));
    fs::write(&input, &data).unwrap();
    let (status, _, complaints) = folder.call(&["generate", "--original-input-data", &input]);
    assert_eq!(status, 2);
    assert!(complaints.starts_with("gga_halfblock: block 1: the size of its stream is 4100"));
    assert!(!fs::exists(folder.path("d1")).unwrap());

    folder.raw(4 * 2048);
    let (status, _, complaints) = folder.call(&["write", "--from", &input]);
    assert_eq!(status, 1);
    assert!(
        complaints.contains("block 1: the size of its stream is 4100"),
        "{complaints}"
    );
    let (_, found) = folder.json(&["stats"]);
    assert_eq!((&found["good"], &found["blank"]), (&1.into(), &3.into()));
}

#[test]
fn a_run_tests_and_shows_statistics() {
    let folder = Folder::new("run");
    folder.raw(50 * 2048);
    let run = [
        "run",
        "--blocks-per-io",
        "4",
        "--cpu",
        "0",
        "--cpu",
        "0",
        "--execution-strategy",
    ];
    let with = |more: &[&'static str]| join(&[&run, more]);
    let (status, report) = folder.json(&with(&["read_write_data_validity_test"]));
    assert_eq!(status, 0, "{report}");
    assert_eq!(
        (&report["total_bytes"], &report["block_bytes"]),
        (&(50 * 4096).into(), &4096.into())
    );
    assert_eq!(report["cores"][1]["operations"], 14);
    assert_eq!(report["initiator"]["operations"], 28);
    let count = ["--run-limit-operation-count", "20"];
    for strategy in ["read_throughput_test", "write_throughput_test"] {
        let (status, report) = folder.json(&join(&[&with(&[strategy]), &count]));
        assert_eq!(
            (status, &report["initiator"]["operations"]),
            (0, &40.into())
        );
    }
    let (status, table, _) = folder.call(&join(&[&with(&["read_throughput_test"]), &count]));
    assert_eq!(status, 0);
    let table = String::from_utf8(table).unwrap();
    assert!(table.contains(&row("cores.1.operations", 20)), "{table}");

    // Processors and members that are not there, members that differ, missing arguments.
    assert_eq!(
        folder
            .json(&with(&["read_throughput_test", "--cpu", "1023"]))
            .0,
        1
    );
    assert_eq!(folder.json(&with(&["read_only_data_validity_test"])).0, 2);
    assert_eq!(
        folder
            .json(&with(&["read_throughput_test", "--block-size", "100"]))
            .0,
        2
    );
    fs::write(folder.path("dp"), vec![0; 49 * 2048]).unwrap();
    let (status, complaint) = folder.json(&with(&["read_throughput_test"]));
    assert_eq!(status, 2);
    assert!(
        complaint.as_str().unwrap().contains("the targets differ"),
        "{complaint}"
    );
    assert_eq!(folder.json(&["stats"]).0, 2);
    fs::remove_file(folder.path("dp")).unwrap();
    std::os::unix::fs::symlink(folder.path("d1"), folder.path("dp")).unwrap();
    let (status, complaint) = folder.json(&["stats"]);
    assert_eq!(status, 2);
    let same = "gga_halfblock: two of the members are the same\n";
    assert_eq!(complaint, same);
    fs::remove_file(folder.path("dp")).unwrap();
    fs::write(folder.path("dp"), b"short").unwrap();
    assert_eq!(folder.json(&["stats"]).0, 2);
}
