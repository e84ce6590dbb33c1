// SPDX-License-Identifier: GPL-2.0

//! The mark that a server has a device open.

use std::{
    fs,
    io,
    os::unix::fs::FileExt,
    path::Path,
    time::Duration, //
};

use pi_sidecar::{
    checksum::Crc64Nvme,
    claim,
    device::{
        Device,
        FileDevice, //
    }, //
};
use proto::sidecar::{
    claim::mark::{
        Found,
        Holder,
        Other,
        MARK_BYTES,
        MARK_OFFSET, //
    },
    record::Unit,
    Block, //
};

use super::{
    done,
    filled,
    flip,
    refused,
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
    assert!(!claim::clear(&mut other, &Crc64Nvme, None).unwrap());
}

/// A device that a server writes to between the look at its mark and the removal of that, and
/// behind it.
struct Shared<'a> {
    device: FileDevice,
    path: &'a Path,
    /// The server writes its mark once more.
    lives: bool,
}

impl Device for Shared<'_> {
    fn blocks(&self) -> u64 {
        self.device.blocks()
    }

    fn unit(&self) -> Unit {
        self.device.unit()
    }

    fn read(&mut self, block: u64, to: &mut Block) -> io::Result<()> {
        self.device.read(block, to)
    }

    fn write(&mut self, block: u64, from: &[u8], fua: bool) -> io::Result<()> {
        self.write_shared(block, 0, from)?;
        self.device.write(block, from, fua)
    }

    fn write_shared(&mut self, block: u64, start: usize, from: &[u8]) -> io::Result<bool> {
        // As the last step of a growth.
        flip(self.path, 100);
        let file = fs::File::options().write(true).open(self.path)?;
        file.write_all_at(from, block * 4096 + start as u64)?;
        if self.lives {
            mark(self.path, 7);
        }
        Ok(true)
    }

    fn zero(&mut self, first: u64, blocks: u64) -> io::Result<bool> {
        self.device.zero(first, blocks)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.device.flush()
    }
}

/// A server that is not down after all may change the superblock meanwhile: that stays. If it
/// writes its mark as well, the removal has failed.
#[test]
fn the_removal_of_a_mark_writes_nothing_else() {
    let folder = Folder::new("removal");
    let path = filled(&folder, "device");
    for lives in [false, true] {
        mark(&path, 0);
        let before = fs::read(&path).unwrap();
        let mut device = Shared {
            device: FileDevice::open(&path, true).unwrap(),
            path: &path,
            lives,
        };
        let cleared = claim::clear(&mut device, &Crc64Nvme, None);
        let after = fs::read(&path).unwrap();
        assert_eq!(
            after[100],
            before[100] ^ 0x10,
            "the superblock is that of the look"
        );
        match cleared {
            Ok(was_there) => assert!(was_there && !lives),
            Err(why) => {
                assert!(lives, "{why}");
                assert!(why.to_string().contains("'alpha'"), "{why}");
            }
        }
        flip(&path, 100);
    }
}

/// A server that stood still has looked at its mark before the device is formatted, and writes it
/// after that has begun: it may have a lease, so the device is not formatted under it.
#[test]
fn a_device_is_taken_from_servers_before_it_is_formatted() {
    let folder = Folder::new("format");
    let path = filled(&folder, "device");
    let before = fs::read(&path).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while fs::read(&path).unwrap()[..1024] == before[..1024] {
                std::thread::sleep(Duration::from_millis(1));
            }
            mark(&path, 1);
        });
        refused(
            &["format", "--force"],
            &[&path],
            "'alpha' (boot 0000000000000002) uses the device: unmap it there",
        );
    });
    done(&["fsck", "--clear-in-use"], &[&path]);
    let options = ["format", "--force", "--journal-slots", "9999"];
    refused(&options, &[&path], "there is no room");
    assert!(
        fs::read(&path).unwrap() == before,
        "what was refused has changed it"
    );
}

/// Removes the mark that was found, and none that came later.
#[test]
fn the_mark_of_a_server_that_came_later_stays() {
    let folder = Folder::new("later");
    let path = filled(&folder, "device");
    let mut device = FileDevice::open(&path, true).unwrap();
    mark(&path, 0);
    let left = claim::look(&mut device, &Crc64Nvme, |_, _| {}).unwrap();
    mark(&path, 1);
    assert!(!claim::clear(&mut device, &Crc64Nvme, Some(left)).unwrap());
    mark(&path, 0);
    assert!(claim::clear(&mut device, &Crc64Nvme, Some(left)).unwrap());
    assert_eq!(
        claim::look(&mut device, &Crc64Nvme, never).unwrap(),
        Found::Free
    );
}
