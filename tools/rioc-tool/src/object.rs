// SPDX-License-Identifier: GPL-2.0

//! Names of objects as people write them: two numbers, `HIGH:LOW`.

use std::{
    fmt,
    str::FromStr, //
};

use anyhow::{
    Context,
    Error, //
};
use rioc_device::ObjectId;
use serde::{
    Serialize,
    Serializer, //
};

/// The name of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object(pub ObjectId);

/// Reads a number: decimal, or hexadecimal behind `0x`.
///
/// # Errors
///
/// Returns what to write.
pub fn number(text: &str) -> Result<u64, Error> {
    let read = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    read.with_context(|| format!("'{text}' is no number of 64 bits: write 20 or 0x14"))
}

impl FromStr for Object {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let parts = text.split_once(':');
        let (high, low) = parts.context("write two numbers, as 10:20")?;
        let (high, low) = (number(high)?, number(low)?);
        Ok(Self(ObjectId { high, low }))
    }
}

impl fmt::Display for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0.high, self.0.low)
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}
