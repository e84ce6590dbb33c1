// SPDX-License-Identifier: GPL-2.0

//! Parameters that are one of a few words.

use super::settable::{
    Rule,
    SettableParam, //
};
use crate::sysfs::ShowBuffer;
use kernel::prelude::*;

/// One of these words; the value is its index.
pub struct Words(&'static [&'static CStr]);

impl Rule for Words {
    fn parse(&self, text: &CStr) -> Result<u32> {
        let text = text.to_bytes();
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        let index = self.0.iter().position(|word| word.to_bytes() == text);
        // CAST: There are few words.
        Ok(index.ok_or(EINVAL)? as u32)
    }

    fn show(&self, value: u32, page: &mut ShowBuffer<'_>) -> Result {
        let word = self.0.get(value as usize).ok_or(EINVAL)?;
        page.push_str(word.to_str()?)
    }
}

/// A parameter that is one of a few words, mode 0644. A write of another word fails with `EINVAL`
/// and leaves the value unchanged. [`get`](SettableParam::get) returns the index of the word.
pub type WordParam = SettableParam<Words>;

impl WordParam {
    /// Creates a parameter from its words; the first one is the default.
    #[doc(hidden)]
    pub const fn new(words: &'static [&'static CStr]) -> Self {
        Self::with_rule(0, Words(words))
    }
}
