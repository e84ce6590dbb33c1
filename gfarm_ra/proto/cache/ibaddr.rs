// SPDX-License-Identifier: GPL-2.0

//! Lines that are written to `ibaddr` of a mount, to add and to remove peers by hand.
//!
//! ```text
//! [add] gid=G [lid=N] qpn=N [psn=N] qkey=N [sl=N] ...
//! remove gid=G [lid=N] qpn=N [psn=N] [qkey=N] [sl=N] ...
//! [add|remove] lid=N qpn=N [psn=N] qkey=N sl=N [gid=G] ...
//! ```
//!
//! Without them `lid` is 0, and key and service level are those of the node itself. Of a peer that
//! is added the key has to be told, as each node draws its own.
//!
//! `lid=N qpn=N psn=N qkey=N sl=N` is what the driver of 2014 took and showed, without `gid`, which
//! RoCE needs. Numbers are decimal, G is written as an IPv6 address. As in that driver a line that
//! begins with another word is skipped, unknown text behind `sl=` is ignored, a last line
//! without its end is ignored, and a line that is only partly right is `EINVAL`.

use core::{
    net::Ipv6Addr,
    str, //
};

use ferro_proto::errno::Errno;

use super::super::setting::number;
use super::address::Address;

/// The change that a line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Register this peer.
    Add(Address),
    /// Forget this peer: the port and the queue pair tell which; key and service level need not be
    /// right.
    Remove(Address),
}

/// Returns the edits of what was written at once to the file of the node `me`, a line each; an
/// error ends them.
///
/// The caller carries out those before an error: the driver of 2014 did.
pub fn edits(written: &[u8], me: Address) -> impl Iterator<Item = Result<Edit, Errno>> + '_ {
    let end = written.iter().rposition(|c| *c == b'\n');
    let complete = end.and_then(|end| written.get(..end)).unwrap_or(&[]);
    let mut has_failed = false;
    complete
        .split(|c| *c == b'\n')
        .filter_map(move |line| edit(line, me).transpose())
        .take_while(move |edit| !core::mem::replace(&mut has_failed, edit.is_err()))
}

/// Parses a line; `None` if it is to be skipped.
fn edit(line: &[u8], me: Address) -> Result<Option<Edit>, Errno> {
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .peekable();
    let Some(first) = words.peek().copied() else {
        return Ok(None);
    };
    let is_word = matches!(first, b"add" | b"remove");
    if is_word {
        words.next();
    } else if !first.starts_with(b"lid=") && !first.starts_with(b"gid=") {
        return Ok(None);
    }
    let qkey = (first == b"remove").then(|| me.qkey());
    let address = address(words, me, qkey).ok_or(Errno::EINVAL)?;
    Ok(Some(match first {
        b"remove" => Edit::Remove(address),
        _ => Edit::Add(address),
    }))
}

/// Parses the fields of an address; one without a key has this, if any.
fn address<'a>(
    words: impl Iterator<Item = &'a [u8]>,
    me: Address,
    qkey: Option<u32>,
) -> Option<Address> {
    let mut words = words.peekable();
    let mut found = None;
    if let Some(text) = words.peek().and_then(|word| word.strip_prefix(b"gid=")) {
        found = Some(gid(text)?);
        words.next();
    }
    let is_short = found.is_some();
    let mut field = |name: &[u8], default: Option<u32>| match words
        .peek()
        .and_then(|word| word.strip_prefix(name))
    {
        Some(text) => {
            words.next();
            number(text)
        }
        None => default,
    };
    let or = |default: u32| is_short.then_some(default);
    let lid = u16::try_from(field(b"lid=", or(0))?).ok()?;
    let qpn = field(b"qpn=", None)?;
    field(b"psn=", Some(0))?;
    let qkey = field(b"qkey=", qkey.filter(|_| is_short))?;
    let sl = u8::try_from(field(b"sl=", or(me.sl().into()))?).ok()?;
    for text in words.filter_map(|word| word.strip_prefix(b"gid=")) {
        let after = gid(text)?;
        if found.is_some_and(|before| before != after) {
            return None;
        }
        found = Some(after);
    }
    Address::new(found.unwrap_or([0; 16]), lid, qpn, qkey, sl)
}

fn gid(text: &[u8]) -> Option<[u8; 16]> {
    let address: Ipv6Addr = str::from_utf8(text).ok()?.parse().ok()?;
    Some(address.octets())
}
