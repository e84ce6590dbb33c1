// SPDX-License-Identifier: GPL-2.0

//! Contiguous pages that others than the CPU may write.
//!
//! C header: [`include/linux/gfp.h`](srctree/include/linux/gfp.h)

use core::{
    mem,
    ptr::NonNull, //
};
use kernel::{
    bindings,
    page::PAGE_SIZE,
    prelude::*, //
};

/// A block of `2^order` contiguous zeroed pages, mapped for the CPU.
///
/// The bytes may change at any time (a device or a peer writes them): there are no slices of them,
/// only copies, and a check must be made on the copy. Share it with an `Arc`.
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

// SAFETY: the memory belongs to no thread, and its bytes are only copied by C functions.
unsafe impl Send for PageBlock {}
// SAFETY: as above; a race of two copies gives mixed bytes and nothing worse.
unsafe impl Sync for PageBlock {}

impl PageBlock {
    /// Allocates `2^order` pages (`GFP_KERNEL`). Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOMEM`.
    pub fn new(order: u32) -> Result<Self> {
        // SAFETY: no requirements; an order that is too large gives NULL.
        let page = unsafe { kernel_ext_sys::kernel_ext_helper_alloc_pages(order) };
        let page = NonNull::new(page).ok_or(ENOMEM)?;
        // SAFETY: the page was just allocated, and not from high memory.
        let address = unsafe { kernel_ext_sys::kernel_ext_helper_page_address(page.as_ptr()) };
        let Some(address) = NonNull::new(address.cast::<u8>()) else {
            // SAFETY: allocated above with this order, and not used by anybody.
            unsafe { bindings::__free_pages(page.as_ptr(), order) };
            return Err(ENOMEM);
        };
        // INVARIANT: just allocated; the address is that of the page.
        Ok(Self {
            page,
            address,
            // No overflow: the memory exists.
            len_bytes: PAGE_SIZE << order,
            order,
        })
    }

    /// The smallest order whose block has at least `bytes` bytes.
    pub fn order_for(bytes: usize) -> u32 {
        let pages = bytes.div_ceil(PAGE_SIZE).max(1);
        pages
            .checked_next_power_of_two()
            .map_or(u32::MAX, usize::trailing_zeros)
    }

    /// Size in bytes.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.len_bytes
    }

    /// Number of pages.
    #[inline]
    pub fn pages(&self) -> usize {
        self.len_bytes / PAGE_SIZE
    }

    /// The first page, for other abstractions. The others follow it.
    #[inline]
    pub fn as_page(&self) -> *mut bindings::page {
        self.page.as_ptr()
    }

    /// The address of the first byte, for other abstractions.
    #[inline]
    pub fn as_ptr(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    /// The address of `offset`, if `len` bytes from there lie in the block.
    #[inline(always)]
    fn range(&self, offset: usize, len: usize) -> Result<*mut u8> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len_bytes => Ok(self.address.as_ptr().wrapping_add(offset)),
            _ => Err(EINVAL),
        }
    }

    /// Copies the bytes from `offset` on out.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range does not lie in the block.
    #[inline(always)]
    pub fn copy_out(&self, offset: usize, target: &mut [u8]) -> Result {
        let source = self.range(offset, target.len())?;
        // SAFETY: both ranges are valid, as checked, and cannot overlap, as nobody has a slice of
        // the block. The bytes may change meanwhile, which `copy` allows for.
        unsafe { copy::<OUT>(target.as_mut_ptr(), source, target.len()) };
        Ok(())
    }

    /// Copies `source` to `offset`.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range does not lie in the block.
    #[inline(always)]
    pub fn copy_in(&self, offset: usize, source: &[u8]) -> Result {
        let target = self.range(offset, source.len())?;
        // SAFETY: as in `copy_out`.
        unsafe { copy::<IN>(target, source.as_ptr(), source.len()) };
        Ok(())
    }

    /// Makes `len` bytes from `offset` on zero.
    ///
    /// # Errors
    ///
    /// `EINVAL` if the range does not lie in the block.
    pub fn zero(&self, offset: usize, len: usize) -> Result {
        let target = self.range(offset, len)?;
        // SAFETY: the range lies in the block, as checked.
        unsafe { bindings::memset(target.cast(), 0, len) };
        Ok(())
    }
}

impl Drop for PageBlock {
    fn drop(&mut self) {
        // SAFETY: owned by the invariant; nobody can refer to it any more.
        unsafe { bindings::__free_pages(self.page.as_ptr(), self.order) };
    }
}

/// Up to so many bytes are copied by loads and stores here; a call, and `rep movsb`, cost more.
const INLINE_BYTES: usize = 64;

/// Bytes of one load or store.
const WORD_BYTES: usize = mem::size_of::<u64>();

/// Eight bytes from any address, read once.
///
/// # Safety
///
/// The bytes are readable.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn load(source: *const u8) -> u64 {
    let word: u64;
    // SAFETY: readable by the requirement. As assembly, since others may write the bytes, and since
    // the compiler moves a volatile read without alignment through the stack.
    unsafe {
        core::arch::asm!(
            "mov {word}, qword ptr [{source}]",
            word = out(reg) word,
            source = in(reg) source,
            options(readonly, nostack, preserves_flags),
        );
    }
    word
}

/// Writes eight bytes to any address, once.
///
/// # Safety
///
/// The bytes are writable.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn store(target: *mut u8, word: u64) {
    // SAFETY: writable by the requirement. As assembly for the reasons in `load`.
    unsafe {
        core::arch::asm!(
            "mov qword ptr [{target}], {word}",
            target = in(reg) target,
            word = in(reg) word,
            options(nostack, preserves_flags),
        );
    }
}

/// Eight bytes at any address.
#[cfg(not(target_arch = "x86_64"))]
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Word(u64);

/// Eight bytes from any address.
///
/// # Safety
///
/// The bytes are readable.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn load(source: *const u8) -> u64 {
    // SAFETY: readable by the requirement; a `Word` needs no alignment.
    unsafe { source.cast::<Word>().read_volatile() }.0
}

/// Writes eight bytes to any address.
///
/// # Safety
///
/// The bytes are writable.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
unsafe fn store(target: *mut u8, word: u64) {
    // SAFETY: writable by the requirement; a `Word` needs no alignment.
    unsafe { target.cast::<Word>().write_volatile(Word(word)) };
}

/// A copy out of a block: others may change the source meanwhile.
const OUT: bool = true;
/// A copy into a block: others may change the target meanwhile.
const IN: bool = false;

/// Copies bytes between a block and memory that belongs to the caller.
///
/// The compiler can neither read the bytes of the block a second time nor write them twice.
///
/// # Safety
///
/// `source` is readable and `target` writable for `len` bytes, and they do not overlap. Nobody else
/// uses the target of a copy `OUT` or the source of a copy `IN`.
#[inline(always)]
unsafe fn copy<const DIRECTION: bool>(target: *mut u8, source: *const u8, len: usize) {
    if len > INLINE_BYTES {
        // SAFETY: by the requirement.
        unsafe { bindings::__memcpy(target.cast(), source.cast(), len) };
        return;
    }
    let words = len & !(WORD_BYTES - 1);
    let mut at = 0;
    while at < words {
        // SAFETY: eight bytes from `at` on lie within `len`.
        unsafe {
            let (target, source) = (target.add(at), source.add(at));
            if DIRECTION == OUT {
                target.cast::<u64>().write_unaligned(load(source));
            } else {
                store(target, source.cast::<u64>().read_unaligned());
            }
        }
        at = at.wrapping_add(WORD_BYTES);
    }
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
