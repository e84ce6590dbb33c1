// SPDX-License-Identifier: GPL-2.0

//! The line written to `add_store`:
//!
//! ```text
//! name=N ram_mib=N [evict=objects]
//! name=N ram_mib=N backing=FOLDER
//! name=N log=DEVICE [mode=assemble|create] [force=0|1]
//! ```

use core::fmt;

use ferro_proto::{
    errno::Errno,
    text::{
        self,
        Escaped, //
    },
};

use super::wire::STORE_NAME_MAX;

/// The bytes of the path of a device at most.
const PATH_MAX: usize = 255;
/// The most MiB of memory: a TiB.
const RAM_MIB_MAX: u64 = 1 << 20;

/// The log of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOn<'a> {
    /// The path of the device.
    pub device: &'a [u8],
    /// A new log is made; else the one that is there is assembled.
    pub is_new: bool,
    /// A new one is made over one that is there.
    pub is_forced: bool,
}

/// A checked line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Command<'a> {
    /// The name of the store, 1 to 32 bytes.
    pub name: &'a str,
    /// The MiB of memory; without a log at least 1.
    pub ram_mib: u64,
    /// Objects that were not used lately make room.
    pub evicts: bool,
    /// The log; without one objects are in memory only.
    pub log: Option<LogOn<'a>>,
    /// The path of the folder of their files.
    pub backing: Option<&'a [u8]>,
}

/// The reason why a line is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong<'a> {
    /// An unknown option, or one without a value.
    Unknown(&'a [u8]),
    /// `name=` is missing.
    NoName,
    /// The name is not possible.
    Name(&'a [u8]),
    /// The memory is out of range.
    Ram(&'a [u8]),
    /// Neither memory nor a log.
    NoMedium,
    /// The path of the device or folder is not possible.
    Path(&'static str, &'a [u8]),
    /// A word that the option does not know.
    Word(&'static str, &'a [u8]),
    /// An option that only a store with a log has.
    OnlyLog(&'static str),
    /// Objects of a log are not evicted.
    Evict,
    /// Objects of a log cannot have files.
    LogAndBacking,
    /// Objects that have files are not evicted as a whole.
    EvictBacking,
}

impl Wrong<'_> {
    /// Returns the error of the write.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Name(name) if name.len() > STORE_NAME_MAX => Errno::ENAMETOOLONG,
            Self::Path(_, path) if path.len() > PATH_MAX => Errno::ENAMETOOLONG,
            Self::LogAndBacking => Errno::EOPNOTSUPP,
            _ => Errno::EINVAL,
        }
    }
}

impl fmt::Display for Wrong<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(word) => write!(
                f,
                "unknown or empty option '{}': known are name=, ram_mib=, evict=, backing=, log=, \
                 mode=, force=",
                Escaped(word)
            ),
            Self::NoName => f.write_str("name missing: add name=NAME, by which clients attach"),
            Self::Name(name) => write!(
                f,
                "name={} is not 1 to {STORE_NAME_MAX} letters, digits, '-' and '_'",
                Escaped(name)
            ),
            Self::Ram(value) => {
                write!(f, "ram_mib={} is not in 0..={RAM_MIB_MAX}", Escaped(value))
            }
            Self::NoMedium => f.write_str(
                "objects have no place: add ram_mib=MIB, or log=DEVICE for those that last",
            ),
            Self::Path(key, path) => write!(
                f,
                "{key}={} is no path that begins with '/', of at most {PATH_MAX} bytes",
                Escaped(path)
            ),
            Self::Word("evict", word) => write!(
                f,
                "evict={} is unknown: write objects, or leave it out",
                Escaped(word)
            ),
            Self::Word("mode", word) => write!(
                f,
                "mode={} is unknown: write assemble or create",
                Escaped(word)
            ),
            Self::Word(key, word) => write!(f, "{key}={} is not 0 or 1", Escaped(word)),
            Self::OnlyLog(key) => {
                write!(f, "{key}= is for a log: leave it out, or add log=DEVICE")
            }
            Self::Evict => f.write_str(
                "evict=objects and log=: what was acknowledged as durable stays: leave out one",
            ),
            Self::LogAndBacking => f.write_str(
                "backing= beside log= is not built: leave out log=, or backing= if all is to be \
                 durable at once",
            ),
            Self::EvictBacking => f.write_str(
                "evict=objects and backing=: objects stay, and their blocks go to their files: \
                 leave out one",
            ),
        }
    }
}

impl<'a> Command<'a> {
    /// Parses a line. Of an option that is repeated the last one counts, but each has to be right.
    ///
    /// # Errors
    ///
    /// Returns the first thing that is wrong.
    pub fn parse(line: &'a [u8]) -> Result<Self, Wrong<'a>> {
        let mut command = Self::default();
        let (mut device, mut only_log) = (None, None);
        let (mut is_new, mut is_forced) = (false, false);
        for word in text::words(line) {
            let (key, value) = text::option(word).ok_or(Wrong::Unknown(word))?;
            match (key, value) {
                (b"name", _) => command.name = check_name(value)?,
                (b"ram_mib", _) => {
                    let mib = text::parse_u64(value, 10).ok();
                    let mib = mib.filter(|mib| *mib <= RAM_MIB_MAX);
                    command.ram_mib = mib.ok_or(Wrong::Ram(value))?;
                }
                (b"evict", b"objects") => command.evicts = true,
                (b"evict", _) => return Err(Wrong::Word("evict", value)),
                (b"log", _) => device = Some(check_path("log", value)?),
                (b"mode", b"create" | b"assemble") => {
                    (is_new, only_log) = (value == b"create", Some("mode"));
                }
                (b"mode", _) => return Err(Wrong::Word("mode", value)),
                (b"force", b"0" | b"1") => {
                    (is_forced, only_log) = (value == b"1", Some("force"));
                }
                (b"force", _) => return Err(Wrong::Word("force", value)),
                (b"backing", _) => command.backing = Some(check_path("backing", value)?),
                _ => return Err(Wrong::Unknown(word)),
            }
        }
        if command.name.is_empty() {
            return Err(Wrong::NoName);
        }
        command.log = device.map(|device| LogOn {
            device,
            is_new,
            is_forced,
        });
        match (device, only_log) {
            (None, Some(key)) => Err(Wrong::OnlyLog(key)),
            (None, None) if command.ram_mib == 0 => Err(Wrong::NoMedium),
            (Some(_), _) if command.evicts => Err(Wrong::Evict),
            (Some(_), _) if command.backing.is_some() => Err(Wrong::LogAndBacking),
            _ if command.evicts && command.backing.is_some() => Err(Wrong::EvictBacking),
            _ => Ok(command),
        }
    }
}

fn check_name(value: &[u8]) -> Result<&str, Wrong<'_>> {
    let is_right = |c: &u8| c.is_ascii_alphanumeric() || *c == b'-' || *c == b'_';
    let name = core::str::from_utf8(value).ok();
    let name = name.filter(|name| name.len() <= STORE_NAME_MAX && value.iter().all(is_right));
    name.ok_or(Wrong::Name(value))
}

fn check_path<'a>(key: &'static str, path: &'a [u8]) -> Result<&'a [u8], Wrong<'a>> {
    let is_right = path.first() == Some(&b'/') && path.len() <= PATH_MAX && !path.contains(&0);
    is_right.then_some(path).ok_or(Wrong::Path(key, path))
}
