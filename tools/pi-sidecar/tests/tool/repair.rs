// SPDX-License-Identifier: GPL-2.0

//! Repairs of what was overwritten, or cannot be read: it is written anew.

use std::{
    fs,
    io, //
};

use clap::Parser;
use pi_sidecar::{
    checksum::Crc64Nvme,
    commands::CommandLine,
    device::{
        Device,
        FileDevice, //
    },
    session::Session,
    volume::{
        Bad,
        NewTuples,
        OnDamage,
        Volume, //
    },
};
use proto::sidecar::{
    record::Unit,
    Block, //
};

use super::{
    copy,
    done,
    filled,
    image,
    refused,
    wipe,
    write_and_crash,
    Folder,
    BLOCKS,
    DATA,
    PI_BLOCKS, //
};

#[test]
fn a_device_is_repaired_whose_start_is_overwritten() {
    let folder = Folder::new("start");
    let device = filled(&folder, "device");
    wipe(&device, 0, 256);
    let lines = done(&["fsck", "--repair"], &[&device]);
    assert!(lines.contains("written anew from its copy"), "{lines}");
    let lines = done(&["scrub"], &[&device]);
    assert!(lines.contains("300 good"), "{lines}");
    // The device was enlarged, and the space that it has got has the copy of an older sidecar:
    // which of the two is right is not known without the journal.
    let large = folder.device("large", BLOCKS + 800);
    done(&["format"], &[&large]);
    let file = fs::File::options().write(true).open(&device).unwrap();
    file.set_len((BLOCKS + 800) * 4096).unwrap();
    copy(&large, BLOCKS + 799, &device, BLOCKS + 799);
    wipe(&device, 0, 256);
    refused(&["fsck", "--repair"], &[&device], "as small as it was");
    file.set_len(BLOCKS * 4096).unwrap();
    done(&["fsck", "--repair"], &[&device]);
    let lines = done(&["scrub"], &[&device]);
    assert!(lines.contains("300 good"), "{lines}");
}

/// A device some blocks of which cannot be read until they are written.
struct BadBlocks {
    device: FileDevice,
    bad: Vec<u64>,
}

impl Device for BadBlocks {
    fn blocks(&self) -> u64 {
        self.device.blocks()
    }

    fn unit(&self) -> Unit {
        self.device.unit()
    }

    fn read(&mut self, block: u64, to: &mut Block) -> io::Result<()> {
        if self.bad.contains(&block) {
            return Err(io::Error::other("a bad block"));
        }
        self.device.read(block, to)
    }

    fn write(&mut self, block: u64, from: &[u8], fua: bool) -> io::Result<()> {
        self.bad.retain(|bad| *bad != block);
        self.device.write(block, from, fua)
    }

    fn zero(&mut self, _: u64, _: u64) -> io::Result<bool> {
        Ok(false)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.device.flush()
    }
}

#[test]
fn a_block_of_tuples_that_cannot_be_read_is_written_anew() {
    for (tuples, good, lost) in [(NewTuples::Lost, 45, 256), (NewTuples::OfData, 300, 1)] {
        let folder = Folder::new(&format!("tuples-{tuples:?}"));
        let device = filled(&folder, "device");
        let mut device = BadBlocks {
            device: FileDevice::open(&device, true).unwrap(),
            bad: vec![PI_BLOCKS, DATA + 3],
        };
        let volume = Volume::load(&mut device, Crc64Nvme).unwrap();
        // The scrub names it, and goes on behind it.
        let mut bad = Vec::new();
        let found = volume.scrub(&mut device, |it| bad.push(it)).found;
        let pi_block = Bad::PiBlock {
            at: PI_BLOCKS,
            first: 0,
        };
        assert_eq!(bad, [pi_block]);
        assert_eq!((found.good, found.unreadable), (44, 256));
        // A write of one of its blocks fails, as a read does.
        let (mut session, _) = Session::open(&mut device, Crc64Nvme).unwrap();
        assert!(session.write(7, &mut [[1; 4096]]).is_err());
        assert!(session.read(7, &mut [[0; 4096]]).is_err());
        assert!(session.write(300, &mut [[1; 4096]]).is_ok());
        session.close().unwrap();
        assert_eq!(volume.mend_pi_blocks(&mut device, tuples).unwrap(), 1);
        assert_eq!(volume.mend_pi_blocks(&mut device, tuples).unwrap(), 0);
        // Of data that cannot be read no tuple is computed.
        device.bad.clear();
        let found = volume.scrub(&mut device, |_| {}).found;
        assert_eq!((found.good, found.lost, found.bad()), (good, lost, lost));
        // Written again it is right again.
        let (mut session, _) = Session::open(&mut device, Crc64Nvme).unwrap();
        session.write(3, &mut [[1; 4096]]).unwrap();
        let mut back = [[0; 4096]];
        session.read(3, &mut back).unwrap();
        assert_eq!(back, [[1; 4096]]);
        session.close().unwrap();
        let found = volume.scrub(&mut device, |_| {}).found;
        assert_eq!(found.lost, lost - 1);
    }
}

#[test]
fn tuples_of_the_journal_survive_the_repair_of_their_pi_block() {
    let folder = Folder::new("repair-with-journal");
    let device = filled(&folder, "device");
    write_and_crash(&device, 5, &[2]);
    let mut device = BadBlocks {
        device: FileDevice::open(&device, true).unwrap(),
        bad: vec![PI_BLOCKS],
    };
    let volume = Volume::load(&mut device, Crc64Nvme).unwrap();
    assert!(volume.replay(&mut device, OnDamage::Refuse).is_err());
    assert_eq!(
        volume.mend_pi_blocks(&mut device, NewTuples::Lost).unwrap(),
        1
    );
    let (outcome, _) = volume.replay(&mut device, OnDamage::Accept).unwrap();
    assert_eq!((outcome.newest, outcome.pi_blocks), (2, 0));
    let found = volume.scrub(&mut device, |_| {}).found;
    assert_eq!((found.good, found.lost), (44 + 2, 256 - 2));
}

#[test]
fn trust_in_data_is_asked_for_with_a_repair_only() {
    let line = ["pi-sidecar", "fsck", "--trust-data", "device"];
    assert!(CommandLine::try_parse_from(line).is_err());
}

/// A server that had the device before a growth writes its mark of use late, where that means to
/// write the superblock of its look as well.
/// Where the mark of use is written with the superblock a late one writes that of its look.
#[test]
fn a_superblock_from_before_a_format_is_not_used() {
    let folder = Folder::new("formatted");
    let device = filled(&folder, "device");
    let (image, before) = (folder.file("image"), folder.file("before"));
    fs::copy(&device, &before).unwrap();
    done(&["format", "--force"], &[&device]);
    done(&["import"], &[&device, &image]);
    copy(&before, 0, &device, 0);
    refused(&["scrub"], &[&device], "its journal has no record");
    let lines = done(&["fsck", "--repair"], &[&device]);
    assert!(lines.contains("written anew from its copy"), "{lines}");
    assert!(done(&["scrub"], &[&device]).contains("300 good"));
}

#[test]
fn a_superblock_from_before_a_growth_is_not_used() {
    let folder = Folder::new("outgrown");
    let device = filled(&folder, "device");
    let image = image(&folder, 300);
    let (before, out) = (folder.file("before"), folder.file("out"));
    fs::copy(&device, &before).unwrap();
    let file = fs::File::options().write(true).open(&device).unwrap();
    file.set_len((BLOCKS + 1600) * 4096).unwrap();
    done(&["grow"], &[&device]);
    // Nothing of the new space was written: the growth can be begun anew.
    copy(&before, 0, &device, 0);
    assert!(done(&["scrub"], &[&device]).contains("300 good"));
    done(&["grow"], &[&device]);
    done(&["import", "--first", "1000"], &[&device, &image]);
    copy(&before, 0, &device, 0);
    let why = "from before a growth";
    refused(&["scrub"], &[&device], why);
    refused(&["grow"], &[&device], why);
    refused(&["upgrade"], &[&device], why);
    refused(&["fsck"], &[&device], why);
    let lines = done(&["fsck", "--repair"], &[&device]);
    assert!(lines.contains("written anew from its copy"), "{lines}");
    done(
        &["export", "--first", "1000", "--blocks", "300"],
        &[&device, &out],
    );
    assert!(fs::read(&out).unwrap() == fs::read(&image).unwrap());
    assert!(done(&["scrub"], &[&device]).contains("600 good"));
}
