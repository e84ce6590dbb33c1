// SPDX-License-Identifier: GPL-2.0

//! The XOR of memory, by the widest instructions of the CPU.
//!
//! C header: [`include/linux/raid/xor.h`](srctree/include/linux/raid/xor.h)
//!
//! # Examples
//!
//! ```
//! use kernel_ext::xor::xor_into;
//!
//! let mut parity = [1, 2, 3];
//! xor_into(&mut parity, &[1, 0, 2]);
//! assert_eq!(parity, [0, 2, 1]);
//! ```

use core::ffi::c_void;

/// The alignment of what the library takes, in bytes.
const ALIGN_BYTES: usize = 64;
/// The library takes multiples of this.
const LINE_BYTES: usize = 512;
const WORD_BYTES: usize = size_of::<u64>();

/// XORs the bytes of `from` into those of `to`; if one is longer, its rest is not used.
///
/// Of memory that is aligned to 64 bytes the kernel's library does whole lines of 512 bytes; others
/// are done word by word. Task context, with interrupts and bottom halves on.
///
/// A module that calls it needs `xor.ko`. The function is inlined, so that `kernel_ext.ko`, which
/// others need, does not.
#[inline]
pub fn xor_into(to: &mut [u8], from: &[u8]) {
    let bytes = lines_of(to, from);
    if bytes != 0 {
        let mut sources = [from.as_ptr().cast_mut().cast::<c_void>()];
        // SAFETY: Both have at least `bytes` bytes, are aligned, and do not overlap, as `to` is
        // borrowed alone; the library only reads its one source. `bytes` is a multiple of 512.
        unsafe {
            kernel_ext_sys::xor_gen(to.as_mut_ptr().cast(), sources.as_mut_ptr(), 1, bytes);
        }
    }
    // CAST: It was a length.
    let bytes = bytes as usize;
    let rest = to.get_mut(bytes..).zip(from.get(bytes..));
    if let Some((to, from)) = rest {
        by_words(to, from);
    }
}

/// Returns the bytes that the library takes of both.
fn lines_of(to: &[u8], from: &[u8]) -> u32 {
    let is_aligned = |bytes: &[u8]| bytes.as_ptr().addr() % ALIGN_BYTES == 0;
    if !is_aligned(to) || !is_aligned(from) {
        return 0;
    }
    let bytes = to.len().min(from.len()) & !(LINE_BYTES - 1);
    u32::try_from(bytes).unwrap_or(0)
}

/// Returns the word that eight bytes are.
fn word_of(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_ne_bytes)
}

/// XORs without the library.
fn by_words(to: &mut [u8], from: &[u8]) {
    let sources = from.chunks_exact(WORD_BYTES);
    for (to, from) in to.chunks_exact_mut(WORD_BYTES).zip(sources) {
        let word = word_of(to) ^ word_of(from);
        to.copy_from_slice(&word.to_ne_bytes());
    }
    let done = to.len().min(from.len()) & !(WORD_BYTES - 1);
    let rest = to.iter_mut().zip(from).skip(done);
    for (to, from) in rest {
        *to ^= from;
    }
}
