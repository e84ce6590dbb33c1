// SPDX-License-Identifier: GPL-2.0

//! A scrub of a device that is in use: its order, and what it has found.
//!
//! The server reads each data block as a client does, through the queue of requests, one piece
//! after the other, and checks it.

use core::fmt;

use ferro_proto::errno::Errno;

use super::{
    group::GROUP_BLOCKS,
    layout::Layout,
    scrub::Counts,
    tuple::Verdict, //
};

/// The maximum number of blocks of a piece.
pub const PIECE_BLOCKS_MAX: u16 = 16;

/// The number of PI blocks that are written anew however few others were read. A device of which
/// more are bad fails for another reason than its medium, and its tuples may be back with it.
const MENDED_MIN: u64 = 8;

/// One more PI block is written anew for so many others of which the data were read.
const SOUND_EACH: u64 = 64;

/// The state of a scrub, as the file `scrub` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// No scrub was asked for since the device was opened.
    Idle,
    /// The scrub runs.
    Running,
    /// The scrub was stopped before the last block.
    Stopped,
    /// The scrub has checked each block.
    Finished,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Finished => "finished",
        })
    }
}

/// Neighbouring data blocks that are read at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The first data block.
    pub first: u64,
    /// The number of blocks: 1 to [`PIECE_BLOCKS_MAX`].
    pub blocks: u16,
}

/// A scrub of a device in use.
#[derive(Clone, Copy, Debug)]
pub struct OnlineScrub {
    state: State,
    next: u64,
    end: u64,
    /// Blocks before this one are read alone: one of them cannot be read.
    single_until: u64,
    /// The piece that is being read.
    reading: Option<Piece>,
    found: Counts,
    /// PI blocks that cannot be read are written anew.
    mends: bool,
    mended: u64,
}

/// Returns whether a reading with this error may have failed because of the medium at its place: a
/// device that is gone, or out of reach, says nothing of that.
pub const fn is_of_medium(error: Errno) -> bool {
    const ENODATA: u16 = 61;
    const EILSEQ: u16 = 84;
    matches!(error.get(), ENODATA | EILSEQ) || matches!(error, Errno::EIO)
}

impl OnlineScrub {
    /// No scrub.
    pub const fn new() -> Self {
        Self {
            state: State::Idle,
            next: 0,
            end: 0,
            single_until: 0,
            reading: None,
            found: Counts::NONE,
            mends: false,
            mended: 0,
        }
    }

    /// Starts with the first of `data_blocks` blocks; returns `false` if a scrub runs, or the last
    /// piece of one that was stopped. `mends`: PI blocks that cannot be read are written anew.
    pub fn start(&mut self, data_blocks: u64, mends: bool) -> bool {
        let is_free = self.state != State::Running && self.reading.is_none();
        if is_free {
            *self = Self {
                state: State::Running,
                end: data_blocks,
                mends,
                ..Self::new()
            };
        }
        is_free
    }

    /// Stops the scrub; returns `false` if none runs.
    pub fn stop(&mut self) -> bool {
        let is_running = self.state == State::Running;
        if is_running {
            self.state = State::Stopped;
        }
        is_running
    }

    /// Returns the piece to be read now, which is contiguous on the device.
    pub fn next_piece(&mut self, layout: &Layout) -> Option<Piece> {
        if self.state != State::Running || self.reading.is_some() {
            return None;
        }
        let (_, contiguous) = layout.data(self.next)?;
        let most = match self.next < self.single_until {
            true => 1,
            false => PIECE_BLOCKS_MAX,
        };
        let left = self.end.saturating_sub(self.next);
        let blocks = u64::from(most).min(contiguous).min(left);
        let piece = Piece {
            first: self.next,
            blocks: u16::try_from(blocks).ok()?,
        };
        self.reading = Some(piece);
        Some(piece)
    }

    /// The piece cannot be read now: there is no room for it.
    pub fn withdraw(&mut self) {
        self.reading = None;
    }

    /// A block of the piece was read and checked. `is_empty`: it has zeroes.
    pub fn checked(&mut self, verdict: Verdict, is_empty: bool) {
        self.found.count(Some(verdict), is_empty);
    }

    /// The piece has ended: all its blocks were checked, or it could not be read. Returns the block
    /// that cannot be read, once it is known.
    pub fn ended(&mut self, was_read: bool) -> Option<u64> {
        let piece = self.reading.take()?;
        let end = piece.first.saturating_add(piece.blocks.into());
        let mut unreadable = None;
        match (was_read, piece.blocks) {
            (true, _) => self.next = end,
            (false, 1) => {
                self.found.count(None, true);
                unreadable = Some(piece.first);
                self.next = end;
            }
            (false, _) => self.single_until = end,
        }
        if self.next >= self.end {
            self.state = State::Finished;
        }
        unreadable
    }

    /// Returns whether a PI block that cannot be read is to be written anew now.
    pub fn mends(&self) -> bool {
        let sound = (self.next / GROUP_BLOCKS).saturating_sub(self.mended);
        let most = MENDED_MIN.saturating_add(sound / SOUND_EACH);
        self.mends && self.state == State::Running && self.mended < most
    }

    /// A PI block was written anew.
    pub fn mended(&mut self) {
        self.mended = self.mended.saturating_add(1);
    }

    /// Returns the piece that is being read.
    pub const fn reading(&self) -> Option<Piece> {
        self.reading
    }

    /// Returns how far it is.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns what was found so far.
    pub const fn found(&self) -> &Counts {
        &self.found
    }
}

impl Default for OnlineScrub {
    fn default() -> Self {
        Self::new()
    }
}

/// The content of the file `scrub`: a line for each value.
impl fmt::Display for OnlineScrub {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "state {}", self.state)?;
        writeln!(f, "blocks {}", self.end)?;
        writeln!(f, "checked {}", self.next)?;
        writeln!(f, "good {}", self.found.good)?;
        writeln!(f, "unwritten {}", self.found.unwritten)?;
        writeln!(f, "unchecked {}", self.found.unchecked)?;
        writeln!(f, "not_empty {}", self.found.not_empty)?;
        writeln!(f, "bad {}", self.found.bad())?;
        writeln!(f, "mended {}", self.mended)
    }
}
