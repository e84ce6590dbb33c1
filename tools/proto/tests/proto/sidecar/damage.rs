// SPDX-License-Identifier: GPL-2.0

//! The replay on a device some blocks of which cannot be read.

use std::collections::{
    BTreeMap,
    BTreeSet, //
};

use proto::sidecar::{
    group,
    layout::Layout,
    record::{
        Builder,
        Entry,
        Head,
        Unit, //
    },
    recovery::{
        Device,
        Fault,
        OnDamage,
        Part,
        Recovery,
        Scratch, //
    },
    replay::{
        Mention,
        Outcome, //
    },
    superblock::{
        Superblock,
        Version, //
    },
    tuple::{
        Meaning,
        Seal,
        Tuple, //
    },
    Block,
    Checksum,
    BLOCK_BYTES, //
};

use super::Sum;

const SLOTS: u32 = 8;
/// The blocks that records name.
const FIRST: u64 = 5;
const SECOND: u64 = 300;

fn superblock() -> Superblock {
    Superblock {
        uuid: *b"some bad blocks.",
        version: Version::Two,
        layout: Layout::new(2000, SLOTS).unwrap(),
    }
}

fn seal() -> Seal {
    superblock().seal(&Sum)
}

fn data(block: u64, content: u8) -> Tuple {
    let guard = Sum.crc64(&[content; BLOCK_BYTES]);
    seal().data(block, guard, 0).unwrap()
}

/// A device that keeps what is written, but for the blocks that cannot be read: a write mends them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Medium {
    blocks: BTreeMap<u64, Block>,
    bad: BTreeSet<u64>,
}

impl Device for Medium {
    type Error = &'static str;

    fn unit(&self) -> Unit {
        Unit::BLOCK
    }

    fn read(&mut self, block: u64, to: &mut Block) -> Result<(), Self::Error> {
        *to = self.blocks.get(&block).copied().unwrap_or([0; BLOCK_BYTES]);
        (!self.bad.contains(&block)).then_some(()).ok_or("EIO")
    }

    fn write(&mut self, block: u64, from: &[u8], _fua: bool) -> Result<(), Self::Error> {
        let to = self.blocks.entry(block).or_insert([0; BLOCK_BYTES]);
        to[..from.len()].copy_from_slice(from);
        self.bad.remove(&block);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Self::Error> {
        Ok(())
    }
}

impl Medium {
    /// Both blocks were written for the first time, by a record each behind a mark, and then the
    /// power has failed: the tuples are not written back.
    fn new() -> Self {
        let (mut medium, layout) = (Self::default(), superblock().layout);
        for number in 0..layout.groups() {
            let mut pi_block = [0; BLOCK_BYTES];
            group::format(&mut pi_block, number, &seal(), group::Blank::Unknown);
            medium
                .write(layout.pi_block(number).unwrap(), &pi_block, false)
                .unwrap();
        }
        let mut write = |sequence, entry: Option<Entry>| {
            let mut block = [0; BLOCK_BYTES];
            let mut builder = Builder::new(&mut block, Unit::BLOCK);
            assert!(entry.is_none_or(|entry| builder.push(&entry)));
            let head = Head {
                sequence,
                tail: 1,
                flushed: 0,
                device_blocks: 0,
            };
            let record = builder.finish(head, &seal(), &Sum);
            let at = layout.record(sequence);
            medium.write(at, record, true).unwrap();
        };
        write(1, None);
        for (sequence, block) in [(2, FIRST), (3, SECOND)] {
            let (old, new) = (seal().unwritten(block), data(block, sequence as u8));
            let (first, blocks) = (block, 1);
            write(
                sequence,
                Some(Entry {
                    first,
                    blocks,
                    old,
                    new,
                }),
            );
        }
        for (content, block) in [(2, FIRST), (3, SECOND)] {
            let at = layout.data(block).unwrap().0;
            medium.write(at, &[content; BLOCK_BYTES], false).unwrap();
        }
        medium
    }

    fn with_bad(at: u64) -> Self {
        let mut medium = Self::new();
        medium.bad.insert(at);
        medium
    }

    fn open(&mut self, on_damage: OnDamage) -> Result<Outcome, Fault<&'static str>> {
        let superblock = superblock();
        let mut ring = vec![[0; BLOCK_BYTES]; SLOTS as usize];
        let mut list = vec![Mention::default(); Scratch::mentions(&superblock.layout)];
        let scratch = Scratch {
            ring: &mut ring,
            list: &mut list,
            pi_block: &mut [0; BLOCK_BYTES],
            data: &mut [0; BLOCK_BYTES],
        };
        let recovery = Recovery::new(&superblock, self, &Sum);
        Ok(recovery.run(scratch, on_damage)?.0)
    }

    fn meaning(&self, block: u64) -> Meaning {
        let (group, index) = group::place(block);
        let pi_block = superblock().layout.pi_block(group).unwrap();
        seal().meaning(&group::tuple(&self.blocks[&pi_block], index), block)
    }

    /// Both blocks have what was written, and nothing is left to do.
    fn is_whole(&mut self) -> bool {
        let is = |block, content| {
            let guard = Sum.crc64(&[content; BLOCK_BYTES]);
            self.meaning(block) == Meaning::Data { guard, app: 0 }
        };
        is(FIRST, 2) && is(SECOND, 3) && self.open(OnDamage::Refuse) == Ok(Outcome::default())
    }
}

#[test]
fn a_device_without_bad_blocks_is_replayed() {
    let mut medium = Medium::new();
    let outcome = medium.open(OnDamage::Refuse).unwrap();
    assert_eq!(outcome.newest, 2);
    assert!(medium.is_whole());
}

/// A block that cannot be read once must not be taken for one without data, nor for a lost one.
#[test]
fn data_that_cannot_be_read_are_not_judged() {
    for block in [FIRST, SECOND] {
        let at = superblock().layout.data(block).unwrap().0;
        let mut medium = Medium::with_bad(at);
        let fault = medium.open(OnDamage::Refuse).unwrap_err();
        assert_eq!(fault, Fault::Unreadable(Part::Data(block), "EIO"));
        let line = fault.to_string();
        assert!(
            line.contains(&format!("data block {block} cannot be read")),
            "{line}"
        );
        assert!(line.contains("`pi-sidecar fsck --repair`"), "{line}");
        // The medium is good again.
        medium.bad.clear();
        assert_eq!(medium.open(OnDamage::Refuse).unwrap().newest, 2);
        assert!(medium.is_whole());
    }
}

#[test]
fn a_repair_gives_up_data_that_cannot_be_read() {
    let at = superblock().layout.data(FIRST).unwrap().0;
    let mut medium = Medium::with_bad(at);
    let outcome = medium.open(OnDamage::Accept).unwrap();
    assert_eq!(
        (outcome.newest, outcome.unreadable, outcome.torn),
        (1, 1, 0)
    );
    assert_eq!(medium.meaning(FIRST), Meaning::Lost);
    assert!(matches!(medium.meaning(SECOND), Meaning::Data { .. }));
    assert_eq!(medium.open(OnDamage::Refuse), Ok(Outcome::default()));
}

/// Opens a device that is refused, as its cure says, and then repairs it.
fn repaired(medium: &mut Medium, part: Part) -> Outcome {
    let before = medium.clone();
    let fault = medium.open(OnDamage::Refuse).unwrap_err();
    assert_eq!(fault, Fault::Unreadable(part, "EIO"));
    let line = fault.to_string();
    assert!(line.contains("`pi-sidecar fsck --repair`"), "{line}");
    assert_eq!(*medium, before, "nothing is written");
    let outcome = medium.open(OnDamage::Accept).unwrap();
    assert_eq!(medium.open(OnDamage::Refuse), Ok(Outcome::default()));
    assert!(medium.bad.is_empty(), "what cannot be read is written anew");
    outcome
}

/// A block of the journal that cannot be read has no record: none is needed from the slots that are
/// not in use.
#[test]
fn a_slot_that_cannot_be_read_costs_its_record() {
    let at = |sequence| superblock().layout.record(sequence);
    let mut medium = Medium::with_bad(at(7));
    let outcome = repaired(&mut medium, Part::Journal(at(7)));
    assert_eq!((outcome.newest, outcome.missing, outcome.slots), (2, 0, 1));
    assert!(!outcome.is_whole() && medium.is_whole());
    let mut medium = Medium::with_bad(at(2));
    let outcome = repaired(&mut medium, Part::Journal(at(2)));
    assert_eq!((outcome.newest, outcome.missing, outcome.slots), (1, 1, 1));
    assert_eq!(medium.meaning(FIRST), Meaning::Unwritten);
    // The newest one: the journal does not know of it.
    let mut medium = Medium::with_bad(at(3));
    let outcome = repaired(&mut medium, Part::Journal(at(3)));
    assert_eq!((outcome.newest, outcome.missing, outcome.slots), (1, 0, 1));
    assert_eq!(medium.meaning(SECOND), Meaning::Unwritten);
    // All of them, and one of a journal that is empty.
    let mut medium = Medium::with_bad(at(1));
    medium.bad.extend([at(2), at(3)]);
    let outcome = repaired(&mut medium, Part::Journal(at(1)));
    assert_eq!((outcome.newest, outcome.slots), (0, 3));
    medium.bad.insert(at(5));
    assert_eq!(repaired(&mut medium, Part::Journal(at(5))).slots, 1);
}

#[test]
fn tuples_that_cannot_be_read_are_lost_but_for_those_of_the_journal() {
    let at = superblock().layout.pi_block(0).unwrap();
    let mut medium = Medium::with_bad(at);
    let outcome = repaired(&mut medium, Part::Tuples(at));
    assert_eq!((outcome.newest, outcome.pi_blocks), (2, 1));
    assert!(!outcome.is_whole() && medium.is_whole());
    assert_eq!(medium.meaning(FIRST + 1), Meaning::Foreign);
}
