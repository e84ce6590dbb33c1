// SPDX-License-Identifier: GPL-2.0

//! Whose a file is here: Gfarm has names of users and groups, the kernel has numbers.

use super::{
    options::Options,
    setting::number,
    LABEL_LEN_MAX, //
};

/// The number that no user and no group has (`INVALID_UID`, `INVALID_GID`): whose files have none
/// here. `stat(2)` shows 65534 for it, and no process is their owner or in their group; one that
/// runs as 65534 is not, either.
pub const INVALID_ID: u32 = u32::MAX;

/// Converts the number of a user or group.
pub(super) fn id(value: &[u8]) -> Option<u32> {
    number(value).filter(|id| *id != INVALID_ID)
}

/// The value of the options `usermap=` and `groupmap=`, `NAME/NUMBER` with `+` between entries.
///
/// # Invariants
///
/// Every entry parses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Owners<'a>(&'a [u8]);

impl<'a> Owners<'a> {
    /// Checks a value.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        // INVARIANT: Every entry was just checked.
        text.split(|c| *c == b'+')
            .all(|part| entry(part).is_some())
            .then_some(Self(text))
    }

    /// Takes a value that was checked before.
    pub(super) const fn checked(text: &'a [u8]) -> Self {
        // INVARIANT: That of the argument.
        Self(text)
    }

    /// Returns the number that is given for a name, the first one.
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

/// Who mounts.
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
    pub fn uid_of(&self, name: &[u8], options: &Options) -> u32 {
        let by_name = || options.users().find(name);
        let own = (name == options.user()).then_some(self.uid);
        options.uid().or_else(by_name).or(own).unwrap_or(INVALID_ID)
    }

    /// Returns the number of the group with this name, in the same way; Gfarm does not tell which
    /// group the user of the mount is in.
    pub fn gid_of(&self, name: &[u8], options: &Options) -> u32 {
        let by_name = || options.groups().find(name);
        options.gid().or_else(by_name).unwrap_or(INVALID_ID)
    }
}
