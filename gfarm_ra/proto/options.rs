// SPDX-License-Identifier: GPL-2.0

//! The options of a mount:
//!
//! ```text
//! username=NAME [key=DESCRIPTION] [allow_other] [nocto] [uid=N] [gid=N] [hosts=NAME/ADDRESS+...]
//!     [cc=on|off] [cc_key=DESCRIPTION] [ib_devname=NAME] [ra_sync=0|1] [SETTING=N]...
//! ```
//!
//! with the [`Setting`]s by their names, beside the [maps](super::id_map::Maps). Of a repeated
//! option the last value is used, and a list grows. `user=` is the same as `username=`; mount(8)
//! takes it for an option of its own.

use core::fmt;

use ferro_proto::{
    errno::Errno,
    text::Escaped, //
};

use super::{
    hosts::Hosts,
    id_map::id,
    setting::{
        Setting,
        Settings, //
    },
};

/// A text of at most `N` bytes, kept by value.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Text<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Text<N> {
    const EMPTY: Self = Self {
        bytes: [0; N],
        len: 0,
    };

    /// Keeps a text; `None` if it is empty or too long.
    fn new(text: &[u8]) -> Option<Self> {
        let mut kept = Self::EMPTY;
        if text.is_empty() || text.len() > N {
            return None;
        }
        for (to, from) in kept.bytes.iter_mut().zip(text) {
            *to = *from;
        }
        kept.len = text.len();
        Some(kept)
    }

    /// Returns this list with another part of it, with `+` between them.
    fn join(&self, more: &[u8]) -> Option<Self> {
        if self.len == 0 {
            return Self::new(more);
        }
        let mut kept = *self;
        let len = self.len.checked_add(more.len())?.checked_add(1)?;
        let room = kept.bytes.get_mut(self.len..len)?;
        for (to, from) in room.iter_mut().zip([b'+'].iter().chain(more)) {
            *to = *from;
        }
        kept.len = len;
        Some(kept)
    }

    fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

/// The maximum length of a user's name, in bytes (`GFARM_LOGIN_NAME_MAX`).
const USER_LEN_MAX: usize = 64;

/// The maximum length of the description of a key, in bytes.
const KEY_NAME_LEN_MAX: usize = 127;

/// The maximum length of a device's name, in bytes, as in the driver of 2014.
const DEVNAME_LEN_MAX: usize = 31;

/// The maximum length of `hosts=`, in bytes.
const HOSTS_LEN_MAX: usize = 1024;

/// The reason why an option is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionError<'a> {
    /// The option does not exist.
    Unknown(&'a [u8]),
    /// The option needs a value.
    NoValue(&'a [u8]),
    /// A setting is not a number of its range.
    Setting(Setting, &'a [u8]),
    /// Another option has an invalid value.
    Value {
        /// The option.
        name: &'static str,
        /// The form of its values.
        form: &'static str,
        /// The value.
        value: &'a [u8],
    },
    /// The option is required.
    Missing(&'static str),
    /// A node of the cooperative cache has no key.
    NodeWithoutKey,
    /// The option is for a node of the cooperative cache, which the mount is not.
    NoNode(&'static str),
}

impl OptionError<'_> {
    /// Returns the error of the mount.
    pub const fn errno(self) -> Errno {
        Errno::EINVAL
    }
}

impl fmt::Display for OptionError<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown(name) => write!(f, "unknown option '{}'", Escaped(name)),
            Self::NoValue(name) => write!(f, "option {} needs a value", Escaped(name)),
            Self::Setting(setting, value) => {
                let (name, range) = (setting.name(), setting.range());
                let (low, high) = (range.start(), range.end());
                write!(f, "{name}={} is not in {low}..={high}", Escaped(value))?;
                match setting.zero() {
                    Some(meaning) => write!(f, ", nor 0 for {meaning}"),
                    None => Ok(()),
                }
            }
            Self::Value { name, form, value } => {
                write!(f, "{name}={} is not {form}", Escaped(value))
            }
            Self::Missing(name) => write!(f, "option {name}= is missing"),
            Self::NodeWithoutKey => f.write_str(
                "cc=on: add cc_key=DESCRIPTION of a key in your keyrings that all nodes have",
            ),
            Self::NoNode(name) => {
                write!(
                    f,
                    "{name}= has no effect: add cc_key=DESCRIPTION, or cc=off"
                )
            }
        }
    }
}

/// The options of a mount.
///
/// Shown as `/proc/mounts` shows them: what is in force, each with a comma before it, without the
/// description of the key.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Options {
    settings: Settings,
    user: Text<USER_LEN_MAX>,
    key: Text<KEY_NAME_LEN_MAX>,
    allows_other: bool,
    is_nocto: bool,
    uid: Option<u32>,
    gid: Option<u32>,
    ib_devname: Text<DEVNAME_LEN_MAX>,
    /// Whether the mount is a node of the cooperative cache; `None`: if there is a key for it.
    cc: Option<bool>,
    cc_key: Text<KEY_NAME_LEN_MAX>,
    /// Empty, or checked by [`Hosts::parse`].
    hosts: Text<HOSTS_LEN_MAX>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            user: Text::EMPTY,
            key: Text::EMPTY,
            allows_other: false,
            is_nocto: false,
            uid: None,
            gid: None,
            ib_devname: Text::EMPTY,
            cc: None,
            cc_key: Text::EMPTY,
            hosts: Text::EMPTY,
        }
    }
}

impl Options {
    /// Parses all options of a mount, separated by commas.
    pub fn parse(text: &[u8]) -> Result<Self, OptionError<'_>> {
        let mut options = Self::default();
        for word in text.split(|c| *c == b',').filter(|word| !word.is_empty()) {
            let mark = word.iter().position(|c| *c == b'=');
            match mark.and_then(|mark| word.split_at_checked(mark)) {
                Some((name, rest)) => options.set(name, rest.get(1..))?,
                None => options.set(word, None)?,
            }
        }
        options.check()?;
        Ok(options)
    }

    /// Takes one option.
    pub fn set<'a>(
        &mut self,
        name: &'a [u8],
        value: Option<&'a [u8]>,
    ) -> Result<(), OptionError<'a>> {
        let setting = Setting::by_name(name);
        if setting == Some(Setting::RaAsync) && value.is_none() {
            self.settings.set(Setting::RaAsync, 1);
            return Ok(());
        }
        let flag = match name {
            b"allow_other" => Some(("allow_other", &mut self.allows_other)),
            b"nocto" => Some(("nocto", &mut self.is_nocto)),
            _ => None,
        };
        if let Some((name, flag)) = flag {
            *flag = true;
            let form = "an option with a value";
            return value.map_or(Ok(()), |value| {
                Err(OptionError::Value { name, form, value })
            });
        }
        let known: [&[u8]; 10] = [
            b"user",
            b"username",
            b"key",
            b"uid",
            b"gid",
            b"hosts",
            b"ib_devname",
            b"cc",
            b"cc_key",
            b"ra_sync",
        ];
        if setting.is_none() && !known.contains(&name) {
            return Err(OptionError::Unknown(name));
        }
        let value = value
            .filter(|value| !value.is_empty())
            .ok_or(OptionError::NoValue(name))?;
        match setting {
            Some(setting) => {
                let number = setting.parse(value);
                let number = number.ok_or(OptionError::Setting(setting, value))?;
                self.settings.set(setting, number);
                Ok(())
            }
            None => self.set_other(name, value),
        }
    }

    fn set_other<'a>(&mut self, name: &[u8], value: &'a [u8]) -> Result<(), OptionError<'a>> {
        let refused = |name, form| OptionError::Value { name, form, value };
        // Perhaps the key itself was given: it is not shown.
        let hidden = |name| OptionError::Value {
            name,
            form: "the description of a key of up to 127 bytes",
            value: b"...",
        };
        match name {
            b"user" | b"username" => {
                let form = "a user's name of up to 64 bytes";
                self.user = word(value).ok_or(refused("username", form))?;
            }
            b"key" => self.key = word(value).ok_or(hidden("key"))?,
            b"cc" => {
                self.cc = Some(match value {
                    b"on" => true,
                    b"off" => false,
                    _ => return Err(refused("cc", "on or off")),
                });
            }
            b"cc_key" => self.cc_key = word(value).ok_or(hidden("cc_key"))?,
            b"uid" => self.uid = Some(id(value).ok_or(refused("uid", "a user's number"))?),
            b"gid" => self.gid = Some(id(value).ok_or(refused("gid", "a group's number"))?),
            b"ib_devname" => {
                let form = "a device's name of up to 31 bytes";
                self.ib_devname = word(value).ok_or(refused("ib_devname", form))?;
            }
            b"hosts" => {
                let form = "NAME/ADDRESS+NAME/ADDRESS... of up to 1024 bytes";
                let hosts = Hosts::parse(value).and_then(|_| self.hosts.join(value));
                self.hosts = hosts.ok_or(refused("hosts", form))?;
            }
            _ => {
                // The specification's meaning: 1, the default, is asynchronous.
                let number = Setting::RaAsync.parse(value);
                let number = number.ok_or(refused("ra_sync", "0 or 1"))?;
                self.settings.set(Setting::RaAsync, number);
            }
        }
        Ok(())
    }

    /// Checks that the options that are required were given, and that all have an effect. `cc=off`
    /// is to switch the cache off without another change: the others of the cache are let be.
    pub fn check(&self) -> Result<(), OptionError<'static>> {
        if self.user.len == 0 {
            return Err(OptionError::Missing("username"));
        }
        if self.cc == Some(true) && self.cc_key.len == 0 {
            return Err(OptionError::NodeWithoutKey);
        }
        if self.node().is_some() || self.cc == Some(false) {
            return Ok(());
        }
        let settings = Setting::ALL.into_iter();
        let mut given = settings.filter(|setting| self.given(*setting).is_some());
        let name = given.next().map(Setting::name);
        let name = name.or(self.ib_devname().map(|_| "ib_devname"));
        name.map_or(Ok(()), |name| Err(OptionError::NoNode(name)))
    }

    /// Returns whether `/proc/mounts` shows the same for both: not the descriptions of keys.
    pub fn is_shown_as(&self, other: &Self) -> bool {
        let Self {
            key, cc, cc_key, ..
        } = *other;
        let same = Self {
            key,
            cc,
            cc_key,
            ..*self
        };
        same == *other && self.shown_cc() == other.shown_cc()
    }

    /// Returns what is shown of `cc=`, if anything is.
    fn shown_cc(&self) -> Option<bool> {
        self.cc.or((self.cc_key.len != 0).then_some(true))
    }

    /// Returns the value of a setting.
    pub fn get(&self, setting: Setting) -> u32 {
        self.settings.get(setting)
    }

    /// Returns the value of a setting of the cooperative cache, if it was given.
    pub fn given(&self, setting: Setting) -> Option<u32> {
        self.settings.given(setting)
    }

    /// Returns the user's name in Gfarm.
    pub fn user(&self) -> &[u8] {
        self.user.get()
    }

    /// Returns the description of the key in the keyring; `None`: that of the user.
    pub fn key(&self) -> Option<&[u8]> {
        Some(self.key.get()).filter(|key| !key.is_empty())
    }

    /// Returns whether all local users may use the mount.
    pub const fn allows_other(&self) -> bool {
        self.allows_other
    }

    /// Returns whether opens that gfmd has granted, and names that are not there, hold for
    /// `actimeo` without a question.
    pub const fn is_nocto(&self) -> bool {
        self.is_nocto
    }

    /// Returns the user that owns all files here; `None`: by the names of their owners.
    pub const fn uid(&self) -> Option<u32> {
        self.uid
    }

    /// Returns the group that all files have here; `None`: by the names of their groups.
    pub const fn gid(&self) -> Option<u32> {
        self.gid
    }

    /// Returns the description of the key of the cooperative cache, if the mount is a node of it.
    pub fn node(&self) -> Option<&[u8]> {
        Some(self.cc_key.get()).filter(|key| !key.is_empty() && self.cc != Some(false))
    }

    /// Returns the InfiniBand device; `None`: the first one.
    pub fn ib_devname(&self) -> Option<&[u8]> {
        Some(self.ib_devname.get()).filter(|name| !name.is_empty())
    }

    /// Returns the addresses of gfsds that are not resolved.
    pub fn hosts(&self) -> Hosts<'_> {
        Hosts::checked(self.hosts.get())
    }
}

/// Keeps a word that needs no escape in `/proc/mounts`.
fn word<const N: usize>(value: &[u8]) -> Option<Text<N>> {
    let is_plain = |c: &u8| c.is_ascii_graphic() && !b"\\#,=".contains(c);
    Text::new(value).filter(|_| value.iter().all(is_plain))
}

impl fmt::Display for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ",username={}", Escaped(self.user()))?;
        if self.allows_other {
            f.write_str(",allow_other")?;
        }
        if self.is_nocto {
            f.write_str(",nocto")?;
        }
        if let Some(uid) = self.uid {
            write!(f, ",uid={uid}")?;
        }
        if let Some(gid) = self.gid {
            write!(f, ",gid={gid}")?;
        }
        for setting in Setting::ALL {
            if !setting.is_of_cache() || self.given(setting).is_some() {
                let (name, value) = (setting.name(), self.get(setting));
                match setting.is_hex() {
                    true => write!(f, ",{name}={value:#x}")?,
                    false => write!(f, ",{name}={value}")?,
                }
            }
        }
        if let Some(is_on) = self.shown_cc() {
            f.write_str(if is_on { ",cc=on" } else { ",cc=off" })?;
        }
        if let Some(name) = self.ib_devname() {
            write!(f, ",ib_devname={}", Escaped(name))?;
        }
        if self.hosts.len != 0 {
            f.write_str(",hosts=")?;
        }
        // A list needs no escape.
        let mut hosts = self.hosts.get().iter();
        hosts.try_for_each(|c| write!(f, "{}", char::from(*c)))
    }
}
