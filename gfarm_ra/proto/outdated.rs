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

    /// Returns the size to show with attributes that gfmd has told with a size, in bytes, once the
    /// pages stay or were dropped: by a look that is newer than the one which decided that. While
    /// pages were dropped, a gfsd may have told a size, and the end of a read may have set it: the
    /// older answer of gfmd neither cuts the file there nor makes it grow. It never grows here.
    pub fn shown(&self, told_size: u64) -> u64 {
        self.live_size.unwrap_or(told_size).min(self.shown_size)
    }

    /// Returns the size for a second drop, in bytes, by a look behind the first one: a gfsd has
    /// told a larger size while reads were waited for, and the first drop has cut the file below
    /// it. Once for a content: what is told of it later makes another of it, whose pages are
    /// dropped by who reads next.
    pub fn again(&self, dropped: &Self) -> Option<u64> {
        let size = self.live_size.filter(|size| *size > self.shown_size);
        size.filter(|_| self.changes == dropped.changes)
    }

    /// Returns the size to show after the end of a read, or after a drop, in bytes: a smaller one
    /// that a gfsd has told, or that from which on a page that has just been read is zeroed, also
    /// if gfsds have told another one since. A larger one waits for who drops the pages: the last
    /// one ends with zeroes.
    pub fn ended(&self, zeroed_from: Option<u64>) -> u64 {
        let told = [self.live_size, zeroed_from].into_iter().flatten();
        told.fold(self.shown_size, u64::min)
    }
}
