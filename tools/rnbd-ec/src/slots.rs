// SPDX-License-Identifier: GPL-2.0

//! The superblock of a device, as its two slots have it.

use std::{
    fmt,
    io, //
};

use seglog::{
    layout::{
        Layout,
        SLOTS, //
    },
    superblock::{
        may_hide,
        newer,
        Refusal,
        Superblock,
        SUPERBLOCK_BYTES, //
    },
};

use crate::{
    checksum::Crc,
    media::Medium, //
};

/// Content of a slot.
#[derive(Debug)]
pub enum Slot {
    /// A superblock.
    Whole(Superblock),
    /// Nothing that can be used.
    Refused(Refusal),
    /// An error instead of it.
    Unreadable(io::Error),
}

impl Slot {
    /// Whether it should have had a superblock. That of a new array has one slot only.
    pub fn is_damaged(&self) -> bool {
        !matches!(self, Self::Whole(_) | Self::Refused(Refusal::NotFormatted))
    }
}

/// The reason why a device has no superblock that can be used.
#[derive(Debug)]
pub enum Unusable {
    /// The slots were read, and neither is a superblock that this program takes.
    Refused(Refusal),
    /// Neither slot can be read.
    Unreadable(String),
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Unreadable(error) => write!(f, "its superblock cannot be read: {error}"),
        }
    }
}

/// The slots of a device.
#[derive(Debug)]
pub struct Slots([Slot; SLOTS as usize]);

impl Slots {
    /// Reads them.
    pub fn read(medium: &Medium) -> Self {
        Self([0, 1].map(|number| {
            let mut bytes = [0; SUPERBLOCK_BYTES];
            match medium.read(Layout::slot(number), &mut bytes) {
                // It ends before: there is none.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    Slot::Refused(Refusal::NotFormatted)
                }
                Err(error) => Slot::Unreadable(error),
                Ok(()) => match Superblock::parse(&bytes, number, &Crc) {
                    Ok(superblock) => Slot::Whole(superblock),
                    Err(refusal) => Slot::Refused(refusal),
                },
            }
        }))
    }

    /// Goes through them, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &Slot)> {
        (0..SLOTS).zip(&self.0)
    }

    /// Returns the superblock that counts: the newer one.
    ///
    /// # Errors
    ///
    /// Returns why there is none.
    pub fn superblock(&self) -> Result<Superblock, Unusable> {
        let [one, other] = self.parsed()?;
        newer(one, other).map_err(Unusable::Refused)
    }

    /// Whether a slot is damaged, or cannot be read, and may have had a newer one.
    pub fn may_hide(&self) -> bool {
        self.parsed().is_ok_and(|slots| may_hide(slots.each_ref()))
    }

    /// Returns what both have, as an assembly takes it: one that gives an error is damaged.
    fn parsed(&self) -> Result<[Result<Superblock, Refusal>; SLOTS as usize], Unusable> {
        if let [Slot::Unreadable(error), Slot::Unreadable(_)] = &self.0 {
            return Err(Unusable::Unreadable(error.to_string()));
        }
        Ok(self.0.each_ref().map(|slot| match slot {
            Slot::Whole(superblock) => Ok(*superblock),
            Slot::Refused(refusal) => Err(*refusal),
            Slot::Unreadable(_) => Err(Refusal::Unreadable),
        }))
    }
}
