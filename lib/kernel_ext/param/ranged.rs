// SPDX-License-Identifier: GPL-2.0

//! Numeric parameters with a range.

use super::settable::{
    Rule,
    SettableParam, //
};
use crate::sysfs::ShowBuffer;
use kernel::{
    bindings,
    error::to_result,
    prelude::*, //
};

/// A number in a range.
pub struct Range {
    min: u32,
    max: u32,
}

impl Rule for Range {
    fn parse(&self, text: &CStr) -> Result<u32> {
        let mut value = 0;
        // SAFETY: It is a NUL-terminated string; C writes the value.
        to_result(unsafe { bindings::kstrtouint(text.as_char_ptr(), 0, &mut value) })?;
        if !(self.min..=self.max).contains(&value) {
            return Err(ERANGE);
        }
        Ok(value)
    }

    fn show(&self, value: u32, page: &mut ShowBuffer<'_>) -> Result {
        write!(page, "{value}")
    }
}

/// A `u32` parameter with a range, mode 0644.
///
/// A write of a number outside the range fails with `ERANGE`, a write of other text with `EINVAL`;
/// both leave the value unchanged.
pub type RangedParam = SettableParam<Range>;

impl RangedParam {
    /// Creates a parameter from its default, and the least and the greatest value that it accepts.
    #[doc(hidden)]
    pub const fn new(default: u32, min: u32, max: u32) -> Self {
        Self::with_rule(default, Range { min, max })
    }
}
