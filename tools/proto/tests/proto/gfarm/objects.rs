// SPDX-License-Identifier: GPL-2.0

//! The object whose bytes a descriptor reads: names, numbers and generations are renamed, used
//! again and rewritten between any two steps of three openers, and gfmd loses its descriptors.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proto::gfarm::{
    attr::{
        FileId,
        FileType,
        Time, //
    },
    identity::{
        Asked,
        Change,
        ContentId,
        Label,
        Observation,
        Opening, //
    },
};

const NAMES: usize = 3;
const OPENERS: usize = 3;

/// An object of Gfarm: its number may have been another one's before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Object {
    /// Tells the objects apart, for the test alone.
    which: usize,
    inum: u64,
    gen: u64,
    mtime: u32,
}

/// A descriptor at gfmd, for the content that was opened.
#[derive(Clone, Copy)]
struct Descriptor {
    object: Object,
    epoch: u32,
}

/// The state of gfmd.
struct Gfmd {
    names: [Option<Object>; NAMES],
    /// The last generation of each number.
    gens: BTreeMap<u64, u64>,
    objects: usize,
    writes: u32,
    epoch: u32,
    /// Each content by its number, generation and time: of which object it is.
    contents: BTreeMap<(u64, u64, u32), usize>,
}

impl Gfmd {
    fn write(&mut self, name: usize, object: Object) {
        self.writes += 1;
        let object = Object {
            gen: self.gens.get(&object.inum).map_or(1, |gen| gen + 1),
            mtime: self.writes,
            ..object
        };
        self.gens.insert(object.inum, object.gen);
        let content = (object.inum, object.gen, object.mtime);
        assert_eq!(self.contents.insert(content, object.which), None);
        self.names[name] = Some(object);
    }

    /// Makes a file; its number is the smallest that no object has, and no descriptor.
    fn create(&mut self, name: usize, pinned: &[u64]) {
        let is_free = |inum: &u64| {
            let mut used = self.names.iter().flatten();
            !pinned.contains(inum) && !used.any(|object| object.inum == *inum)
        };
        let inum = (1..).find(is_free).unwrap();
        self.objects += 1;
        let object = Object {
            which: self.objects,
            inum,
            gen: 0,
            mtime: 0,
        };
        self.write(name, object);
    }

    fn seen(&self, object: Object) -> Observation {
        Observation {
            id: FileId {
                inum: object.inum,
                gen: object.gen,
            },
            mtime: Time {
                sec: 0,
                nsec: object.mtime,
            },
            file_type: FileType::Regular,
            asked: Asked {
                epoch: self.epoch,
                number: 0,
            },
        }
    }
}

/// An inode of the mount, and its stream.
struct Inode {
    label: Label,
    place: usize,
    openers: usize,
    opening: Option<Opening>,
    descriptor: Option<Descriptor>,
    /// The last stream that was closed, and the name that it went by: its worker may still be at
    /// work.
    late: Option<(Opening, usize)>,
    is_hashed: bool,
}

/// The mount: what it does with what gfmd tells, as `fs/inode.rs`, `fs/file.rs` and
/// `net/reader.rs`.
struct Mount {
    inodes: Vec<Inode>,
    /// The inode of each opener, and the object that it has opened.
    openers: [Option<(usize, usize)>; OPENERS],
    stale: usize,
    made_anew: usize,
}

impl Mount {
    /// The numbers that gfmd gives to no other object, as it has descriptors of them.
    fn pinned(&self, epoch: u32) -> Vec<u64> {
        let held = self.inodes.iter().filter_map(|inode| inode.descriptor);
        let held = held.filter(|descriptor| descriptor.epoch == epoch);
        held.map(|descriptor| descriptor.object.inum).collect()
    }

    fn observe(&mut self, inode: usize, seen: Observation, name: usize) -> Change {
        let inode = &mut self.inodes[inode];
        let open = (inode.openers > 0).then_some(inode.place == name);
        let change = inode.label.observe(seen, open);
        if matches!(change, Change::Same | Change::Rewritten) {
            inode.place = name;
        }
        change
    }

    /// Looks a name up: an inode of the object, perhaps a new one.
    fn look_up(&mut self, seen: Observation, name: usize) -> usize {
        let is_it = |inode: &Inode| inode.is_hashed && inode.label.id().inum == seen.id.inum;
        if let Some(known) = self.inodes.iter().position(is_it) {
            if self.observe(known, seen, name) != Change::Replaced {
                return known;
            }
            self.inodes[known].is_hashed = false;
            self.made_anew += 1;
        }
        self.inodes.push(Inode {
            label: Label::new(seen),
            place: name,
            openers: 0,
            opening: None,
            descriptor: None,
            late: None,
            is_hashed: true,
        });
        self.inodes.len() - 1
    }

    fn close(&mut self, opener: usize) {
        if let Some((inode, _)) = self.openers[opener].take() {
            let inode = &mut self.inodes[inode];
            inode.openers -= 1;
            if inode.openers == 0 {
                inode.descriptor = None;
                let place = inode.place;
                inode.late = inode.opening.map(|opening| (opening, place));
            }
        }
    }

    /// The worker of the last stream that was closed opens the file once more for a read that no
    /// task waits for, and closes it.
    fn work_late(&mut self, gfmd: &Gfmd, inode: usize) {
        let Some(inode) = self.inodes.get_mut(inode) else {
            return;
        };
        let Some((opening, place)) = inode.late.take() else {
            return;
        };
        let inum = inode.label.id().inum;
        let there = gfmd.names[place].filter(|object| object.inum == inum);
        let again = there.filter(|object| {
            inode.label.observe(gfmd.seen(*object), Some(true)) != Change::Replaced
        });
        inode.label.hold(opening, again.map(|_| gfmd.epoch));
    }

    /// Opens a name that is there.
    fn open(&mut self, gfmd: &Gfmd, opener: usize, name: usize) {
        self.close(opener);
        let Some(object) = gfmd.names[name] else {
            return;
        };
        let found = self.look_up(gfmd.seen(object), name);
        let inode = &mut self.inodes[found];
        if inode.openers == 0 {
            let (opening, epoch) = (inode.label.opening(), gfmd.epoch);
            inode.label.begin(opening, Some(epoch));
            inode.opening = Some(opening);
            inode.descriptor = Some(Descriptor { object, epoch });
        }
        inode.openers += 1;
        self.openers[opener] = Some((found, object.which));
        let id = inode.label.id();
        assert_eq!(
            (id.inum, id.gen),
            (object.inum, object.gen),
            "close to open"
        );
        assert_eq!(
            self.read(gfmd, opener),
            Some(object.which),
            "a valid name is read"
        );
    }

    /// Opens a name by which an inode was found before, without a question (`nocto`).
    fn open_later(&mut self, gfmd: &Gfmd, opener: usize, name: usize) {
        self.close(opener);
        let is_it = |inode: &Inode| inode.is_hashed && inode.place == name;
        let Some(found) = self.inodes.iter().position(is_it) else {
            return;
        };
        let inode = &mut self.inodes[found];
        if inode.openers == 0 {
            let opening = inode.label.opening();
            inode.label.begin(opening, None);
            inode.opening = Some(opening);
        }
        inode.openers += 1;
        self.openers[opener] = inode
            .label
            .shared()
            .map(|content| (found, gfmd.contents[&key(&content)]));
    }

    /// Reads by a descriptor: returns the object whose bytes come, or nothing.
    fn read(&mut self, gfmd: &Gfmd, opener: usize) -> Option<usize> {
        let (found, _) = self.openers[opener]?;
        let inode = &mut self.inodes[found];
        let id = inode.label.id();
        let is_readable = |d: Descriptor| {
            d.epoch == gfmd.epoch && (d.object.inum, d.object.gen) == (id.inum, id.gen)
        };
        if !inode.descriptor.is_some_and(is_readable) {
            // The stream is opened again by the name that it goes by.
            let there = gfmd.names[inode.place].filter(|object| object.inum == id.inum);
            let again = there.filter(|object| {
                let change = inode.label.observe(gfmd.seen(*object), Some(true));
                change != Change::Replaced
            });
            let epoch = gfmd.epoch;
            inode.descriptor = again.map(|object| Descriptor { object, epoch });
            if let Some(opening) = inode.opening {
                inode.label.hold(opening, again.map(|_| epoch));
            }
            if again.is_none() {
                self.stale += 1;
                return None;
            }
        }
        // Pages in the page cache, and those of other nodes, are of the label's content.
        let content = inode.label.shared().unwrap();
        Some(gfmd.contents[&key(&content)])
    }
}

fn key(content: &ContentId) -> (u64, u64, u32) {
    (content.file.inum, content.file.gen, content.mtime.nsec)
}

fn run(steps: &[(u8, usize, usize)]) -> Mount {
    let mut gfmd = Gfmd {
        names: [None; NAMES],
        gens: BTreeMap::new(),
        objects: 0,
        writes: 0,
        epoch: 1,
        contents: BTreeMap::new(),
    };
    let mut mount = Mount {
        inodes: Vec::new(),
        openers: [None; OPENERS],
        stale: 0,
        made_anew: 0,
    };
    for (what, one, other) in steps.iter().copied() {
        match what {
            0 | 1 => gfmd.create(one, &mount.pinned(gfmd.epoch)),
            2 => gfmd.names[other] = gfmd.names[one].take(),
            3 => gfmd.names[one] = None,
            4 | 5 => {
                if let Some(object) = gfmd.names[one] {
                    gfmd.write(one, object);
                }
            }
            6 => {
                // gfmd has lost the descriptors, and perhaps the last generation of a file.
                gfmd.epoch += 1;
                if let (Some(object @ Object { gen: 2.., .. }), 1..) = (gfmd.names[one], other) {
                    gfmd.gens.insert(object.inum, object.gen - 2);
                    gfmd.write(one, object);
                }
            }
            7 => {
                // A mere look at a name.
                if let Some(object) = gfmd.names[one] {
                    mount.look_up(gfmd.seen(object), one);
                }
            }
            8 | 9 => mount.open(&gfmd, other, one),
            10 => mount.close(one),
            11 => mount.work_late(&gfmd, other),
            14 => mount.open_later(&gfmd, other, one),
            _ => {
                let opened = mount.openers[one].map(|(_, object)| object);
                let read = mount.read(&gfmd, one);
                assert!(read.is_none() || read == opened, "{read:?} by {opened:?}");
            }
        }
    }
    mount
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, ..ProptestConfig::default() })]

    /// Each byte that a descriptor reads is of the object that it has opened, and each name that
    /// is valid can be opened and read.
    #[test]
    fn a_descriptor_reads_its_object_and_each_name_is_readable(
        steps in prop::collection::vec((0..15u8, 0..NAMES, 0..OPENERS), 1..60),
    ) {
        run(&steps);
    }
}

#[test]
fn a_rotated_log_is_readable_by_its_new_name() {
    // Created, opened, renamed, written on; then opened by its new name, while the first opener
    // has it open, whose descriptor is of no more use.
    let mount = run(&[
        (0, 0, 0),
        (8, 0, 0),
        (2, 0, 1),
        (4, 1, 0),
        (8, 1, 1),
        (12, 0, 0),
    ]);
    assert_eq!((mount.made_anew, mount.stale), (1, 0));
    // Looked at before it was written on: it is the same object, and both read it.
    let steps = [
        (0, 0, 0),
        (8, 0, 0),
        (2, 0, 1),
        (7, 1, 0),
        (4, 1, 0),
        (8, 1, 1),
        (12, 0, 0),
    ];
    assert_eq!(run(&steps).made_anew, 0);
}

#[test]
fn another_file_of_the_same_number_is_not_met() {
    // Opened, removed while gfmd loses the descriptor; another file gets the name and the number.
    let steps = [
        (0, 0, 0),
        (8, 0, 0),
        (6, 0, 0),
        (3, 0, 0),
        (0, 0, 0),
        (7, 0, 0),
        (12, 0, 0),
    ];
    let mount = run(&steps);
    assert_eq!((mount.made_anew, mount.stale), (1, 1));
}

#[test]
fn a_late_worker_says_nothing_of_the_next_stream() {
    // Closed while its worker has reads to do, and opened anew; gfmd loses the descriptors, and
    // the late worker opens the file once more. Then the name and the number are another file's.
    let steps = [
        (0, 0, 0),
        (8, 0, 0),
        (10, 0, 0),
        (8, 0, 0),
        (6, 0, 0),
        (11, 0, 0),
        (3, 0, 0),
        (0, 0, 0),
        (7, 0, 0),
        (12, 0, 0),
    ];
    let mount = run(&steps);
    assert_eq!((mount.made_anew, mount.stale), (1, 1));
}
