// SPDX-License-Identifier: GPL-2.0

//! The superblock of a member: of which array it is, which epoch it holds, and where the log
//! starts.
//!
//! It has 512 bytes. Its two slots are written in turn, so that a write which is torn leaves the
//! one before; of two that are whole the newer one counts.

use core::fmt;

use zerocopy::{
    little_endian::{
        U16,
        U32,
        U64, //
    },
    FromBytes,
    IntoBytes, //
};
use zerocopy_derive::{
    FromBytes,
    Immutable,
    IntoBytes,
    KnownLayout,
    Unaligned, //
};

use super::{
    cursor::Cursor,
    epoch::Epoch,
    identity::Device,
    layout::{
        Layout,
        Misfit,
        Parts,
        AREAS,
        SLOTS, //
    },
    members::{
        Members,
        DATA_COLUMNS,
        MEMBERS, //
    },
    table::SEGMENT_SEQUENCE_MAX,
    ArrayTag,
    Checksum, //
};

/// The bytes of a superblock.
pub const SUPERBLOCK_BYTES: usize = 512;

const MAGIC: [u8; 8] = *b"ferrolog";
const VERSION: u16 = 1;
/// The highest value of a number that only grows, which none comes near by itself.
pub(crate) const NUMBER_MAX: u64 = 1 << 62;
/// The most assemblies that may have been cut off and of which the epoch that is chosen knows
/// nothing: a member that lies could else use up the incarnations of all.
pub(crate) const CUT_OFF_MAX: u64 = 1 << 32;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    magic: [u8; 8],
    version: U16,
    data_columns: u8,
    members: u8,
    member: u8,
    failed: u8,
    area: u8,
    slot: u8,
    uuid: [u8; 16],
    tag: U64,
    unit_bytes: U32,
    segment_units: U32,
    segments: U32,
    page_bytes: U32,
    entries: U64,
    /// Counts the writes of this member's superblock.
    writes: U64,
    epoch: U64,
    parent: U64,
    incarnation: U64,
    /// Counts the dumps of the table.
    generation: U64,
    start_sequence: U64,
    start_incarnation: U64,
    start_segment_sequence: U64,
    start_segment: U32,
    start_unit: U32,
    start_next: U32,
    start_previous: U32,
    devices: [WireDevice; MEMBERS],
    reserved: [u8; 316],
    crc: U32,
}
const _: () = assert!(size_of::<Wire>() == SUPERBLOCK_BYTES);

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireDevice {
    id: U64,
    since: U64,
}

/// The reason why a slot has no superblock that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The slot has no superblock.
    NotFormatted,
    /// The slot gives an error.
    Unreadable,
    /// The superblock is of another version, or has fields that are not known.
    OtherVersion(u16),
    /// The superblock is damaged, or was written in part.
    Checksum,
    /// An array of this shape is not supported.
    Shape {
        /// Its data columns.
        data_columns: u8,
        /// Its members.
        members: u8,
    },
    /// The layout is not possible.
    Layout(Misfit),
    /// A number is beyond what it counts.
    Number(&'static str),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFormatted => f.write_str("it is no member of an array"),
            Self::Unreadable => f.write_str("its superblock cannot be read"),
            Self::OtherVersion(version) => {
                write!(
                    f,
                    "its superblock has version {version}; version {VERSION} is known"
                )
            }
            Self::Checksum => f.write_str("its superblock is damaged"),
            Self::Shape {
                data_columns,
                members,
            } => write!(
                f,
                "its array has {members} members, {data_columns} of them for data; \
                 {MEMBERS} and {DATA_COLUMNS} are supported, and one alone"
            ),
            Self::Layout(misfit) => write!(f, "its superblock makes no sense: {misfit}"),
            Self::Number(what) => write!(f, "its superblock makes no sense: {what}"),
        }
    }
}

/// A dump of the table, and from where on the log is followed after it has been loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Start {
    /// Counts dumps; 0 is that of a new array: no page was written, and all entries are zeroes.
    pub generation: u64,
    /// The area that it is in.
    pub area: u8,
    /// The cursor at which the first batch that may not be in it is expected.
    pub cursor: Cursor,
}

/// A superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Superblock {
    /// The UUID of the array.
    pub uuid: [u8; 16],
    /// The tag of its batches.
    pub tag: ArrayTag,
    /// The number of this member.
    pub member: usize,
    /// The layout, the same on each member.
    pub layout: Layout,
    /// The epoch that this member holds.
    pub epoch: Epoch,
    /// The start from which its log is followed.
    pub start: Start,
    /// The device of each member, as this one knows it.
    pub devices: [Device; MEMBERS],
    /// Counts the writes of this member's superblock, which decide the slot.
    pub writes: u64,
}

impl Superblock {
    /// Returns the one of a member of a new array.
    pub fn new(
        (uuid, tag): ([u8; 16], ArrayTag),
        member: usize,
        layout: Layout,
        epoch: u64,
    ) -> Self {
        Self {
            uuid,
            tag,
            member,
            layout,
            epoch: Epoch::first_of(epoch, layout.members()),
            start: Start {
                generation: 0,
                area: 0,
                cursor: Cursor::first(),
            },
            devices: [Device::default(); MEMBERS],
            writes: 0,
        }
    }

    /// Parses the content of a slot.
    ///
    /// # Errors
    ///
    /// Returns why it cannot be used.
    pub fn parse(
        bytes: &[u8; SUPERBLOCK_BYTES],
        slot: u8,
        crc: &impl Checksum,
    ) -> Result<Self, Refusal> {
        let wire = Wire::read_from_bytes(bytes).map_err(|_| Refusal::NotFormatted)?;
        if wire.magic != MAGIC {
            return Err(Refusal::NotFormatted);
        }
        let version = wire.version.get();
        if version != VERSION {
            return Err(Refusal::OtherVersion(version));
        }
        if wire.crc.get() != wire.checksum(crc) {
            return Err(Refusal::Checksum);
        }
        if wire.reserved.iter().any(|byte| *byte != 0) {
            return Err(Refusal::OtherVersion(version));
        }
        if wire.is_single().is_none() {
            return Err(Refusal::Shape {
                data_columns: wire.data_columns,
                members: wire.members,
            });
        }
        wire.checked(slot)
    }

    /// Returns the slot that it is written to.
    pub const fn slot(&self) -> u8 {
        (self.writes % SLOTS as u64) as u8
    }

    /// Returns the one that this member is given next, in an epoch. The start stays.
    pub const fn with_epoch(&self, epoch: Epoch) -> Self {
        Self {
            epoch,
            writes: self.writes.saturating_add(1),
            ..*self
        }
    }

    /// Returns the one that this member is given next, with a start. The epoch stays.
    pub const fn with_start(&self, start: Start) -> Self {
        Self {
            start,
            writes: self.writes.saturating_add(1),
            ..*self
        }
    }

    /// Checks that an assembly with epoch `chosen` can count up what it has: what is written can
    /// be read again.
    ///
    /// # Errors
    ///
    /// Returns the number that is too high.
    pub fn check_room(&self, chosen: &Epoch) -> Result<(), Refusal> {
        let newest = chosen.incarnation.saturating_add(CUT_OFF_MAX);
        let cursor = &self.start.cursor;
        let rules = [
            // The epoch that is chosen, and the one of the assembly.
            (self.writes < NUMBER_MAX - 1, "the count of its writes"),
            (
                self.epoch.incarnation < NUMBER_MAX && self.epoch.incarnation <= newest,
                "its incarnation",
            ),
            (self.start.generation < NUMBER_MAX, "the count of dumps"),
            (cursor.sequence < NUMBER_MAX, "the number of a batch"),
            (
                cursor.segment_sequence < SEGMENT_SEQUENCE_MAX,
                "the count of segments",
            ),
        ];
        match rules.iter().find(|(is_right, _)| !is_right) {
            Some((_, what)) => Err(Refusal::Number(what)),
            None => Ok(()),
        }
    }

    /// Returns its bytes, for [`Self::slot`]. They are to be durable when the write has ended.
    pub fn bytes(&self, crc: &impl Checksum) -> [u8; SUPERBLOCK_BYTES] {
        let (parts, cursor) = (self.layout.parts(), &self.start.cursor);
        let (data_columns, members) = self.layout.shape();
        let mut wire = Wire {
            magic: MAGIC,
            version: U16::new(VERSION),
            // CAST: At most MEMBERS.
            data_columns: data_columns as u8,
            members: members as u8,
            member: self.member as u8,
            failed: self.epoch.failed.bits(),
            area: self.start.area,
            slot: self.slot(),
            uuid: self.uuid,
            tag: U64::new(self.tag.0),
            unit_bytes: U32::new(parts.unit_bytes),
            segment_units: U32::new(parts.segment_units),
            segments: U32::new(parts.segments),
            page_bytes: U32::new(parts.page_bytes),
            entries: U64::new(parts.entries),
            writes: U64::new(self.writes),
            epoch: U64::new(self.epoch.id),
            parent: U64::new(self.epoch.parent),
            incarnation: U64::new(self.epoch.incarnation),
            generation: U64::new(self.start.generation),
            start_sequence: U64::new(cursor.sequence),
            start_incarnation: U64::new(cursor.incarnation),
            start_segment_sequence: U64::new(cursor.segment_sequence),
            start_segment: U32::new(cursor.segment),
            start_unit: U32::new(cursor.unit),
            start_next: U32::new(cursor.next),
            start_previous: U32::new(cursor.previous),
            devices: self.devices.map(|device| WireDevice {
                id: U64::new(device.id),
                since: U64::new(device.since),
            }),
            reserved: [0; 316],
            crc: U32::ZERO,
        };
        wire.crc = U32::new(wire.checksum(crc));
        let mut bytes = [0; SUPERBLOCK_BYTES];
        // The sizes are equal.
        let _ = wire.write_to(&mut bytes);
        bytes
    }

    /// Whether both are of members of one array.
    pub fn is_of_same_array(&self, other: &Self) -> bool {
        self.uuid == other.uuid && self.tag == other.tag && self.layout == other.layout
    }
}

/// Returns the newer one of what the two slots have.
pub fn newer(
    one: Result<Superblock, Refusal>,
    other: Result<Superblock, Refusal>,
) -> Result<Superblock, Refusal> {
    match (one, other) {
        (Ok(one), Ok(other)) if one.writes > other.writes => Ok(one),
        // The slot that makes more sense says more, too.
        (one, Err(Refusal::NotFormatted)) => one,
        (Ok(one), Err(_)) => Ok(one),
        (_, other) => other,
    }
}

/// Whether what is damaged in one slot, or cannot be read, may be newer than what the other one
/// has. A member that was written once has nothing in the other slot.
pub fn may_hide(slots: [&Result<Superblock, Refusal>; SLOTS as usize]) -> bool {
    match slots {
        [Ok(found), Err(why)] | [Err(why), Ok(found)] => {
            found.writes > 0 || *why != Refusal::NotFormatted
        }
        _ => false,
    }
}

impl Wire {
    fn checksum(&self, crc: &impl Checksum) -> u32 {
        let mut copy = *self;
        copy.crc = U32::ZERO;
        crc.crc32c(copy.as_bytes())
    }

    /// Whether it is of a log on one member; `None` if its shape is not supported.
    fn is_single(&self) -> Option<bool> {
        match (usize::from(self.data_columns), usize::from(self.members)) {
            (1, 1) => Some(true),
            (DATA_COLUMNS, MEMBERS) => Some(false),
            _ => None,
        }
    }

    fn checked(&self, slot: u8) -> Result<Superblock, Refusal> {
        let parts = Parts {
            unit_bytes: self.unit_bytes.get(),
            segment_units: self.segment_units.get(),
            segments: self.segments.get(),
            page_bytes: self.page_bytes.get(),
            entries: self.entries.get(),
        };
        let layout = if self.is_single() == Some(true) {
            Layout::single(parts)
        } else {
            Layout::new(parts)
        };
        let layout = layout.map_err(Refusal::Layout)?;
        let failed = Members::from_bits(self.failed);
        let member = usize::from(self.member);
        let cursor = Cursor {
            segment: self.start_segment.get(),
            unit: self.start_unit.get(),
            next: self.start_next.get(),
            sequence: self.start_sequence.get(),
            segment_sequence: self.start_segment_sequence.get(),
            incarnation: self.start_incarnation.get(),
            previous: self.start_previous.get(),
        };
        self.check_numbers(slot, &cursor, &layout)?;
        Ok(Superblock {
            uuid: self.uuid,
            tag: ArrayTag(self.tag.get()),
            member,
            layout,
            epoch: Epoch {
                id: self.epoch.get(),
                parent: self.parent.get(),
                incarnation: self.incarnation.get(),
                failed: failed.unwrap_or_default(),
            },
            start: Start {
                generation: self.generation.get(),
                area: self.area,
                cursor,
            },
            devices: self.devices.map(|device| Device {
                id: device.id.get(),
                since: device.since.get(),
            }),
            writes: self.writes.get(),
        })
    }

    /// Checks each number by itself.
    fn check_numbers(&self, slot: u8, cursor: &Cursor, layout: &Layout) -> Result<(), Refusal> {
        let in_sync = Members::from_bits(self.failed).map(|f| Members::ALL.minus(f));
        let is_enough = |in_sync: Members| {
            in_sync.is_within(layout.members()) && in_sync.count() >= layout.members_needed()
        };
        let member = usize::from(self.member);
        let parts = layout.parts();
        let is_number = |n: u64| n <= NUMBER_MAX;
        let rules = [
            (
                layout.members().contains(member),
                "the number of the member",
            ),
            (
                in_sync.is_some_and(is_enough),
                "the members that have failed",
            ),
            (
                u64::from(self.area) == self.generation.get() % u64::from(AREAS),
                "the area of the table",
            ),
            (
                self.slot == slot && u64::from(slot) == self.writes.get() % u64::from(SLOTS),
                "its slot",
            ),
            (is_number(self.writes.get()), "the count of its writes"),
            (
                self.epoch.get() != 0 && self.epoch != self.parent,
                "its epoch",
            ),
            (is_number(self.incarnation.get()), "its incarnation"),
            (is_number(self.generation.get()), "the count of dumps"),
            (is_number(cursor.sequence), "the number of a batch"),
            (
                cursor.segment_sequence <= SEGMENT_SEQUENCE_MAX,
                "the count of segments",
            ),
            (
                self.devices
                    .iter()
                    .all(|d| d.since.get() <= SEGMENT_SEQUENCE_MAX),
                "what a device has",
            ),
            (
                cursor.incarnation <= self.incarnation.get(),
                "the start's incarnation",
            ),
            (cursor.segment < parts.segments, "the start's segment"),
            (cursor.next < parts.segments, "the start's next segment"),
            (cursor.unit <= parts.segment_units, "the start's unit"),
        ];
        if let Some((_, what)) = rules.iter().find(|(is_right, _)| !is_right) {
            return Err(Refusal::Number(what));
        }
        Ok(())
    }
}
