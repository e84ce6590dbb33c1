// SPDX-License-Identifier: GPL-2.0

//! Pages of files that the kernel has cached, by reference.
//!
//! C header: [`include/linux/pagemap.h`](srctree/include/linux/pagemap.h)

use super::{
    FileSystem,
    Inode, //
};
use core::ptr::NonNull;
use kernel::{
    bindings,
    page::PAGE_SIZE,
    prelude::*, //
};
use kernel_ext::scatterlist::{
    Lender,
    SgList, //
};
use vfs_ext_sys as raw;

impl<T: FileSystem> Inode<T> {
    /// Drops page `number` of `folios`, with the folio that it is in, from the page cache of this
    /// file, if it is there: who uses it reads it again. Another page that is there in its place by
    /// now stays, and so does one that is locked: this does not wait for a lock. May sleep.
    pub fn drop_page(&self, folios: &Folios, number: usize) {
        let Some(folio) = folios.folio_of(number) else {
            return;
        };
        // SAFETY: By the type invariants, this is an inode, and there is a reference to the folio.
        unsafe { raw::vfs_ext_helper_folio_drop(self.as_raw(), folio.as_ptr()) };
    }
}

/// Cached pages of files, one behind the other, to be read by a device.
///
/// Each is kept by a reference, and not locked: it stays what it was when it was taken, also when
/// the kernel drops it from the file's cache meanwhile. Whether it is what the file holds is for
/// the file system to know.
///
/// # Invariants
///
/// Each entry has a reference to its folio, in which its pages are.
pub struct Folios {
    entries: KVec<Entry>,
    pages: u16,
    pages_max: u16,
}

struct Entry {
    folio: NonNull<bindings::folio>,
    first: NonNull<bindings::page>,
    pages: u16,
}

// SAFETY: References to folios are not tied to a thread.
unsafe impl Send for Folios {}
// SAFETY: A shared reference gives no access to the pages.
unsafe impl Sync for Folios {}

impl Folios {
    /// Allocates room for `pages_max` pages. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if the allocation fails.
    pub fn new(pages_max: u16) -> Result<Self> {
        Ok(Self {
            entries: KVec::with_capacity(pages_max.into(), GFP_KERNEL)?,
            pages: 0,
            pages_max,
        })
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u16 {
        self.pages
    }

    /// Appends page `first` of a file and the following ones, at most `pages_max`, as long as they
    /// are cached and up to date, and in one folio. Returns their number; 0 if the first is not, or
    /// if there is no room. Takes no lock, does not allocate, and does not wait.
    pub fn take<T: FileSystem>(&mut self, inode: &Inode<T>, first: u64, pages_max: u16) -> u16 {
        let room = self.pages_max.saturating_sub(self.pages).min(pages_max);
        let (mut folio, mut page) = (core::ptr::null_mut(), core::ptr::null_mut());
        // SAFETY: The inode is valid; the function writes both pointers if it finds pages.
        let found = unsafe {
            raw::vfs_ext_helper_folio_take(
                inode.as_raw(),
                first,
                room.into(),
                &mut folio,
                &mut page,
            )
        };
        let (Some(folio), Some(first)) = (NonNull::new(folio), NonNull::new(page)) else {
            return 0;
        };
        // CAST: At most `room`.
        let pages = found as u16;
        let entry = Entry {
            folio,
            first,
            pages,
        };
        // INVARIANT: The function has taken a reference to the folio of these pages.
        if self.entries.push_within_capacity(entry).is_err() {
            // There is room for an entry of each page.
            // SAFETY: The reference was taken above, and is not kept.
            unsafe { raw::vfs_ext_helper_folio_put(folio.as_ptr()) };
            return 0;
        }
        self.pages = self.pages.saturating_add(pages);
        pages
    }

    /// Returns the folio of a page.
    fn folio_of(&self, number: usize) -> Option<NonNull<bindings::folio>> {
        let mut before = 0usize;
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| {
            before = before.saturating_add(entry.pages.into());
            number < before
        })?;
        Some(entry.folio)
    }

    /// Returns the CRC-32C of the first bytes of each page, in their order: of as many as `lens`
    /// says.
    pub fn sums<'a>(
        &'a self,
        lens: impl Iterator<Item = usize> + 'a,
    ) -> impl Iterator<Item = u32> + 'a {
        let pages = self
            .entries
            .iter()
            .flat_map(|entry| (0..entry.pages).map(|number| (entry.first, number)));
        pages.zip(lens).map(|((first, number), len)| {
            // CAST: At most the size of a page.
            let len = len.min(PAGE_SIZE) as u32;
            // SAFETY: By the type invariants, the page is in a folio to which there is a reference.
            unsafe { raw::vfs_ext_helper_page_crc32c(first.as_ptr(), number.into(), len) }
        })
    }

    /// Gives all pages back. Any context.
    pub fn clear(&mut self) {
        for entry in self.entries.iter() {
            // SAFETY: By the type invariants, the reference is owned; the entry is removed below.
            unsafe { raw::vfs_ext_helper_folio_put(entry.folio.as_ptr()) };
        }
        self.entries.clear();
        self.pages = 0;
    }
}

// SAFETY: The pages are allocated as long as there is a reference to their folio. They are not
// described as writable.
unsafe impl Lender for Folios {
    fn describe(&mut self, list: &mut SgList) -> Result {
        for entry in self.entries.iter() {
            let bytes = u32::from(entry.pages).saturating_mul(PAGE_SIZE as u32);
            // SAFETY: By the type invariants, the pages follow each other in one folio.
            let pushed = unsafe { list.push_entry(entry.first.as_ptr(), 0, bytes, false) };
            if let Err(error) = pushed {
                list.clear_entries()?;
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Drop for Folios {
    fn drop(&mut self) {
        self.clear();
    }
}
