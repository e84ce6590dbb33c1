// SPDX-License-Identifier: GPL-2.0

//! Decides which pages a task has to drop before it shows other attributes of their file.
//!
//! A drop waits for the reads of the pages, which may wait for a file server that is silent. Who
//! must not wait for one decides by the same look that tells what there is to drop: between two of
//! them a file server may tell of another content.

/// A look at the pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The count of changes of the content ([`Label::changes`](super::identity::Label::changes)).
    pub changes: u64,
    /// The size that a gfsd has told of that content, in bytes, if one has.
    pub live_size: Option<u64>,
    /// The count at which the pages were dropped last.
    pub dropped_at: u64,
    /// The size up to which they are read, in bytes.
    pub shown_size: u64,
}

/// The action for the pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Keep them; the file has this size, in bytes.
    Stay(u64),
    /// Drop them, and set this size, in bytes.
    Drop(u64),
    /// Leave them, and what was told, to a task that may wait.
    Leave,
}

impl Look {
    /// Decides what a task does that was told a size by gfmd, in bytes. A gfsd knows that of a file
    /// that is being written better.
    ///
    /// Pages of another content go, and all if the file grows: a page that was read up to the
    /// smaller size ends with zeroes.
    pub fn decide(&self, told_size: u64, may_wait: bool) -> Pages {
        let size = self.live_size.unwrap_or(told_size);
        if self.dropped_at == self.changes && size <= self.shown_size {
            return Pages::Stay(size);
        }
        match may_wait {
            true => Pages::Drop(size),
            false => Pages::Leave,
        }
    }
}
