// SPDX-License-Identifier: GPL-2.0

//! What becomes of IO while a session has no connected path: it waits for one, up to
//! `fast_io_fail_tmo`, and fails after that.
//!
//! A session that is being opened for the first time has been up never: its opener starts from
//! [`Outage::Up`] with [`Event::LastPathDown`].

use core::fmt;

use ferro_proto::text::{
    self,
    NumberError, //
};

/// Longest time that IO can be told to wait, in seconds, short of for ever: a day.
pub const FAST_IO_FAIL_S_MAX: u32 = 86_400;

/// The setting `fast_io_fail_tmo`: how long IO waits for a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastIoFail {
    /// For ever; written and shown as `off`.
    Off,
    /// So many seconds, at most [`FAST_IO_FAIL_S_MAX`]; 0 fails at once, as the C driver does.
    After(u32),
}

impl FastIoFail {
    /// Ten minutes: a server has booted by then.
    pub const DEFAULT: Self = Self::After(600);

    /// Reads what was written: `off`, -1 which is the same, or seconds from 0 to 86400.
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

    /// Keeps the setting as a number, for an atomic: -1 or seconds.
    pub const fn to_i32(self) -> i32 {
        match self {
            Self::Off => -1,
            // CAST: At most a day; a number beyond is cut to that.
            Self::After(s) if s <= FAST_IO_FAIL_S_MAX => s as i32,
            Self::After(_) => FAST_IO_FAIL_S_MAX as i32,
        }
    }

    /// Reads a setting that was stored as a number; every negative one is `off`.
    pub const fn from_i32(raw: i32) -> Self {
        if raw < 0 {
            Self::Off
        } else if raw.unsigned_abs() > FAST_IO_FAIL_S_MAX {
            Self::After(FAST_IO_FAIL_S_MAX)
        } else {
            Self::After(raw.unsigned_abs())
        }
    }

    /// Returns the end of an outage that began at `since_ms`; `None`: it has none.
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

/// How a session stands. All times are milliseconds of one clock that does not go back.
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
    /// At least one path is connected.
    Up,
    /// None is; IO waits.
    Queueing {
        /// When the last path went down.
        since_ms: u64,
        /// When waiting ends; `None`: never.
        until_ms: Option<u64>,
    },
    /// None is, for too long; IO fails.
    Failing {
        /// When the last path went down.
        since_ms: u64,
    },
    /// The session is over; IO fails.
    Closed,
}

/// What happens to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A path is connected.
    PathUp,
    /// The last connected path is gone.
    LastPathDown {
        /// The time.
        now_ms: u64,
        /// `fast_io_fail_tmo`.
        setting: FastIoFail,
    },
    /// The timer that [`Effect::Queue`] asked for has fired.
    DeadlinePassed {
        /// The time.
        now_ms: u64,
    },
    /// Somebody wrote `fast_io_fail_tmo`. An outage goes by the new value from its beginning on.
    SettingChanged {
        /// The time.
        now_ms: u64,
        /// `fast_io_fail_tmo`.
        setting: FastIoFail,
    },
    /// The session is closed.
    Closed,
}

/// What the session has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    Ignore,
    /// Let IO wait, and say `DeadlinePassed` at this time in place of any earlier such wish;
    /// `None`: never.
    Queue {
        /// When waiting ends.
        until_ms: Option<u64>,
    },
    /// Forget the timer, open the devices again, then send what waits, then let new IO in.
    Resume,
    /// Forget the timer and end what waits with an error.
    FailQueued,
}

impl Outage {
    /// Returns the state after `event`, and what to do.
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
                    // A timer of an earlier outage or setting that could not be stopped.
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
