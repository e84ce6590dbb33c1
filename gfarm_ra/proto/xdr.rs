// SPDX-License-Identifier: GPL-2.0

//! Numbers and byte strings as Gfarm's `gfp_xdr` encodes them: big-endian, without padding, a byte
//! string with its length in 4 bytes before it.

use core::fmt;

/// The caller's buffer is too small for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("request does not fit its buffer")
    }
}

/// Writes values into a caller's buffer.
///
/// A value that does not fit is not written, nor is any after it: [`finish`](Self::finish) tells.
#[derive(Debug)]
pub struct Encoder<'b> {
    rest: &'b mut [u8],
    len: usize,
    is_full: bool,
}

impl<'b> Encoder<'b> {
    /// Starts at the beginning of a buffer.
    pub const fn new(out: &'b mut [u8]) -> Self {
        Self {
            rest: out,
            len: 0,
            is_full: false,
        }
    }

    /// Returns the number of bytes written, if all values fitted.
    pub const fn finish(self) -> Result<usize, Full> {
        if self.is_full {
            Err(Full)
        } else {
            Ok(self.len)
        }
    }

    /// Writes bytes without a length.
    pub fn raw(&mut self, bytes: &[u8]) {
        let rest = core::mem::take(&mut self.rest);
        match rest.split_at_mut_checked(bytes.len()) {
            Some((place, rest)) if !self.is_full => {
                place.copy_from_slice(bytes);
                self.rest = rest;
                self.len = self.len.wrapping_add(bytes.len());
            }
            _ => self.is_full = true,
        }
    }

    /// Writes an unsigned 32-bit number (`i`).
    pub fn u32(&mut self, value: u32) {
        self.raw(&value.to_be_bytes());
    }

    /// Writes a signed 32-bit number (`i`).
    pub fn i32(&mut self, value: i32) {
        self.raw(&value.to_be_bytes());
    }

    /// Writes an unsigned 64-bit number (`l`).
    pub fn u64(&mut self, value: u64) {
        self.raw(&value.to_be_bytes());
    }

    /// Writes a signed 64-bit number (`l`).
    pub fn i64(&mut self, value: i64) {
        self.raw(&value.to_be_bytes());
    }

    /// Writes a byte string (`s` and `b`).
    pub fn bytes(&mut self, bytes: &[u8]) {
        match u32::try_from(bytes.len()) {
            Ok(len) => {
                self.u32(len);
                self.raw(bytes);
            }
            Err(_) => self.is_full = true,
        }
    }
}

/// The value of a field that no server sends: the stream cannot be followed any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// A byte string or a list is longer than it may be.
    TooLong {
        /// The field.
        field: &'static str,
        /// The length that was sent.
        len: u32,
        /// The maximum.
        max: u32,
    },
    /// A number, or a name, is not one that the field may have.
    Value {
        /// The field.
        field: &'static str,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { field, len, max } => {
                write!(
                    f,
                    "{field} has {len} bytes or entries, at most {max} are valid"
                )
            }
            Self::Value { field } => write!(f, "{field} has an invalid value"),
        }
    }
}

/// The reason why a value was not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The value is not complete: at least this many bytes more are needed, not 0.
    NeedMore(usize),
    /// The value is not valid.
    Malformed(Malformed),
}

impl From<Malformed> for DecodeError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

/// Reads values from the received part of a stream.
///
/// After [`DecodeError::NeedMore`] the caller receives more bytes behind those it has, and decodes
/// again from where a whole part began.
#[derive(Clone, Debug)]
pub struct Decoder<'a> {
    rest: &'a [u8],
    consumed: usize,
}

impl<'a> Decoder<'a> {
    /// Starts at the beginning of the bytes.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            consumed: 0,
        }
    }

    /// Returns the number of bytes that were read.
    pub const fn consumed(&self) -> usize {
        self.consumed
    }

    /// Returns whether all bytes were read.
    pub const fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads `len` bytes.
    pub fn raw(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        match self.rest.split_at_checked(len) {
            Some((bytes, rest)) => {
                self.rest = rest;
                self.consumed = self.consumed.wrapping_add(len);
                Ok(bytes)
            }
            None => Err(DecodeError::NeedMore(len.wrapping_sub(self.rest.len()))),
        }
    }

    /// Reads `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        match self.rest.split_first_chunk::<N>() {
            Some((bytes, rest)) => {
                self.rest = rest;
                self.consumed = self.consumed.wrapping_add(N);
                Ok(*bytes)
            }
            None => Err(DecodeError::NeedMore(N.wrapping_sub(self.rest.len()))),
        }
    }

    /// Reads an unsigned 32-bit number (`i`).
    pub fn u32(&mut self) -> Result<u32, DecodeError> {
        Ok(u32::from_be_bytes(self.array()?))
    }

    /// Reads a signed 32-bit number (`i`).
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// Reads an unsigned 64-bit number (`l`).
    pub fn u64(&mut self) -> Result<u64, DecodeError> {
        Ok(u64::from_be_bytes(self.array()?))
    }

    /// Reads a signed 64-bit number (`l`).
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    /// Reads the number of bytes or entries that follow, at most `max`.
    ///
    /// A larger number is refused before anything behind it has to arrive.
    pub fn count(&mut self, field: &'static str, max: u32) -> Result<u32, DecodeError> {
        let len = self.u32()?;
        if len > max {
            return Err(Malformed::TooLong { field, len, max }.into());
        }
        Ok(len)
    }

    /// Reads a byte string (`s` and `b`) of at most `max` bytes.
    pub fn bytes(&mut self, field: &'static str, max: usize) -> Result<&'a [u8], DecodeError> {
        // A limit above 4 GiB is none.
        let len = self.count(field, u32::try_from(max).unwrap_or(u32::MAX))?;
        self.raw(len as usize)
    }
}
