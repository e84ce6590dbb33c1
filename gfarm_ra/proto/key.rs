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

/// A user's key, which the servers have as well. It is wiped with its drop. A move may leave a copy
/// behind, which is not: who has it in memory for a while has it [read](Self::read) where it stays.
#[derive(PartialEq, Eq)]
pub struct SharedKey {
    /// The time when it expires, in seconds since 1970. The servers compare it with theirs.
    pub expire: u32,
    /// The secret.
    pub secret: [u8; KEY_LEN],
}

impl Drop for SharedKey {
    fn drop(&mut self) {
        self.wipe();
    }
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
    /// Returns the place of a key that is read later.
    pub const fn empty() -> Self {
        Self {
            expire: 0,
            secret: [0; KEY_LEN],
        }
    }

    /// Overwrites the secret, also where the compiler sees that it is not looked at any more.
    pub fn wipe(&mut self) {
        self.secret = [0; KEY_LEN];
        core::hint::black_box(&self.secret);
    }

    /// Reads the line of a key file.
    ///
    /// # Errors
    ///
    /// Returns why the line is no key; then nothing of a secret is left here.
    pub fn read(&mut self, line: &[u8]) -> Result<(), KeyError> {
        self.wipe();
        let line = text::trim(line);
        let end = line
            .iter()
            .position(u8::is_ascii_whitespace)
            .ok_or(KeyError::Words)?;
        let (expire, secret) = line.split_at_checked(end).ok_or(KeyError::Words)?;
        let mut bytes = [0; 4];
        hex(expire, &mut bytes).ok_or(KeyError::Expire)?;
        self.expire = u32::from_be_bytes(bytes);
        hex(text::trim(secret), &mut self.secret).ok_or_else(|| {
            self.wipe();
            KeyError::Secret
        })
    }

    /// Returns whether the servers refuse the key at `now_s`, in seconds since 1970.
    pub fn is_expired(&self, now_s: u64) -> bool {
        now_s >= u64::from(self.expire)
    }
}

/// Converts hexadecimal digits, two for each byte of `bytes`.
fn hex(digits: &[u8], bytes: &mut [u8]) -> Option<()> {
    let mut pairs = digits.chunks_exact(2);
    for byte in bytes {
        let [high, low] = pairs.next()? else {
            return None;
        };
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    let is_whole = pairs.next().is_none() && pairs.remainder().is_empty();
    is_whole.then_some(())
}

fn digit(c: u8) -> Option<u8> {
    // CAST: Below 16.
    char::from(c).to_digit(16).map(|d| d as u8)
}
