// SPDX-License-Identifier: GPL-2.0

//! The identity by which a server knows a disk again.

use std::collections::BTreeMap;

use proto::rnbd::{
    boot::Boot,
    identity::{
        of_device,
        Basis,
        Files,
        Folder,
        Identity, //
    },
    known_disk::{
        Difference,
        KnownDisk, //
    },
};

/// A machine's sysfs: folder and path, and what is there.
#[derive(Clone, Default)]
struct Sysfs(BTreeMap<(u8, &'static str), &'static str>);

impl Sysfs {
    fn disk(files: &[(&'static str, &'static str)]) -> Self {
        let mut sysfs = Self::default();
        sysfs.add(Folder::Device, &[("uevent", "DEVTYPE=disk\n")]);
        sysfs.add(Folder::Device, files);
        sysfs
    }

    fn partition(number: &'static str, disk: &[(&'static str, &'static str)]) -> Self {
        let mut sysfs = Self::default();
        let own = [("uevent", "DEVTYPE=partition\n"), ("partition", number)];
        sysfs.add(Folder::Device, &own);
        sysfs.add(Folder::DiskOfPartition, disk);
        sysfs
    }

    fn with_uuid(mut self, uevent: &'static str) -> Self {
        self.add(Folder::Device, &[("uevent", uevent)]);
        self
    }

    fn on(mut self, machine: &'static str) -> Self {
        self.add(Folder::Machine, &[("product_uuid", machine)]);
        self
    }

    fn add(&mut self, folder: Folder, files: &[(&'static str, &'static str)]) {
        for (path, text) in files {
            self.0.insert((folder as u8, path), text);
        }
    }

    fn identity(&self, name: &str, boot: u64) -> (Identity, Basis) {
        let boot = Boot::from_number(boot).unwrap();
        of_device(name.as_bytes(), boot, &mut self.clone()).unwrap()
    }
}

impl Files for Sysfs {
    fn read(&mut self, folder: Folder, path: &str) -> &[u8] {
        self.0
            .get(&(folder as u8, path))
            .map_or(&[], |text| text.as_bytes())
    }
}

const UUID_1: &str = "PARTN=1\nPARTUUID=6b1fa6a5-e4d5-4f57-a1cc-c8b0b2c4f101\n";
const UUID_2: &str = "PARTN=1\nPARTUUID=6b1fa6a5-e4d5-4f57-a1cc-c8b0b2c4f102\n";

#[test]
fn identities_do_not_change_with_the_release() {
    // Clients remember them while a server is upgraded.
    let nvme = Sysfs::disk(&[("wwid", "eui.0025385b71b0b6d1\n")]);
    let (identity, basis) = nvme.identity("nvme0n1", 1);
    assert_eq!(identity.to_string(), "naa.36a4c26f2fd06335");
    assert_eq!(basis, Basis::OwnId);
    let (identity, basis) = Sysfs::disk(&[]).on("m1").identity("sda", 1);
    assert_eq!(identity.to_string(), "naa.3d61b7abdc28429c");
    assert_eq!(basis, Basis::Name);
}

#[test]
fn a_disk_that_says_who_it_is_keeps_its_identity_under_any_name_and_on_any_machine() {
    for path in [
        "wwid",
        "device/wwid",
        "dm/uuid",
        "md/uuid",
        "serial",
        "device/cid",
        "device/uuid",
        "device/uid",
    ] {
        let files = Sysfs::disk(&[(path, "4711\n"), ("dm/name", "data\n")]);
        let (identity, basis) = files.clone().on("m1").identity("sda", 1);
        assert_eq!(basis, Basis::OwnId);
        assert_eq!(files.on("m2").identity("sdb", 2).0, identity);
        let other = Sysfs::disk(&[(path, "4712\n")]);
        assert_ne!(other.identity("sda", 1).0, identity);
    }
}

#[test]
fn a_partition_is_one_of_its_disk() {
    let disk = [("serial", "4711")];
    let whole = Sysfs::disk(&disk).identity("vda", 1).0;
    let one = Sysfs::partition("1", &disk);
    let two = Sysfs::partition("2", &disk);
    let first = one.identity("vda1", 1);
    assert_eq!(first.1, Basis::OwnId);
    let mut all = vec![
        whole,
        first.0,
        two.identity("vda2", 1).0,
        one.clone().with_uuid(UUID_1).identity("vda1", 1).0,
        one.clone().with_uuid(UUID_2).identity("vda1", 1).0,
        Sysfs::partition("1", &[("serial", "4712")])
            .identity("vda1", 1)
            .0,
    ];
    // A name, another boot and the number beside a UUID do not count.
    assert_eq!(one.identity("vdb1", 2).0, first.0);
    let moved = two.with_uuid(UUID_1);
    assert_eq!(moved.identity("vdb2", 2).0, all[3]);
    // Without a serial number the UUID is all there is.
    let (alone, basis) = Sysfs::partition("1", &[])
        .with_uuid(UUID_1)
        .on("m1")
        .identity("sda1", 1);
    assert_eq!(basis, Basis::PartitionUuid);
    all.push(alone);
    let other_name = Sysfs::partition("3", &[]).with_uuid(UUID_1).on("m2");
    assert_eq!(other_name.identity("sdb3", 2).0, alone);
    // Nor that: the name.
    let (named, basis) = Sysfs::partition("1", &[]).identity("sda1", 1);
    assert_eq!(basis, Basis::Name);
    all.push(named);
    for (index, identity) in all.iter().enumerate() {
        assert!(!all[..index].contains(identity), "{index}");
    }
}

#[test]
fn a_disk_of_a_machine_is_known_by_what_it_shows() {
    let file = [
        ("loop/backing_file", "/srv/a.img\n"),
        ("loop/offset", "0\n"),
    ];
    let looped = Sysfs::disk(&file);
    let (identity, basis) = looped.clone().on("m1").identity("loop0", 1);
    assert_eq!(basis, Basis::BackingFile);
    // After a boot another loop device may show the file.
    assert_eq!(looped.clone().on("m1").identity("loop3", 2).0, identity);
    assert_ne!(looped.on("m2").identity("loop0", 1).0, identity);
    for changed in [
        [
            ("loop/backing_file", "/srv/b.img\n"),
            ("loop/offset", "0\n"),
        ],
        [
            ("loop/backing_file", "/srv/a.img\n"),
            ("loop/offset", "4096\n"),
        ],
    ] {
        let other = Sysfs::disk(&changed).on("m1").identity("loop0", 1);
        assert_ne!(other.0, identity);
    }
    let (mapped, basis) = Sysfs::disk(&[("dm/name", "data\n")])
        .on("m1")
        .identity("dm-0", 1);
    assert_eq!(basis, Basis::MapperName);
    let later = Sysfs::disk(&[("dm/name", "data\n")]).on("m1");
    assert_eq!(later.identity("dm-7", 2).0, mapped);
}

#[test]
fn a_disk_in_memory_ends_with_the_boot() {
    for name in ["ram0", "zram1", "nullb0"] {
        let disk = Sysfs::disk(&[]).on("m1");
        let (identity, basis) = disk.identity(name, 1);
        assert_eq!(basis, Basis::NameInBoot);
        assert_eq!(disk.identity(name, 1).0, identity);
        assert_ne!(disk.identity(name, 2).0, identity);
    }
    let disk = Sysfs::disk(&[]).on("m1");
    let (identity, basis) = disk.identity("sda", 1);
    assert_eq!(basis, Basis::Name);
    assert_eq!(disk.identity("sda", 2).0, identity);
    assert_ne!(disk.identity("sdb", 1).0, identity);
}

#[test]
fn nothing_is_made_of_nothing() {
    let boot = Boot::from_number(1).unwrap();
    assert_eq!(of_device(b"sda", boot, &mut Sysfs::default()), None);
}

#[test]
fn a_disk_with_a_sidecar_is_another_than_without() {
    let disk = Identity::from_wire(0x3123_4567_89ab_cdef).unwrap();
    let other = Identity::from_wire(0x3123_4567_89ab_cdee).unwrap();
    let uuid: [u8; 16] = std::array::from_fn(|at| at as u8);
    let through = disk.through_sidecar(&uuid);
    assert_eq!(through.to_string(), "naa.3ab75e62a11d717e");
    assert_eq!(Identity::from_wire(through.get()), Some(through));
    let mut all = vec![disk, through, other.through_sidecar(&uuid)];
    // Each byte counts.
    for at in 0..uuid.len() {
        let mut changed = uuid;
        changed[at] ^= 1;
        all.push(disk.through_sidecar(&changed));
    }
    for (index, identity) in all.iter().enumerate() {
        assert!(!all[..index].contains(identity), "{index}");
    }
}

#[test]
fn what_is_not_an_identity_is_none() {
    for raw in [0, 1, u64::MAX, 0x2fff_ffff_ffff_ffff, 0x4000_0000_0000_0000] {
        assert_eq!(Identity::from_wire(raw), None);
    }
}

#[test]
fn a_disk_is_gone_on_with_if_it_may_be_the_one_that_is_mapped() {
    let one = Identity::from_wire(0x3000_0000_0000_0001).unwrap();
    let two = Identity::from_wire(0x3000_0000_0000_0002).unwrap();
    let another = |before, now| Err(Difference::Another { before, now });
    let identities = [
        (None, None, Ok(())),
        (None, Some(one), Ok(())),
        (Some(one), None, Err(Difference::Untold(one))),
        (Some(one), Some(one), Ok(())),
        (Some(one), Some(two), another(one, two)),
    ];
    let sizes = [0, 1, 2048, 2049, u64::MAX];
    for (before, now, expected) in identities {
        for had in sizes {
            for has in sizes {
                let known = KnownDisk {
                    identity: before,
                    sectors: had,
                };
                let opened = KnownDisk {
                    identity: now,
                    sectors: has,
                };
                let fits = match has < had {
                    true => Err(Difference::Smaller {
                        before: had,
                        now: has,
                    }),
                    false => Ok(()),
                };
                let compared = known.compare(&opened);
                assert_eq!(compared, expected.and(fits));
                if let Err(difference) = compared {
                    assert_eq!(difference.errno().get(), 116);
                }
                // The first opening.
                assert_eq!(KnownDisk::default().compare(&opened), Ok(()));
            }
        }
    }
}
