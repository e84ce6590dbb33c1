// SPDX-License-Identifier: GPL-2.0

//! The seam between a reader of a file and those who may have its bytes.

use kernel::prelude::*;
use net_ext::Destination;

use crate::proto::attr::FileId;

/// The end of a read. Bytes that were confirmed by [`Pages::progress`] count in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The memory is full, or as much of it as could be read; the rest is asked for again.
    Read,
    /// The file ends where the bytes end.
    EndOfFile {
        /// Its size, in bytes, as the gfsd has told it of these bytes: what the label says by now
        /// may be another content's.
        size: u64,
    },
    /// The read fails.
    Failed(Error),
}

/// A part of a file that is to be read, into memory of its owner.
pub(crate) trait Pages: Send + 'static {
    /// Fills what other nodes have, or counts that none is asked as it is too late; returns what is
    /// to be read from the gfsd, or `None` if the read has ended. Sleeps, until the read `is_over`.
    fn ask_nodes(self, is_late: bool, is_over: &dyn Fn() -> bool) -> Option<Self>
    where
        Self: Sized;

    /// Says that bytes of the content `id` follow, under a ticket for it: what other nodes have
    /// given of another one is read again.
    fn announce(&mut self, id: FileId);

    /// Returns the position in the file of the next byte to read.
    fn position(&self) -> u64;

    /// Returns the number of bytes that are missing from there on, up to those that are there.
    fn len(&self) -> usize;

    /// Returns whether others are missing behind these.
    fn has_more(&self) -> bool;

    /// Returns where the next bytes go.
    fn destination(&mut self) -> Destination<'_>;

    /// Says that the bytes so far are those of the file.
    fn progress(&mut self);

    /// Forgets the bytes since the last [`Self::progress`]: they are written again.
    fn rewind(&mut self);

    /// Ends the read. May sleep.
    fn end(self, how: Ending);
}

/// The bytes that a source has written into pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Filled {
    /// The source has written all that was missing.
    All,
    /// The source has written all up to the end of the file.
    UpToEnd,
}

/// A source of a file's bytes, which is asked for what other nodes have not given.
///
/// It delivers bytes of the content `id` only; whether that is still the content of the file is
/// judged afterwards ([`Content`]).
///
/// [`Content`]: super::Content
pub(crate) trait PageSource {
    /// The reason why the source gave no bytes of use.
    type Fault;

    /// Writes bytes of the content `id` into `pages`, from the first missing one on.
    fn fill<P: Pages>(&mut self, id: FileId, pages: &mut P) -> Result<Filled, Self::Fault>;
}
