// SPDX-License-Identifier: GPL-2.0

//! The lines written to `connect` and `disconnect`:
//!
//! ```text
//! sessname=S path=[src@]dst ... [store=NAME] [dest_port=N] [max_reconnect_attempts=N]
//!     [reconnect_delay_ms=N] [fast_io_fail_tmo=SECONDS|off] [heartbeat_interval_ms=N]
//!     [heartbeat_missed_max=N]
//! sessname=S
//! ```

use core::fmt;

use ferro_proto::{
    errno::Errno,
    text::{
        self,
        Escaped, //
    }, //
};
use rtrs_core::proto::{
    addr::{
        AddrError,
        PathAddrs, //
    },
    info::{
        self,
        NameError, //
    },
    settings::{
        Setting,
        SettingError,
        Settings, //
    },
    PATHS_MAX, //
};

use super::wire::STORE_NAME_MAX;

/// The port of servers, unless another one is named.
pub const PORT: u16 = 1235;

/// A checked line.
///
/// # Invariants
///
/// Every `path=` of `line` parses, and there are at most [`PATHS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    line: &'a [u8],
    /// The name of the session.
    pub session: &'a [u8],
    /// The name of the store: that of the session if none is given.
    pub store: &'a [u8],
    /// The port of each path.
    pub port: u16,
    /// The settings of the session.
    pub settings: Settings,
    /// The number of paths; of a line for `disconnect` 0.
    pub path_count: usize,
}

/// The reason why a line is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineError<'a> {
    /// An unknown option, or one without a value.
    Unknown(&'a [u8]),
    /// `sessname=` is missing.
    NoSession,
    /// `path=` is missing.
    NoPath,
    /// The name of the session is not valid.
    Session(NameError),
    /// The name of the store is too long.
    Store(&'a [u8]),
    /// A path does not parse.
    Path(&'a [u8], AddrError),
    /// More than [`PATHS_MAX`] paths.
    TooManyPaths,
    /// `dest_port=` is not 1 to 65535, or comes after a path.
    Port(&'a [u8]),
    /// A setting is not valid.
    Setting(&'a [u8], SettingError),
    /// Only the session can be named.
    Option(&'a [u8]),
}

impl LineError<'_> {
    /// Returns the error of the write.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Path(_, e) => e.errno(),
            _ => Errno::EINVAL,
        }
    }
}

impl fmt::Display for LineError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(word) => write!(
                f,
                "unknown or empty option '{}': known are sessname=, path=, store=, dest_port=, \
                 max_reconnect_attempts=, reconnect_delay_ms=, fast_io_fail_tmo=, \
                 heartbeat_interval_ms=, heartbeat_missed_max=",
                Escaped(word)
            ),
            Self::NoSession => f.write_str("session missing: add sessname=NAME"),
            Self::NoPath => f.write_str("path missing: add path=ip:ADDRESS"),
            Self::Session(e) => write!(f, "{e}: choose another sessname="),
            Self::Store(name) => write!(
                f,
                "store '{}' has more than {STORE_NAME_MAX} bytes: add store=NAME, as the server \
                 calls it",
                Escaped(name)
            ),
            Self::Path(path, e) => write!(
                f,
                "path={}: {e}: write path=ip:ADDRESS or path=gid:GID, with SOURCE@ in front if \
                 wanted",
                Escaped(path)
            ),
            Self::TooManyPaths => write!(f, "more than {PATHS_MAX} paths: remove some path="),
            Self::Port(port) => write!(
                f,
                "dest_port={}: write 1 to 65535, before the first path=",
                Escaped(port)
            ),
            Self::Setting(value, e) => write!(f, "'{}': {e}", Escaped(value)),
            Self::Option(word) => {
                write!(f, "'{}': only sessname=NAME is needed here", Escaped(word))
            }
        }
    }
}

impl<'a> Line<'a> {
    /// Parses a line for `connect`. Of a repeated option but `path=` the last value is used.
    ///
    /// # Errors
    ///
    /// Returns what is wrong first.
    pub fn parse(line: &'a [u8]) -> Result<Self, LineError<'a>> {
        let mut parsed = Self {
            line,
            session: &[],
            store: &[],
            port: PORT,
            settings: Settings::default(),
            path_count: 0,
        };
        for word in text::words(line) {
            let (key, value) = text::option(word).ok_or(LineError::Unknown(word))?;
            match key {
                b"sessname" => {
                    info::check_name(value).map_err(LineError::Session)?;
                    parsed.session = value;
                }
                b"store" => parsed.store = value,
                b"path" => parsed.add_path(value)?,
                b"dest_port" => {
                    let port = text::parse_u64(value, 10).ok();
                    let port = port.and_then(|port| u16::try_from(port).ok());
                    let port = port.filter(|port| *port != 0 && parsed.path_count == 0);
                    parsed.port = port.ok_or(LineError::Port(value))?;
                }
                _ => {
                    let setting = Setting::by_name(key).ok_or(LineError::Unknown(word))?;
                    let refused = |e| LineError::Setting(value, e);
                    parsed
                        .settings
                        .set(setting, setting.parse(value).map_err(refused)?);
                }
            }
        }
        if parsed.session.is_empty() {
            return Err(LineError::NoSession);
        }
        if parsed.path_count == 0 {
            return Err(LineError::NoPath);
        }
        if parsed.store.is_empty() {
            parsed.store = parsed.session;
        }
        if parsed.store.len() > STORE_NAME_MAX {
            return Err(LineError::Store(parsed.store));
        }
        // INVARIANT: `add_path` has parsed and counted each path.
        Ok(parsed)
    }

    /// Parses a line for `disconnect`; returns the name of the session.
    ///
    /// # Errors
    ///
    /// Returns what is wrong first.
    pub fn session(line: &'a [u8]) -> Result<&'a [u8], LineError<'a>> {
        let mut session = None;
        for word in text::words(line) {
            match text::option(word) {
                Some((b"sessname", value)) => session = Some(value),
                _ => return Err(LineError::Option(word)),
            }
        }
        session.ok_or(LineError::NoSession)
    }

    /// Goes through the paths in the given order.
    pub fn paths(&self) -> impl Iterator<Item = PathAddrs> + 'a {
        let port = self.port;
        text::words(self.line)
            .filter_map(text::option)
            .filter(|(key, _)| *key == b"path")
            .filter_map(move |(_, value)| PathAddrs::parse(value, port).ok())
    }

    fn add_path(&mut self, value: &'a [u8]) -> Result<(), LineError<'a>> {
        if self.path_count >= PATHS_MAX {
            return Err(LineError::TooManyPaths);
        }
        PathAddrs::parse(value, self.port).map_err(|e| LineError::Path(value, e))?;
        self.path_count = self.path_count.saturating_add(1);
        Ok(())
    }
}
