// SPDX-License-Identifier: GPL-2.0

//! Reads of a file that are carried out together.

use kernel::prelude::*;

use super::{
    gfsd::GfsdSource,
    page_source::{
        Ending,
        PageSource,
        Pages, //
    },
    setup::Trouble, //
};
use crate::proto::attr::FileId;

/// Fills reads up to the end of the file: those that follow one another without a gap by one
/// request.
pub(super) fn fill_all<P: Pages>(
    source: &mut GfsdSource<'_>,
    id: FileId,
    batch: &mut [P],
) -> Result<(), Trouble> {
    for pages in &mut *batch {
        pages.announce(id);
    }
    let mut rest = batch;
    while let [first, ..] = &*rest {
        let mut end = first.position();
        let follows = |pages: &&P| {
            // One of which several parts are missing needs requests of its own.
            let is_next = pages.position() == end && !pages.has_more();
            // CAST: From 64 bits to 64.
            end = end.saturating_add(pages.len() as u64);
            is_next
        };
        let count = rest.iter().take_while(follows).count().max(1);
        let Some((row, others)) = rest.split_at_mut_checked(count) else {
            return Ok(());
        };
        match row {
            [pages] => {
                source.fill(id, pages)?;
            }
            row => {
                source.fill_row(row)?;
            }
        }
        rest = others;
    }
    Ok(())
}

/// Returns whether what is not full ends where a file of `size` bytes does, and not before.
pub(super) fn ends_at<P: Pages>(batch: &[P], size: u64) -> bool {
    let mut ended = batch.iter().filter(|pages| pages.len() != 0);
    ended.all(|pages| pages.position() >= size)
}

/// Forgets the bytes: they are read again.
pub(super) fn rewind_all<P: Pages>(batch: &mut [P]) {
    for pages in batch {
        pages.rewind();
    }
}

/// Ends reads whose bytes are those of a file of `size` bytes: what is not full ends with it.
pub(super) fn end_all<P: Pages>(batch: &mut KVec<P>, size: u64) {
    while let Some(mut pages) = batch.pop() {
        pages.progress();
        let how = match pages.len() {
            0 => Ending::Read,
            _ => Ending::EndOfFile { size },
        };
        pages.end(how);
    }
}
