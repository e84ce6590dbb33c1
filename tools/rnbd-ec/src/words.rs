// SPDX-License-Identifier: GPL-2.0

//! The table of an array, in memory.

use std::collections::TryReserveError;

use seglog::{
    layout::Layout,
    members::Members,
    record::{
        Entry,
        Malformed,
        Spot, //
    },
    table::{
        SegmentUse,
        Table, //
    },
};

/// The words of a table.
#[derive(Debug)]
pub struct Words {
    words: Vec<u64>,
    layout: Layout,
}

impl Words {
    /// Returns those of an empty one.
    ///
    /// # Errors
    ///
    /// Returns that there is too little memory for it: 8 bytes for each block.
    pub fn new(layout: &Layout) -> Result<Self, TryReserveError> {
        let mut words = Vec::new();
        let count = usize::try_from(layout.words()).unwrap_or(usize::MAX);
        words.try_reserve_exact(count)?;
        words.resize(count, 0);
        Ok(Self {
            words,
            layout: *layout,
        })
    }

    /// Returns where the record of a block is; `None` if the block is zeroes.
    ///
    /// # Errors
    ///
    /// Returns that its entry names no place where a record can be.
    pub fn spot(&self, block: u64) -> Result<Option<Spot>, Malformed> {
        Entry::from_word(self.word(block)).spot(&self.layout)
    }

    /// Returns the use of a segment; `None` if its word makes no sense.
    pub fn segment(&self, segment: u32) -> Option<SegmentUse> {
        let index = self.layout.parts().entries.saturating_add(segment.into());
        SegmentUse::from_word(self.word(index))
    }

    /// Returns the members that have the columns of a segment.
    pub fn members(&self, segment: u32) -> Members {
        self.segment(segment).unwrap_or_default().members
    }
}

impl Table for Words {
    fn word(&self, index: u64) -> u64 {
        let index = usize::try_from(index).ok();
        let word = index.and_then(|index| self.words.get(index));
        word.copied().unwrap_or_default()
    }

    fn set(&mut self, index: u64, word: u64) {
        let index = usize::try_from(index).ok();
        if let Some(to) = index.and_then(|index| self.words.get_mut(index)) {
            *to = word;
        }
    }
}
