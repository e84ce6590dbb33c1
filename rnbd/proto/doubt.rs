// SPDX-License-Identifier: GPL-2.0

//! Whether a server may have a device open of which its client does not know, and what the client
//! does about that.
//!
//! The writer of `map_device` or `remap_device` may be killed, or a path be lost, between an OPEN
//! and its answer. The server has opened the device then, or will, and takes it for one in use:
//! other sessions may not write to it, until this one ends. So the client asks once more, and
//! closes what is open.
//!
//! A server closes, and opens anew, what it has open under a name if an OPEN asks for something
//! else. So a client asks for no name that another of its devices has: that device may be in use.
//! Its own OPEN, which the server carries out after that of the device in doubt, ends the doubt.

use ferro_proto::errno::Errno;

use super::{
    control::DeviceState,
    io_state::IoState,
    occasion::ANSWER_MS, //
};

/// The longest time for which a client waits for the end of its message before it settles a doubt,
/// in milliseconds: an answer comes or the path is lost before.
pub const END_MS: u32 = ANSWER_MS;

/// The time between two tries to settle a doubt, in milliseconds: a path may be lost, or a CLOSE.
pub const AGAIN_MS: u32 = 2_000;

/// Returns whether the server has nothing open after it has answered the question of a settlement,
/// or a CLOSE, with this error. One that has no place or no memory for it has not looked.
pub const fn has_nothing_open(error: Errno) -> bool {
    !matches!(error, Errno::EAGAIN | Errno::ENOMEM)
}

/// The result of an OPEN for its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// The OPEN was not sent.
    NotSent,
    /// The server has answered with an error. It closes itself what it opens after `ETIMEDOUT`:
    /// see [`told`](super::told).
    Refused,
    /// No answer: the server may have carried it out, or may do so.
    Nothing,
    /// The server has the device open under this number, which is not used yet.
    Number(u32),
    /// The server has nothing open under this number: it has answered the CLOSE of an unmap.
    Closed(u32),
}

impl Heard {
    /// Returns what an unmap leaves. `was` is the state of the device before, `closed` the number
    /// whose CLOSE the server has answered; none is sent if an outage has begun since the device
    /// was opened. A session that was lost at its client only is the same for the server, which has
    /// the device open then.
    pub const fn after_unmap(was: DeviceState, closed: Option<u32>) -> Self {
        match (was, closed) {
            (_, Some(number)) => Self::Closed(number),
            (DeviceState::Mapped | DeviceState::Disconnected, None) => Self::Nothing,
            (DeviceState::Init | DeviceState::Unmapped | DeviceState::Fenced, None) => {
                Self::NotSent
            }
        }
    }
}

/// The device on the server, as far as its client does not use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Open {
    /// Nothing.
    Nothing,
    /// The device, under this number.
    Number(u32),
    /// The device, now or later: a message is without an answer.
    Unheard,
}

/// Whether the server may have a device open under a number that the client does not use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doubt {
    open: Open,
    /// The number of OPENs that have begun a doubt: the end of an earlier one says nothing of a
    /// later one.
    generation: u32,
}

/// The action of a client that has given up on a device, or does not use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settle {
    /// Does nothing.
    Nothing,
    /// Leaves the doubt to the other device with the same name.
    HandOver,
    /// Asks once more, and closes what is open unless a device uses it.
    Ask,
}

impl Doubt {
    /// The client has asked for nothing.
    pub const NONE: Self = Self {
        open: Open::Nothing,
        generation: 0,
    };

    /// Notes the result of an OPEN, or of an unmap. One that is refused has begun no doubt, and
    /// ends none: another one, of a second writer or of an earlier turn, may be unanswered still.
    /// So may one be that the server carries out after the CLOSE of an unmap, which ends the doubt
    /// about its own number only.
    pub fn hear(&mut self, heard: Heard) {
        self.open = match (heard, self.open) {
            (Heard::NotSent | Heard::Refused, _) => return,
            (Heard::Closed(closed), open) => {
                if open == Open::Number(closed) {
                    self.end();
                }
                return;
            }
            (Heard::Nothing, _) | (Heard::Number(_), Open::Unheard) => Open::Unheard,
            // It has a device open under one number only.
            (Heard::Number(number), Open::Nothing | Open::Number(_)) => Open::Number(number),
        };
        self.generation = self.generation.wrapping_add(1);
    }

    /// Returns the number of the OPEN with which the doubt has begun.
    pub const fn generation(self) -> u32 {
        self.generation
    }

    /// Notes that the server has refused the OPEN of this number after all.
    pub fn refuse(&mut self, generation: u32) {
        if generation == self.generation {
            self.end();
        }
    }

    /// Notes that the client uses the number, or has closed it.
    pub fn end(&mut self) {
        self.open = Open::Nothing;
    }

    /// Returns whether there is a doubt.
    pub const fn is_any(self) -> bool {
        !matches!(self.open, Open::Nothing)
    }

    /// Returns whether there is nothing to ask. With the end of its session the server closes what
    /// is open, and an OPEN would open it again until then.
    pub const fn is_settled(self, is_session_closing: bool) -> bool {
        is_session_closing || !self.is_any()
    }

    /// Returns what to do while no other OPEN, CLOSE or validation of the session is under way.
    /// `state` is that of the device, `namesake` that of another one with its name.
    pub const fn settle(self, state: DeviceState, namesake: Option<IoState>) -> Settle {
        match (state, namesake) {
            _ if !self.is_any() => Settle::Nothing,
            // It is being opened.
            (DeviceState::Init | DeviceState::Disconnected, _) => Settle::Nothing,
            (DeviceState::Unmapped, Some(used)) if used.remote_id().is_some() => Settle::Nothing,
            (DeviceState::Unmapped, Some(_)) => Settle::HandOver,
            (DeviceState::Mapped | DeviceState::Fenced | DeviceState::Unmapped, _) => Settle::Ask,
        }
    }
}
