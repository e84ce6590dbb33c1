// SPDX-License-Identifier: GPL-2.0

//! Permission to use a device, by the lease that its mark gives and by what it has answered:
//! whether an IO may be begun.

/// The trouble that the keeper of the mark has met last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// No trouble.
    None,
    /// The device has answered with an error when the mark was to be read or written last.
    Failing,
    /// Another server has taken the device; for good.
    Lost,
}

impl Trouble {
    /// Returns the one with a number; an unknown number is that of none.
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            1 => Self::Failing,
            2 => Self::Lost,
            _ => Self::None,
        }
    }

    /// Returns its number.
    pub const fn into_raw(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Failing => 1,
            Self::Lost => 2,
        }
    }
}

/// Use of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The lease lasts.
    Permitted,
    /// The mark is being looked at, or the device does not answer.
    NotNow,
    /// The device answers with errors: so does all IO until its mark is written again.
    Failing,
    /// Another server has taken the device.
    Lost,
}

/// The decision about an IO whose memory was allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// The IO is begun.
    Now,
    /// The IO waits for the permission.
    Wait,
    /// The IO fails, and the device does not get it.
    Refuse,
}

impl Use {
    /// Returns what is permitted at `now_ms`, of a lease that ends at `end_ms`: on the same clock,
    /// in milliseconds.
    pub const fn at(now_ms: u64, end_ms: u64, trouble: Trouble) -> Self {
        match trouble {
            Trouble::Lost => Self::Lost,
            Trouble::None | Trouble::Failing if now_ms < end_ms => Self::Permitted,
            Trouble::Failing => Self::Failing,
            Trouble::None => Self::NotNow,
        }
    }

    /// Returns whether work that no client waits for is begun: a step of a growth, which ends with
    /// the first one that is refused, or a piece of a scrub, which would count as not readable.
    /// That of a device that is another server's has to end.
    pub const fn begins_background_work(self) -> bool {
        matches!(self, Self::Permitted | Self::Lost)
    }

    /// Returns what becomes of an IO. Asked for again when its memory has taken its time.
    pub const fn begin(self) -> Begin {
        match self {
            Self::Permitted => Begin::Now,
            Self::NotNow => Begin::Wait,
            Self::Failing | Self::Lost => Begin::Refuse,
        }
    }
}
