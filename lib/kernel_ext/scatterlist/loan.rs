// SPDX-License-Identifier: GPL-2.0

//! Memory that its owner lends to a device for one transfer.

use super::{
    set_entry,
    SgHeader,
    SgList, //
};
use crate::pages::PageBlock;
use core::ops::Deref;
use kernel::{
    bindings,
    prelude::*,
    sync::Arc, //
};

/// The owner of memory that a device is to read or to write.
///
/// # Safety
///
/// The memory that [`describe`](Self::describe) has described stays allocated until the value is
/// dropped, or describes again, wherever it is moved. If it was described as writable, the device
/// may write any bytes to it meanwhile.
pub unsafe trait Lender: Send {
    /// Writes the pieces of the memory into `list`, which is empty, in their order.
    ///
    /// # Errors
    ///
    /// Returns `ENOSPC` if there are more pieces than the list has room for, and any other error if
    /// there is nothing to lend. The list stays empty.
    fn describe(&mut self, list: &mut SgList) -> Result;

    /// Notes that `len` bytes from `offset` on, of those that were described last, have been
    /// written since. The device has no access any more.
    ///
    /// # Safety
    ///
    /// The caller must ensure that they have been, and that the list is not mapped.
    unsafe fn filled(&mut self, _offset: usize, _len: usize) {}
}

/// The storage of a scatter list, for one [`Loan`] after the other.
///
/// # Invariants
///
/// `words` is the memory of an initialised [`SgList`], which is empty but in a [`Loan`].
pub struct SgBuffer {
    words: KVVec<u64>,
}

impl SgBuffer {
    /// Allocates the storage of a list of at most `capacity` entries. Sleeps.
    pub fn new(capacity: u16) -> Result<Self> {
        let size = SgHeader::list_size(capacity).div_ceil(size_of::<u64>());
        let mut words = KVVec::from_elem(0u64, size, GFP_KERNEL)?;
        // SAFETY: The memory is aligned to 8 bytes and has the length that a list needs.
        unsafe { SgHeader::init(words.as_mut_ptr().cast(), capacity) };
        // INVARIANT: The list has just been initialised, and is empty.
        Ok(Self { words })
    }

    fn list(&self) -> &SgList {
        let header = self.words.as_ptr().cast_mut().cast::<SgHeader>();
        // SAFETY: By the type invariants, the memory is that of an initialised list, which is
        // borrowed with `self`.
        unsafe { &*SgHeader::list(header) }
    }

    fn list_mut(&mut self) -> &mut SgList {
        let header = self.words.as_mut_ptr().cast::<SgHeader>();
        // SAFETY: As above; the borrow is exclusive.
        unsafe { &mut *SgHeader::list(header) }
    }
}

/// Memory and the list that describes it. The owner gets the memory back by [`Loan::end`].
///
/// # Invariants
///
/// The list in `buffer` describes memory of `lender`, by its last `describe`; it is not empty. It
/// is mapped only while the caller of [`Self::list_mut`] keeps the loan.
pub struct Loan<L: Lender> {
    buffer: SgBuffer,
    lender: L,
}

impl<L: Lender> Loan<L> {
    /// Has `lender` describe its memory in `buffer`.
    ///
    /// # Errors
    ///
    /// Returns the error of [`Lender::describe`], `EINVAL` if it has described nothing, and both
    /// values.
    pub fn new(mut buffer: SgBuffer, mut lender: L) -> Result<Self, (Error, SgBuffer, L)> {
        let list = buffer.list_mut();
        let described = lender.describe(list).and_then(|()| match list.is_empty() {
            true => Err(EINVAL),
            false => Ok(()),
        });
        if let Err(error) = described {
            list.header.reset();
            return Err((error, buffer, lender));
        }
        // INVARIANT: The list was described just now, and is not mapped.
        Ok(Self { buffer, lender })
    }

    /// Returns the list, for a mapping.
    ///
    /// # Safety
    ///
    /// The caller must ensure that the list is not mapped when the loan ends, is dropped, or is
    /// passed on.
    pub unsafe fn list_mut(&mut self) -> &mut SgList {
        self.buffer.list_mut()
    }

    /// Copies to the memory, from byte `offset` on, and returns the number of bytes. Any context.
    ///
    /// # Errors
    ///
    /// Returns `EPERM` if the memory is not writable.
    pub fn copy_in(&mut self, offset: usize, from: &[u8]) -> Result<usize> {
        self.buffer.list_mut().copy_in(offset, from)
    }

    /// Copies to the memory, from byte `offset` on, and tells its owner.
    ///
    /// # Errors
    ///
    /// Returns `EPERM` if the memory is not writable, `EINVAL` if it is shorter.
    pub fn write(&mut self, offset: usize, from: &[u8]) -> Result {
        if self.copy_in(offset, from)? != from.len() {
            return Err(EINVAL);
        }
        // SAFETY: They have been written just now. A loan that is mapped is not passed on.
        unsafe { self.filled(offset, from.len()) }
    }

    /// Notes that `len` bytes from `offset` on have been written.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if there are fewer.
    ///
    /// # Safety
    ///
    /// The caller must ensure that they have been, since the loan began, and that the list is not
    /// mapped.
    pub unsafe fn filled(&mut self, offset: usize, len: usize) -> Result {
        let end = offset.checked_add(len).ok_or(EINVAL)?;
        if end > self.len_bytes() as usize {
            return Err(EINVAL);
        }
        // SAFETY: By the function requirements and the check above.
        unsafe { self.lender.filled(offset, len) };
        Ok(())
    }

    /// Ends the loan: returns the storage and the owner.
    pub fn end(mut self) -> (SgBuffer, L) {
        // INVARIANT: The list of the buffer is empty again, and is not mapped.
        self.buffer.list_mut().header.reset();
        (self.buffer, self.lender)
    }
}

impl<L: Lender> Deref for Loan<L> {
    type Target = SgList;

    fn deref(&self) -> &SgList {
        self.buffer.list()
    }
}

impl SgList {
    /// Appends an entry.
    ///
    /// # Errors
    ///
    /// Returns `EBUSY` while the list is mapped, `EINVAL` for no bytes, or for more than 4 GiB in
    /// total, `ENOSPC` if there is no room.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `page` begins contiguous memory with `len_bytes` from
    /// `offset_bytes` on, which stays allocated as long as the list has the entry, and that all
    /// memory of the list may be written to if `writable`.
    pub unsafe fn push_entry(
        &mut self,
        page: *mut bindings::page,
        offset_bytes: usize,
        len_bytes: u32,
        writable: bool,
    ) -> Result {
        if self.mapped() != 0 {
            return Err(EBUSY);
        }
        if len_bytes == 0 {
            return Err(EINVAL);
        }
        let (index, total) = (self.nents(), self.len_bytes());
        let total = total.checked_add(len_bytes).ok_or(EINVAL)?;
        if index >= self.capacity() {
            return Err(ENOSPC);
        }
        // SAFETY: `index` is below the capacity. By the function requirements, the memory exists.
        unsafe {
            let entry = self.as_raw().add(index as usize);
            set_entry(entry, page, offset_bytes, len_bytes);
        }
        if let Some(before) = index.checked_sub(1) {
            // SAFETY: `before` is an entry in use.
            let before = unsafe { &mut *self.as_raw().add(before as usize) };
            before.page_link &= !(bindings::SG_END as usize);
        }
        // INVARIANT: One more entry is in use; it ends the list and the one before does not.
        self.header.nents = index.wrapping_add(1);
        self.header.len_bytes = total;
        self.header.writable = writable;
        Ok(())
    }

    /// Removes all entries. Returns `EBUSY` while the list is mapped.
    pub fn clear_entries(&mut self) -> Result {
        if self.mapped() != 0 {
            return Err(EBUSY);
        }
        self.header.reset();
        Ok(())
    }
}

/// Parts of blocks of pages, to be lent in their order.
#[derive(Default)]
pub struct BlockParts {
    parts: KVec<Part>,
}

struct Part {
    block: Arc<PageBlock>,
    offset_bytes: usize,
    len_bytes: u32,
}

impl BlockParts {
    /// Returns no part.
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends `len_bytes` of `block` from `offset_bytes` on. May sleep.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` for an empty range or one that is not in the block.
    pub fn push(&mut self, block: Arc<PageBlock>, offset_bytes: usize, len_bytes: u32) -> Result {
        let end = offset_bytes.checked_add(len_bytes as usize).ok_or(EINVAL)?;
        if len_bytes == 0 || end > block.len_bytes() {
            return Err(EINVAL);
        }
        let part = Part {
            block,
            offset_bytes,
            len_bytes,
        };
        Ok(self.parts.push(part, GFP_KERNEL)?)
    }
}

// SAFETY: The parts are within blocks that the value keeps, which give copies of their bytes only.
unsafe impl Lender for BlockParts {
    fn describe(&mut self, list: &mut SgList) -> Result {
        for part in &self.parts {
            // SAFETY: `push` has checked that the part is in its block, which `self` keeps. A block
            // may be written to.
            let pushed = unsafe {
                list.push_entry(
                    part.block.as_page(),
                    part.offset_bytes,
                    part.len_bytes,
                    true,
                )
            };
            if let Err(error) = pushed {
                list.clear_entries()?;
                return Err(error);
            }
        }
        Ok(())
    }
}
