// SPDX-License-Identifier: GPL-2.0

//! A subrequest of which some pages are there: the others are filled in their order.

use super::{
    lent::Pages,
    FileSystem,
    Subrequest, //
};
use core::ops::Range;
use kernel::page::PAGE_SIZE;
use net_ext::Destination;
use vfs_ext_sys as raw;

/// A subrequest that is read from its begin on, and of which some pages have been filled before:
/// who gets there passes over them.
///
/// # Invariants
///
/// Page `p` of `filled` is page `first_page + p` of the file. All bytes that it has in the memory
/// of the subrequest have been written.
pub struct Partial<T: FileSystem> {
    pub(super) subrequest: Subrequest<T>,
    pub(super) filled: Pages,
    pub(super) first_page: u64,
}

impl<T: FileSystem> From<Subrequest<T>> for Partial<T> {
    fn from(subrequest: Subrequest<T>) -> Self {
        // INVARIANT: No page is in the set.
        Self {
            subrequest,
            filled: Pages::default(),
            first_page: 0,
        }
    }
}

impl<T: FileSystem> Partial<T> {
    /// Returns the subrequest, for its inode, its file, and where it is: the position of the next
    /// byte, and the number of bytes from there on, those in filled pages included.
    pub fn subrequest(&self) -> &Subrequest<T> {
        &self.subrequest
    }

    /// Ends this: what has been written or passed over counts, and nothing behind it.
    pub fn into_subrequest(self) -> Subrequest<T> {
        self.subrequest
    }

    /// Returns whether a page of the file was filled before, or the part of it that is to be read.
    pub fn is_filled(&self, page: u64) -> bool {
        let number = page.checked_sub(self.first_page);
        let number = number.and_then(|number| u16::try_from(number).ok());
        number.is_some_and(|number| self.filled.has(number))
    }

    /// Marks pages of the file to be written once more although they were filled before.
    pub fn refill(&mut self, pages: Range<u64>) {
        for page in pages {
            let number = page.checked_sub(self.first_page);
            if let Some(number) = number.and_then(|number| u16::try_from(number).ok()) {
                self.filled.remove(number);
            }
        }
    }

    /// Passes over bytes of filled pages, which count as written. Returns `false`, and changes
    /// nothing, if one of them is of another page, or behind the end.
    pub fn pass(&mut self, bytes: usize) -> bool {
        let start = self.subrequest.position();
        // CAST: From 64 bits to 64.
        let end = start.saturating_add(bytes as u64);
        let page_size = PAGE_SIZE as u64;
        let mut pages = start / page_size..end.div_ceil(page_size);
        if bytes == 0 {
            return true;
        }
        if bytes > self.subrequest.len() || !pages.all(|page| self.is_filled(page)) {
            return false;
        }
        // SAFETY: The subrequest has that many bytes left, and by the type invariants they have
        // been written.
        unsafe { raw::vfs_ext_helper_sreq_advance(self.subrequest.raw.as_ptr(), bytes) };
        true
    }

    /// Forgets which pages were filled before, and what was written or passed over since the last
    /// [`Self::progress`]: all of it is written again.
    pub fn forget(&mut self) {
        self.subrequest.rewind();
        self.filled = Pages::default();
    }

    /// Returns where the next bytes go, without regard to the pages that were filled before.
    pub fn destination(&mut self) -> Destination<'_> {
        self.subrequest.destination()
    }

    /// Calls `each` with the number in the file and the CRC-32C of each page that was written since
    /// the last [`Self::progress`] and was not filled before: of the bytes that it has of a file of
    /// `size` bytes. A page of which others were written earlier is none.
    pub fn sums(&self, size: u64, mut each: impl FnMut(u64, u32)) {
        let page_size = PAGE_SIZE as u64;
        let raw = self.subrequest.raw.as_ptr();
        let end = self.subrequest.position();
        let fresh = self.fresh();
        // CAST: From 64 bits to 64.
        let start = end.saturating_sub(fresh as u64);
        let end = end.min(size);
        for page in start.div_ceil(page_size)..end.div_ceil(page_size) {
            let from = page.saturating_mul(page_size);
            let to = from.saturating_add(page_size).min(size);
            if self.is_filled(page) || to > end {
                continue;
            }
            let back = fresh.saturating_sub(from.saturating_sub(start) as usize);
            let len = to.saturating_sub(from) as usize;
            // SAFETY: As above; so many bytes were written, and the memory is the subrequest's
            // until they are accounted for. It is not that of a user.
            each(page, unsafe {
                raw::vfs_ext_helper_sreq_crc32c(raw, back, len)
            });
        }
    }

    /// Returns the number of bytes that were written or passed over since the last
    /// [`Self::progress`].
    pub fn fresh(&self) -> usize {
        // SAFETY: By the type invariants, the subrequest is valid, and no other thread uses it.
        unsafe { raw::vfs_ext_helper_sreq_fresh(self.subrequest.raw.as_ptr()) }
    }

    /// Says that complete pages may be given to their readers, as [`Subrequest::progress`] does.
    pub fn progress(&mut self) {
        self.subrequest.progress();
    }

    /// Forgets what has been written, as [`Subrequest::rewind`] does; pages that were filled before
    /// stay so.
    pub fn rewind(&mut self) {
        self.subrequest.rewind();
    }
}
