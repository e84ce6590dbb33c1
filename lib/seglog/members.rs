// SPDX-License-Identifier: GPL-2.0

//! Sets of members, and which column each has.

/// The number of data columns.
pub const DATA_COLUMNS: usize = 2;
/// The number of members: one more, for the parity column.
pub const MEMBERS: usize = DATA_COLUMNS + 1;
/// The column of a segment that has parity, behind the data columns.
pub const PARITY: usize = DATA_COLUMNS;

/// A set of members. A member is a number below [`MEMBERS`]; other numbers are in no set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Members(u8);

impl Members {
    /// All of them.
    pub const ALL: Self = Self((1 << MEMBERS) - 1);
    /// The empty set.
    pub const NONE: Self = Self(0);

    /// Returns the set with a bit for each member; `None` if a bit stands for no member.
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits & !Self::ALL.0 == 0 {
            Some(Self(bits))
        } else {
            None
        }
    }

    /// Returns a bit for each member.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Returns the set of one member.
    pub const fn of(member: usize) -> Self {
        if member < MEMBERS {
            Self(1 << member)
        } else {
            Self::NONE
        }
    }

    /// Whether a member is in it.
    pub const fn contains(self, member: usize) -> bool {
        self.0 & Self::of(member).0 != 0
    }

    /// Whether it has no member.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all its members are in `other`.
    pub const fn is_within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    /// Returns the members of either set.
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the members of both sets.
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns the members that are not in `other`.
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns how many there are.
    pub const fn count(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Goes through them, in their order.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..MEMBERS).filter(move |member| self.contains(*member))
    }
}

impl FromIterator<usize> for Members {
    fn from_iter<I: IntoIterator<Item = usize>>(members: I) -> Self {
        let each = members.into_iter().map(Self::of);
        each.fold(Self::NONE, Self::or)
    }
}

/// Returns the member that has the parity column of a segment.
const fn parity_member(segment: u32) -> usize {
    (segment % MEMBERS as u32) as usize
}

/// Returns the member that has a column of a segment: data columns are on the other members, in
/// their order. `column` is at most [`PARITY`].
pub const fn member_of(segment: u32, column: usize) -> usize {
    let parity = parity_member(segment);
    if column >= PARITY {
        parity
    } else if column < parity {
        column
    } else {
        column + 1
    }
}

/// Returns the column of a segment that a member has.
pub const fn column_of(segment: u32, member: usize) -> usize {
    let parity = parity_member(segment);
    if member == parity {
        PARITY
    } else if member > parity {
        member - 1
    } else {
        member
    }
}
