// SPDX-License-Identifier: GPL-2.0

//! Parsing of numbers and words written to sysfs, with the rules of the kernel's `kstrto*`.

use core::fmt;

use crate::errno::Errno;

/// The reason why a number is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NumberError {
    /// The text is not a number (`EINVAL`).
    Invalid,
    /// The number is too large or too small (`ERANGE`).
    Range,
}

impl NumberError {
    /// Returns the error of `kstrto*`.
    pub const fn errno(self) -> Errno {
        match self {
            NumberError::Invalid => Errno::EINVAL,
            NumberError::Range => Errno::ERANGE,
        }
    }
}

impl fmt::Display for NumberError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NumberError::Invalid => "not a number",
            NumberError::Range => "number out of range",
        })
    }
}

/// Prints untrusted bytes in a log line: at most 64 of them, and `?` for what is neither graphic
/// ASCII nor a blank, so that they can neither forge lines nor fill the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Escaped<'a>(pub &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.iter().take(64) {
            let keeps = c.is_ascii_graphic() || *c == b' ';
            let shown = if keeps { *c } else { b'?' };
            write!(f, "{}", char::from(shown))?;
        }
        if self.0.len() > 64 {
            f.write_str("...")?;
        }
        Ok(())
    }
}

/// Removes white space at both ends.
pub fn trim(written: &[u8]) -> &[u8] {
    written.trim_ascii()
}

/// Splits a line into words separated by spaces; removes white space at both ends.
pub fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    trim(line)
        .split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty())
}

/// Splits a word into option and value; `None` without a `=`, or without a value.
pub fn option(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let mark = word.iter().position(|byte| *byte == b'=')?;
    let (key, rest) = word.split_at_checked(mark)?;
    let value = rest.get(1..)?;
    (!value.is_empty()).then_some((key, value))
}

/// Removes the prefix of a base: for base 0, `0x` means 16, `0` means 8, otherwise 10.
fn prefix(digits: &[u8], base: u32) -> (&[u8], u32) {
    let hex = digits
        .strip_prefix(b"0x")
        .or_else(|| digits.strip_prefix(b"0X"))
        .filter(|d| d.first().is_some_and(u8::is_ascii_hexdigit));
    match (base, hex) {
        (0 | 16, Some(rest)) => (rest, 16),
        (0, None) if digits.first() == Some(&b'0') => (digits, 8),
        (0, None) => (digits, 10),
        _ => (digits, base),
    }
}

fn digits(text: &[u8], base: u32) -> Result<u64, NumberError> {
    let (text, base) = prefix(text, base);
    if text.is_empty() {
        return Err(NumberError::Invalid);
    }
    let mut value = Some(0u64);
    for c in text {
        let digit = match c {
            b'0'..=b'9' => c.wrapping_sub(b'0'),
            b'a'..=b'f' => c.wrapping_sub(b'a').wrapping_add(10),
            b'A'..=b'F' => c.wrapping_sub(b'A').wrapping_add(10),
            _ => return Err(NumberError::Invalid),
        };
        if u32::from(digit) >= base {
            return Err(NumberError::Invalid);
        }
        value = value
            .and_then(|v| v.checked_mul(u64::from(base)))
            .and_then(|v| v.checked_add(u64::from(digit)));
    }
    value.ok_or(NumberError::Range)
}

/// Parses an unsigned number with an optional `+` before it and an optional newline after it.
/// `base` is 0 (by prefix), 8, 10 or 16.
pub fn parse_u64(written: &[u8], base: u32) -> Result<u64, NumberError> {
    let text = written.strip_suffix(b"\n").unwrap_or(written);
    digits(text.strip_prefix(b"+").unwrap_or(text), base)
}

/// Parses a signed number likewise.
pub fn parse_i32(written: &[u8], base: u32) -> Result<i32, NumberError> {
    let text = written.strip_suffix(b"\n").unwrap_or(written);
    let value = match text.strip_prefix(b"-") {
        Some(rest) => i64::try_from(digits(rest, base)?).map(i64::wrapping_neg),
        None => i64::try_from(parse_u64(text, base)?),
    };
    value
        .ok()
        .and_then(|v| i32::try_from(v).ok())
        .ok_or(NumberError::Range)
}

/// Returns whether the text is `word`, with or without a newline. Files with one operation
/// (`reconnect`, `force_close`, ...) accept the word `1`.
pub fn is_word(written: &[u8], word: &[u8]) -> bool {
    written.strip_suffix(b"\n").unwrap_or(written) == word
}
