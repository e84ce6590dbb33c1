// SPDX-License-Identifier: GPL-2.0

//! `assemble`: what is found, and what is written to the module's file.

use std::{
    fs,
    path::PathBuf, //
};

use rnbd_ec::proto::command::{
    Command,
    Mode, //
};

use seglog::members::Members;

use crate::{
    image::{
        flip,
        Folder,
        Image,
        UUID_TEXT, //
    },
    says, //
};

const CONTROL: &str = "sys/class/rnbd-ec/ctl/assemble";

/// A machine whose disks are files.
struct Machine {
    folder: Folder,
}

impl Machine {
    fn new(name: &str) -> Self {
        let machine = Self {
            folder: Folder::new(name),
        };
        machine.folder.write(CONTROL, "");
        fs::create_dir_all(machine.folder.path("sys/block")).unwrap();
        fs::create_dir_all(machine.folder.path("dev")).unwrap();
        machine
    }

    /// A device of a file.
    fn disk(&self, name: &str, file: &PathBuf) {
        let folder = self.folder.path("sys/block").join(name);
        fs::create_dir_all(folder.join("holders")).unwrap();
        let node = self.folder.path("dev").join(name.replace('!', "/"));
        fs::create_dir_all(node.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(file, node).unwrap();
    }

    fn disks(&self, image: &Image) {
        for (path, name) in image.paths.iter().zip(["rnbd2", "rnbd0", "rnbd1"]) {
            self.disk(name, path);
        }
    }

    fn says(&self, words: &[&str], paths: &[&PathBuf], expected: (u8, &[&str])) -> String {
        let (sys, dev) = (self.folder.path("sys"), self.folder.path("dev"));
        let (sys, dev) = (sys.to_str().unwrap(), dev.to_str().unwrap());
        let words = [&["assemble", "--sysfs", sys, "--dev", dev], words].concat();
        says(&words, paths, expected)
    }

    /// Returns what was written to the module's file, without the folder of the devices.
    fn line(&self) -> String {
        let dev = self.folder.path("dev");
        let line = fs::read_to_string(self.folder.path(CONTROL)).unwrap();
        let command = Command::parse(line.as_bytes()).unwrap();
        assert_eq!(command.mode, Mode::Assemble);
        line.replace(dev.to_str().unwrap(), "/dev")
    }
}

#[test]
fn members_are_found_by_their_array_and_put_into_order() {
    let machine = Machine::new("found");
    let image = Image::new(&machine.folder);
    machine.disks(&image);
    let other = Image::of(&machine.folder, "other", [0x77; 16]);
    machine.disk("other0", &other.paths[0]);
    machine.disk("other!1", &other.paths[1]);
    // It has no node.
    fs::create_dir_all(machine.folder.path("sys/block/loop0")).unwrap();
    let words: &[&str] = &[
        "there are several arrays: choose one by --uuid: 5a5a5a5a-",
        ", 77777777-",
    ];
    machine.says(&[], &[], (8, words));
    let said = format!("ec0: assembled, array {UUID_TEXT}\n");
    machine.says(&["--uuid", UUID_TEXT], &[], (0, &[&said]));
    let line = "mode=assemble name=ec0 members=/dev/rnbd2,/dev/rnbd0,/dev/rnbd1";
    assert_eq!(machine.line(), line);
    let uuid = "5A".repeat(16);
    machine.says(
        &["--uuid", &uuid, "--name", "disk"],
        &[],
        (0, &["disk: assembled"]),
    );
    // The file keeps what is longer; sysfs does not.
    assert!(machine
        .line()
        .starts_with("mode=assemble name=disk members="));
    machine.says(
        &["--uuid", &"12".repeat(16)],
        &[],
        (8, &["no device is a member of array 1212"]),
    );
    machine.says(&["--uuid", "12"], &[], (8, &["32 hexadecimal digits"]));
    // The other one has two members of three, both in sync.
    let uuid = "77".repeat(16);
    let words: &[&str] = &["member 2 is in sync, and is not found", "--degraded"];
    machine.says(&["--uuid", &uuid], &[], (8, words));
    let words: &[&str] = &["degraded: without member 2"];
    machine.says(&["--uuid", &uuid, "--degraded"], &[], (1, words));
}

#[test]
fn a_member_that_has_failed_is_not_waited_for() {
    let machine = Machine::new("known");
    let mut image = Image::new(&machine.folder);
    image.fail(2);
    let [one, two, _] = &image.paths;
    machine.disk("sda", one);
    machine.disk("sdb", two);
    machine.says(&[], &[], (1, &["degraded: without member 2"]));
    assert_eq!(
        machine.line(),
        "mode=assemble name=ec0 members=/dev/sda,/dev/sdb"
    );
}

#[test]
fn partitions_are_members_and_what_others_are_made_of_is_not() {
    let machine = Machine::new("parts");
    let image = Image::new(&machine.folder);
    machine.disks(&image);
    // rnbd2 is the disk below dm-0.
    machine.folder.write("sys/block/rnbd2/holders/dm-0", "");
    machine.disk("dm-0", &image.paths[0]);
    // rnbd0 is a disk with another member on its partition.
    fs::remove_file(machine.folder.path("dev/rnbd0")).unwrap();
    machine.disk("part", &image.paths[1]);
    fs::rename(
        machine.folder.path("sys/block/part"),
        machine.folder.path("sys/block/rnbd0/part"),
    )
    .unwrap();
    machine
        .folder
        .write("sys/block/rnbd0/part/partition", "1\n");
    machine.says(&[], &[], (0, &["assembled"]));
    let line = "mode=assemble name=ec0 members=/dev/dm-0,/dev/part,/dev/rnbd1";
    assert_eq!(machine.line(), line);
}

#[test]
fn an_array_that_is_assembled_is_not_assembled_again() {
    let machine = Machine::new("again");
    let image = Image::new(&machine.folder);
    machine.disks(&image);
    let ec = "sys/block/ec0/ec";
    for (file, text) in [
        ("state", "clean\n"),
        ("members", ""),
        ("stats", ""),
        ("uuid", &format!("{UUID_TEXT}\n")),
    ] {
        machine.folder.write(&format!("{ec}/{file}"), text);
    }
    machine.says(
        &["--uuid", UUID_TEXT],
        &[],
        (8, &["is assembled: it is ec0"]),
    );
    machine.says(
        &[],
        &[],
        (
            8,
            &["no device is a member of an array that is not assembled"],
        ),
    );
    // Devices that are named are left to the module; the name is the next one.
    let [one, two, three] = &image.paths;
    machine.says(&[], &[three, two, one], (0, &["ec1: assembled"]));
    let [one, two, three] = image.paths.each_ref().map(|path| path.to_str().unwrap());
    let line = format!("mode=assemble name=ec1 members={one},{two},{three}");
    assert_eq!(machine.line(), line);
}

#[test]
fn what_cannot_be_assembled_is_refused_with_a_reason() {
    let machine = Machine::new("not");
    let image = Image::new(&machine.folder);
    let [one, two, three] = &image.paths;
    machine.says(&[], &[one, two], (1, &["degraded: without member 2"]));
    let both = machine.folder.path("copy");
    fs::copy(one, &both).unwrap();
    machine.says(
        &[],
        &[one, two, &both],
        (8, &["are both member 0: give the devices"]),
    );
    let other = Image::of(&machine.folder, "other", [0x77; 16]);
    machine.says(
        &[],
        &[one, &other.paths[1]],
        (8, &["is of another array than"]),
    );
    machine.says(&[], &[one], (8, &["DEVICE"]));
    machine.says(
        &["--uuid", UUID_TEXT],
        &[one, two],
        (8, &["cannot be used with"]),
    );
    machine.says(
        &["--name", "a/b"],
        &[one, two],
        (8, &["name=a/b is not 1 to 27"]),
    );
    flip(three, 0x18);
    flip(three, 4096 + 0x18);
    machine.says(
        &[],
        &[one, two, three],
        (8, &["m2: its superblock is damaged"]),
    );
    machine.disk("sda", one);
    let words: &[&str] = &["1 of 3 members is there, and 2 are needed"];
    machine.says(&["--degraded"], &[], (8, words));
    let comma = machine.folder.path("a,b");
    fs::copy(two, &comma).unwrap();
    machine.says(
        &[],
        &[one, &comma],
        (8, &["no path with spaces and commas"]),
    );
    fs::remove_file(machine.folder.path(CONTROL)).unwrap();
    let words: &[&str] = &["the module is not loaded: modprobe rnbd-ec"];
    machine.says(&[], &[one, two], (8, words));
    // What the module answers.
    fs::create_dir(machine.folder.path(CONTROL)).unwrap();
    machine.says(&[], &[one, two], (8, &["sys/class/rnbd-ec/ctl/assemble: "]));
    fs::remove_dir(machine.folder.path(CONTROL)).unwrap();
    std::os::unix::fs::symlink("/dev/full", machine.folder.path(CONTROL)).unwrap();
    machine.says(
        &[],
        &[one, two],
        (8, &["the module refuses 'mode=assemble name=ec0", "dmesg"]),
    );
}

#[test]
fn an_array_is_assembled_when_nothing_more_is_waited_for() {
    let machine = Machine::new("udev");
    let mut image = Image::new(&machine.folder);
    let appear = |name: &str, path: &PathBuf, expected: (u8, &[&str])| {
        machine.disk(name, path);
        machine.says(&["--incremental"], &[path], expected);
    };
    let [one, two, three] = image.paths.clone();
    let other = Image::of(&machine.folder, "other", [0x77; 16]);
    machine.disk("other0", &other.paths[0]);
    appear("sda", &one, (0, &["waits for more members"]));
    let waits: &[&str] = &["waits: member 1 is in sync, and is not found"];
    appear("sdc", &three, (0, waits));
    assert_eq!(
        fs::read_to_string(machine.folder.path(CONTROL)).unwrap(),
        ""
    );
    appear("sdb", &two, (0, &["ec0: assembled"]));
    let line = "mode=assemble name=ec0 members=/dev/sda,/dev/sdb,/dev/sdc";
    assert_eq!(machine.line(), line);
    // Who comes late finds it assembled, and writes nothing.
    machine.folder.write(CONTROL, "");
    let ec = "sys/block/ec0/ec";
    for (file, text) in [
        ("state", "clean\n"),
        ("members", ""),
        ("stats", ""),
        ("uuid", &format!("{UUID_TEXT}\n")),
    ] {
        machine.folder.write(&format!("{ec}/{file}"), text);
    }
    machine.says(&["--incremental"], &[&two], (0, &["it is ec0"]));
    assert_eq!(
        fs::read_to_string(machine.folder.path(CONTROL)).unwrap(),
        ""
    );
    fs::remove_dir_all(machine.folder.path("sys/block/ec0")).unwrap();
    // A member that has failed is not waited for.
    fs::remove_dir_all(machine.folder.path("sys/block/sdc")).unwrap();
    image.fail(2);
    let waits = ["--wait", "1", "--incremental"];
    machine.says(&waits, &[&one], (1, &["degraded: without member 2"]));
    // But for a moment: it may be the next one to appear.
    let late = machine.folder.path("sys/block/late");
    let appears = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        fs::rename(late.with_file_name("hidden"), late).unwrap();
    });
    machine.disk("late", &three);
    let late = machine.folder.path("sys/block/late");
    fs::rename(&late, late.with_file_name("hidden")).unwrap();
    machine.says(&["--incremental"], &[&one], (0, &["ec0: assembled"]));
    appears.join().unwrap();
    fs::remove_dir_all(late).unwrap();
    // Nor is a device that was replaced taken for the member, when it appears first.
    machine.folder.write(CONTROL, "");
    machine.disk("old", &three);
    image.replaced(2);
    let waits: &[&str] = &["waits: member 2 is in sync, and is not found"];
    machine.says(&["--incremental"], &[&one], (0, waits));
    assert_eq!(
        fs::read_to_string(machine.folder.path(CONTROL)).unwrap(),
        ""
    );
    let both = ["--degraded", "--incremental"];
    machine.says(&both, &[&one], (8, &["cannot be used"]));
    fs::remove_file(machine.folder.path(CONTROL)).unwrap();
    let words: &[&str] = &["the module is not loaded: modprobe rnbd-ec"];
    machine.says(&["--incremental"], &[&one], (8, words));
}

/// Member 2 has failed, which a damaged slot of member 0 hides, and member 1 is missing.
#[test]
fn what_a_damaged_slot_may_hide_is_not_given_up_unasked() {
    let machine = Machine::new("hidden");
    let mut image = Image::new(&machine.folder);
    image.fail(2);
    let [one, two, three] = &image.paths;
    flip(one, 0x18);
    let words: &[&str] = &[
        "m0: a slot of its superblock is damaged",
        "member 1",
        "--force",
    ];
    machine.says(&[], &[one, three], (8, words));
    assert_eq!(
        fs::read_to_string(machine.folder.path(CONTROL)).unwrap(),
        ""
    );
    says(
        &["check"],
        &[one, three],
        (4, &["member 0: a slot of its superblock is damaged"]),
    );
    let words: &[&str] = &["degraded: without member 1"];
    machine.says(&["--force"], &[one, three], (1, words));
    assert!(machine.line().ends_with(" force=1"));
    machine.says(&[], &[one, two, three], (0, &["assembled"]));
}

/// Member 1 has failed, and member 2 is missing: force does not help, whatever a slot may hide. The
/// module says so, and neither does the tool ask for it.
#[test]
fn force_is_not_asked_for_where_it_does_not_help() {
    let machine = Machine::new("useless");
    let mut image = Image::new(&machine.folder);
    image.fail(1);
    image.flush();
    let [one, two, three] = &image.paths;
    // The older slot.
    flip(one, 0x1018);
    let words: &[&str] = &[
        "2 of 3 members are there",
        ": add the member that is missing",
    ];
    let said = machine.says(&["--degraded"], &[one, two], (8, words));
    assert!(!said.contains("force"), "{said}");
    let control = fs::read_to_string(machine.folder.path(CONTROL)).unwrap();
    assert_eq!(control, "");
    machine.says(&[], &[one, two, three], (0, &["assembled"]));
}

/// Member 2 has failed, and is missing: what a damaged slot of another one may hide relies on the
/// two others alone. The module asks for no force then, and neither does the tool.
#[test]
fn a_missing_member_that_has_failed_knows_nothing_that_a_slot_hides() {
    let machine = Machine::new("failed");
    let mut image = Image::new(&machine.folder);
    image.fail(2);
    image.flush();
    let [one, two, _] = &image.paths;
    // The older slot: by the other one it has failed.
    flip(one, 0x1018);
    let words: &[&str] = &["degraded: without member 2"];
    machine.says(&[], &[one, two], (1, words));
    assert!(!machine.line().contains("force"), "{}", machine.line());
    image.again(Members::ALL.minus(Members::of(2)));
}

/// Neither device of a member that was replaced can be the one that a slot asks for.
#[test]
fn a_device_that_was_replaced_is_missing_to_a_slot_that_hides_something() {
    let machine = Machine::new("old device");
    let image = Image::new(&machine.folder);
    image.replaced(2);
    let [one, two, three] = &image.paths;
    flip(one, 0x1018);
    let words: &[&str] = &[
        "m0: a slot of its",
        "bring back the device that took",
        "--force",
    ];
    machine.says(&[], &[one, two, three], (8, words));
}

/// The module refuses a line that names a read-only one; without it the array is degraded.
#[test]
fn a_member_that_is_read_only_is_one_that_is_missing() {
    let machine = Machine::new("read-only");
    let image = Image::new(&machine.folder);
    machine.disks(&image);
    machine.folder.write("sys/class/block/rnbd0/ro", "1\n");
    machine.folder.write("sys/class/block/rnbd1/ro", "0\n");
    let words: &[&str] = &["member 1 is in sync, and is not found, or is read-only"];
    machine.says(&[], &[], (8, words));
    let first = machine.folder.path("dev/rnbd2");
    let waits: &[&str] = &["waits: member 1 is in sync"];
    machine.says(&["--incremental"], &[&first], (0, waits));
    let control = fs::read_to_string(machine.folder.path(CONTROL)).unwrap();
    assert_eq!(control, "");
    let all = ["rnbd0", "rnbd1", "rnbd2"].map(|name| machine.folder.path("dev").join(name));
    machine.says(&[], &all.each_ref(), (8, words));
    let control = fs::read_to_string(machine.folder.path(CONTROL)).unwrap();
    assert_eq!(control, "");
    let words: &[&str] = &["degraded: without member 1"];
    machine.says(&["--degraded"], &[], (1, words));
    assert!(!machine.line().contains("rnbd0"), "{}", machine.line());
    machine.says(&["--degraded"], &all.each_ref(), (1, words));
    assert!(!machine.line().contains("rnbd0"), "{}", machine.line());
    machine.folder.write("sys/class/block/rnbd0/ro", "0\n");
    machine.says(&[], &[], (0, &["assembled"]));
}

#[test]
fn udev_is_told_whose_member_a_device_is() {
    let folder = Folder::new("probe");
    let image = Image::new(&folder);
    let properties = format!(
        "ID_FS_USAGE=raid\nID_FS_TYPE=rnbd_ec_member\nID_RNBD_EC_UUID={UUID_TEXT}\n\
         ID_RNBD_EC_MEMBER=1\n"
    );
    let said = says(&["probe"], &[&image.paths[1]], (0, &[]));
    assert_eq!(said, properties);
    folder.write("none", &"-".repeat(1 << 16));
    says(
        &["probe"],
        &[&folder.path("none")],
        (8, &["none: it is no"]),
    );
}
