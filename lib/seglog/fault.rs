// SPDX-License-Identifier: GPL-2.0

//! The reasons why an array is refused.

use core::fmt;

use super::{
    epoch::NoQuorum,
    superblock::Refusal, //
};

/// The reason why an array cannot be assembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault<E> {
    /// A member has no superblock that can be used.
    Superblock(usize, Refusal),
    /// A slot of a member's superblock is damaged, or gives an error, and may have had a newer
    /// epoch, which only a member that is missing may know.
    Unsure(usize),
    /// A member is not of the array of the first one.
    OtherArray(usize),
    /// A member is another one of the array.
    OtherMember {
        /// The place it was given at.
        given: usize,
        /// The number it has.
        found: usize,
    },
    /// A member is smaller than when the array was made.
    Truncated {
        /// The member.
        member: usize,
        /// The bytes that it must have.
        needed: u64,
        /// The bytes that it has.
        found: u64,
    },
    /// Too few are in sync.
    NoQuorum(NoQuorum),
    /// The log is damaged: a batch that was durable is missing.
    Damaged {
        /// Its number.
        sequence: u64,
    },
    /// The log has a batch that the superblocks do not know, of which two have lost a slot.
    Superseded {
        /// The number of the first batch that they do not know.
        sequence: u64,
    },
    /// The log goes through the segment that it names as the next one: slots hide a later start.
    Overrun {
        /// The number of the batch that would follow.
        sequence: u64,
    },
    /// The log may be longer than it seems: a member cannot be read where it may go on, and the
    /// others are too few to know.
    Unreadable {
        /// The member.
        member: usize,
        /// The first byte that it cannot read.
        at: u64,
    },
    /// The log goes on behind as many segments as there are.
    Endless {
        /// The number of the batch behind them.
        sequence: u64,
    },
    /// A batch with the right CRC has something else than records.
    Malformed {
        /// Its number.
        sequence: u64,
    },
    /// A page of the table is on no member in sync.
    Page(u64),
    /// No segment is free for the first batch of this assembly.
    NoSegment,
    /// The memory for a column is too short.
    Scratch,
    /// An IO of a member has failed: the array can be assembled without it.
    Io(usize, E),
}

impl<E: fmt::Display> fmt::Display for Fault<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superblock(member, refusal) => write!(f, "member {member}: {refusal}"),
            Self::Unsure(member) => write!(
                f,
                "member {member}: a slot of its superblock is damaged, or cannot be read, and may \
                 have had a newer epoch: add the member that is missing, or give up what was \
                 written since: force=1"
            ),
            Self::OtherArray(member) => write!(f, "member {member} is of another array"),
            Self::OtherMember { given, found } => write!(
                f,
                "the device that was given as member {given} is member {found}: give it there"
            ),
            Self::Truncated {
                member,
                needed,
                found,
            } => write!(
                f,
                "member {member} has {found} bytes, and {needed} are needed: it was truncated"
            ),
            Self::NoQuorum(why) => why.fmt(f),
            Self::Damaged { sequence } => write!(
                f,
                "the log is damaged: batch {sequence} was durable, and is missing"
            ),
            Self::Superseded { sequence } => write!(
                f,
                "slots of superblocks are damaged, or cannot be read, and the others are older \
                 than the log: give up what was written from batch {sequence} on: force=1"
            ),
            Self::Overrun { sequence } => write!(
                f,
                "slots of superblocks are damaged, or cannot be read, that have where the log \
                 starts: batch {sequence} would be written over it. force=1 does not help: rnbd-ec \
                 dump --log lists what is there"
            ),
            Self::Unreadable { member, at } => write!(
                f,
                "member {member} cannot be read at byte {at}, where the log may go on, and too few \
                 others tell: add the member that is missing, or assemble when it can be read"
            ),
            Self::Endless { sequence } => write!(
                f,
                "batch {sequence} is behind more segments than there are: a member gives \
                 something else each time that it is read"
            ),
            Self::Malformed { sequence } => {
                write!(f, "batch {sequence} of the log is whole and has no records")
            }
            Self::Page(page) => write!(f, "page {page} of the table cannot be read"),
            Self::NoSegment => f.write_str("no segment of the log is free"),
            Self::Scratch => f.write_str("the memory for a column is too short"),
            Self::Io(member, error) => write!(f, "member {member}: {error}"),
        }
    }
}
