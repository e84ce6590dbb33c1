// SPDX-License-Identifier: GPL-2.0

//! The ways to read a record, or a column of a batch, from the members.

use super::{
    batch::{
        Head,
        Kind, //
    },
    layout::Layout,
    members::{
        member_of,
        Members,
        DATA_COLUMNS,
        MEMBERS, //
    },
    record::Spot, //
};

/// A way to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A member has it.
    Member(usize),
    /// The XOR of what two members have there.
    Rebuild([usize; DATA_COLUMNS]),
}

/// Returns the ways to a record, the cheapest one first: at most a column, its copy, and the
/// others. Only members of `usable` are read: those that have a column of the segment, and are
/// there. Each answer is to be checked as [`record`](super::record) has it, and the next way to be
/// tried.
pub fn sources(spot: &Spot, usable: Members) -> impl Iterator<Item = Source> {
    let member = |column| Some(member_of(spot.segment, column)).filter(|m| usable.contains(*m));
    let own = member(spot.column).map(Source::Member);
    let copy = spot.copy.and_then(member).map(Source::Member);
    let mut others = (0..MEMBERS)
        .filter(|column| *column != spot.column)
        .map(member);
    let rebuilt = match (spot.copy, others.next().flatten(), others.next().flatten()) {
        (None, Some(one), Some(other)) => Some(Source::Rebuild([one, other])),
        _ => None,
    };
    [own, copy, rebuilt].into_iter().flatten()
}

/// Returns the ways to a data column of a batch, as [`sources`] does to a record. The answer is to
/// be checked with [`Head::is_body`].
pub fn columns(head: &Head, column: usize, usable: Members) -> impl Iterator<Item = Source> {
    let usable = usable.and(head.used);
    let own = member_of(head.place.segment, column);
    let others = usable.minus(Members::of(own));
    let other = match head.kind {
        Kind::Mirror => others.iter().next().map(Source::Member),
        Kind::Striped => {
            let mut each = others.iter();
            let pair = each.next().zip(each.next());
            pair.map(|(one, other)| Source::Rebuild([one, other]))
        }
    };
    let own = usable.contains(own).then_some(Source::Member(own));
    [own, other].into_iter().flatten()
}

/// Returns where a record begins on a member, in bytes.
pub fn at(spot: &Spot, layout: &Layout) -> u64 {
    layout.segment(spot.segment).saturating_add(spot.offset)
}

/// Returns the first byte on a member of the units that have a record, how many bytes of these are
/// before it, and how many bytes they have.
pub fn span(spot: &Spot, layout: &Layout) -> (u64, usize, usize) {
    let at = at(spot, layout);
    let unit = layout.unit_bytes().max(1);
    // CAST: Below a unit.
    let skipped = (at % unit as u64) as usize;
    let bytes = skipped.saturating_add(spot.bytes);
    let len = bytes.checked_next_multiple_of(unit).unwrap_or(bytes);
    (at.saturating_sub(skipped as u64), skipped, len)
}
