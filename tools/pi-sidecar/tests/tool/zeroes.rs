// SPDX-License-Identifier: GPL-2.0

//! Blocks that were never written.

use std::{
    fs,
    os::unix::fs::MetadataExt, //
};

use pi_sidecar::{
    checksum::Crc64Nvme,
    device::FileDevice,
    format::{
        self,
        Zeroing, //
    },
};
use proto::sidecar::{
    group::Blank,
    superblock::Version, //
};

use super::{
    done,
    flip,
    refused,
    Folder,
    Sectors,
    BLOCKS,
    DATA, //
};

/// Blocks that were not written are zeroes, and checked, or were not made zeroes, and are reported.
#[test]
fn blocks_that_were_never_written_are_zeroes() {
    let folder = Folder::new("zeroes");
    let (device, out) = (folder.device("device", BLOCKS), folder.file("out"));
    fs::write(&device, vec![0x55; BLOCKS as usize * 4096]).unwrap();
    done(&["format", "--force", "--zero"], &[&device]);
    let lines = done(&["scrub"], &[&device]);
    assert!(
        lines.contains("0 good, 512 never written, 0 bad"),
        "{lines}"
    );
    let export = ["export", "--first", "400", "--blocks", "1"];
    done(&export, &[&device, &out]);
    assert_eq!(fs::read(&out).unwrap(), vec![0; 4096]);
    // The tuple of a first write is lost, and the data are there.
    flip(&device, (DATA + 400) * 4096);
    refused(
        &export,
        &[&device, &out],
        "data block 400: its data do not fit",
    );
    // A device that cannot make zeroes, with something in a block.
    let mut file = Sectors(FileDevice::open(&device, true).unwrap());
    let how = (true, Zeroing::IfDeviceCan);
    let kind = ([7; 16], Version::Two);
    let (_, blank) = format::format(&mut file, kind, 255, how, Crc64Nvme).unwrap();
    assert_eq!(blank, Blank::Unknown);
    drop(file);
    flip(&device, (DATA + 400) * 4096);
    done(&export, &[&device, &out]);
    assert_eq!(fs::read(&out).unwrap(), vec![0; 4096]);
    let lines = done(&["scrub"], &[&device]);
    assert!(
        lines.contains("512 never written, 0 bad")
            && lines.contains("1 blocks read as zeroes and have something else"),
        "{lines}"
    );
}

/// A file that has all its space keeps it, if that is wanted; else its data blocks are a hole.
#[test]
fn a_preallocated_file_keeps_its_space() {
    let folder = Folder::new("space");
    let device = folder.device("device", BLOCKS);
    fs::write(&device, vec![0x55; BLOCKS as usize * 4096]).unwrap();
    let kept = || fs::metadata(&device).unwrap().blocks();
    let all = kept();
    let lines = done(&["format", "--force", "--no-zero"], &[&device]);
    assert!(lines.contains("content of data blocks: unknown"), "{lines}");
    assert_eq!(kept(), all);
    done(&["format", "--force"], &[&device]);
    assert!(kept() < all);
}
