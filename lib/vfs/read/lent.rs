// SPDX-License-Identifier: GPL-2.0

//! The pages of a subrequest, which come from several places and in any order.

use super::{
    partial::Partial,
    FileSystem,
    Subrequest, //
};
use core::{
    mem::MaybeUninit,
    ops::Range,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    error::to_result,
    page::PAGE_SIZE,
    prelude::*, //
};
use kernel_ext::scatterlist::{
    Lender,
    SgList, //
};
use net_ext::Destination;
use vfs_ext_sys as raw;

/// The most pages of a subrequest that is lent: 1 MiB that begins within a page.
pub const LENT_PAGES_MAX: u16 = 257;

const WORDS: usize = (LENT_PAGES_MAX as usize).div_ceil(u64::BITS as usize);

/// A set of pages.
#[derive(Clone, Copy, Default)]
pub(super) struct Pages([u64; WORDS]);

impl Pages {
    fn add(&mut self, page: u16) {
        if let Some(word) = self.0.get_mut(usize::from(page / 64)) {
            *word |= 1u64.wrapping_shl(page.into());
        }
    }

    pub(super) fn remove(&mut self, page: u16) {
        if let Some(word) = self.0.get_mut(usize::from(page / 64)) {
            *word &= !1u64.wrapping_shl(page.into());
        }
    }

    pub(super) fn has(&self, page: u16) -> bool {
        let word = self.0.get(usize::from(page / 64));
        word.is_some_and(|word| word & 1u64.wrapping_shl(page.into()) != 0)
    }
}

/// A subrequest whose pages are filled in any order: some by a device to which a [`Selection`] is
/// lent, some from a [`Hole`].
///
/// The pages are those of the file: page 0 is the one in which the subrequest begins. What has been
/// filled without a gap, from the begin on, counts when it is a [`Subrequest`] again. Dropping it
/// fails the subrequest with `EIO`.
///
/// # Invariants
///
/// The subrequest has `len` bytes left, from `skip` bytes behind the start of page 0 on, and its
/// own iterator does not move. The bytes of each page in `filled` have been written, and
/// the first `partial.1` bytes of the memory in page `partial.0`.
pub struct Lent<T: FileSystem> {
    subrequest: Subrequest<T>,
    filled: Pages,
    partial: (u16, usize),
    skip: usize,
    len: usize,
    pages: u16,
}

impl<T: FileSystem> Subrequest<T> {
    /// Allows the pages to be filled in any order. Returns the subrequest if it has none left, or
    /// more than [`LENT_PAGES_MAX`].
    pub fn lend(self) -> Result<Lent<T>, Self> {
        // CAST: The remainder is less than a page.
        let skip = (self.position() % PAGE_SIZE as u64) as usize;
        let len = self.len();
        let pages = skip.saturating_add(len).div_ceil(PAGE_SIZE);
        match u16::try_from(pages) {
            // INVARIANT: Nothing has been written.
            Ok(pages) if len > 0 && pages <= LENT_PAGES_MAX => Ok(Lent {
                subrequest: self,
                filled: Pages::default(),
                partial: (0, 0),
                skip,
                len,
                pages,
            }),
            _ => Err(self),
        }
    }
}

impl<T: FileSystem> Lent<T> {
    /// Returns the subrequest, for its inode, its file and the number of its retries. Its position
    /// is that of its begin.
    pub fn subrequest(&self) -> &Subrequest<T> {
        &self.subrequest
    }

    /// Returns the number of page 0 in the file.
    pub fn first_page(&self) -> u64 {
        self.subrequest.position() / PAGE_SIZE as u64
    }

    /// Returns the number of pages, the first and the last of which it may have in part.
    pub fn pages(&self) -> u16 {
        self.pages
    }

    /// Returns whether a page has been filled, or the part of it that is to be read.
    pub fn is_filled(&self, page: u16) -> bool {
        self.filled.has(page)
    }

    /// Returns the bytes that some pages have in the memory of the subrequest.
    fn bytes(&self, pages: Range<u16>) -> Range<usize> {
        let at = |page: u16| {
            let start = usize::from(page).saturating_mul(PAGE_SIZE);
            start.saturating_sub(self.skip).min(self.len)
        };
        at(pages.start)..at(pages.end)
    }

    /// Selects pages to be lent to a device, as one row.
    pub fn select(self, mut pages: impl FnMut(u16) -> bool) -> Selection<T> {
        let mut selected = Pages::default();
        for page in (0..self.pages).filter(|page| pages(*page)) {
            selected.add(page);
        }
        Selection {
            lent: self,
            selected,
            reached: (0, 0),
        }
    }

    /// Returns some pages as a destination, which is filled from its begin on; what they had is
    /// overwritten. The pages end where the subrequest does.
    pub fn hole(&mut self, pages: Range<u16>) -> Hole<'_, T> {
        let bytes = self.bytes(pages.clone());
        let len = bytes.len();
        let mut iter = MaybeUninit::uninit();
        // SAFETY: By the type invariants, the subrequest has that many bytes left, and no other
        // value uses its iterator. The function writes all of `iter`.
        let iter = unsafe {
            let from = self.subrequest.raw.as_ptr();
            raw::vfs_ext_helper_sreq_part(from, bytes.start, len, iter.as_mut_ptr());
            iter.assume_init()
        };
        Hole {
            lent: self,
            pages,
            len,
            iter,
        }
    }

    /// Notes that the first `count` bytes of the memory in `pages` were written.
    fn written(&mut self, pages: Range<u16>, count: usize) {
        let start = self.bytes(pages.clone()).start;
        for page in pages {
            let bytes = self.bytes(page..page.saturating_add(1));
            let end = bytes.end.saturating_sub(start);
            if end <= count {
                // INVARIANT: All of its bytes were written.
                self.filled.add(page);
                continue;
            }
            let part = count.saturating_sub(bytes.start.saturating_sub(start));
            let (other, other_part) = self.partial;
            // The first gap is the one that counts.
            let is_first = page <= other || other_part == 0 || self.filled.has(other);
            if part > 0 && is_first {
                // INVARIANT: As many as are left were written of this page.
                self.partial = (page, part);
            }
            return;
        }
    }

    /// Returns the number of bytes that have been filled without a gap.
    fn prefix(&self) -> usize {
        let first_empty = (0..self.pages).find(|page| !self.filled.has(*page));
        let Some(page) = first_empty else {
            return self.len;
        };
        let start = self.bytes(page..page).start;
        match self.partial {
            (partial, count) if partial == page => start.saturating_add(count).min(self.len),
            _ => start,
        }
    }

    /// Ends the lending: what has been filled without a gap counts as written. The rest of the
    /// subrequest is to be read again. Nothing counts from byte `size` of the file on, where the
    /// file ends: what is behind it came with its last page, and is to be cleared.
    pub fn into_subrequest(self, size: u64) -> Subrequest<T> {
        let up_to_end = size.saturating_sub(self.subrequest.position());
        let count = self.prefix();
        let count = usize::try_from(up_to_end).map_or(count, |end| count.min(end));
        // SAFETY: By the type invariants, these bytes have been written.
        unsafe { raw::vfs_ext_helper_sreq_advance(self.subrequest.raw.as_ptr(), count) };
        self.subrequest
    }

    /// Ends the lending: the pages that have not been filled are filled in their order from now on,
    /// and those that have been are passed over.
    pub fn into_partial(self) -> Partial<T> {
        let first_page = self.first_page();
        // INVARIANT: The iterator has not moved, so the subrequest is at `skip` bytes behind the
        // start of page 0, and by the type invariants the pages in `filled` were written.
        Partial {
            subrequest: self.subrequest,
            filled: self.filled,
            first_page,
        }
    }
}

/// Pages of a subrequest that are filled from their begin on, byte by byte.
pub struct Hole<'a, T: FileSystem> {
    lent: &'a mut Lent<T>,
    pages: Range<u16>,
    len: usize,
    iter: bindings::iov_iter,
}

impl<T: FileSystem> Hole<'_, T> {
    /// Returns where the bytes go.
    pub fn destination(&mut self) -> Destination<'_> {
        // SAFETY: The iterator is a part of that of the subrequest, which is one to write to and
        // not that of a user; only this value uses it, which is borrowed.
        unsafe { Destination::from_raw(NonNull::from(&mut self.iter)) }
    }
}

impl<T: FileSystem> Drop for Hole<'_, T> {
    fn drop(&mut self) {
        let left = self.destination().len();
        let count = self.len.saturating_sub(left);
        self.lent.written(self.pages.clone(), count);
    }
}

/// Pages of a subrequest that are lent to a device, one behind the other as one row.
pub struct Selection<T: FileSystem> {
    lent: Lent<T>,
    selected: Pages,
    /// A page, and the number of bytes of the selected ones before it: pages are mostly filled in
    /// their order, and each is looked for from the last one on.
    reached: (u16, usize),
}

impl<T: FileSystem> Selection<T> {
    /// Returns the number of bytes before the memory in the first page of the row.
    pub fn skip(&self) -> u32 {
        match self.selected.has(0) {
            // CAST: Less than a page.
            true => self.lent.skip as u32,
            false => 0,
        }
    }

    /// Returns the selected pages in their order.
    pub fn pages(&self) -> impl Iterator<Item = u16> + '_ {
        (0..self.lent.pages).filter(|page| self.selected.has(*page))
    }

    /// Takes all pages back.
    pub fn into_lent(self) -> Lent<T> {
        self.lent
    }

    /// Returns the next row of pages that follow each other, from `page` on.
    fn run(&self, page: u16) -> Option<Range<u16>> {
        let mut rest = page..self.lent.pages;
        let start = rest.find(|page| self.selected.has(*page))?;
        let end = rest.find(|page| !self.selected.has(*page));
        Some(start..end.unwrap_or(self.lent.pages))
    }
}

// SAFETY: The memory is that of the subrequest, whose pages stay allocated, and locked for it,
// until it ends: it is dropped with `self`, or taken out of it.
unsafe impl<T: FileSystem> Lender for Selection<T> {
    fn describe(&mut self, list: &mut SgList) -> Result {
        let (mut page, mut entries, mut total) = (0, 0, 0usize);
        while let Some(pages) = self.run(page) {
            page = pages.end;
            let bytes = self.lent.bytes(pages);
            // SAFETY: The list has room for `capacity` entries, of which the first `entries` are in
            // use. The subrequest has these bytes.
            to_result(unsafe {
                raw::vfs_ext_helper_sreq_pieces(
                    self.lent.subrequest.raw.as_ptr(),
                    bytes.start,
                    bytes.len(),
                    list.as_raw(),
                    list.capacity(),
                    &mut entries,
                )
            })?;
            total = total.saturating_add(bytes.len());
        }
        let total = u32::try_from(total).map_err(|_| EINVAL)?;
        // SAFETY: The list is not mapped, as it is being described. The function above has written
        // the entries, with a mark at the last, and their memory belongs to the subrequest, which
        // is read into.
        unsafe { list.set_entries(entries, total, true) };
        Ok(())
    }

    unsafe fn filled(&mut self, offset: usize, len: usize) {
        let end = offset.saturating_add(len);
        let (mut page, mut at) = self.reached;
        if at > offset {
            (page, at) = (0, 0);
        }
        while page < self.lent.pages && at < end {
            let following = page.saturating_add(1);
            if self.selected.has(page) {
                let next = at.saturating_add(self.lent.bytes(page..following).len());
                if offset <= at && next <= end {
                    // INVARIANT: By the function requirements, all of it was written.
                    self.lent.filled.add(page);
                }
                at = next;
            }
            page = following;
        }
        self.reached = (page, at);
    }
}
