// SPDX-License-Identifier: GPL-2.0

//! The options of a mount, sorted by who uses them: this program, the kernel's VFS, mount(8) (which
//! has used them already), or the file system.

use proto::gfarm::{
    id_map::{
        Maps,
        Text, //
    },
    options::{
        OptionError,
        Options, //
    }, //
};
use rustix::mount::MountAttrFlags;

use crate::Failure;

/// An option of the file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Its name.
    pub name: String,
    /// Its value; `None` if it is a flag.
    pub value: Option<String>,
}

/// The options of a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sorted {
    /// The options for the file system, in the user's order.
    pub words: Vec<Word>,
    /// The options for the mount point.
    pub attributes: MountAttrFlags,
    /// Whether a mount that exists is changed.
    pub is_remount: bool,
    /// The file of the key (`keyfile=`).
    pub key_file: Option<String>,
    /// The file of the key of the cooperative cache (`cc_keyfile=`).
    pub cache_key_file: Option<String>,
    /// The file to read instead of the user's and the system's gfarm2.conf (`config=`).
    pub config: Option<String>,
    /// The names of options that were skipped, as asked for.
    pub skipped: Vec<String>,
}

impl Sorted {
    /// Returns the value of an option of the file system, the last one if it is repeated.
    pub fn value_of(&self, name: &str) -> Option<&str> {
        let mut found = self.words.iter().rev().filter(|word| word.name == name);
        found.next()?.value.as_deref()
    }
}

/// Options that mount(8) or an init system uses, without a value or with one.
const OTHERS: [&str; 17] = [
    // What SELinux adds in /proc/mounts.
    "seclabel", "defaults", "auto", "noauto", "_netdev", "nofail", "owner", "group", "users",
    "nouser", "nousers", "noowner", "nogroup", "rw", "ro", "async", "comment",
];

/// Options that the kernel's VFS or a security module takes, whatever the file system.
const OF_VFS: [&str; 14] = [
    "context",
    "fscontext",
    "defcontext",
    "rootcontext",
    "smackfsdef",
    "smackfsfloor",
    "smackfshat",
    "smackfsroot",
    "smackfstransmute",
    "lazytime",
    "nolazytime",
    "sync",
    "dirsync",
    "mand",
];

/// A map that grows.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Text for Bytes {
    fn get(&self) -> &[u8] {
        &self.0
    }

    fn push(&mut self, bytes: &[u8]) -> bool {
        self.0.extend(bytes);
        true
    }
}

/// The description under which the kernel finds the key of `cc_keyfile=`.
pub const CACHE_KEY: &str = "gfarm:cache";

/// Sorts options that are separated by commas.
///
/// The file system is read and not written, so `rw`, which fstab and mount(8) often have, changes
/// nothing.
///
/// # Errors
///
/// Returns [`Failure::Usage`] for what the kernel would refuse, in its words.
pub fn sort(text: &str, is_sloppy: bool) -> Result<Sorted, Failure> {
    let mut sorted = Sorted {
        words: Vec::new(),
        attributes: MountAttrFlags::empty(),
        is_remount: false,
        key_file: None,
        cache_key_file: None,
        config: None,
        skipped: Vec::new(),
    };
    let (mut checked, mut maps) = (Options::default(), Maps::<Bytes>::default());
    for part in parts(text) {
        let (name, value) = match part.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (part, None),
        };
        if let Some((attribute, is_set)) = attribute(name) {
            sorted.attributes.set(attribute, is_set);
            continue;
        }
        match (name, value) {
            ("remount", None) => sorted.is_remount = true,
            ("keyfile", Some(path)) => sorted.key_file = Some(path.to_owned()),
            ("cc_keyfile", Some(path)) => {
                sorted.cache_key_file = Some(path.to_owned());
                let taken = checked.set(b"cc_key", Some(CACHE_KEY.as_bytes()));
                taken.map_err(|why| Failure::Usage(why.to_string()))?;
                sorted.words.extend(words("cc_key", Some(CACHE_KEY)));
            }
            ("config", Some(path)) => sorted.config = Some(path.to_owned()),
            ("keyfile" | "cc_keyfile" | "config", None) => {
                return Err(Failure::Usage(format!("option {name} needs a value")));
            }
            // Without a value it is one of mount(8): any user may mount.
            ("user", None) => {}
            _ if is_of_others(name) => {}
            _ if OF_VFS.contains(&name) => sorted.words.push(Word {
                name: name.to_owned(),
                value: value.map(|value| value.trim_matches('"').to_owned()),
            }),
            _ => match check(&mut checked, &mut maps, name, value) {
                Ok(()) => sorted.words.extend(words(name, value)),
                Err(OptionError::Unknown(_)) if is_sloppy => sorted.skipped.push(name.to_owned()),
                Err(why) => return Err(Failure::Usage(why.to_string())),
            },
        }
    }
    match checked.check() {
        // A remount has what /proc/mounts shows; who is missing is asked for with the cure.
        Err(why) if !sorted.is_remount && !matches!(why, OptionError::Missing(_)) => {
            Err(Failure::Usage(why.to_string()))
        }
        _ => Ok(sorted),
    }
}

/// Splits options at commas, but not within quotes, which labels of security modules are in.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut is_quoted = false;
    let parts = text.split(move |letter| {
        is_quoted ^= letter == '"';
        letter == ',' && !is_quoted
    });
    parts.filter(|part| !part.is_empty())
}

/// Has the options or the maps take one option.
fn check<'a>(
    options: &mut Options,
    maps: &mut Maps<Bytes>,
    name: &'a str,
    value: Option<&'a str>,
) -> Result<(), OptionError<'a>> {
    let (name, value) = (name.as_bytes(), value.map(str::as_bytes));
    let taken = maps.set(name, value);
    taken.unwrap_or_else(|| options.set(name, value))
}

/// The longest value that the kernel takes at a time, in bytes.
const VALUE_LEN_MAX: usize = 255;

/// Returns an option as the kernel takes it: a list that is too long in several parts, each of
/// which adds to the one before.
pub(crate) fn words(name: &str, value: Option<&str>) -> Vec<Word> {
    // mount(8) takes `user` for an option of its own, and so would a remount.
    let name = if name == "user" { "username" } else { name };
    let word = |value: Option<&str>| Word {
        name: name.to_owned(),
        value: value.map(str::to_owned),
    };
    let mut words = Vec::new();
    let mut rest = value;
    while let Some(text) = rest.filter(|text| text.len() > VALUE_LEN_MAX) {
        let part = text.get(..=VALUE_LEN_MAX).and_then(|part| part.rfind('+'));
        let Some((part, more)) = part.and_then(|end| text.split_at_checked(end)) else {
            break;
        };
        words.push(word(Some(part)));
        rest = more.get(1..);
    }
    words.push(word(rest));
    words
}

fn is_of_others(name: &str) -> bool {
    OTHERS.contains(&name) || name.starts_with("x-") || name.starts_with("X-")
}

/// Returns the attribute of a mount point, and whether the option sets it.
fn attribute(name: &str) -> Option<(MountAttrFlags, bool)> {
    let found = match name {
        "nosuid" => (MountAttrFlags::MOUNT_ATTR_NOSUID, true),
        "suid" => (MountAttrFlags::MOUNT_ATTR_NOSUID, false),
        "nodev" => (MountAttrFlags::MOUNT_ATTR_NODEV, true),
        "dev" => (MountAttrFlags::MOUNT_ATTR_NODEV, false),
        "noexec" => (MountAttrFlags::MOUNT_ATTR_NOEXEC, true),
        "exec" => (MountAttrFlags::MOUNT_ATTR_NOEXEC, false),
        "noatime" => (MountAttrFlags::MOUNT_ATTR_NOATIME, true),
        "atime" | "relatime" => (MountAttrFlags::MOUNT_ATTR_NOATIME, false),
        "nodiratime" => (MountAttrFlags::MOUNT_ATTR_NODIRATIME, true),
        "diratime" => (MountAttrFlags::MOUNT_ATTR_NODIRATIME, false),
        "nosymfollow" => (MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, true),
        "symfollow" => (MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, false),
        _ => return None,
    };
    Some(found)
}
