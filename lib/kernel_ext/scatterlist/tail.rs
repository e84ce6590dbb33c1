// SPDX-License-Identifier: GPL-2.0

//! The end of a list: a region of memory has no gaps, so what follows the data of a request begins
//! at a page, and the data before it ends at one.

use super::SgList;
use kernel::{
    page::PAGE_SIZE,
    prelude::*, //
};

/// The end of a list's memory, cut off.
#[derive(Clone, Copy)]
pub struct Tail {
    /// The address of the memory; valid as long as the memory of the list.
    pub address: *mut u8,
    /// Its bytes, less than a page.
    pub len_bytes: u32,
}

impl SgList {
    /// Returns address and length of the memory of an entry. There is no high memory.
    ///
    /// # Safety
    ///
    /// The caller must ensure that the entry is in use.
    #[inline]
    pub(crate) unsafe fn entry_memory(&self, index: usize) -> (*mut u8, u32) {
        // SAFETY: By the function requirements.
        let entry = unsafe { &*self.as_raw().add(index) };
        // The low two bits are marks.
        let page = (entry.page_link & !3) as *mut kernel::bindings::page;
        // SAFETY: By the type invariants, the entry describes allocated memory.
        let address = unsafe { kernel_ext_sys::kernel_ext_helper_page_address(page) };
        let address = address.cast::<u8>().wrapping_add(entry.offset as usize);
        (address, entry.length)
    }

    /// Cuts off the memory after the last page boundary: the list ends at a page afterwards, or is
    /// empty.
    ///
    /// # Errors
    ///
    /// Returns `EBUSY` while the list is mapped.
    pub fn cut_tail(&mut self) -> Result<Option<Tail>> {
        if self.mapped() != 0 {
            return Err(EBUSY);
        }
        let Some(last) = self.nents().checked_sub(1) else {
            return Ok(None);
        };
        // SAFETY: `last` is an entry in use.
        let (address, len) = unsafe { self.entry_memory(last as usize) };
        let end = (address as usize).wrapping_add(len as usize) % PAGE_SIZE;
        // CAST: Less than a page.
        let cut = len.min(end as u32);
        if cut == 0 {
            return Ok(None);
        }
        let left = len.wrapping_sub(cut);
        // SAFETY: `last` is an entry in use. Nothing else accesses the list, borrowed exclusively.
        unsafe { (*self.as_raw().add(last as usize)).length = left };
        self.header.len_bytes = self.header.len_bytes.wrapping_sub(cut);
        if left == 0 {
            // INVARIANT: An entry that is appended gets the mark of the end.
            self.header.nents = last;
        }
        Ok(Some(Tail {
            address: address.wrapping_add(left as usize),
            len_bytes: cut,
        }))
    }
}
