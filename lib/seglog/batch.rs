// SPDX-License-Identifier: GPL-2.0

//! The head of a batch: the same bytes in each column.
//!
//! A column carries the CRC of its own body and those of the others, so that one column which is
//! whole tells what the others must be, and a body can be checked before it is used to rebuild one.

use core::ops::Range;

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
    layout::{
        Layout,
        Place, //
    },
    members::{
        column_of,
        Members,
        DATA_COLUMNS,
        MEMBERS, //
    },
    superblock::NUMBER_MAX,
    table::SEGMENT_SEQUENCE_MAX,
    ArrayTag,
    Checksum, //
};

/// The bytes of a head; the body follows.
pub const HEAD_BYTES: usize = 96;

const MAGIC: [u8; 4] = *b"FSLB";
const VERSION: u8 = 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    magic: [u8; 4],
    version: u8,
    kind: u8,
    live: u8,
    used: u8,
    array: U64,
    sequence: U64,
    incarnation: U64,
    segment_sequence: U64,
    durable: U64,
    segment: U32,
    unit: U32,
    units: U16,
    reserved: U16,
    next: U32,
    previous: U32,
    bodies: [U32; MEMBERS],
    reserved2: [U32; 3],
    crc: U32,
}
const _: () = assert!(size_of::<Wire>() == HEAD_BYTES);

/// The way in which a batch is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Over all columns of members that live: any two give the third.
    Striped,
    /// One body on two members; in a log on one member, on that.
    Mirror,
}

impl Kind {
    /// Returns the way in which a batch is on all members.
    pub const fn over_all(layout: &Layout) -> Self {
        if layout.is_single() {
            Self::Mirror
        } else {
            Self::Striped
        }
    }

    /// Returns how many columns must be whole.
    pub const fn columns_needed(self) -> usize {
        match self {
            Self::Striped => DATA_COLUMNS,
            Self::Mirror => 1,
        }
    }
}

/// The head of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Head {
    /// The way in which it is kept.
    pub kind: Kind,
    /// The members that lived when it was written.
    pub live: Members,
    /// The members that have a column of it.
    pub used: Members,
    /// The place of the batch.
    pub place: Place,
    /// The units of a column, the head included.
    pub units: u16,
    /// Its number: each batch has one more than the batch before.
    pub sequence: u64,
    /// The assembly that wrote it.
    pub incarnation: u64,
    /// The number of its segment's use: each use of a segment has one more than the one before.
    pub segment_sequence: u64,
    /// The batches up to this number were durable on all members that live.
    pub durable: u64,
    /// The segment after this one.
    pub next: u32,
    /// The hash of the head before.
    pub previous: u32,
    /// The CRC of the body of each column; of a mirror all are that of its body.
    pub bodies: [u32; MEMBERS],
}

impl Head {
    /// Parses the head of a column at a place; returns its hash as well. `None` if there is none
    /// that is whole and possible.
    pub fn parse(
        bytes: &[u8],
        place: Place,
        (layout, tag): (&Layout, ArrayTag),
        crc: &impl Checksum,
    ) -> Option<(Self, u32)> {
        let (wire, _) = Wire::read_from_prefix(bytes).ok()?;
        let is_ours = wire.magic == MAGIC && wire.version == VERSION && wire.array.get() == tag.0;
        if !is_ours || wire.crc.get() != wire.checksum(crc) {
            return None;
        }
        let kind = match wire.kind {
            1 => Kind::Striped,
            2 => Kind::Mirror,
            _ => return None,
        };
        let (live, used) = (
            Members::from_bits(wire.live)?,
            Members::from_bits(wire.used)?,
        );
        let is_used_well = match kind {
            Kind::Striped if layout.is_single() => false,
            Kind::Striped => used == live && live.count() >= DATA_COLUMNS,
            Kind::Mirror if layout.is_single() => used == layout.members() && live == used,
            Kind::Mirror => used.is_within(live) && used.count() == 2,
        };
        let parts = layout.parts();
        let end = place.unit.checked_add(wire.units.get().into())?;
        let is_possible = is_used_well
            && wire.segment.get() == place.segment
            && wire.unit.get() == place.unit
            && wire.units.get() > 0
            && u32::from(wire.units.get()) <= layout.column_units_max()
            && end <= parts.segment_units
            && wire.next.get() < parts.segments
            && wire.next.get() != place.segment
            && wire.sequence.get() <= NUMBER_MAX
            && wire.incarnation.get() <= NUMBER_MAX
            && wire.segment_sequence.get() <= SEGMENT_SEQUENCE_MAX
            && wire.durable.get() < wire.sequence.get()
            && wire.reserved.get() == 0
            && wire.reserved2.iter().all(|word| word.get() == 0);
        let head = Self {
            kind,
            live,
            used,
            place,
            units: wire.units.get(),
            sequence: wire.sequence.get(),
            incarnation: wire.incarnation.get(),
            segment_sequence: wire.segment_sequence.get(),
            durable: wire.durable.get(),
            next: wire.next.get(),
            previous: wire.previous.get(),
            bodies: wire.bodies.map(U32::get),
        };
        is_possible.then_some((head, wire.crc.get()))
    }

    /// Returns its bytes and its hash.
    pub fn bytes(&self, tag: ArrayTag, crc: &impl Checksum) -> ([u8; HEAD_BYTES], u32) {
        let mut wire = Wire {
            magic: MAGIC,
            version: VERSION,
            kind: match self.kind {
                Kind::Striped => 1,
                Kind::Mirror => 2,
            },
            live: self.live.bits(),
            used: self.used.bits(),
            array: U64::new(tag.0),
            sequence: U64::new(self.sequence),
            incarnation: U64::new(self.incarnation),
            segment_sequence: U64::new(self.segment_sequence),
            durable: U64::new(self.durable),
            segment: U32::new(self.place.segment),
            unit: U32::new(self.place.unit),
            units: U16::new(self.units),
            reserved: U16::ZERO,
            next: U32::new(self.next),
            previous: U32::new(self.previous),
            bodies: self.bodies.map(U32::new),
            reserved2: [U32::ZERO; 3],
            crc: U32::ZERO,
        };
        wire.crc = U32::new(wire.checksum(crc));
        let mut bytes = [0; HEAD_BYTES];
        // The sizes are equal.
        let _ = wire.write_to(&mut bytes);
        (bytes, wire.crc.get())
    }

    /// Returns the bytes of a column.
    pub fn column_bytes(&self, layout: &Layout) -> usize {
        usize::from(self.units).saturating_mul(layout.unit_bytes())
    }

    /// Whether a body is that of a column. `column` has its bytes, the head included.
    pub fn is_body(&self, number: usize, column: &[u8], crc: &impl Checksum) -> bool {
        let body = column.get(HEAD_BYTES..).unwrap_or_default();
        self.bodies.get(number) == Some(&crc.crc32c(body))
    }

    /// Whether the body of a member's column is whole. `column` is the column, its head included.
    pub fn is_whole(&self, member: usize, column: &[u8], crc: &impl Checksum) -> bool {
        let body = column.get(HEAD_BYTES..).unwrap_or_default();
        let expected = self.bodies.get(column_of(self.place.segment, member));
        self.used.contains(member) && expected == Some(&crc.crc32c(body))
    }

    /// Returns the members whose bodies have its records, in the order in which these count: one
    /// of a mirror, else both data columns, of which one may be on a member that has failed.
    pub fn data_columns(&self) -> Range<usize> {
        match self.kind {
            Kind::Striped => 0..DATA_COLUMNS,
            Kind::Mirror => {
                let each = self.used.iter();
                let first = each
                    .map(|member| column_of(self.place.segment, member))
                    .min();
                let first = first.unwrap_or_default();
                first..first.saturating_add(1)
            }
        }
    }
}

impl Wire {
    fn checksum(&self, crc: &impl Checksum) -> u32 {
        let mut copy = *self;
        copy.crc = U32::ZERO;
        crc.crc32c(copy.as_bytes())
    }
}

/// Copies bytes; both are as long.
pub fn copy(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

/// Makes `to` the XOR of the bodies in `columns`, which are as long; the head of `to` is left.
pub fn rebuild(to: &mut [u8], columns: [&[u8]; DATA_COLUMNS]) {
    let [one, other] = columns.map(|column| column.get(HEAD_BYTES..).unwrap_or_default());
    let to = to.get_mut(HEAD_BYTES..).unwrap_or_default();
    for (to, (one, other)) in to.iter_mut().zip(one.iter().zip(other)) {
        *to = one ^ other;
    }
}
