// SPDX-License-Identifier: GPL-2.0

//! Defects of bytes from outside.

use std::fmt;

/// A field that has a value which it must not have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defect {
    field: &'static str,
    value: u64,
    rule: String,
}

impl Defect {
    /// The field, its value, and the rule that it breaks.
    pub fn new(field: &'static str, value: impl TryInto<u64>, rule: impl fmt::Display) -> Self {
        let value = value.try_into().unwrap_or(u64::MAX);
        let rule = rule.to_string();
        Self { field, value, rule }
    }

    /// The field.
    pub const fn field(&self) -> &'static str {
        self.field
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is {}: {}", self.field, self.value, self.rule)
    }
}

impl std::error::Error for Defect {}
