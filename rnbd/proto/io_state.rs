// SPDX-License-Identifier: GPL-2.0

//! The way a device's requests are sent: with its number on the server, later, or not at all.
//!
//! One word, which each request reads. It changes together with the
//! [`DeviceState`](super::control::DeviceState), except that an answer which says that the server
//! does not have the device open sets it to [`IoState::Failing`] at once.

/// Next to the number: writes are forced through the server's cache.
const FORCED: u64 = 1 << 32;

/// Next to the number: requests have protection information.
const PROTECTED: u64 = 1 << 33;

/// [`IoState::Queueing`], beyond the number and the two flags.
const QUEUEING: u64 = u64::MAX - 1;

/// [`IoState::Failing`].
const FAILING: u64 = u64::MAX;

/// Whether all who use a disk send flushes to it.
///
/// A disk without a cache gets none. A device on top of it (LVM, dm-crypt) keeps what it was told
/// when it was made, and drops the flushes of its own users also when the disk has a cache later.
/// So it counts until the disk is unmapped that it had none once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flushes {
    are_sent: bool,
    /// The result of [`must_force`](Self::must_force) when it was asked for last.
    is_forced: bool,
}

impl Flushes {
    /// Returns the state for a disk that is added, with a cache or without.
    pub const fn new(has_cache: bool) -> Self {
        Self {
            are_sent: has_cache,
            is_forced: false,
        }
    }

    /// Takes note that the server's device has a cache now, or none.
    pub fn follow(&mut self, has_cache: bool) {
        self.are_sent &= has_cache;
    }

    /// Returns whether writes are forced through the cache, if the server's device has one.
    pub const fn must_force(self, has_cache: bool) -> bool {
        has_cache && !self.are_sent
    }

    /// Returns whether they are from now on, and were not before: users are told, whether the
    /// limits of the disk change by it or have not followed yet.
    pub fn begins_to_force(&mut self, has_cache: bool) -> bool {
        let must_force = self.must_force(has_cache);
        !core::mem::replace(&mut self.is_forced, must_force) && must_force
    }
}

/// The state in which requests of a device are sent, queued or failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoState {
    /// Requests are sent to the device of that number on the server.
    Open(u32),
    /// Requests are sent as with `Open`, and writes are forced through the server's cache.
    OpenForceFua(u32),
    /// Requests are sent as with `Open`, with protection information; if `force_fua`, as with
    /// `OpenForceFua`.
    OpenProtected {
        /// The number.
        id: u32,
        /// Writes are forced through the server's cache.
        force_fua: bool,
    },
    /// Requests are queued until the device is open again.
    Queueing,
    /// Requests fail.
    Failing,
}

impl IoState {
    /// Returns the state of a device that is open on the server with the number `id`.
    pub const fn open(id: u32, force_fua: bool, is_protected: bool) -> Self {
        match (is_protected, force_fua) {
            (true, _) => IoState::OpenProtected { id, force_fua },
            (false, true) => IoState::OpenForceFua(id),
            (false, false) => IoState::Open(id),
        }
    }

    /// Returns the device's number on the server, if it is open there.
    #[inline]
    pub const fn remote_id(self) -> Option<u32> {
        match self {
            IoState::Open(id) | IoState::OpenForceFua(id) | IoState::OpenProtected { id, .. } => {
                Some(id)
            }
            IoState::Queueing | IoState::Failing => None,
        }
    }

    /// Returns whether a message with the device's number `id` is for this device. A number is
    /// valid for one device of one session of the server: a server that was restarted gives it to
    /// another one.
    #[inline]
    pub const fn is_number(self, id: u32) -> bool {
        matches!(self.remote_id(), Some(open) if open == id)
    }

    /// Returns the state after an answer that says that the server does not have the device `id`
    /// open; `None` if requests are sent with another number meanwhile.
    pub const fn not_open_there(self, id: u32) -> Option<Self> {
        if self.is_number(id) {
            Some(IoState::Failing)
        } else {
            None
        }
    }

    /// Converts the state to a word.
    #[inline]
    pub const fn to_word(self) -> u64 {
        match self {
            IoState::Open(id) => id as u64,
            IoState::OpenForceFua(id) => FORCED | id as u64,
            IoState::OpenProtected { id, force_fua } => {
                PROTECTED | if force_fua { FORCED } else { 0 } | id as u64
            }
            IoState::Queueing => QUEUEING,
            IoState::Failing => FAILING,
        }
    }

    /// Converts a word to the state.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        // CAST: the number is the lower half.
        let id = word as u32;
        match word {
            0..FORCED => IoState::Open(id),
            FAILING => IoState::Failing,
            QUEUEING => IoState::Queueing,
            FORCED..PROTECTED => IoState::OpenForceFua(id),
            _ => IoState::OpenProtected {
                id,
                force_fua: word & FORCED != 0,
            },
        }
    }
}
