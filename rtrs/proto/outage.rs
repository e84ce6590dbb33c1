// SPDX-License-Identifier: GPL-2.0

//! The outage of a session, in which it has no connected path: IO waits up to `fast_io_fail_tmo`,
//! and fails after that.
//!
//! A session that is being opened has not been up yet: its opener starts with
//! [`Event::LastPathDown`] in [`Outage::Up`].

use core::fmt;

use ferro_proto::text::{
    self,
    NumberError, //
};

/// The maximum finite time that IO waits, in seconds: a day.
pub const FAST_IO_FAIL_S_MAX: u32 = 86_400;

/// The setting `fast_io_fail_tmo`: the time that IO waits for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastIoFail {
    /// No limit; written and shown as `off`.
    Off,
    /// IO fails after this many seconds, at most [`FAST_IO_FAIL_S_MAX`]; 0 fails at once, as the C
    /// driver does.
    After(u32),
}

impl FastIoFail {
    /// Ten minutes, enough for a server to boot.
    pub const DEFAULT: Self = Self::After(600);

    /// Parses a written value: `off` or its equivalent -1, or seconds from 0 to 86400.
    ///
    /// Fails with [`NumberError::Invalid`] (`EINVAL`) or [`NumberError::Range`] (`ERANGE`).
    pub fn parse(written: &[u8]) -> Result<Self, NumberError> {
        if text::is_word(written, b"off") {
            return Ok(Self::Off);
        }
        match text::parse_i32(written, 10)? {
            -1 => Ok(Self::Off),
            s => match u32::try_from(s) {
                Ok(s @ 0..=FAST_IO_FAIL_S_MAX) => Ok(Self::After(s)),
                _ => Err(NumberError::Range),
            },
        }
    }

    /// Converts the setting to a number for an atomic: -1 or seconds.
    pub const fn to_i32(self) -> i32 {
        match self {
            Self::Off => -1,
            // CAST: The value is at most a day; larger ones are clamped to that.
            Self::After(s) if s <= FAST_IO_FAIL_S_MAX => s as i32,
            Self::After(_) => FAST_IO_FAIL_S_MAX as i32,
        }
    }

    /// Converts a stored number to a setting; every negative one is `off`.
    pub const fn from_i32(raw: i32) -> Self {
        if raw < 0 {
            Self::Off
        } else if raw.unsigned_abs() > FAST_IO_FAIL_S_MAX {
            Self::After(FAST_IO_FAIL_S_MAX)
        } else {
            Self::After(raw.unsigned_abs())
        }
    }

    /// Returns the deadline of an outage that began at `since_ms`; `None` if it has none.
    const fn deadline_ms(self, since_ms: u64) -> Option<u64> {
        match self {
            Self::Off => None,
            Self::After(s) => Some(since_ms.saturating_add((s as u64).wrapping_mul(1000))),
        }
    }
}

impl Default for FastIoFail {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for FastIoFail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::After(s) => write!(f, "{s}"),
        }
    }
}

/// The state of a session. All times are milliseconds of a monotonic clock.
///
/// ```text
///            LastPathDown                     DeadlinePassed
///   Up ----------------------> Queueing --------------------------> Failing
///    ^  \                       |    ^       SettingChanged: shorter   |
///    |   '-- tmo is 0 ----------|----|------------------------------>  |
///    |         PathUp           |    '--------------------------------'|
///    '--------------------------'            SettingChanged: longer    |
///    '----------------------------------------------- PathUp ----------'
///
///   any -- Closed --> Closed
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outage {
    /// A path is connected, or several are.
    Up,
    /// No path is connected; IO waits.
    Queueing {
        /// The time when the last path went down.
        since_ms: u64,
        /// The time when waiting ends; `None`: never.
        until_ms: Option<u64>,
    },
    /// No path has been connected for too long; IO fails.
    Failing {
        /// The time when the last path went down.
        since_ms: u64,
    },
    /// The session is closed; IO fails.
    Closed,
}

/// The events of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A path is connected.
    PathUp,
    /// The last connected path went down.
    LastPathDown {
        /// The time.
        now_ms: u64,
        /// `fast_io_fail_tmo`.
        setting: FastIoFail,
    },
    /// The timer of [`Effect::Queue`] has expired.
    DeadlinePassed {
        /// The time.
        now_ms: u64,
    },
    /// `fast_io_fail_tmo` was written. The new value applies from the start of the outage.
    SettingChanged {
        /// The time.
        now_ms: u64,
        /// `fast_io_fail_tmo`.
        setting: FastIoFail,
    },
    /// The session is closed.
    Closed,
}

/// The actions of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Do nothing.
    Ignore,
    /// Queue IO, and set the timer to send `DeadlinePassed` at this time, which replaces an earlier
    /// one; `None`: no timer.
    Queue {
        /// The time when waiting ends.
        until_ms: Option<u64>,
    },
    /// Cancel the timer, reopen the devices, send the queued IO, then admit new IO.
    Resume,
    /// Cancel the timer and fail the queued IO.
    FailQueued,
}

impl Outage {
    /// Returns the state after `event`, and the action.
    pub const fn step(self, event: Event) -> (Self, Effect) {
        match (self, event) {
            (Self::Closed, _) => (self, Effect::Ignore),
            (_, Event::Closed) => (Self::Closed, Effect::FailQueued),
            (Self::Up, Event::LastPathDown { now_ms, setting }) => {
                Self::wait(now_ms, setting, now_ms)
            }
            (Self::Queueing { .. } | Self::Failing { .. }, Event::PathUp) => {
                (Self::Up, Effect::Resume)
            }
            (
                Self::Queueing {
                    since_ms,
                    until_ms: Some(until_ms),
                },
                Event::DeadlinePassed { now_ms },
            ) => {
                if now_ms >= until_ms {
                    (Self::Failing { since_ms }, Effect::FailQueued)
                } else {
                    // A timer of an earlier outage or setting that could not be cancelled.
                    let until_ms = Some(until_ms);
                    (self, Effect::Queue { until_ms })
                }
            }
            (
                Self::Queueing { since_ms, .. } | Self::Failing { since_ms },
                Event::SettingChanged { now_ms, setting },
            ) => match Self::wait(since_ms, setting, now_ms) {
                (Self::Failing { .. }, _) if matches!(self, Self::Failing { .. }) => {
                    (self, Effect::Ignore)
                }
                changed => changed,
            },
            _ => (self, Effect::Ignore),
        }
    }

    /// Returns the state at `now_ms` in an outage that began at `since_ms`.
    const fn wait(since_ms: u64, setting: FastIoFail, now_ms: u64) -> (Self, Effect) {
        let until_ms = setting.deadline_ms(since_ms);
        match until_ms {
            Some(until) if now_ms >= until => (Self::Failing { since_ms }, Effect::FailQueued),
            _ => (
                Self::Queueing { since_ms, until_ms },
                Effect::Queue { until_ms },
            ),
        }
    }
}
