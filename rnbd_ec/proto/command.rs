// SPDX-License-Identifier: GPL-2.0

//! The line written to `assemble`:
//!
//! ```text
//! [mode=assemble|create] name=N members=DEVICE,DEVICE[,DEVICE]
//!     [size=BYTES[K|M|G|T]] [codec=lz4|none] [matrix=xor|vandermonde] [force=0|1]
//!     [member_timeout_ms=N] [hedge_ms=N] [recover_every_n=N]
//! ```
//!
//! `size=` and `matrix=` are for a new array, which has three members; `codec=` is for what is
//! written until the array is stopped. The order of the members of one that is assembled does not
//! matter.

use core::fmt;

use ferro_proto::{
    errno::Errno,
    text::{
        self,
        Escaped, //
    },
};
use seglog::members::{
    DATA_COLUMNS,
    MEMBERS, //
};

use super::codec::Compression;

/// The bytes of the name of a disk at most: those of a partition of it are longer.
const NAME_MAX: usize = 27;
/// The bytes of the path of a member at most.
const PATH_MAX: usize = 255;
/// The longest time for an IO of a member, in milliseconds: an hour.
const TIMEOUT_MS: core::ops::RangeInclusive<i32> = 100..=3_600_000;

/// The time after which a read is given to others, in milliseconds; 0 for never.
const HEDGE_MS: core::ops::RangeInclusive<i32> = 10..=60_000;

/// Purpose of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// An array is assembled from its members.
    #[default]
    Assemble,
    /// A new array is made, and assembled.
    Create,
}

/// Settings of an array, for as long as it is assembled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Treatment of what is written from now on.
    pub compression: Compression,
    /// After this time without the end of any IO a member has failed.
    pub member_timeout_ms: u32,
    /// Time after which the others are read for a member that has not answered; 0 for never.
    pub hedge_ms: u32,
    /// Each read with this number is rebuilt from the other members, to see that it can be; 0 for
    /// none. The trigger of recovery reads of the GGA offload specification.
    pub recover_every_n: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            compression: Compression::default(),
            member_timeout_ms: 30_000,
            hedge_ms: 500,
            recover_every_n: 0,
        }
    }
}

/// A checked line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command<'a> {
    /// Purpose of a line.
    pub mode: Mode,
    /// The name of the disk, 1 to 27 bytes.
    pub name: &'a str,
    /// The paths of the devices; an array may be assembled from two.
    pub members: [Option<&'a [u8]>; MEMBERS],
    /// The bytes of a new disk; `None` for what is always there.
    pub size: Option<u64>,
    /// A new array may be made of devices that are members of one; an array may be assembled though
    /// a newer epoch may be in a slot that is damaged.
    pub is_forced: bool,
    /// Settings of the array.
    pub settings: Settings,
}

/// The reason why a line is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong<'a> {
    /// An unknown option, or one without a value.
    Unknown(&'a [u8]),
    /// The mode is unknown.
    Mode(&'a [u8]),
    /// `name=` is missing.
    NoName,
    /// The name is not possible.
    Name(&'a [u8]),
    /// Too few members.
    Members(usize, Mode),
    /// More members than an array has.
    TooMany,
    /// The path of a member is not possible.
    Path(&'a [u8]),
    /// A device is named twice.
    Twice(&'a [u8]),
    /// The size is no number of bytes.
    Size(&'a [u8]),
    /// The codec is unknown.
    Codec(&'a [u8]),
    /// The matrix is that of another code.
    Matrix(&'a [u8]),
    /// A number is out of range.
    Number {
        /// The option.
        key: &'static str,
        /// Word that was written.
        value: &'a [u8],
        /// Values that may be.
        range: &'static str,
    },
    /// An option that only a new array has.
    OnlyCreate(&'static str),
}

impl Wrong<'_> {
    /// Returns the error of the write.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Name(name) if name.len() > NAME_MAX => Errno::ENAMETOOLONG,
            Self::Path(path) if path.len() > PATH_MAX => Errno::ENAMETOOLONG,
            _ => Errno::EINVAL,
        }
    }
}

impl fmt::Display for Wrong<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(word) => write!(
                f,
                "unknown or empty option '{}': known are mode=, name=, members=, size=, codec=, \
                 matrix=, force=, member_timeout_ms=, hedge_ms=, recover_every_n=",
                Escaped(word)
            ),
            Self::Mode(word) => write!(
                f,
                "mode={} is unknown: write assemble or create",
                Escaped(word)
            ),
            Self::NoName => f.write_str("name missing: add name=NAME, that of the disk"),
            Self::Name(name) => write!(
                f,
                "name={} is not 1 to {NAME_MAX} letters, digits, '-' and '_'",
                Escaped(name)
            ),
            Self::Members(count, Mode::Create) => write!(
                f,
                "{count} members: a new array has {MEMBERS}: members=DEVICE,DEVICE,DEVICE"
            ),
            Self::Members(count, Mode::Assemble) => write!(
                f,
                "{count} members: an array has {MEMBERS}, of which {DATA_COLUMNS} suffice: \
                 members=DEVICE,DEVICE[,DEVICE]"
            ),
            Self::TooMany => write!(f, "members= has more than {MEMBERS} devices"),
            Self::Path(path) => write!(
                f,
                "members= has '{}', which is no path that begins with '/', of at most {PATH_MAX} \
                 bytes",
                Escaped(path)
            ),
            Self::Twice(path) => write!(f, "members= has '{}' twice", Escaped(path)),
            Self::Size(value) => write!(
                f,
                "size={} is no number of bytes: a number, and K, M, G or T for powers of 1024",
                Escaped(value)
            ),
            Self::Codec(word) => {
                write!(f, "codec={} is unknown: write lz4 or none", Escaped(word))
            }
            Self::Matrix(b"cauchy") => f.write_str(
                "matrix=cauchy: with one parity column it has nothing that XOR has not: write xor",
            ),
            Self::Matrix(word) => write!(
                f,
                "matrix={} is unknown: write xor, or vandermonde, which is the same with one \
                 parity column",
                Escaped(word)
            ),
            Self::Number { key, value, range } => {
                write!(f, "{key}={} is not in {range}", Escaped(value))
            }
            Self::OnlyCreate(key) => write!(
                f,
                "{key}= is for a new array: leave it out, or write mode=create"
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
        let mut command = Self {
            mode: Mode::default(),
            name: "",
            members: [None; MEMBERS],
            size: None,
            is_forced: false,
            settings: Settings::default(),
        };
        let mut only_create = None;
        for word in text::words(line) {
            let (key, value) = text::option(word).ok_or(Wrong::Unknown(word))?;
            only_create = command.set(word, (key, value))?.or(only_create);
        }
        if command.name.is_empty() {
            return Err(Wrong::NoName);
        }
        let count = command.members.iter().flatten().count();
        let fewest = match command.mode {
            Mode::Create => MEMBERS,
            Mode::Assemble => DATA_COLUMNS,
        };
        if count < fewest {
            return Err(Wrong::Members(count, command.mode));
        }
        match (command.mode, only_create) {
            (Mode::Assemble, Some(key)) => Err(Wrong::OnlyCreate(key)),
            _ => Ok(command),
        }
    }

    /// Sets an option; returns its name if only a new array has it.
    fn set(
        &mut self,
        word: &'a [u8],
        (key, value): (&'a [u8], &'a [u8]),
    ) -> Result<Option<&'static str>, Wrong<'a>> {
        match key {
            b"mode" => {
                self.mode = match value {
                    b"assemble" => Mode::Assemble,
                    b"create" => Mode::Create,
                    _ => return Err(Wrong::Mode(value)),
                };
            }
            b"name" => self.name = check_name(value)?,
            b"members" => self.members = check_members(value)?,
            b"size" => {
                self.size = Some(bytes(value).ok_or(Wrong::Size(value))?);
                return Ok(Some("size"));
            }
            b"codec" => {
                let compression = Compression::parse(value).ok_or(Wrong::Codec(value))?;
                self.settings.compression = compression;
            }
            b"matrix" => {
                if value != b"xor" && value != b"vandermonde" {
                    return Err(Wrong::Matrix(value));
                }
                return Ok(Some("matrix"));
            }
            b"force" => {
                self.is_forced = match value {
                    b"0" => false,
                    b"1" => true,
                    _ => return Err(number("force", value, "0..=1")),
                };
            }
            b"member_timeout_ms" => {
                let ms = text::parse_i32(value, 10).ok();
                let ms = ms.filter(|ms| TIMEOUT_MS.contains(ms));
                let ms = ms.ok_or(number("member_timeout_ms", value, "100..=3600000"))?;
                self.settings.member_timeout_ms = ms.unsigned_abs();
            }
            b"hedge_ms" => {
                let ms = text::parse_i32(value, 10).ok();
                let ms = ms.filter(|ms| *ms == 0 || HEDGE_MS.contains(ms));
                let ms = ms.ok_or(number("hedge_ms", value, "0 or 10..=60000"))?;
                self.settings.hedge_ms = ms.unsigned_abs();
            }
            b"recover_every_n" => {
                let n = text::parse_i32(value, 10).ok().filter(|n| *n >= 0);
                let n = n.ok_or(number("recover_every_n", value, "0..=2147483647"))?;
                self.settings.recover_every_n = n.unsigned_abs();
            }
            _ => return Err(Wrong::Unknown(word)),
        }
        Ok(None)
    }
}

const fn number<'a>(key: &'static str, value: &'a [u8], range: &'static str) -> Wrong<'a> {
    Wrong::Number { key, value, range }
}

fn check_name(value: &[u8]) -> Result<&str, Wrong<'_>> {
    let is_right = |c: &u8| c.is_ascii_alphanumeric() || *c == b'-' || *c == b'_';
    let name = core::str::from_utf8(value).ok();
    let name = name.filter(|name| name.len() <= NAME_MAX && value.iter().all(is_right));
    name.ok_or(Wrong::Name(value))
}

fn check_members(value: &[u8]) -> Result<[Option<&[u8]>; MEMBERS], Wrong<'_>> {
    let mut members = [None; MEMBERS];
    let mut paths = value.split(|c| *c == b',');
    for place in 0..MEMBERS {
        let Some(path) = paths.next() else { break };
        if path.first() != Some(&b'/') || path.len() > PATH_MAX || path.contains(&0) {
            return Err(Wrong::Path(path));
        }
        if members.contains(&Some(path)) {
            return Err(Wrong::Twice(path));
        }
        if let Some(to) = members.get_mut(place) {
            *to = Some(path);
        }
    }
    if paths.next().is_some() {
        return Err(Wrong::TooMany);
    }
    Ok(members)
}

/// Parses a number of bytes.
fn bytes(value: &[u8]) -> Option<u64> {
    let (digits, shift) = match value.split_last()? {
        (b'K' | b'k', digits) => (digits, 10),
        (b'M' | b'm', digits) => (digits, 20),
        (b'G' | b'g', digits) => (digits, 30),
        (b'T' | b't', digits) => (digits, 40),
        _ => (value, 0),
    };
    if digits.is_empty() {
        return None;
    }
    let number = digits.iter().try_fold(0u64, |number, digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })?;
    number.checked_mul(1 << shift)
}
