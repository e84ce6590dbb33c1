// SPDX-License-Identifier: GPL-2.0

//! Names and paths that are sent to gfmd.
//!
//! A name is any bytes but `/` and NUL. The kernel resolves `.` and `..` itself, so no path that is
//! sent contains them.

use core::fmt;

use ferro_proto::errno::Errno;

/// The maximum length of a name, in bytes (`GFS_MAXNAMLEN`).
pub const NAME_LEN_MAX: usize = 255;

/// The reason why a name or a path is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameError {
    /// The name is empty.
    Empty,
    /// The name has more than [`NAME_LEN_MAX`] bytes.
    TooLong,
    /// The name contains a slash or a NUL.
    Byte,
    /// The name is `.` or `..`.
    Dots,
}

impl NameError {
    /// Returns the error of the system call.
    pub const fn errno(self) -> Errno {
        match self {
            Self::TooLong => Errno::ENAMETOOLONG,
            _ => Errno::EINVAL,
        }
    }
}

impl fmt::Display for NameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "name is empty",
            Self::TooLong => "name has more than 255 bytes",
            Self::Byte => "name has a slash or a NUL in it",
            Self::Dots => "name is . or ..",
        })
    }
}

/// The name of an entry of a directory.
///
/// # Invariants
///
/// 1 to [`NAME_LEN_MAX`] bytes without slash and NUL, neither `.` nor `..`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// Checks a name.
    pub fn new(name: &'a [u8]) -> Result<Self, NameError> {
        if name.is_empty() {
            return Err(NameError::Empty);
        }
        if name.len() > NAME_LEN_MAX {
            return Err(NameError::TooLong);
        }
        if name.iter().any(|c| matches!(*c, b'/' | 0)) {
            return Err(NameError::Byte);
        }
        if name == b"." || name == b".." {
            return Err(NameError::Dots);
        }
        // INVARIANT: Everything was just checked.
        Ok(Self(name))
    }

    /// Returns the bytes.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }
}

/// The names from a directory to one below it.
///
/// # Invariants
///
/// Every part between slashes is empty or a valid [`Name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Path<'a>(&'a [u8]);

impl<'a> Path<'a> {
    /// Checks a path. Slashes at its ends, and several in a row, have no meaning.
    pub fn new(path: &'a [u8]) -> Result<Self, NameError> {
        for part in Self::parts(path) {
            Name::new(part)?;
        }
        // INVARIANT: Every part was just checked.
        Ok(Self(path))
    }

    /// Iterates over the names.
    pub fn names(self) -> impl Iterator<Item = Name<'a>> {
        // INVARIANT: That of the path.
        Self::parts(self.0).map(Name)
    }

    /// Returns the number of names, which is below that of the bytes: no addition wraps.
    pub fn depth(self) -> usize {
        self.names().fold(0usize, |names, _| names.wrapping_add(1))
    }

    /// Returns the path without its last name.
    pub fn parent(self) -> Self {
        let last = self.names().last().map_or(&b""[..], Name::as_bytes);
        let end = self.0.iter().rposition(|c| *c != b'/');
        let end = end.map_or(0, |end| end.wrapping_add(1).saturating_sub(last.len()));
        // INVARIANT: What is left ends before a name.
        Self(self.0.get(..end).unwrap_or_default())
    }

    fn parts(path: &[u8]) -> impl Iterator<Item = &[u8]> {
        path.split(|c| *c == b'/').filter(|part| !part.is_empty())
    }
}
