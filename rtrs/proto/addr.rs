// SPDX-License-Identifier: GPL-2.0

//! Addresses in the form of options and sysfs: `ip:10.0.0.1`, `ip:fd00::1`, `ip:fe80::1%eth0`,
//! `gid:fe80:0000:...`.

use core::fmt;

use ferro_proto::{
    errno::Errno,
    text, //
};

/// One end of a path. The family is part of the address: addresses of two families are never equal.
/// The port is not compared (D18).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addr {
    /// IPv4, network order.
    V4([u8; 4]),
    /// IPv6, network order, without a scope.
    V6([u8; 16]),
    /// Link-local IPv6, network order, with its scope.
    LinkLocal([u8; 16], Scope),
    /// InfiniBand GID.
    Gid([u8; 16]),
}

/// Bytes of an interface's name, with the zero at its end (`IFNAMSIZ`).
const INTERFACE_NAME_LEN: usize = 16;

/// The scope of a link-local address: the name of an interface, or its number. Which interface that
/// is, is decided at each connect: it may not be there yet, or be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scope {
    name: [u8; INTERFACE_NAME_LEN],
}

impl Scope {
    /// Checks a name as the kernel's `dev_valid_name()` does; nor may it contain what separates
    /// addresses.
    fn parse(text: &[u8]) -> Option<Self> {
        let is_apart = |c: &u8| c.is_ascii_graphic() && !b"/:%@,".contains(c);
        let is_name = !text.is_empty() && text != b"." && text != b"..";
        // One byte for the zero.
        if !is_name || text.len() >= INTERFACE_NAME_LEN || !text.iter().all(is_apart) {
            return None;
        }
        let mut name = [0; INTERFACE_NAME_LEN];
        for (to, from) in name.iter_mut().zip(text) {
            *to = *from;
        }
        Some(Self { name })
    }

    /// Returns the name with a zero at its end.
    pub const fn name(&self) -> &[u8; INTERFACE_NAME_LEN] {
        &self.name
    }

    /// Returns the number of the interface, if that is what the scope is: for an interface that
    /// has no such name.
    pub fn number(&self) -> Option<u32> {
        let end = self.name.split(|c| *c == 0).next()?;
        let number = text::parse_u64(end, 10).ok()?;
        u32::try_from(number).ok().filter(|number| *number != 0)
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.name.iter().take_while(|c| **c != 0);
        rest.try_for_each(|c| write!(f, "{}", char::from(*c)))
    }
}

/// The reason why an address is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddrError {
    /// The address starts with neither `ip:` nor `gid:`.
    Family,
    /// The text after the prefix is not an address.
    Syntax,
    /// The address has a port, which is not the session's.
    Port,
}

impl AddrError {
    /// Returns the C driver's error for the same reason.
    pub const fn errno(self) -> Errno {
        match self {
            AddrError::Family => Errno::EPROTONOSUPPORT,
            AddrError::Syntax | AddrError::Port => Errno::EINVAL,
        }
    }
}

impl fmt::Display for AddrError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AddrError::Family => "address must begin with ip: or gid:",
            AddrError::Syntax => "not an IPv4, IPv6 or GID address",
            AddrError::Port => "the port is not the session's, which dest_port= sets",
        })
    }
}

impl Addr {
    /// Parses `ip:` with an IPv4 or IPv6 address, or `gid:` with a GID in IPv6's form.
    pub fn parse(text: &[u8]) -> Result<Self, AddrError> {
        if let Some(rest) = text.strip_prefix(b"gid:") {
            return v6(rest).map(Self::Gid).ok_or(AddrError::Syntax);
        }
        let rest = text.strip_prefix(b"ip:").ok_or(AddrError::Family)?;
        v4(rest)
            .map(Self::V4)
            .or_else(|| v6(rest).map(Self::V6))
            .or_else(|| link_local(rest))
            .ok_or(AddrError::Syntax)
    }
}

/// Parses a link-local address with a scope. No other address has one.
fn link_local(text: &[u8]) -> Option<Addr> {
    let mark = text.iter().position(|c| *c == b'%')?;
    let (address, scope) = text.split_at_checked(mark)?;
    let (address, scope) = (v6(address)?, Scope::parse(scope.get(1..)?)?);
    let [first, second, ..] = address;
    // fe80::/10
    (first == 0xfe && second & 0xc0 == 0x80).then_some(Addr::LinkLocal(address, scope))
}

/// Parses four decimal numbers without leading zeros.
fn v4(text: &[u8]) -> Option<[u8; 4]> {
    let mut parts = text.split(|c| *c == b'.');
    let mut out = [0; 4];
    for byte in &mut out {
        let part = parts.next()?;
        let leading_zero = part.len() > 1 && part.first() == Some(&b'0');
        if part.is_empty() || part.len() > 3 || leading_zero {
            return None;
        }
        let mut value = 0u16;
        for c in part {
            if !c.is_ascii_digit() {
                return None;
            }
            // Three digits at most: no overflow.
            value = value
                .wrapping_mul(10)
                .wrapping_add(u16::from(c.wrapping_sub(b'0')));
        }
        *byte = u8::try_from(value).ok()?;
    }
    parts.next().is_none().then_some(out)
}

/// Parses a group of one to four hexadecimal digits.
fn group(text: &[u8]) -> Option<u16> {
    if text.is_empty() || text.len() > 4 {
        return None;
    }
    let mut value = 0u16;
    for c in text {
        let digit = match c {
            b'0'..=b'9' => c.wrapping_sub(b'0'),
            b'a'..=b'f' => c.wrapping_sub(b'a').wrapping_add(10),
            b'A'..=b'F' => c.wrapping_sub(b'A').wrapping_add(10),
            _ => return None,
        };
        value = (value << 4) | u16::from(digit);
    }
    Some(value)
}

/// Parses groups separated by single colons, where an IPv4 address may replace the last two;
/// returns them and their number.
fn groups(text: &[u8]) -> Option<([u16; 8], usize)> {
    let mut out = [0; 8];
    let mut count = 0;
    if text.is_empty() {
        return Some((out, 0));
    }
    let mut parts = text.split(|c| *c == b':').peekable();
    while let Some(part) = parts.next() {
        let last = parts.peek().is_none();
        if last && part.contains(&b'.') {
            let [a, b, c, d] = v4(part)?;
            for value in [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])] {
                *out.get_mut(count)? = value;
                count = count.wrapping_add(1);
            }
        } else {
            *out.get_mut(count)? = group(part)?;
            count = count.wrapping_add(1);
        }
    }
    Some((out, count))
}

/// Parses IPv6 in any of its written forms.
fn v6(text: &[u8]) -> Option<[u8; 16]> {
    let gap = text.windows(2).position(|w| w == b"::");
    let words = match gap {
        None => match groups(text)? {
            (words, 8) => words,
            _ => return None,
        },
        Some(at) => {
            let (head, tail) = (text.get(..at)?, text.get(at.wrapping_add(2)..)?);
            // An IPv4 address is only permitted at the end.
            if head.contains(&b'.') {
                return None;
            }
            let ((mut words, before), (after_words, after)) = (groups(head)?, groups(tail)?);
            // The gap stands for at least one group.
            if before.checked_add(after)? > 7 {
                return None;
            }
            let space = words.get_mut(8usize.checked_sub(after)?..)?;
            for (to, from) in space.iter_mut().zip(after_words) {
                *to = from;
            }
            words
        }
    };
    let mut out = [0; 16];
    for (pair, word) in out.chunks_exact_mut(2).zip(words) {
        for (to, from) in pair.iter_mut().zip(word.to_be_bytes()) {
            *to = from;
        }
    }
    Some(out)
}

fn words(bytes: &[u8; 16]) -> [u16; 8] {
    let mut out = [0; 8];
    for (word, pair) in out.iter_mut().zip(bytes.chunks_exact(2)) {
        if let [high, low] = pair {
            *word = u16::from_be_bytes([*high, *low]);
        }
    }
    out
}

/// Writes IPv6 as the kernel's `%pI6c`: the longest run of zeros, of two or more, becomes `::`.
fn write_v6(f: &mut fmt::Formatter<'_>, bytes: &[u8; 16]) -> fmt::Result {
    let words = words(bytes);
    let [.., a, b, c, d] = *bytes;
    let mapped = matches!(words, [0, 0, 0, 0, 0, 0xffff, _, _]);
    // ISATAP: the kernel prints these two as IPv4 as well.
    let isatap = matches!(words, [.., 0 | 0x200, 0x5efe, _, _]);
    let end = if mapped || isatap { 6 } else { 8 };

    let (mut gap_start, mut gap_len, mut run) = (0usize, 0usize, 0usize);
    for (i, word) in words.iter().enumerate().take(end) {
        run = if *word == 0 { run.wrapping_add(1) } else { 0 };
        if run > gap_len {
            (gap_start, gap_len) = (i.wrapping_add(1).wrapping_sub(run), run);
        }
    }
    if gap_len < 2 {
        gap_len = 0;
    }
    let gap_end = gap_start.wrapping_add(gap_len);

    let mut colon = false;
    for (i, word) in words.iter().enumerate().take(end) {
        if gap_len > 0 && (gap_start..gap_end).contains(&i) {
            if i == gap_start {
                f.write_str("::")?;
            }
            colon = false;
            continue;
        }
        if colon {
            f.write_str(":")?;
        }
        write!(f, "{word:x}")?;
        colon = true;
    }
    if end == 6 {
        if colon {
            f.write_str(":")?;
        }
        write!(f, "{a}.{b}.{c}.{d}")?;
    }
    Ok(())
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Addr::V4([a, b, c, d]) => write!(f, "ip:{a}.{b}.{c}.{d}"),
            Addr::V6(bytes) => {
                f.write_str("ip:")?;
                write_v6(f, bytes)
            }
            Addr::LinkLocal(bytes, scope) => {
                f.write_str("ip:")?;
                write_v6(f, bytes)?;
                write!(f, "%{scope}")
            }
            Addr::Gid(bytes) => {
                f.write_str("gid")?;
                words(bytes).iter().try_for_each(|w| write!(f, ":{w:04x}"))
            }
        }
    }
}

/// The two ends of a path in an option: `[src@|src,]dst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathAddrs {
    /// The source; with `None` the routing selects it.
    pub src: Option<Addr>,
    /// The destination.
    pub dst: Addr,
}

impl PathAddrs {
    /// Parses `dst`, `src@dst` or `src,dst`. An IPv4 address of `dst` may have the session's
    /// `port` after it (`ip:10.0.0.2:1234`); the C driver accepts any there, and ignores it.
    pub fn parse(text: &[u8], port: u16) -> Result<Self, AddrError> {
        // A comma first, as in C.
        let mark = text
            .iter()
            .position(|c| *c == b',')
            .or_else(|| text.iter().position(|c| *c == b'@'));
        let Some(mark) = mark else {
            return Ok(Self {
                src: None,
                dst: with_port(text, port)?,
            });
        };
        let (src, rest) = text.split_at_checked(mark).ok_or(AddrError::Syntax)?;
        let dst = rest.get(1..).ok_or(AddrError::Syntax)?;
        Ok(Self {
            src: Some(Addr::parse(src)?),
            dst: with_port(dst, port)?,
        })
    }
}

/// Parses an address that may have `port` after it.
fn with_port(end: &[u8], port: u16) -> Result<Addr, AddrError> {
    let parsed = Addr::parse(end);
    let Some(mark) = end.iter().rposition(|c| *c == b':') else {
        return parsed;
    };
    let (address, rest) = end.split_at_checked(mark).ok_or(AddrError::Syntax)?;
    let written = rest.get(1..).ok_or(AddrError::Syntax)?;
    match (parsed, Addr::parse(address)) {
        (Err(AddrError::Syntax), Ok(v4 @ Addr::V4(_))) => {
            match text::parse_u64(written, 10).map(u16::try_from) {
                Ok(Ok(written)) if written == port => Ok(v4),
                Ok(Ok(_)) => Err(AddrError::Port),
                _ => Err(AddrError::Syntax),
            }
        }
        (parsed, _) => parsed,
    }
}

/// Returns a path that is named more than once, if there is one.
pub fn repeated(paths: &[PathAddrs]) -> Option<&PathAddrs> {
    let mut rest = paths;
    while let Some((first, others)) = rest.split_first() {
        if others.contains(first) {
            return Some(first);
        }
        rest = others;
    }
    None
}

/// The ends of a path as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownEnds {
    /// The ends that the user gave.
    pub asked: PathAddrs,
    /// The source that the routing chose, once it has.
    pub found: Option<Addr>,
}

impl KnownEnds {
    /// Returns the source, if it is known.
    pub fn src(&self) -> Option<Addr> {
        self.found.or(self.asked.src)
    }

    /// Returns whether two paths are the same: the destinations are equal, and so are the resolved
    /// sources or the requested ones. A source that is known for one of them only may resolve to
    /// the same address later.
    pub fn is_same_path(&self, other: &Self) -> bool {
        let known = self.src().is_some() && self.src() == other.src();
        self.asked.dst == other.asked.dst && (known || self.asked.src == other.asked.src)
    }
}

/// Name of a path's directory: `src@dst`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathName {
    /// The client's end.
    pub src: Addr,
    /// The server's end.
    pub dst: Addr,
}

impl fmt::Display for PathName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.src, self.dst)
    }
}
