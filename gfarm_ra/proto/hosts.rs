// SPDX-License-Identifier: GPL-2.0

//! The addresses of servers: the source of a mount, and the mapping of gfsds' names.

use core::{
    net::IpAddr,
    str, //
};

use super::{
    setting::number,
    GFMD_PORT,
    LABEL_LEN_MAX, //
};

/// Returns whether bytes are a host's name, or an address without brackets, of the characters that
/// those have.
fn is_host(name: &[u8]) -> bool {
    let is_letter = |c: &u8| c.is_ascii_alphanumeric() || b".-_:%".contains(c);
    (1..=LABEL_LEN_MAX).contains(&name.len()) && name.iter().all(is_letter)
}

fn address(text: &[u8]) -> Option<IpAddr> {
    str::from_utf8(text).ok()?.parse().ok()
}

/// A server with its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Server<'a> {
    /// The name or the address, 1 to 255 bytes.
    pub host: &'a [u8],
    /// The port, not 0.
    pub port: u16,
}

impl<'a> Server<'a> {
    /// Parses `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`; the default port is that of gfmd.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let colon = |c: &u8| *c == b':';
        let (host, port) = match text.strip_prefix(b"[") {
            Some(rest) => {
                let end = rest.iter().position(|c| *c == b']')?;
                let (host, rest) = rest.split_at_checked(end)?;
                address(host).filter(IpAddr::is_ipv6)?;
                (host, rest.get(1..)?)
            }
            None => {
                let end = text.iter().position(colon).unwrap_or(text.len());
                text.split_at_checked(end)?
            }
        };
        let port = match port.split_first() {
            None => GFMD_PORT,
            Some((b':', digits)) => u16::try_from(number(digits)?).ok().filter(|p| *p != 0)?,
            Some(_) => return None,
        };
        is_host(host).then_some(Self { host, port })
    }

    /// Returns the address, if the host is one: no name has to be resolved.
    pub fn address(&self) -> Option<IpAddr> {
        address(self.host)
    }
}

/// The servers of a mount's source, several gfmds separated by commas, of which one is the master.
pub fn servers(source: &[u8]) -> impl Iterator<Item = Option<Server<'_>>> {
    source.split(|c| *c == b',').map(Server::parse)
}

/// The value of the option `hosts=`, `NAME/ADDRESS` with `+` between entries.
///
/// # Invariants
///
/// Every entry parses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Hosts<'a>(&'a [u8]);

impl<'a> Hosts<'a> {
    /// Checks a value.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let is_valid = |part| entry(part).is_some_and(|(name, _)| is_host(name));
        // INVARIANT: Every entry was just checked.
        text.split(|c| *c == b'+')
            .all(is_valid)
            .then_some(Self(text))
    }

    /// Takes a value that was checked before.
    pub(super) const fn checked(text: &'a [u8]) -> Self {
        // INVARIANT: That of the argument.
        Self(text)
    }

    /// Returns the address of a gfsd, the first one that is given for its name.
    pub fn find(self, host: &[u8]) -> Option<IpAddr> {
        self.0
            .split(|c| *c == b'+')
            .filter_map(entry)
            .find(|(name, _)| name.eq_ignore_ascii_case(host))
            .map(|(_, address)| address)
    }
}

/// Splits `NAME/ADDRESS`.
fn entry(part: &[u8]) -> Option<(&[u8], IpAddr)> {
    let slash = part.iter().position(|c| *c == b'/')?;
    let (name, rest) = part.split_at_checked(slash)?;
    Some((name, address(rest.get(1..)?)?))
}

/// Returns a number for what is mounted, the same for each mount of a source (FNV-1a): Gfarm has
/// none for a file system.
pub fn number_of(source: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    source.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}
