// SPDX-License-Identifier: GPL-2.0

//! A part of a block that is read or written piece by piece, from its start on.

use super::{
    copy,
    PageBlock,
    IN,
    OUT, //
};
use core::marker::PhantomData;
use kernel::prelude::*;

/// The rest of a part of a [`PageBlock`]. Whether that lies in the block was checked once; each
/// step only checks that enough is left.
///
/// # Examples
///
/// ```
/// use kernel_ext::pages::PageBlock;
///
/// let block = PageBlock::new(0)?;
/// let mut part = block.cursor(100, 8)?;
/// part.copy_in(b"abcd")?;
/// part.copy_in(b"efgh")?;
/// assert!(part.copy_in(b"i").is_err());
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// `left` bytes at `next` lie in a block that outlives `'a`.
pub struct Cursor<'a> {
    next: *mut u8,
    left: usize,
    _block: PhantomData<&'a PageBlock>,
}

impl PageBlock {
    /// Returns the `len` bytes from `offset` on, to be read or written one after the other.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the range does not lie in the block.
    #[inline]
    pub fn cursor(&self, offset: usize, len: usize) -> Result<Cursor<'_>> {
        let next = self.range(offset, len)?;
        // INVARIANT: `range` checked that the bytes lie in the block, which is borrowed.
        Ok(Cursor {
            next,
            left: len,
            _block: PhantomData,
        })
    }
}

impl Cursor<'_> {
    /// Returns the address of the next `len` bytes, and goes on behind them.
    #[inline(always)]
    fn take(&mut self, len: usize) -> Result<*mut u8> {
        let taken = self.next;
        self.left = self.left.checked_sub(len).ok_or(EINVAL)?;
        // INVARIANT: As many bytes fewer are left behind those that are taken.
        self.next = taken.wrapping_add(len);
        Ok(taken)
    }

    /// Copies the next `target.len()` bytes to `target`.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if there are fewer.
    #[inline(always)]
    pub fn copy_out(&mut self, target: &mut [u8]) -> Result {
        let source = self.take(target.len())?;
        // SAFETY: By the type invariants, the bytes that were taken lie in the block. The ranges do
        // not overlap, as no slice of the block exists. `copy` permits that the bytes change
        // meanwhile.
        unsafe { copy::<OUT>(target.as_mut_ptr(), source, target.len()) };
        Ok(())
    }

    /// Copies `source` to the next bytes.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if there are fewer.
    #[inline(always)]
    pub fn copy_in(&mut self, source: &[u8]) -> Result {
        let target = self.take(source.len())?;
        // SAFETY: By the type invariants, the bytes that were taken lie in the block. The ranges do
        // not overlap, as no slice of the block exists. `copy` permits that the bytes change
        // meanwhile.
        unsafe { copy::<IN>(target, source.as_ptr(), source.len()) };
        Ok(())
    }
}
