// SPDX-License-Identifier: GPL-2.0

//! The work of a server on its mark when it opens a device, while it has it open, and when it
//! closes it: one [`Errand`] each.
//!
//! The caller does what [`Advance::next`] wants, and says how that has ended. A [`Claim`] decides
//! who has the device; here is what the server makes of that.

use super::{
    super::{
        layout::SUPERBLOCK,
        superblock::Superblock,
        Block,
        Checksum, //
    },
    mark::Found,
    Claim,
    Step, //
};

/// The number of steps after which a device is too slow to be opened: each write of a mark, or each
/// look before it, took [`settle_ms`](super::Timing::settle_ms) or longer. An opening has seven at
/// most.
pub const STEPS_MAX: u32 = 16;

/// The least time between two renewals, in milliseconds.
pub const SOON_MS: u32 = 100;

/// The action of a server for which the mark is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Errand {
    /// The server opens the device.
    Take,
    /// The server has the device open, and the mark is due.
    Renew,
    /// The server closes the device, of which nothing is in use any more.
    Release,
}

/// The content of block 0 beside the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// The sidecar that the server has open, or any one if it has none open yet.
    Same,
    /// The superblock of another sidecar: the device was formatted.
    Another,
    /// No sidecar that can be used.
    Nothing,
}

impl Beside {
    /// Looks at block 0 of a device that has `device_blocks` blocks now. `opened`: the UUID of the
    /// sidecar that the server has open, which stays that one if the device is truncated.
    pub fn of(
        block: &Block,
        opened: Option<&[u8; 16]>,
        device_blocks: u64,
        crc: &impl Checksum,
    ) -> Self {
        let blocks = opened.map_or(device_blocks, |_| u64::MAX);
        match Superblock::parse(block, SUPERBLOCK, blocks, crc) {
            Ok(found) if opened.is_none_or(|uuid| *uuid == found.uuid) => Self::Same,
            Ok(_) => Self::Another,
            Err(_) => Self::Nothing,
        }
    }
}

/// The next step of an errand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Read the sector of the mark: [`Advance::read`].
    Read,
    /// Write a mark that was never written before, with FUA if it is to be `durable`:
    /// [`Advance::written`].
    Write {
        /// The mark must be durable when the write ends.
        durable: bool,
    },
    /// Remove the mark, durably: [`Advance::written`].
    Remove,
    /// Wait for so long at least: [`Advance::waited`].
    Wait {
        /// Milliseconds.
        ms: u32,
        /// The mark of another server is waited for, which is to be told.
        is_watching: bool,
    },
    /// The errand has ended.
    End(End),
}

/// The result of an errand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The server has the device.
    Held,
    /// Another server has the device, and this one never had.
    Busy,
    /// Another server has taken the device.
    Lost,
    /// The device is not that of a sidecar any more.
    NoSidecar,
    /// The mark takes too long to be read and written.
    TooSlow,
    /// The mark is gone.
    Removed,
    /// The mark was left where it is: it may be that of another one.
    Left,
}

/// The progress of an errand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advance {
    errand: Errand,
    steps: u32,
    end: Option<End>,
    /// The content of block 0 beside the mark that was read last.
    beside: Beside,
}

impl Advance {
    /// Begins an errand. [`Claim::pass`] was called just before, as before each of the others.
    pub fn new(errand: Errand, claim: &mut Claim) -> Self {
        if errand != Errand::Take {
            claim.renew();
        }
        Self {
            errand,
            steps: 0,
            end: None,
            beside: Beside::Nothing,
        }
    }

    /// Returns what to do next. `is_permitted`: the device may be used now.
    pub fn next(&mut self, claim: &mut Claim, is_permitted: bool) -> Next {
        if let Some(end) = self.end {
            return Next::End(end);
        }
        if self.steps == STEPS_MAX {
            return Next::End(End::TooSlow);
        }
        self.steps = self.steps.saturating_add(1);
        match (self.errand, claim.step()) {
            (_, Step::Read) => Next::Read,
            // What is there is of another server if this one's lease has ended.
            (Errand::Release, Step::Write { .. }) if is_permitted => Next::Remove,
            (Errand::Release, _) => Next::End(End::Left),
            // The first mark would make nonsense of what another program has made of the device.
            (_, Step::Write { is_first: true }) if self.beside == Beside::Nothing => {
                claim.failed();
                Next::End(End::NoSidecar)
            }
            (_, Step::Write { is_first }) => Next::Write { durable: is_first },
            (_, Step::Wait(ms)) => Next::Wait {
                ms,
                is_watching: claim.is_watching(),
            },
            (_, Step::Rest) => Next::End(End::Held),
            (_, Step::Busy) => Next::End(End::Busy),
            (_, Step::Lost) => Next::End(End::Lost),
        }
    }

    /// The sector of the mark was read, and what is `beside` it; returns whether what was found
    /// counts. What does not is an error of the device, after which the errand is over.
    #[must_use = "what does not count is an error of the device"]
    pub fn read(&mut self, claim: &mut Claim, found: Found, beside: Beside) -> bool {
        self.beside = beside;
        let is_replaced = match beside {
            Beside::Same => false,
            Beside::Another => true,
            // In a lease no one formats the device, so that is a bad reading, or damage.
            Beside::Nothing => claim.lease_ms() == 0,
        };
        // A mark that came late to a device that was formatted is no permission to write to it.
        let counts = match is_replaced && self.errand != Errand::Take {
            true => Found::Free,
            false => found,
        };
        claim.read(counts)
    }

    /// The mark was written, or removed.
    pub fn written(&mut self, claim: &mut Claim) {
        match self.errand {
            Errand::Release => self.end = Some(End::Removed),
            Errand::Take | Errand::Renew => claim.written(),
        }
    }

    /// The time has passed.
    pub fn waited(&mut self, claim: &mut Claim) {
        claim.waited();
    }

    /// The device has answered with an error: the errand is over, and nothing is known of others.
    pub fn failed(self, claim: &mut Claim) {
        claim.failed();
    }
}

impl End {
    /// Returns whether the device is another server's for good.
    pub const fn is_lost(self) -> bool {
        matches!(self, Self::Lost | Self::Busy)
    }
}

/// Returns after how many milliseconds the mark is to be written anew.
pub const fn rest_ms(claim: &Claim) -> u32 {
    let rest_ms = claim.rest_ms();
    if rest_ms > SOON_MS {
        rest_ms
    } else {
        SOON_MS
    }
}
