// SPDX-License-Identifier: GPL-2.0

//! The settings of a client's session: options of `map_device` for a new session, and files of the
//! session's directory at any time.

use core::{
    fmt,
    ops::RangeInclusive, //
};

use super::{
    heartbeat::Heartbeat,
    outage::FastIoFail, //
};
use ferro_proto::{
    backoff,
    errno::Errno,
    text::{
        self,
        NumberError, //
    }, //
};

/// A setting. Each value is an `i32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Setting {
    /// The number of attempts to reconnect a path before it is closed: up to 9999, -1 for
    /// unlimited.
    MaxReconnectAttempts = 0,
    /// The maximum delay between two such attempts, in milliseconds.
    ReconnectDelayMs = 1,
    /// The time that IO waits while no path is connected, in seconds; -1 (`off`) for unlimited.
    FastIoFailTmo = 2,
    /// The interval between two heartbeats, in milliseconds.
    HeartbeatIntervalMs = 3,
    /// The number of heartbeats that may stay unanswered; one more fails the path.
    HeartbeatMissedMax = 4,
}

/// The number of settings.
pub const COUNT: usize = 5;

/// The value of a setting is out of range or not a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// The setting.
    pub setting: Setting,
    /// The number is larger or smaller than any `int`.
    pub is_overflow: bool,
}

impl SettingError {
    /// Returns the error of the write, as the C driver for `max_reconnect_attempts`: `ERANGE` for a
    /// number that is no `int`, or else `EINVAL`.
    pub const fn errno(self) -> Errno {
        if self.is_overflow {
            Errno::ERANGE
        } else {
            Errno::EINVAL
        }
    }
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let range = self.setting.range();
        let name = self.setting.name();
        match self.setting {
            Setting::FastIoFailTmo => {
                write!(f, "{name} is neither off nor 0..={} seconds", range.end())
            }
            _ => write!(f, "{name} is not in {}..={}", range.start(), range.end()),
        }
    }
}

impl Setting {
    /// All settings, by number.
    pub const ALL: [Self; COUNT] = [
        Self::MaxReconnectAttempts,
        Self::ReconnectDelayMs,
        Self::FastIoFailTmo,
        Self::HeartbeatIntervalMs,
        Self::HeartbeatMissedMax,
    ];

    /// Returns the name of the file, and of the option.
    pub const fn name(self) -> &'static str {
        match self {
            Self::MaxReconnectAttempts => "max_reconnect_attempts",
            Self::ReconnectDelayMs => "reconnect_delay_ms",
            Self::FastIoFailTmo => "fast_io_fail_tmo",
            Self::HeartbeatIntervalMs => "heartbeat_interval_ms",
            Self::HeartbeatMissedMax => "heartbeat_missed_max",
        }
    }

    /// Finds a setting by its name.
    pub fn by_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|s| s.name().as_bytes() == name)
    }

    /// Returns the range of values.
    pub const fn range(self) -> RangeInclusive<i32> {
        // CAST: All values are far below 2^31.
        match self {
            Self::MaxReconnectAttempts => backoff::ATTEMPTS_FOR_EVER..=9999,
            Self::ReconnectDelayMs => backoff::DELAY_MS_MIN as i32..=backoff::DELAY_MS_MAX as i32,
            Self::FastIoFailTmo => {
                FastIoFail::Off.to_i32()..=super::outage::FAST_IO_FAIL_S_MAX as i32
            }
            Self::HeartbeatIntervalMs => 100..=60_000,
            Self::HeartbeatMissedMax => 1..=100,
        }
    }

    /// Returns the default value.
    pub const fn default(self) -> i32 {
        // CAST: All values are far below 2^31.
        match self {
            Self::MaxReconnectAttempts => backoff::ATTEMPTS_FOR_EVER,
            Self::ReconnectDelayMs => backoff::DELAY_MS_DEFAULT as i32,
            Self::FastIoFailTmo => FastIoFail::DEFAULT.to_i32(),
            Self::HeartbeatIntervalMs => Heartbeat::CLIENT.interval_ms as i32,
            Self::HeartbeatMissedMax => Heartbeat::CLIENT.missed_max as i32,
        }
    }

    /// Parses a written value.
    pub fn parse(self, written: &[u8]) -> Result<i32, SettingError> {
        let refused = SettingError {
            setting: self,
            is_overflow: text::parse_i32(written, 10) == Err(NumberError::Range),
        };
        if self == Self::FastIoFailTmo {
            let tmo = FastIoFail::parse(written).map_err(|_| refused)?;
            return Ok(tmo.to_i32());
        }
        match text::parse_i32(written, 10) {
            Ok(value) if self.range().contains(&value) => Ok(value),
            _ => Err(refused),
        }
    }
}

/// A value in the form shown by sysfs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SettingText(pub Setting, pub i32);

impl fmt::Display for SettingText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Setting::FastIoFailTmo => write!(f, "{}", FastIoFail::from_i32(self.1)),
            _ => write!(f, "{}", self.1),
        }
    }
}

/// A value for each setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings([i32; COUNT]);

impl Settings {
    /// Returns the value of a setting.
    pub fn get(&self, setting: Setting) -> i32 {
        self.0
            .get(setting as usize)
            .copied()
            .unwrap_or(setting.default())
    }

    /// Changes a setting; the value was read by [`Setting::parse`].
    pub fn set(&mut self, setting: Setting, value: i32) {
        if let Some(old) = self.0.get_mut(setting as usize) {
            *old = value;
        }
    }

    /// Returns the heartbeat settings.
    pub fn heartbeat(&self) -> Heartbeat {
        Heartbeat {
            interval_ms: self.get(Setting::HeartbeatIntervalMs).unsigned_abs(),
            missed_max: self.get(Setting::HeartbeatMissedMax).unsigned_abs(),
        }
    }

    /// Returns the time that IO waits for a path.
    pub fn fast_io_fail(&self) -> FastIoFail {
        FastIoFail::from_i32(self.get(Setting::FastIoFailTmo))
    }
}

impl Default for Settings {
    fn default() -> Self {
        let mut settings = Self([0; COUNT]);
        for setting in Setting::ALL {
            settings.set(setting, setting.default());
        }
        settings
    }
}
