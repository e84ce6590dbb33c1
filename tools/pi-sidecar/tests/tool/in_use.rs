// SPDX-License-Identifier: GPL-2.0

//! The mark that a server has a device open.

use std::{
    fs,
    os::unix::fs::FileExt,
    path::Path, //
};

use pi_sidecar::{
    checksum::Crc64Nvme,
    claim,
    device::FileDevice, //
};
use proto::sidecar::claim::mark::{
    Holder,
    Other,
    MARK_BYTES,
    MARK_OFFSET, //
};

use super::{
    done,
    filled,
    Folder,
    BLOCKS, //
};

/// Writes the mark of a server.
fn mark(device: &Path, stamp: u64) {
    let mut sector = [0; MARK_BYTES];
    Holder::new(1, 2, b"alpha").mark(stamp, &mut sector, &Crc64Nvme);
    let file = fs::File::options().write(true).open(device).unwrap();
    file.write_all_at(&sector, MARK_OFFSET as u64).unwrap();
}

fn never(_: Other, ms: u32) {
    assert_eq!(ms, 0, "a wait");
}

#[test]
fn a_device_that_a_server_has_open_is_left_alone() {
    let folder = Folder::new("in-use");
    let path = filled(&folder, "device");
    let mut device = FileDevice::open(&path, true).unwrap();
    claim::look(&mut device, &Crc64Nvme, never).unwrap();
    mark(&path, 0);
    let alive = claim::look(&mut device, &Crc64Nvme, |_, ms| {
        assert!(ms > 4000);
        mark(&path, 1);
    });
    let why = alive.unwrap_err().to_string();
    assert_eq!(
        why,
        "the server 'alpha' (boot 0000000000000002) uses the device"
    );
    let mut waits = 0;
    claim::look(&mut device, &Crc64Nvme, |_, _| waits += 1).unwrap();
    assert_eq!(waits, 1, "a server that is down");
    let lines = done(&["fsck", "--clear-in-use"], &[&path]);
    assert!(lines.contains("mark of use: removed"), "{lines}");
    claim::look(&mut device, &Crc64Nvme, never).unwrap();
    assert!(done(&["scrub"], &[&path]).contains("300 good"));
    // Without a sidecar it is no mark, whatever it is.
    let other = folder.device("other", BLOCKS);
    mark(&other, 0);
    let mut other = FileDevice::open(&other, true).unwrap();
    claim::look(&mut other, &Crc64Nvme, never).unwrap();
    assert!(!claim::clear(&mut other, &Crc64Nvme).unwrap());
}
