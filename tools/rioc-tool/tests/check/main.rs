// SPDX-License-Identifier: GPL-2.0

//! Logs that stores have written, as the model of rioc carries them out, and what a check says of
//! them: whole, with bytes that are others, and of anything.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a test fails by panicking"
)]
#![allow(dead_code, reason = "the model's parts are for its own tests, too")]

// An inline module with a path names a folder, in which the model's parts find theirs.
#[path = "../../../rioc/tests/model"]
mod model {
    pub(crate) mod assembly;
    pub(crate) mod disk;
    #[path = "../common/random.rs"]
    pub(crate) mod random;
    pub(crate) mod requests;
    pub(crate) mod rig;
    pub(crate) mod store;
    pub(crate) mod world;
}

use std::{
    collections::BTreeMap,
    io,
    path::Path, //
};

use rioc::proto::{
    entry::ENTRY_BYTES,
    log::Logged,
    span::BLOCK_BYTES, //
};
use rioc_tool::{
    check::{
        check,
        index,
        Lost,
        Report,
        Verdict, //
    },
    object::Object,
};
use rnbd_ec_tool::media::{
    Medium,
    ReadAt, //
};
use seglog::{
    devices::Devices,
    layout::Layout, //
};

// The model names its parts from the root.
use self::model::*;
use self::{
    random::Random,
    requests::Ask,
    rig::{
        Fault,
        Rig, //
    },
    world::id,
};

/// A log in memory.
#[derive(Debug)]
struct Image(Vec<u8>);

impl ReadAt for Image {
    fn read(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        let end = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let at = usize::try_from(at).map_err(|_| end())?;
        let from = at.checked_add(to.len()).and_then(|end| self.0.get(at..end));
        to.copy_from_slice(from.ok_or_else(end)?);
        Ok(())
    }
}

fn checked(image: &[u8]) -> anyhow::Result<Report> {
    let medium = Medium::new(
        Path::new("log"),
        Box::new(Image(image.to_vec())),
        image.len() as u64,
    );
    check(medium, |_, _| ())
}

type Logs = Rig<Logged<assembly::Heap>>;

/// A store that has lived for some operations, and is idle.
fn lived(seed: u64, operations: usize) -> Logs {
    let mut rig = Rig::on_log(140, seed, (true, Fault::None));
    for _ in 0..operations {
        let (object, other) = (rig.random.below(3) as u64, rig.random.below(3) as u64);
        let offset = rig.random.below(6) as u64 * BLOCK_BYTES;
        let ask = match rig.random.below(8) {
            0..5 => Ask::Write(
                object,
                offset,
                [4096, 1000, 12288][rig.random.below(3)],
                true,
            ),
            5 => Ask::Snapshot(object, other, false),
            6 => Ask::Copy(object, offset, 8192, other, offset, true),
            _ => Ask::Truncate(object, offset),
        };
        let request = rig.request(0, ask, 0);
        if rig.send(request).is_err() {
            continue;
        }
        rig.drain();
    }
    rig
}

fn image(rig: &Logs) -> Vec<u8> {
    let mut disk = rig.begun.disk.clone();
    disk.flush_cache();
    let mut bytes = vec![0; disk.bytes(0) as usize];
    disk.look(0, &mut bytes);
    bytes
}

/// Returns the places of the content of a block in an image.
fn places(image: &[u8], content: &[u8]) -> Vec<usize> {
    let found = image.windows(content.len()).enumerate();
    found
        .filter(|(_, bytes)| *bytes == content)
        .map(|(at, _)| at)
        .collect()
}

#[test]
fn a_log_that_is_whole_is_clean() {
    for seed in 0..40 {
        let rig = lived(seed, seed as usize * 2);
        let report = checked(&image(&rig)).unwrap();
        assert_eq!(report.verdict, Verdict::Clean, "{seed}: {report:?}");
        assert_eq!(report.objects, rig.objects.len() as u64);
        assert!(report.uuid.is_some() && report.lost.is_empty());
    }
}

/// Also one whose power has failed: what `add_store` follows is followed.
#[test]
fn a_log_after_a_crash_is_clean() {
    for seed in 0..40 {
        let mut rig = lived(seed, 30);
        for _ in 0..rig.random.below(4) {
            let object = rig.random.below(3) as u64;
            let request = rig.request(1, Ask::Write(object, 0, 12288, true), 0);
            let _ = rig.send(request);
            rig.step_some(true);
            rig.settle();
        }
        let mut random = Random::new(seed);
        rig.begun.disk.lose_power(&mut random);
        let report = checked(&image(&rig)).unwrap();
        assert_eq!(report.verdict, Verdict::Clean, "{seed}: {report:?}");
    }
}

/// Each object that has a damaged block loses these bytes, and no other one does.
#[test]
fn a_block_that_is_another_one_is_named_by_its_objects() {
    let (mut several, mut found) = (0, 0);
    for seed in 0..60 {
        let rig = lived(seed, 40);
        let whole = image(&rig);
        let batches = checked(&whole).unwrap().log_batches;
        let Some(content) = rig.objects.values().find_map(|bytes| bytes.get(..4096)) else {
            continue;
        };
        if content.iter().all(|byte| *byte == 0) {
            continue;
        }
        let mut damaged = whole.clone();
        for at in places(&whole, content) {
            damaged[at + 4095] ^= 1;
        }
        let report = checked(&damaged).unwrap();
        if let Some(fault) = &report.fault {
            // The log is still followed there: that its batch is missing is told.
            assert!(fault.contains("damaged"), "{fault}");
            continue;
        }
        if report.log_batches < batches {
            // Of the last batch: it counts as one that power has cut off.
            continue;
        }
        let mut wanted: BTreeMap<_, u64> = BTreeMap::new();
        for (object, bytes) in &rig.objects {
            let blocks = bytes.chunks(4096).enumerate();
            for (block, _) in blocks.filter(|(_, bytes)| *bytes == content) {
                wanted.insert((*object, block as u64 * BLOCK_BYTES), BLOCK_BYTES);
            }
        }
        let mut lost = BTreeMap::new();
        for Lost {
            object,
            offset,
            bytes,
        } in &report.lost
        {
            for block in 0..bytes.div_ceil(BLOCK_BYTES) {
                lost.insert((object.0, offset + block * BLOCK_BYTES), BLOCK_BYTES);
            }
        }
        assert_eq!(lost, wanted, "{seed}: {report:?}");
        assert_eq!(report.verdict, Verdict::Damaged);
        found += 1;
        several += usize::from(wanted.len() > 1);
    }
    assert!(found > 10 && several > 3, "{found} {several}");
}

#[test]
fn blocks_that_follow_each_other_are_one_range() {
    let mut rig = Rig::on_log(140, 1, (true, Fault::None));
    let request = rig.request(0, Ask::Write(7, 4096, 10_000, true), 0);
    rig.send(request).unwrap();
    rig.drain();
    // Behind what is followed, so that the blocks alone prove themselves.
    rig.crash();
    rig.drain();
    let mut damaged = image(&rig);
    let bytes = rig.objects[&id(7)].clone();
    for block in bytes[4096..].chunks(4096) {
        for at in places(&damaged.clone(), &block[..1000]) {
            damaged[at] ^= 0x80;
        }
    }
    let report = checked(&damaged).unwrap();
    if report.fault.is_none() {
        let lost = Lost {
            object: Object(id(7)),
            offset: 4096,
            bytes: 10_000,
        };
        assert_eq!(report.lost, [lost]);
    }
    assert_eq!(report.verdict, Verdict::Damaged);
}

#[test]
fn a_slot_of_the_superblock_that_is_damaged_is_told() {
    for seed in 0..20 {
        let rig = lived(seed, 30);
        let whole = image(&rig);
        let mut all = 0;
        for slot in [0u8, 1] {
            let mut damaged = whole.clone();
            let at = Layout::slot(slot) as usize;
            damaged[at + 40] ^= 4;
            let Ok(report) = checked(&damaged) else {
                panic!("{seed}: a damaged log is none");
            };
            // A log that was never dumped has one only.
            all += usize::from(report.damaged_slots == [slot]);
            assert_eq!(report.verdict, Verdict::Damaged);
        }
        assert_eq!(all, 2);
        let mut damaged = whole;
        for slot in [0, 1] {
            damaged[Layout::slot(slot) as usize + 40] ^= 4;
        }
        let report = checked(&damaged).unwrap();
        assert!(report.fault.is_some() && report.damaged_slots == [0, 1]);
    }
}

#[test]
fn what_is_no_log_is_refused() {
    for bytes in [0, 100, 4096, 1 << 20] {
        let error = checked(&vec![0; bytes]).unwrap_err().to_string();
        assert!(error.contains("no log of rioc"), "{error}");
    }
    // A log that was cut off is one.
    let mut cut = image(&lived(3, 20));
    cut.truncate(cut.len() / 2);
    let report = checked(&cut).unwrap();
    assert!(report.fault.unwrap().contains("truncated"));
}

/// A log of which any bytes are others, in any number: it is told or harmless, and the check ends.
#[test]
fn a_log_of_anything_is_checked() {
    let mut random = Random::new(99);
    let (mut damaged, mut clean) = (0, 0);
    let logs: Vec<_> = (0..6).map(|seed| image(&lived(seed, 30))).collect();
    for _ in 0..600 {
        let mut image = logs[random.below(logs.len())].clone();
        for _ in 0..1 << random.below(8) {
            let at = match random.below(3) {
                0 => random.below(16384),
                _ => random.below(image.len()),
            };
            let end = (at + (1 << random.below(12))).min(image.len());
            match random.below(3) {
                0 => image[at] ^= 1 << random.below(8),
                1 => image[at..end].fill(random.below(256) as u8),
                _ => {
                    let from = random.below(image.len() - (end - at));
                    image.copy_within(from..from + (end - at), at);
                }
            }
        }
        match checked(&image) {
            Ok(report) if report.verdict == Verdict::Clean => clean += 1,
            _ => damaged += 1,
        }
    }
    assert!(damaged > 100 && clean > 10, "{damaged} {clean}");
}

/// Entries whose page has the right CRC and that are anything: refused, or an index whose blocks
/// can be asked for.
#[test]
fn entries_of_anything_are_refused_or_are_an_index() {
    let mut random = Random::new(7);
    let (mut refused, mut whole) = (0, 0);
    let logs: Vec<_> = (0..6).map(|seed| lived(seed, 40)).collect();
    for _ in 0..3000 {
        let rig = &logs[random.below(logs.len())];
        let of = rig.store.index();
        let mut entries: Vec<_> = (0..of.slots().count()).map(|slot| of.entry(slot)).collect();
        for _ in 0..random.below(3) + 1 {
            let at = random.below(entries.len());
            match random.below(3) {
                0 => entries[at] = entries[random.below(entries.len())],
                1 => entries[at][random.below(ENTRY_BYTES)] = random.below(256) as u8,
                _ => entries[at][random.below(ENTRY_BYTES)] ^= 1 << random.below(8),
            }
        }
        let mut report = Report::default();
        match index(&entries, &mut report) {
            Some(_) => whole += 1,
            None => refused += usize::from(report.fault.is_some()),
        }
    }
    assert!(
        refused > 500 && whole > 100 && refused + whole == 3000,
        "{refused} {whole}"
    );
}
