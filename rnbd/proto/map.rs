// SPDX-License-Identifier: GPL-2.0

//! The line written to `map_device`:
//!
//! ```text
//! [dest_port=N] sessname=S path=[src@|src,]dst ... device_path=P
//!     [access_mode=ro|rw|migration] [nr_poll_queues=N|-1] [nr_io_queues=N] [io_timeout_ms=N]
//!     [max_reconnect_attempts=N] [reconnect_delay_ms=N] [fast_io_fail_tmo=SECONDS|off]
//!     [heartbeat_interval_ms=N] [heartbeat_missed_max=N]
//!     [pi=off|auto|require|crc64|t10]
//! ```
//!
//! The C driver does not have the options after `nr_poll_queues`.

use core::{
    ffi::CStr,
    fmt, //
};

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
    DEFAULT_PORT,
    PATHS_MAX, //
};

use super::{
    access::AccessMode,
    pi::Choice,
    DEVICE_NAME_MAX, //
};

/// The maximum length of the link name `device@session` (`NAME_MAX`).
const LINK_NAME_MAX: usize = 255;

/// The CPUs of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpus {
    /// The number that are online.
    pub online: u32,
    /// The number that there may ever be.
    pub possible: u32,
}

/// A checked line.
///
/// # Invariants
///
/// Every `path=` of `line` parses, and there are at most [`PATHS_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRequest<'a> {
    line: &'a [u8],
    /// The name of the session, 1 to 254 bytes, checked by `info::check_name`.
    pub sess_name: &'a [u8],
    /// The device's name on the server, 1 to 254 bytes without `..`.
    pub device_path: &'a [u8],
    /// The server's port of every path.
    pub dest_port: u16,
    /// The access mode of the device.
    pub access_mode: AccessMode,
    /// The number of poll queues of a new session; `-1` was replaced by one per CPU that is online.
    pub nr_poll_queues: u32,
    /// The number of IO queues of a new session; `None`: as many as it has by default.
    pub nr_io_queues: Option<u32>,
    /// The settings of a new session.
    pub settings: Settings,
    /// The timeout of a request, after which its path fails, 1000 to 3600000 milliseconds; 0 is the
    /// block layer's default.
    pub io_timeout_ms: u32,
    /// The protection information of the device.
    pub pi: Choice,
    /// The number of [`paths`](Self::paths).
    pub path_count: usize,
}

/// The reason why a line is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapError<'a> {
    /// An unknown option, or an option without a value.
    Unknown(&'a [u8]),
    /// `sessname=` is missing.
    NoSessName,
    /// `device_path=` is missing.
    NoDevicePath,
    /// The session's name is not valid.
    SessName(NameError),
    /// The device's name is longer than 254 bytes.
    DevicePathTooLong,
    /// The device's name contains `..`.
    DevicePathParent,
    /// `device_path@sessname` is too long for a file name (`ENAMETOOLONG`).
    LinkTooLong,
    /// A `path=` does not parse.
    Path(&'a [u8], AddrError),
    /// More than [`PATHS_MAX`] paths (`ENOMEM`).
    TooManyPaths,
    /// `dest_port=` is not 0 to 65535.
    Port(&'a [u8]),
    /// `dest_port=` is after a `path=`, to which the C driver would not apply it.
    PortAfterPath,
    /// The access mode is unknown.
    AccessMode(&'a [u8]),
    /// `nr_poll_queues=` is neither -1 nor 0 to the number of CPUs.
    PollQueues(&'a [u8]),
    /// `nr_io_queues=` is not 1 to the number of CPUs, the second value.
    IoQueues(&'a [u8], u32),
    /// A setting of the session is not valid.
    Setting(&'a [u8], SettingError),
    /// `io_timeout_ms=` is not 1000 to 3600000.
    IoTimeout(&'a [u8]),
    /// The protection information is unknown.
    Pi(&'a [u8]),
}

impl MapError<'_> {
    /// Returns the error of the write, the same as the C driver's.
    pub const fn errno(self) -> Errno {
        match self {
            MapError::Path(_, e) => e.errno(),
            MapError::TooManyPaths => Errno::ENOMEM,
            MapError::LinkTooLong => Errno::ENAMETOOLONG,
            _ => Errno::EINVAL,
        }
    }
}

impl fmt::Display for MapError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::Unknown(w) => write!(
                f,
                "unknown or empty option '{}': known are dest_port=, sessname=, path=, \
                 device_path=, access_mode=, nr_poll_queues=, nr_io_queues=, \
                 io_timeout_ms=, max_reconnect_attempts=, reconnect_delay_ms=, fast_io_fail_tmo=, \
                 heartbeat_interval_ms=, heartbeat_missed_max=, pi=",
                Escaped(w)
            ),
            MapError::NoSessName => f.write_str("session missing: add sessname=NAME"),
            MapError::NoDevicePath => {
                f.write_str("device missing: add device_path=NAME, its name on the server")
            }
            MapError::SessName(e) => write!(f, "{e}: choose another sessname="),
            MapError::DevicePathTooLong => {
                write!(f, "device_path= has more than {DEVICE_NAME_MAX} bytes")
            }
            MapError::DevicePathParent => f.write_str(
                "device_path= contains '..': name the device below the server's dev_search_path",
            ),
            MapError::LinkTooLong => write!(
                f,
                "device_path= and sessname= have more than {} bytes together: shorten sessname=",
                LINK_NAME_MAX - 1
            ),
            MapError::Path(p, e) => write!(
                f,
                "path={}: {e}: write path=ip:ADDRESS or path=gid:GID, with SOURCE@ in front if \
                 wanted",
                Escaped(p)
            ),
            MapError::TooManyPaths => write!(f, "more than {PATHS_MAX} paths: remove some path="),
            MapError::Port(p) => write!(f, "dest_port={} is not in 0..=65535", Escaped(p)),
            MapError::PortAfterPath => f.write_str("dest_port= must come before the first path="),
            MapError::AccessMode(m) => write!(
                f,
                "access_mode={} is unknown: write ro, rw or migration",
                Escaped(m)
            ),
            MapError::PollQueues(n) => write!(
                f,
                "nr_poll_queues={} is not -1 or 0 up to the number of CPUs",
                Escaped(n)
            ),
            MapError::IoQueues(n, cpus) => write!(
                f,
                "nr_io_queues={} is not in 1..={cpus}, the number of CPUs: leave it out for \
                 as many as fit this machine",
                Escaped(n)
            ),
            MapError::Setting(value, e) => write!(f, "'{}': {e}", Escaped(value)),
            MapError::IoTimeout(n) => {
                write!(f, "io_timeout_ms={} is not in 1000..=3600000", Escaped(n))
            }
            MapError::Pi(word) => write!(
                f,
                "pi={} is unknown: write off, auto, require, crc64 or t10",
                Escaped(word)
            ),
        }
    }
}

impl<'a> MapRequest<'a> {
    /// Parses a line on a machine with these CPUs. Of a repeated option the last value is used, but
    /// each has to be right.
    pub fn parse(line: &'a [u8], cpus: Cpus) -> Result<Self, MapError<'a>> {
        let (mut sess_name, mut device_path) = (None, None);
        let mut request = Self {
            line,
            sess_name: &[],
            device_path: &[],
            dest_port: DEFAULT_PORT,
            access_mode: AccessMode::default(),
            nr_poll_queues: 0,
            nr_io_queues: None,
            settings: Settings::default(),
            io_timeout_ms: 0,
            pi: Choice::default(),
            path_count: 0,
        };
        for word in text::words(line) {
            let (key, value) = text::option(word).ok_or(MapError::Unknown(word))?;
            match key {
                b"sessname" => {
                    info::check_name(value).map_err(MapError::SessName)?;
                    sess_name = Some(value);
                }
                b"device_path" => {
                    check_device_path(value)?;
                    device_path = Some(value);
                }
                b"path" => request.add_path(value)?,
                b"dest_port" => request.set_port(value)?,
                b"access_mode" => {
                    request.access_mode =
                        AccessMode::parse(value).map_err(|_| MapError::AccessMode(value))?;
                }
                b"nr_poll_queues" => request.nr_poll_queues = poll_queues(value, cpus)?,
                b"nr_io_queues" => request.nr_io_queues = Some(io_queues(value, cpus)?),
                b"io_timeout_ms" => request.io_timeout_ms = io_timeout_ms(value)?,
                b"pi" => request.pi = Choice::parse(value).map_err(|_| MapError::Pi(value))?,
                _ => {
                    let setting = Setting::by_name(key).ok_or(MapError::Unknown(word))?;
                    let refused = |e| MapError::Setting(value, e);
                    let value = setting.parse(value).map_err(refused)?;
                    request.settings.set(setting, value);
                }
            }
        }
        request.sess_name = sess_name.ok_or(MapError::NoSessName)?;
        request.device_path = device_path.ok_or(MapError::NoDevicePath)?;
        request.check_link()?;
        // INVARIANT: `add_path` parsed and counted every path.
        Ok(request)
    }

    /// Iterates over the paths in the given order.
    pub fn paths(&self) -> impl Iterator<Item = PathAddrs> + 'a {
        let port = self.dest_port;
        text::words(self.line)
            .filter_map(text::option)
            .filter(|(key, _)| *key == b"path")
            .filter_map(move |(_, value)| PathAddrs::parse(value, port).ok())
    }

    fn add_path(&mut self, value: &'a [u8]) -> Result<(), MapError<'a>> {
        if self.path_count >= PATHS_MAX {
            return Err(MapError::TooManyPaths);
        }
        PathAddrs::parse(value, self.dest_port).map_err(|e| MapError::Path(value, e))?;
        self.path_count = self.path_count.wrapping_add(1);
        Ok(())
    }

    fn set_port(&mut self, value: &'a [u8]) -> Result<(), MapError<'a>> {
        let port = text::parse_i32(value, 0)
            .ok()
            .and_then(|p| u16::try_from(p).ok())
            .ok_or(MapError::Port(value))?;
        if self.path_count > 0 {
            return Err(MapError::PortAfterPath);
        }
        self.dest_port = port;
        Ok(())
    }

    /// Checks that the name of the device's link fits.
    fn check_link(&self) -> Result<(), MapError<'a>> {
        let link_len = self.device_path.len().saturating_add(self.sess_name.len());
        if link_len >= LINK_NAME_MAX {
            return Err(MapError::LinkTooLong);
        }
        Ok(())
    }
}

fn check_device_path(path: &[u8]) -> Result<(), MapError<'_>> {
    if path.len() > DEVICE_NAME_MAX {
        return Err(MapError::DevicePathTooLong);
    }
    if path.windows(2).any(|w| w == b"..") {
        return Err(MapError::DevicePathParent);
    }
    Ok(())
}

fn poll_queues(value: &[u8], cpus: Cpus) -> Result<u32, MapError<'_>> {
    match text::parse_i32(value, 0) {
        Ok(-1) => Some(cpus.online),
        Ok(n) => u32::try_from(n).ok().filter(|n| *n <= cpus.possible),
        Err(_) => None,
    }
    .ok_or(MapError::PollQueues(value))
}

fn io_queues(value: &[u8], cpus: Cpus) -> Result<u32, MapError<'_>> {
    let parsed = text::parse_i32(value, 10).ok();
    let queues = parsed.and_then(|n| u32::try_from(n).ok());
    // CPUs that come later may have queues already.
    let within = queues.filter(|n| (1..=cpus.possible).contains(n));
    within.ok_or(MapError::IoQueues(value, cpus.possible))
}

fn io_timeout_ms(value: &[u8]) -> Result<u32, MapError<'_>> {
    match text::parse_i32(value, 10) {
        Ok(ms @ 1000..=3_600_000) => Ok(ms.unsigned_abs()),
        _ => Err(MapError::IoTimeout(value)),
    }
}

/// Writes the name of a device's link under `devices/` into `out`, NUL-terminated:
/// `device@session`, with `!` for each `/`. Returns `None` if it does not fit or contains a NUL;
/// 256 bytes fit every name of a [`MapRequest`].
pub fn link_name<'b>(device: &[u8], session: &[u8], out: &'b mut [u8]) -> Option<&'b CStr> {
    let name = device
        .iter()
        .map(|c| if *c == b'/' { b'!' } else { *c })
        .chain([b'@'])
        .chain(session.iter().copied())
        .chain([0]);
    let mut len = 0usize;
    for c in name {
        *out.get_mut(len)? = c;
        len = len.wrapping_add(1);
    }
    CStr::from_bytes_with_nul(out.get(..len)?).ok()
}
