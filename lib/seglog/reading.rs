// SPDX-License-Identifier: GPL-2.0

//! Reads of the log, one IO after the other: by a collector, and by a program that checks an array.
//!
//! A batch is known by its heads, and each column of it by the CRC that a head has of it; a record
//! is known by the entry of its block, and by its own CRC.

use super::{
    batch::{
        copy,
        Head,
        HEAD_BYTES, //
    },
    chain::Scratch,
    devices::Devices,
    fault::Fault,
    layout::{
        Layout,
        Place, //
    },
    members::{
        Members,
        DATA_COLUMNS,
        MEMBERS, //
    },
    record::{
        Record,
        Spot,
        ALIGN_BYTES,
        RECORD_BYTES_MAX,
        RECORD_HEAD_BYTES, //
    },
    source::{
        self,
        span,
        Source, //
    },
    ArrayTag,
    Checksum, //
};

/// A byte of which no record consists.
const NO_RECORD: u8 = 0xff;

/// Returns the bytes of memory that [`record`] takes for each of the two.
pub fn record_bytes(layout: &Layout) -> usize {
    RECORD_BYTES_MAX.saturating_add(layout.unit_bytes().saturating_mul(2))
}

/// Reads the heads that some of the members have at a place, and their hashes; `None` of a member
/// that has none there, or cannot be read. `unit` is as long as one.
pub fn heads<D: Devices>(
    devices: &mut D,
    (place, members): (Place, Members),
    unit: &mut [u8],
    (layout, tag): (&Layout, ArrayTag),
    crc: &impl Checksum,
) -> [Option<(Head, u32)>; MEMBERS] {
    let mut found = [None; MEMBERS];
    let Some(at) = layout.at(place) else {
        return found;
    };
    for (member, found) in found.iter_mut().enumerate() {
        if members.contains(member) && devices.read(member, at, unit).is_ok() {
            *found = Head::parse(unit, place, (layout, tag), crc);
        }
    }
    found
}

/// The state of columns of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Columns {
    /// The members whose columns have the head, and the body of which it has the CRC.
    pub whole: Members,
    /// The members that cannot be read there.
    pub unreadable: Members,
}

/// Reads the columns of a batch that some of the members have, each to the memory of its member.
///
/// # Errors
///
/// Returns [`Fault::Scratch`] if that is too short.
pub fn columns<D: Devices>(
    devices: &mut D,
    (head, hash): (&Head, u32),
    members: Members,
    memory: &mut Scratch<'_>,
    (layout, tag): (&Layout, ArrayTag),
    crc: &impl Checksum,
) -> Result<Columns, Fault<D::Error>> {
    let bytes = head.column_bytes(layout);
    let at = layout.at(head.place).unwrap_or_default();
    let mut found = Columns::default();
    for member in head.used.and(members).iter() {
        let column = memory.get_mut(member);
        let column = column
            .and_then(|column| column.get_mut(..bytes))
            .ok_or(Fault::Scratch)?;
        if devices.read(member, at, column).is_err() {
            found.unreadable = found.unreadable.or(Members::of(member));
            continue;
        }
        let here = Head::parse(column, head.place, (layout, tag), crc);
        if here == Some((*head, hash)) && head.is_whole(member, column, crc) {
            found.whole = found.whole.or(Members::of(member));
        }
    }
    Ok(found)
}

/// Whether the third column of a batch is the XOR of the others, where all of them are whole.
pub fn is_parity(head: &Head, memory: &Scratch<'_>, layout: &Layout) -> bool {
    let body = HEAD_BYTES..head.column_bytes(layout);
    let [one, other, third] = memory
        .each_ref()
        .map(|column| column.get(body.clone()).unwrap_or_default());
    let mut each = third.iter().zip(one.iter().zip(other));
    each.all(|(third, (one, other))| *third == *one ^ *other)
}

/// Reads a data column of a batch by the first way that gives what its CRC says, to the first of
/// two memories as long as it; whether one does.
pub fn data_column<D: Devices>(
    devices: &mut D,
    (head, number): (&Head, usize),
    usable: Members,
    [column, other]: [&mut [u8]; DATA_COLUMNS],
    layout: &Layout,
    crc: &impl Checksum,
) -> bool {
    let bytes = head.column_bytes(layout);
    let (Some(at), Some(column), Some(other)) = (
        layout.at(head.place),
        column.get_mut(..bytes),
        other.get_mut(..bytes),
    ) else {
        return false;
    };
    source::columns(head, number, usable).any(|way| {
        by(devices, way, at, [&mut *column, &mut *other]).is_ok()
            && head.is_body(number, column, crc)
    })
}

/// Reads what can be read of a data column by each way to it, where none gives all of it: to the
/// first of three memories as long as it, of which the others are working memory. What is a record
/// by no way is zeroes then. Returns whether that is the column whose CRC its head has, so that
/// nothing is missing.
pub fn parts_of_column<D: Devices>(
    devices: &mut D,
    (head, number): (&Head, usize),
    usable: Members,
    [own, other, third]: [&mut [u8]; MEMBERS],
    layout: &Layout,
    crc: &impl Checksum,
) -> bool {
    let at = layout.at(head.place).unwrap_or_default();
    let unit = layout.unit_bytes();
    let mut ways = source::columns(head, number, usable);
    for to in [&mut *own, &mut *other] {
        match ways.next() {
            Some(Source::Member(member)) => parts_of(devices, (member, at), to, unit),
            Some(Source::Rebuild([one, two])) => {
                parts_of(devices, (one, at), to, unit);
                parts_of(devices, (two, at), third, unit);
                devices.xor_into(to, third);
            }
            None => to.fill(NO_RECORD),
        }
    }
    merge(head, [&mut *own, other], layout, crc);
    head.is_body(number, own, crc)
}

/// Reads the units of a member that can be read.
fn parts_of<D: Devices>(devices: &mut D, (member, at): (usize, u64), to: &mut [u8], unit: usize) {
    let (mut rest, mut at) = (to, at);
    while !rest.is_empty() {
        let bytes = unit.max(1).min(rest.len());
        let Some((part, behind)) = rest.split_at_mut_checked(bytes) else {
            break;
        };
        if devices.read(member, at, part).is_err() {
            part.fill(NO_RECORD);
        }
        (rest, at) = (behind, at.saturating_add(bytes as u64));
    }
}

/// Leaves the records in the first of two memories that one of them has, and zeroes beside them, as
/// their writer did.
fn merge(
    head: &Head,
    [own, other]: [&mut [u8]; DATA_COLUMNS],
    layout: &Layout,
    crc: &impl Checksum,
) {
    // CAST: The low bits.
    let with = (layout, Some(head.sequence as u32));
    // The end of its payload, and of what is written for it.
    let ends = |bytes: &[u8], at: usize| {
        let (record, payload) = Record::find(bytes.get(at..)?, with, crc)?;
        let end = at.saturating_add(RECORD_HEAD_BYTES.saturating_add(payload.len()));
        Some((end, at.saturating_add(record.bytes())))
    };
    let mut at = HEAD_BYTES;
    while at < own.len() {
        let mut found = ends(own, at);
        if found.is_none() {
            found = ends(other, at);
            let end = found.map_or(at, |(end, _)| end);
            if let (Some(to), Some(from)) = (own.get_mut(at..end), other.get(at..end)) {
                copy(to, from);
            }
        }
        // What is behind a record that is lost may begin at any place.
        let (end, next) = found.unwrap_or((at, at.saturating_add(ALIGN_BYTES)));
        own.get_mut(end..next).unwrap_or_default().fill(0);
        at = next;
    }
}

/// The records of a data column of which some are missing.
pub struct Parts<'a, C> {
    /// The column, its head included.
    bytes: &'a [u8],
    at: usize,
    with: (&'a Layout, Option<u32>),
    crc: &'a C,
}

impl<'a, C: Checksum> Parts<'a, C> {
    /// Goes through them; `bytes` is what [`parts_of_column`] has left.
    pub fn new(head: &Head, bytes: &'a [u8], layout: &'a Layout, crc: &'a C) -> Self {
        Self {
            bytes,
            at: HEAD_BYTES,
            // CAST: The low bits.
            with: (layout, Some(head.sequence as u32)),
            crc,
        }
    }
}

impl<'a, C: Checksum> Iterator for Parts<'a, C> {
    /// The byte of the column, the record, its payload, as of [`Records`](super::record::Records).
    type Item = (usize, Record, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let at = self.at;
            let bytes = self.bytes.get(at..).filter(|bytes| !bytes.is_empty())?;
            if let Some((record, payload)) = Record::find(bytes, self.with, self.crc) {
                self.at = at.saturating_add(record.bytes());
                return Some((at, record, payload));
            }
            self.at = at.saturating_add(ALIGN_BYTES);
        }
    }
}

/// Reads the record of an entry by one way, whole units; returns its bytes, which
/// [`Spot::record`] checks. Each memory has [`record_bytes`].
///
/// # Errors
///
/// Returns the member that cannot be read, or [`Fault::Scratch`].
pub fn record<'m, D: Devices>(
    devices: &mut D,
    (spot, way): (&Spot, Source),
    [to, other]: [&'m mut [u8]; DATA_COLUMNS],
    layout: &Layout,
) -> Result<&'m [u8], Fault<D::Error>> {
    let (start, skipped, len) = span(spot, layout);
    let to = to.get_mut(..len).ok_or(Fault::Scratch)?;
    let other = other.get_mut(..len).ok_or(Fault::Scratch)?;
    by(devices, way, start, [&mut *to, other])?;
    let end = skipped.saturating_add(spot.bytes);
    to.get(skipped..end).ok_or(Fault::Scratch)
}

/// Reads bytes by one way to the first of two memories, which are as long.
fn by<D: Devices>(
    devices: &mut D,
    way: Source,
    at: u64,
    [to, other]: [&mut [u8]; DATA_COLUMNS],
) -> Result<(), Fault<D::Error>> {
    let read = |devices: &mut D, member, to: &mut [u8]| {
        let done = devices.read(member, at, to);
        done.map_err(|error| Fault::Io(member, error))
    };
    match way {
        Source::Member(member) => read(devices, member, to),
        Source::Rebuild([one, two]) => {
            read(devices, one, to)?;
            read(devices, two, other)?;
            devices.xor_into(to, other);
            Ok(())
        }
    }
}
