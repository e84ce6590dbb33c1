// SPDX-License-Identifier: GPL-2.0

//! The shared key, as `~/.gfarm_shared_key` has it: 8 hexadecimal digits, the time when it expires;
//! white space; 64 digits, the key.

use core::fmt;

use ferro_proto::{
    errno::Errno,
    text, //
};

/// The length of a key, in bytes.
pub const KEY_LEN: usize = 32;

/// The time before the expiry of a key in which the log warns of it, in seconds.
const WARNING_S: u64 = 24 * 3600;

/// Returns the seconds that are left of a key that expires at `expire` if it is time to renew it at
/// `now_s`, both in seconds since 1970.
pub fn is_due(expire: u32, now_s: u64) -> Option<u64> {
    let left_s = u64::from(expire).saturating_sub(now_s);
    (left_s <= WARNING_S).then_some(left_s)
}

/// A user's key, which the servers have as well.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SharedKey {
    /// The time when it expires, in seconds since 1970. The servers compare it with theirs.
    pub expire: u32,
    /// The secret.
    pub secret: [u8; KEY_LEN],
}

/// Does not show the secret.
impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedKey {{ expire: {}, .. }}", self.expire)
    }
}

/// The reason why a line is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// The line has fewer than two words.
    Words,
    /// The first word is not 8 hexadecimal digits.
    Expire,
    /// The second word is not 64 hexadecimal digits.
    Secret,
}

impl KeyError {
    /// Returns the error of a mount with such a key.
    pub const fn errno(self) -> Errno {
        Errno::EINVAL
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Words => "key is not two words: run gfkey -c",
            Self::Expire => "key does not start with 8 hexadecimal digits: run gfkey -c",
            Self::Secret => "key does not end with 64 hexadecimal digits: run gfkey -c",
        })
    }
}

impl SharedKey {
    /// Parses the line of a key file.
    pub fn parse(line: &[u8]) -> Result<Self, KeyError> {
        let line = text::trim(line);
        let end = line
            .iter()
            .position(u8::is_ascii_whitespace)
            .ok_or(KeyError::Words)?;
        let (expire, secret) = line.split_at_checked(end).ok_or(KeyError::Words)?;
        let expire = hex(expire).ok_or(KeyError::Expire)?;
        Ok(Self {
            expire: u32::from_be_bytes(expire),
            secret: hex(text::trim(secret)).ok_or(KeyError::Secret)?,
        })
    }

    /// Returns whether the servers refuse the key at `now_s`, in seconds since 1970.
    pub fn is_expired(&self, now_s: u64) -> bool {
        now_s >= u64::from(self.expire)
    }
}

/// Converts exactly `2 * N` hexadecimal digits.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let mut pairs = digits.chunks_exact(2);
    for byte in &mut bytes {
        let [high, low] = pairs.next()? else {
            return None;
        };
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    let is_whole = pairs.next().is_none() && pairs.remainder().is_empty();
    is_whole.then_some(bytes)
}

fn digit(c: u8) -> Option<u8> {
    // CAST: Below 16.
    char::from(c).to_digit(16).map(|d| d as u8)
}
