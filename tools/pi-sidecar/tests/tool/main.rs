// SPDX-License-Identifier: GPL-2.0

//! The program on files: what is written, damaged, found and repaired.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod in_use;
mod manual;
mod manual_page;
mod repair;
mod zeroes;

use std::{
    fs, io,
    os::unix::fs::FileExt,
    path::{
        Path,
        PathBuf, //
    },
};

use clap::Parser;
use pi_sidecar::{
    checksum::Crc64Nvme,
    commands::{
        self,
        CommandLine, //
    },
    device::{
        Device,
        FileDevice, //
    },
    session::Session, //
};
use proto::sidecar::{
    record::Unit,
    Block, //
};

/// The device's blocks: two groups of data.
const BLOCKS: u64 = 256 + 2 * 257 + 1;
/// The places of data block 0 and of its tuple.
const DATA: u64 = 256;
const PI_BLOCKS: u64 = 256 + 512;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pi-sidecar-{}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn device(&self, name: &str, blocks: u64) -> PathBuf {
        let path = self.file(name);
        fs::File::create(&path)
            .unwrap()
            .set_len(blocks * 4096)
            .unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the program; returns whether all was good, and its lines.
fn run(words: &[&str], paths: &[&Path]) -> (bool, String) {
    let paths = paths.iter().map(|path| path.to_str().unwrap());
    let line = ["pi-sidecar"]
        .into_iter()
        .chain(words.iter().copied())
        .chain(paths);
    let mut out = Vec::new();
    match commands::run(&CommandLine::parse_from(line), &mut out) {
        Ok(is_good) => (is_good, String::from_utf8(out).unwrap()),
        Err(why) => (false, format!("{why:#}")),
    }
}

fn done(words: &[&str], paths: &[&Path]) -> String {
    let (is_good, lines) = run(words, paths);
    assert!(is_good, "{words:?}: {lines}");
    lines
}

fn refused(words: &[&str], paths: &[&Path], why: &str) {
    let (is_good, lines) = run(words, paths);
    assert!(!is_good && lines.contains(why), "{words:?}: {lines}");
}

fn flip(path: &Path, offset: u64) {
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    byte[0] ^= 0x10;
    file.write_all_at(&byte, offset).unwrap();
}

/// Copies blocks of one device to another.
fn copy(from: &Path, at: u64, to: &Path, to_at: u64) {
    let mut block = [0; 4096];
    let file = fs::File::open(from).unwrap();
    file.read_exact_at(&mut block, at * 4096).unwrap();
    let file = fs::File::options().write(true).open(to).unwrap();
    file.write_all_at(&block, to_at * 4096).unwrap();
}

fn image(folder: &Folder, blocks: usize) -> PathBuf {
    let path = folder.file("image");
    let bytes: Vec<u8> = (0..blocks * 4096)
        .map(|at| (at / 7 + at / 4096) as u8)
        .collect();
    fs::write(&path, bytes).unwrap();
    path
}

/// A device with the same content in 300 blocks.
fn filled(folder: &Folder, name: &str) -> PathBuf {
    let device = folder.device(name, BLOCKS);
    let image = image(folder, 300);
    done(&["format"], &[&device]);
    done(&["import"], &[&device, &image]);
    device
}

#[test]
fn udev_is_told_of_a_sidecar() {
    let folder = Folder::new("probe");
    let device = folder.device("device", BLOCKS);
    refused(&["probe"], &[&device], "device: ");
    let lines = done(&["format"], &[&device]);
    let uuid = lines.lines().find_map(|line| line.strip_prefix("uuid: "));
    let properties = "ID_FS_USAGE=raid\nID_FS_TYPE=pi_sidecar\nID_PI_SIDECAR_UUID=";
    assert_eq!(
        done(&["probe"], &[&device]),
        format!("{properties}{}\n", uuid.unwrap())
    );
}

#[test]
fn what_is_imported_is_exported() {
    let folder = Folder::new("export");
    let device = filled(&folder, "device");
    let lines = done(&["scrub"], &[&device]);
    assert!(
        lines.contains("300 good, 212 never written, 0 bad"),
        "{lines}"
    );
    let out = folder.file("out");
    done(&["export", "--blocks", "300"], &[&device, &out]);
    assert_eq!(
        fs::read(&out).unwrap(),
        fs::read(folder.file("image")).unwrap()
    );
    // The data are there as they are.
    let raw = fs::read(&device).unwrap();
    let data = raw.get(DATA as usize * 4096..).unwrap();
    assert!(data.starts_with(&fs::read(&out).unwrap()));
}

#[test]
fn a_flipped_bit_is_found_and_its_neighbours_are_good() {
    for (name, offset) in [
        ("data", DATA * 4096 + 4096 * 7 + 99),
        ("tuple", PI_BLOCKS * 4096 + 7 * 16),
    ] {
        let folder = Folder::new(name);
        let device = filled(&folder, "device");
        flip(&device, offset);
        let (is_good, lines) = run(&["scrub"], &[&device]);
        assert!(
            !is_good && lines.contains("data block 7: its data do not fit"),
            "{lines}"
        );
        assert!(lines.contains("299 good"), "{lines}");
        let out = folder.file("out");
        refused(&["export"], &[&device, &out], "data block 7");
        done(
            &["export", "--first", "8", "--blocks", "292"],
            &[&device, &out],
        );
        // A write makes the block good again.
        let image = folder.file("image");
        done(
            &["import", "--first", "7", "--blocks", "1"],
            &[&device, &image],
        );
        done(&["scrub"], &[&device]);
    }
}

#[test]
fn blocks_of_another_place_or_device_are_found() {
    let folder = Folder::new("swapped");
    let (one, two) = (filled(&folder, "one"), filled(&folder, "two"));
    // A block of the same device, without its tuple.
    copy(&one, DATA + 3, &one, DATA + 4);
    refused(&["scrub"], &[&one], "data block 4: its data do not fit");
    // The same blocks with all their tuples, of a device with the same content.
    copy(&two, DATA + 4, &one, DATA + 4);
    copy(&two, PI_BLOCKS, &one, PI_BLOCKS);
    let (_, lines) = run(&["scrub"], &[&one]);
    assert!(lines.contains("256 foreign"), "{lines}");
    assert!(lines.contains("44 good"), "{lines}");
}

#[test]
fn lost_writes_and_torn_blocks_are_found() {
    let folder = Folder::new("lost");
    let device = filled(&folder, "device");
    let before = folder.file("before");
    fs::copy(&device, &before).unwrap();
    let image = folder.file("image");
    done(
        &["import", "--first", "20", "--blocks", "9"],
        &[&device, &image],
    );
    // The data of block 20 were not written, half of those of 21.
    copy(&before, DATA + 20, &device, DATA + 20);
    let mut half = [0; 2048];
    fs::File::open(&before)
        .unwrap()
        .read_exact_at(&mut half, (DATA + 21) * 4096)
        .unwrap();
    let file = fs::File::options().write(true).open(&device).unwrap();
    file.write_all_at(&half, (DATA + 21) * 4096).unwrap();
    let (_, lines) = run(&["scrub"], &[&device]);
    assert!(
        lines.contains("data block 20: its data do not fit"),
        "{lines}"
    );
    assert!(
        lines.contains("data block 21: its data do not fit"),
        "{lines}"
    );
    assert!(lines.contains("298 good"), "{lines}");
    // What no tuple can tell: data and tuples are all as they were before.
    copy(&before, DATA + 21, &device, DATA + 21);
    for block in 22..29 {
        copy(&before, DATA + block, &device, DATA + block);
    }
    copy(&before, PI_BLOCKS, &device, PI_BLOCKS);
    done(&["scrub"], &[&device]);
}

#[test]
fn devices_that_hold_something_else_are_refused() {
    let folder = Folder::new("refused");
    let device = folder.device("device", BLOCKS);
    refused(&["scrub"], &[&device], "`pi-sidecar format` makes one");
    flip(&device, 1080);
    refused(&["format"], &[&device], "--force");
    done(&["format", "--force"], &[&device]);
    let small = folder.device("small", 100);
    refused(&["format"], &[&small], "no room");
    refused(
        &["format", "--journal-slots", "3"],
        &[&folder.device("b", BLOCKS)],
        "slots",
    );
    // Another program has taken the device over: the copy alone does not count.
    fs::File::options()
        .write(true)
        .open(&device)
        .unwrap()
        .write_all_at(&[1; 4096], 0)
        .unwrap();
    refused(&["scrub"], &[&device], "no sidecar");
    // Truncated, and moved.
    let device = filled(&folder, "other");
    let shifted = folder.device("shifted", BLOCKS + 1);
    copy(&device, BLOCKS - 1, &shifted, 0);
    refused(&["info"], &[&shifted], "written to block");
    fs::File::options()
        .write(true)
        .open(&device)
        .unwrap()
        .set_len(700 * 4096)
        .unwrap();
    refused(&["info"], &[&device], "truncated");
}

#[test]
fn fsck_repairs_a_superblock_and_a_journal() {
    let folder = Folder::new("repair");
    let device = filled(&folder, "device");
    flip(&device, 100);
    refused(&["fsck"], &[&device], "superblock is damaged");
    let lines = done(&["fsck", "--repair"], &[&device]);
    assert!(lines.contains("written anew from its copy"), "{lines}");
    flip(&device, (BLOCKS - 1) * 4096 + 100);
    let lines = done(&["fsck"], &[&device]);
    assert!(lines.contains("copy of the superblock: damaged"), "{lines}");
    let lines = done(&["fsck"], &[&device]);
    assert!(!lines.contains("copy"), "{lines}");
    // All records of the journal.
    wipe(&device, 1, 255);
    refused(&["scrub"], &[&device], "no record");
    done(&["fsck", "--repair"], &[&device]);
    let lines = done(&["scrub"], &[&device]);
    assert!(lines.contains("300 good"), "{lines}");
}

/// Overwrites blocks with zeroes.
fn wipe(device: &Path, first: u64, blocks: usize) {
    let file = fs::File::options().write(true).open(device).unwrap();
    file.write_all_at(&vec![0; blocks * 4096], first * 4096)
        .unwrap();
}

/// The copy of its superblock may remain behind the end of the new one, and must fit nothing.
#[test]
fn no_record_of_an_older_sidecar_remains() {
    let folder = Folder::new("older");
    let device = folder.device("device", 2000);
    done(&["format", "--journal-slots", "1023"], &[&device]);
    let record = fs::read(&device).unwrap();
    let record = record.get(2 * 4096..3 * 4096).unwrap();
    let file = fs::File::options().write(true).open(&device).unwrap();
    for slot in 1..1024 {
        file.write_all_at(record, slot * 4096).unwrap();
    }
    file.set_len(BLOCKS * 4096).unwrap();
    done(&["format", "--force"], &[&device]);
    let bytes = fs::read(&device).unwrap();
    let records = bytes.chunks(4096).filter(|at| at.starts_with(b"pjournal"));
    assert_eq!(records.count(), 1);
}

#[test]
fn a_device_grows() {
    let folder = Folder::new("grow");
    let device = filled(&folder, "device");
    refused(&["grow"], &[&device], "enlarge the device first");
    let file = fs::File::options().write(true).open(&device).unwrap();
    file.set_len((BLOCKS + 100) * 4096).unwrap();
    refused(&["grow"], &[&device], "needs 1282");
    file.set_len((BLOCKS + 800) * 4096).unwrap();
    // Until it has grown the copy of the superblock is not in the last block. Behind it are those
    // of other devices, one in the last block, which do not fit the journal.
    for blocks in [BLOCKS + 700, BLOCKS + 800] {
        let other = folder.device("other", blocks);
        done(&["format", "--force"], &[&other]);
        copy(&other, blocks - 1, &device, blocks - 1);
    }
    flip(&device, (BLOCKS - 1) * 4096 + 100);
    flip(&device, 100);
    refused(
        &["fsck", "--repair"],
        &[&device],
        "no copy of its superblock fits its journal",
    );
    flip(&device, (BLOCKS - 1) * 4096 + 100);
    let lines = done(&["fsck", "--repair"], &[&device]);
    assert!(lines.contains("written anew from its copy"), "{lines}");
    let lines = done(&["scrub"], &[&device]);
    assert!(lines.contains("300 good"), "{lines}");
    let lines = done(&["grow"], &[&device]);
    assert!(lines.contains("data blocks: 1024"), "{lines}");
    flip(&device, 100);
    let lines = done(&["fsck", "--repair"], &[&device]);
    assert!(lines.contains("written anew from its copy"), "{lines}");
    let image = folder.file("image");
    // Over the border of the segments.
    done(
        &["import", "--first", "500", "--blocks", "100"],
        &[&device, &image],
    );
    let lines = done(&["scrub"], &[&device]);
    assert!(
        lines.contains("400 good, 624 never written, 0 bad"),
        "{lines}"
    );
    let out = folder.file("out");
    done(
        &["export", "--first", "500", "--blocks", "100"],
        &[&device, &out],
    );
    let image = fs::read(&image).unwrap();
    assert!(image.starts_with(&fs::read(&out).unwrap()));
}

/// A file that is written by sectors, as the server writes to many devices.
struct Sectors(FileDevice);

impl Device for Sectors {
    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    fn unit(&self) -> Unit {
        Unit::SECTOR
    }

    fn read(&mut self, block: u64, to: &mut Block) -> io::Result<()> {
        self.0.read(block, to)
    }

    fn write(&mut self, block: u64, from: &[u8], fua: bool) -> io::Result<()> {
        self.0.write(block, from, fua)
    }

    fn zero(&mut self, _: u64, _: u64) -> io::Result<bool> {
        Ok(false)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the blocks from `first` on, so many at a time, and leaves the device as it is then.
fn write_and_crash(device: &Path, first: u64, counts: &[usize]) {
    let device = Sectors(FileDevice::open(device, true).unwrap());
    let (mut session, _) = Session::open(device, Crc64Nvme).unwrap();
    let mut block = first;
    for count in counts {
        let mut data = vec![[block as u8 | 1; 4096]; *count];
        session.write(block, &mut data).unwrap();
        block += *count as u64;
    }
}

/// The sizes of the records in the journal; 0 is a whole block.
fn sizes(device: &Path) -> Vec<u16> {
    let bytes = fs::read(device).unwrap();
    let slots = bytes.chunks(4096).skip(1).take(255);
    let records = slots.filter(|slot| slot.starts_with(b"pjournal"));
    let size = |slot: &[u8]| slot.get(34..36).unwrap().try_into().unwrap();
    let mut sizes: Vec<u16> = records.map(|slot| u16::from_le_bytes(size(slot))).collect();
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[test]
fn both_versions_are_used() {
    let folder = Folder::new("versions");
    let device = folder.device("device", BLOCKS);
    let lines = done(&["format", "--format-version", "1"], &[&device]);
    assert!(lines.contains("version: 1"), "{lines}");
    write_and_crash(&device, 0, &[1, 2, 30]);
    assert_eq!(sizes(&device), [0]);
    // Records that are not replayed yet are read in the other version.
    let lines = done(&["upgrade"], &[&device]);
    assert!(lines.contains("version: 2"), "{lines}");
    let lines = done(&["fsck"], &[&device]);
    assert!(lines.contains("33 blocks have their last write"), "{lines}");
    assert!(!lines.contains("copy"), "{lines}");
    write_and_crash(&device, 50, &[1, 11, 12, 100, 1, 1]);
    assert_eq!(sizes(&device), [0, 512, 1024]);
    let lines = done(&["fsck"], &[&device]);
    assert!(
        lines.contains("126 blocks have their last write"),
        "{lines}"
    );
    let lines = done(&["scrub"], &[&device]);
    assert!(lines.contains("159 good"), "{lines}");
    // There is no version 3.
    let file = fs::File::options().write(true).open(&device).unwrap();
    file.write_all_at(&[3], 8).unwrap();
    refused(&["info"], &[&device], "its sidecar has version 3");
    refused(&["fsck", "--repair"], &[&device], "version 3");
}

#[test]
fn a_large_device_has_a_long_journal() {
    let folder = Folder::new("long");
    let blocks = 256 * 256;
    for (blocks, slots, start) in [(blocks - 1, 255, 256), (blocks, 1023, 1024)] {
        let device = folder.device("device", blocks);
        let lines = done(&["format"], &[&device]);
        assert!(
            lines.contains(&format!("journal slots: {slots}\n")),
            "{lines}"
        );
        assert!(lines.contains(&format!("from block {start} on")), "{lines}");
        fs::remove_file(&device).unwrap();
    }
}
