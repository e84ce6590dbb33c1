// SPDX-License-Identifier: GPL-2.0

//! Contiguous pages that a device or a peer may write.
//!
//! `kernel::page::Page` of 7.2 is one page, and its safe users own the bytes alone. It replaces
//! this when it has an order and gives copies. `kernel::dma::Coherent` is memory of a
//! `struct device` that is mapped for good; chunks are mapped for an `ib_device`, page by page, and
//! synced for each request.
//!
//! C header: [`include/linux/gfp.h`](srctree/include/linux/gfp.h)

mod cursor;

pub use self::cursor::Cursor;

use core::{
    mem,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    page::PAGE_SIZE,
    prelude::*,
    uaccess::UserPtr, //
};

/// A block of `2^order` contiguous zeroed pages, mapped for the CPU.
///
/// A device or a peer may change the bytes at any time. The block therefore gives copies and no
/// slices, and users check the copy. It is shared by an `Arc`.
///
/// # Examples
///
/// ```
/// use kernel::sync::Arc;
/// use kernel_ext::pages::PageBlock;
///
/// let block = Arc::new(PageBlock::new(2)?, GFP_KERNEL)?; // 16 KiB
/// block.copy_in(100, b"abc")?;
/// # Ok::<(), Error>(())
/// ```
///
/// # Invariants
///
/// `page` is the first page of an allocation of order `order` that this value owns; `address` is
/// the address of its first byte, and all of its `len_bytes` bytes are mapped there.
pub struct PageBlock {
    page: NonNull<bindings::page>,
    address: NonNull<u8>,
    len_bytes: usize,
    order: u32,
}

// SAFETY: The memory is not tied to a thread, and its bytes are only accessed by copies.
unsafe impl Send for PageBlock {}
// SAFETY: The bytes are only accessed by copies, for which any bytes are valid, also those that
// another thread or a device mixes.
unsafe impl Sync for PageBlock {}

impl PageBlock {
    /// Allocates `2^order` pages (`GFP_KERNEL`). May sleep.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if there is no such block.
    pub fn new(order: u32) -> Result<Self> {
        // SAFETY: The called function has no safety requirements; it returns NULL for an order that
        // is too large.
        let page = unsafe { kernel_ext_sys::kernel_ext_helper_alloc_pages(order) };
        let page = NonNull::new(page).ok_or(ENOMEM)?;
        // SAFETY: `page` was just allocated, and not from high memory.
        let address = unsafe { kernel_ext_sys::kernel_ext_helper_page_address(page.as_ptr()) };
        let Some(address) = NonNull::new(address.cast::<u8>()) else {
            // SAFETY: `page` was allocated above with this order, and no reference to it exists.
            unsafe { bindings::__free_pages(page.as_ptr(), order) };
            return Err(ENOMEM);
        };
        // INVARIANT: `page` was just allocated with `order`, and `address` is its address.
        Ok(Self {
            page,
            address,
            // The shift does not overflow, as a block of this size was allocated.
            len_bytes: PAGE_SIZE << order,
            order,
        })
    }

    /// Returns the smallest order whose block has at least `bytes` bytes.
    pub fn order_for(bytes: usize) -> u32 {
        let pages = bytes.div_ceil(PAGE_SIZE).max(1);
        pages
            .checked_next_power_of_two()
            .map_or(u32::MAX, usize::trailing_zeros)
    }

    /// Returns the size in bytes.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Returns the number of pages.
    #[inline]
    pub fn pages(&self) -> usize {
        self.len_bytes / PAGE_SIZE
    }

    /// Returns the first page, for other abstractions. The other pages follow it.
    #[inline]
    pub fn as_page(&self) -> *mut bindings::page {
        self.page.as_ptr()
    }

    /// Returns the address of the first byte, for other abstractions.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// Returns the address of `offset`, if `len` bytes from there lie in the block.
    #[inline(always)]
    pub(crate) fn range(&self, offset: usize, len: usize) -> Result<*mut u8> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len_bytes => Ok(self.address.as_ptr().wrapping_add(offset)),
            _ => Err(EINVAL),
        }
    }

    /// Copies `target.len()` bytes from `offset` on to `target`.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the range does not lie in the block.
    #[inline(always)]
    pub fn copy_out(&self, offset: usize, target: &mut [u8]) -> Result {
        let source = self.range(offset, target.len())?;
        // SAFETY: `range` checked that the source lies in the block. The ranges do not overlap, as
        // no slice of the block exists. `copy` permits that the bytes change meanwhile.
        unsafe { copy::<OUT>(target.as_mut_ptr(), source, target.len()) };
        Ok(())
    }

    /// Copies `len` bytes from `offset` on to other memory, which others may write meanwhile.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the range does not lie in the block.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `target` is writable for `len` bytes, and that no reference to
    /// them exists.
    #[inline(always)]
    pub(crate) unsafe fn copy_out_to(&self, offset: usize, target: *mut u8, len: usize) -> Result {
        let source = self.range(offset, len)?;
        // SAFETY: By the function requirements the target is writable, and `range` checked that the
        // source lies in the block. They may overlap: a list can describe the block itself. The
        // compiler does not know this function, hence it reads no byte of the source again.
        unsafe { bindings::__memmove(target.cast(), source.cast(), len) };
        Ok(())
    }

    /// Copies `len` bytes from `offset` on to other pages, from byte `start` of the first one on,
    /// which others may write meanwhile. There is no high memory.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the range does not lie in the block.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `page` and those behind it are allocated, as far as the bytes
    /// reach, and may be written to.
    #[inline(always)]
    pub unsafe fn copy_out_to_page(
        &self,
        offset: usize,
        page: *mut bindings::page,
        start: usize,
        len: usize,
    ) -> Result {
        // SAFETY: By the function requirements, the page is allocated.
        let address = unsafe { kernel_ext_sys::kernel_ext_helper_page_address(page) };
        let target = address.cast::<u8>().wrapping_add(start);
        // SAFETY: By the function requirements; no reference to the bytes of a page exists.
        unsafe { self.copy_out_to(offset, target, len) }
    }

    /// Copies `len` bytes of another block, from `offset` on, to the start of this one.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if either block is shorter.
    #[inline(always)]
    pub fn copy_from(&self, source: &PageBlock, offset: usize, len: usize) -> Result {
        let target = self.range(0, len)?;
        // SAFETY: `range` checked that the target lies in the block, of whose bytes no reference
        // exists.
        unsafe { source.copy_out_to(offset, target, len) }
    }

    /// Copies `source` to `offset`.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the range does not lie in the block.
    #[inline(always)]
    pub fn copy_in(&self, offset: usize, source: &[u8]) -> Result {
        let target = self.range(offset, source.len())?;
        // SAFETY: `range` checked that the target lies in the block. The ranges do not overlap, as
        // no slice of the block exists. `copy` permits that the bytes change meanwhile.
        unsafe { copy::<IN>(target, source.as_ptr(), source.len()) };
        Ok(())
    }

    /// Copies `len` bytes of the current program to `offset`. May sleep.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the range does not lie in the block, `EFAULT` if the program has no such
    /// bytes; some may have been copied.
    pub fn copy_from_user(&self, offset: usize, source: UserPtr, len: usize) -> Result {
        let target = self.range(offset, len)?;
        // SAFETY: `range` checked that the target lies in the block, of whose bytes no reference
        // exists; the called function checks the source.
        match unsafe { bindings::copy_from_user(target.cast(), source.as_const_ptr(), len) } {
            0 => Ok(()),
            _ => Err(EFAULT),
        }
    }

    /// Copies `len` bytes from `offset` on to the current program. May sleep.
    ///
    /// # Errors
    ///
    /// Those of [`Self::copy_from_user`].
    pub fn copy_to_user(&self, offset: usize, target: UserPtr, len: usize) -> Result {
        let source = self.range(offset, len)?;
        // SAFETY: `range` checked that the source lies in the block, all of whose bytes are
        // initialised; the called function checks the target.
        match unsafe { bindings::copy_to_user(target.as_mut_ptr(), source.cast(), len) } {
            0 => Ok(()),
            _ => Err(EFAULT),
        }
    }

    /// Zeroes `len` bytes from `offset` on.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the range does not lie in the block.
    pub fn zero(&self, offset: usize, len: usize) -> Result {
        self.fill(offset, len, 0)
    }

    /// Sets `len` bytes from `offset` on to `byte`.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the range does not lie in the block.
    pub fn fill(&self, offset: usize, len: usize, byte: u8) -> Result {
        let target = self.range(offset, len)?;
        // SAFETY: `range` checked that the bytes lie in the block.
        unsafe { bindings::memset(target.cast(), byte.into(), len) };
        Ok(())
    }
}

impl Drop for PageBlock {
    fn drop(&mut self) {
        // SAFETY: By the type invariants, this value owns the allocation of order `order`.
        unsafe { bindings::__free_pages(self.page.as_ptr(), self.order) };
    }
}

/// Copies of up to this many bytes are inlined as loads and stores, which cost less than a call and
/// `rep movsb`.
const INLINE_BYTES: usize = 64;

/// The bytes of one load or store.
const WORD_BYTES: usize = mem::size_of::<u64>();

/// Reads eight bytes at `AT` from any address, once.
///
/// # Safety
///
/// The caller must ensure that eight bytes at `source + AT` are readable.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn load<const AT: usize>(source: *const u8) -> u64 {
    let word: u64;
    // SAFETY: By the function requirements, the bytes are readable. This is assembly as another CPU
    // or a device may write the bytes, and as the compiler moves an unaligned volatile read through
    // the stack.
    unsafe {
        core::arch::asm!(
            "mov {word}, qword ptr [{source} + {at}]",
            word = out(reg) word,
            source = in(reg) source,
            at = const AT,
            options(readonly, nostack, preserves_flags),
        );
    }
    word
}

/// Writes eight bytes at `AT` to any address, once.
///
/// # Safety
///
/// The caller must ensure that eight bytes at `target + AT` are writable.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn store<const AT: usize>(target: *mut u8, word: u64) {
    // SAFETY: By the function requirements, the bytes are writable. This is assembly for the
    // reasons in `load`.
    unsafe {
        core::arch::asm!(
            "mov qword ptr [{target} + {at}], {word}",
            target = in(reg) target,
            word = in(reg) word,
            at = const AT,
            options(nostack, preserves_flags),
        );
    }
}

/// Eight bytes at any address.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Word(u64);

/// Reads eight bytes at `AT` from any address.
///
/// # Safety
///
/// The caller must ensure that eight bytes at `source + AT` are readable.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn load<const AT: usize>(source: *const u8) -> u64 {
    // SAFETY: By the function requirements, the bytes are readable; a `Word` needs no alignment.
    unsafe { source.add(AT).cast::<Word>().read_volatile() }.0
}

/// Writes eight bytes at `AT` to any address.
///
/// # Safety
///
/// The caller must ensure that eight bytes at `target + AT` are writable.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn store<const AT: usize>(target: *mut u8, word: u64) {
    // SAFETY: By the function requirements, the bytes are writable; a `Word` needs no alignment.
    unsafe { target.add(AT).cast::<Word>().write_volatile(Word(word)) };
}

/// A copy out of a block: the source may change meanwhile.
const OUT: bool = true;
/// A copy into a block: the target may change meanwhile.
const IN: bool = false;

/// Copies bytes between a block and memory that belongs to the caller.
///
/// The compiler can neither read the bytes of the block a second time nor write them twice.
///
/// # Safety
///
/// The caller must ensure that `source` is readable and `target` writable for `len` bytes, and they
/// do not overlap. The caller must have exclusive access to the target of a copy `OUT`, and the
/// source of a copy `IN` must not change.
#[inline(always)]
unsafe fn copy<const DIRECTION: bool>(target: *mut u8, source: *const u8, len: usize) {
    if len > INLINE_BYTES {
        // SAFETY: By the function requirements.
        unsafe { bindings::__memcpy(target.cast(), source.cast(), len) };
        return;
    }
    // SAFETY: By the function requirements.
    unsafe {
        copy_word::<DIRECTION, 0>(target, source, len);
        copy_word::<DIRECTION, 8>(target, source, len);
        copy_word::<DIRECTION, 16>(target, source, len);
        copy_word::<DIRECTION, 24>(target, source, len);
        copy_word::<DIRECTION, 32>(target, source, len);
        copy_word::<DIRECTION, 40>(target, source, len);
        copy_word::<DIRECTION, 48>(target, source, len);
        copy_word::<DIRECTION, 56>(target, source, len);
    }
    let mut at = len & !(WORD_BYTES - 1);
    while at < len {
        // SAFETY: `at` is less than `len`.
        unsafe {
            target
                .add(at)
                .write_volatile(source.add(at).read_volatile())
        };
        at = at.wrapping_add(1);
    }
}

/// Copies the eight bytes at `AT` if they lie within `len`.
///
/// # Safety
///
/// Those of [`copy`].
#[inline(always)]
unsafe fn copy_word<const DIRECTION: bool, const AT: usize>(
    target: *mut u8,
    source: *const u8,
    len: usize,
) {
    if len < AT + WORD_BYTES {
        return;
    }
    // SAFETY: By the function requirements, as the bytes lie within `len`.
    unsafe {
        if DIRECTION == OUT {
            let word = load::<AT>(source);
            target.add(AT).cast::<u64>().write_unaligned(word);
        } else {
            let word = source.add(AT).cast::<u64>().read_unaligned();
            store::<AT>(target, word);
        }
    }
}
