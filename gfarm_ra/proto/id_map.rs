// SPDX-License-Identifier: GPL-2.0

//! The map from names of users and groups, which Gfarm has, to numbers, which the kernel has.

use core::fmt;

use super::{
    options::{
        OptionError,
        Options, //
    },
    setting::number,
    LABEL_LEN_MAX, //
};

/// The number that no user and no group has (`INVALID_UID`, `INVALID_GID`), for files whose owner
/// has none here. `stat(2)` shows 65534 for it, and no process is their owner or in their group;
/// one that runs as 65534 is not, either.
pub const INVALID_ID: u32 = u32::MAX;

/// Parses the number of a user or group; `None` if it is not one, or [`INVALID_ID`].
pub(super) fn id(value: &[u8]) -> Option<u32> {
    number(value).filter(|id| *id != INVALID_ID)
}

/// The value of the options `usermap=` and `groupmap=`, `NAME/NUMBER` with `+` between entries.
///
/// # Invariants
///
/// Every entry parses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct IdMap<'a>(&'a [u8]);

impl<'a> IdMap<'a> {
    /// Checks a value; `None` if an entry does not parse.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        // INVARIANT: Every entry was just checked.
        text.split(|c| *c == b'+')
            .all(|part| entry(part).is_some())
            .then_some(Self(text))
    }

    /// Returns the number of the first entry for a name.
    pub fn find(self, name: &[u8]) -> Option<u32> {
        self.0
            .split(|c| *c == b'+')
            .filter_map(entry)
            .find(|(known, _)| *known == name)
            .map(|(_, id)| id)
    }
}

/// Splits `NAME/NUMBER`.
fn entry(part: &[u8]) -> Option<(&[u8], u32)> {
    let slash = part.iter().position(|c| *c == b'/')?;
    let (name, rest) = part.split_at_checked(slash)?;
    // What `/proc/mounts` shows without an escape, and what does not end an option.
    let is_plain = |c: &u8| c.is_ascii_graphic() && !b"\\#,=".contains(c);
    let is_name = (1..=LABEL_LEN_MAX).contains(&name.len()) && name.iter().all(is_plain);
    is_name.then_some((name, id(rest.get(1..)?)?))
}

/// The maximum length of `usermap=` and of `groupmap=`, in bytes: some thousand names.
pub const MAP_LEN_MAX: usize = 16 << 10;

/// The form of their values.
const MAP_FORM: &str = "NAME/NUMBER+NAME/NUMBER... of up to 16384 bytes";

/// Bytes that grow, in the memory of who keeps them.
pub trait Text: Default {
    /// Returns the bytes.
    fn get(&self) -> &[u8];

    /// Adds some; returns whether there is memory for them.
    fn push(&mut self, bytes: &[u8]) -> bool;
}

/// The maps of a mount, which grow with each option. They are too long to be moved with
/// [`Options`].
///
/// Shown as `/proc/mounts` shows them, each with a comma before it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Maps<T> {
    users: T,
    groups: T,
}

impl<T: Text> Maps<T> {
    /// Takes one option, if it is one of these.
    pub fn set<'a>(
        &mut self,
        name: &'a [u8],
        value: Option<&'a [u8]>,
    ) -> Option<Result<(), OptionError<'a>>> {
        let (map, known) = match name {
            b"usermap" => (&mut self.users, "usermap"),
            b"groupmap" => (&mut self.groups, "groupmap"),
            _ => return None,
        };
        let Some(value) = value.filter(|value| !value.is_empty()) else {
            return Some(Err(OptionError::NoValue(name)));
        };
        let len = map.get().len().saturating_add(value.len());
        let separator: &[u8] = if map.get().is_empty() { b"" } else { b"+" };
        let is_taken = IdMap::parse(value).is_some()
            && len < MAP_LEN_MAX
            && map.push(separator)
            && map.push(value);
        Some(is_taken.then_some(()).ok_or(OptionError::Value {
            name: known,
            form: MAP_FORM,
            value,
        }))
    }

    /// Returns whether none was given.
    pub fn is_empty(&self) -> bool {
        self.users.get().is_empty() && self.groups.get().is_empty()
    }
}

impl<T: Text> fmt::Display for Maps<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, map) in [("usermap", &self.users), ("groupmap", &self.groups)] {
            if !map.get().is_empty() {
                write!(f, ",{name}=")?;
            }
            map.get()
                .iter()
                .try_for_each(|c| write!(f, "{}", char::from(*c)))?;
        }
        Ok(())
    }
}

/// The standing of a local user towards a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The user of the mount: who mounts, and whom `uid=` names as the owner of all files. What
    /// gfmd lets the user of Gfarm do is allowed.
    Own,
    /// Another user, whom `allow_other` lets in: what gfmd lets the user of Gfarm do is allowed if
    /// mode, owner and group allow it to this one.
    Other,
    /// Another user, who is not let in.
    Stranger,
}

/// The user and the group that mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mounter {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

impl Mounter {
    /// Returns what the mount, which is one user for gfmd, is to a local user.
    pub fn standing(&self, user: u32, options: &Options) -> Standing {
        if user == self.uid || options.uid() == Some(user) {
            Standing::Own
        } else if options.allows_other() {
            Standing::Other
        } else {
            Standing::Stranger
        }
    }

    /// Returns the number of the user with this name: that of `uid=`, else that of `usermap=`; what
    /// belongs to the user of the mount belongs to who mounts, and the rest to [`INVALID_ID`].
    pub fn uid_of<T: Text>(&self, name: &[u8], options: &Options, maps: &Maps<T>) -> u32 {
        let by_name = || IdMap(maps.users.get()).find(name);
        let own = (name == options.user()).then_some(self.uid);
        options.uid().or_else(by_name).or(own).unwrap_or(INVALID_ID)
    }

    /// Returns the number of the group with this name, in the same way; Gfarm does not tell which
    /// group the user of the mount is in.
    pub fn gid_of<T: Text>(&self, name: &[u8], options: &Options, maps: &Maps<T>) -> u32 {
        let by_name = || IdMap(maps.groups.get()).find(name);
        options.gid().or_else(by_name).unwrap_or(INVALID_ID)
    }
}
