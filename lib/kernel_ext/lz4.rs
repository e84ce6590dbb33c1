// SPDX-License-Identifier: GPL-2.0

//! LZ4 blocks, as the kernel's library makes and reads them.
//!
//! The format is that of the LZ4 block specification, without a frame: the user keeps the
//! length of a block.
//!
//! C header: [`include/linux/lz4.h`](srctree/include/linux/lz4.h)
//!
//! # Examples
//!
//! ```
//! use kernel_ext::lz4::{decompress, Compressor};
//!
//! let mut compressor = Compressor::new()?;
//! let (from, mut block, mut back) = ([7u8; 4096], [0; 64], [0; 4096]);
//! let len = compressor.compress(&from, &mut block).ok_or(EIO)?;
//! assert_eq!(decompress(&block[..len], &mut back), Some(4096));
//! # Ok::<(), Error>(())
//! ```

use core::mem::MaybeUninit;
use kernel::prelude::*;
use kernel_ext_sys::LZ4_stream_t;

/// The working memory of a compression, 16 KiB: it is allocated once, and serves one at a time.
pub struct Compressor(KBox<MaybeUninit<LZ4_stream_t>>);

// SAFETY: It is plain memory, which the library writes before it reads, in each call.
unsafe impl Send for Compressor {}
// SAFETY: A `&Compressor` gives no access to the memory.
unsafe impl Sync for Compressor {}

impl Compressor {
    /// Allocates the working memory; sleeps.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM`.
    pub fn new() -> Result<Self> {
        Ok(Self(KBox::new_uninit(GFP_KERNEL)?))
    }

    /// Compresses `from` to the start of `to`, at level 1 as `LZ4_compress_default`; returns the
    /// bytes of the block, or [`None`] if it does not fit. Allocates nothing; any context, some
    /// microseconds for a page.
    pub fn compress(&mut self, from: &[u8], to: &mut [u8]) -> Option<usize> {
        let bytes = i32::try_from(from.len()).ok()?;
        // What is longer is not used.
        let room = i32::try_from(to.len()).unwrap_or(i32::MAX);
        // SAFETY: The library reads `bytes` bytes of `from`, writes at most `room` bytes of `to`,
        // and initialises the working memory, which has the size that it asks for. The three do not
        // overlap, as `to` and the memory are borrowed alone.
        let len = unsafe {
            kernel_ext_sys::LZ4_compress_default(
                from.as_ptr().cast(),
                to.as_mut_ptr().cast(),
                bytes,
                room,
                self.0.as_mut_ptr().cast(),
            )
        };
        usize::try_from(len).ok().filter(|len| *len > 0)
    }
}

/// Decompresses a block to the start of `to`; returns the bytes that it had, or [`None`] if it is
/// none, or has more than `to` has room for: then `to` has any content. Also of damaged blocks no
/// byte beyond the ends is read or written. Allocates nothing; any context.
pub fn decompress(block: &[u8], to: &mut [u8]) -> Option<usize> {
    let bytes = i32::try_from(block.len()).ok()?;
    // What is longer is not used.
    let room = i32::try_from(to.len()).unwrap_or(i32::MAX);
    // SAFETY: The library reads at most `bytes` bytes of `block`, and writes at most `room` bytes
    // of `to`, also if the block is damaged. They do not overlap, as `to` is borrowed alone.
    let len = unsafe {
        kernel_ext_sys::LZ4_decompress_safe(
            block.as_ptr().cast(),
            to.as_mut_ptr().cast(),
            bytes,
            room,
        )
    };
    usize::try_from(len).ok()
}
