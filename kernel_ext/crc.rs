// SPDX-License-Identifier: GPL-2.0

//! Checksums, by the fastest instructions of the CPU.
//!
//! All take the checksum `before` of what comes first (0 for nothing) and return that of both: the
//! convention of zlib, with the inversions inside. The checksum of `123456789` is that of the
//! catalogues. Any context.
//!
//! C headers: [`include/linux/crc32.h`](srctree/include/linux/crc32.h),
//! [`include/linux/crc64.h`](srctree/include/linux/crc64.h),
//! [`include/linux/crc-t10dif.h`](srctree/include/linux/crc-t10dif.h)

use crate::pages::PageBlock;
use kernel::prelude::*;

/// Returns the CRC-32 of IEEE 802.3 (`0xcbf43926` of `123456789`).
#[inline]
pub fn crc32(before: u32, bytes: &[u8]) -> u32 {
    // SAFETY: The function reads the bytes of the slice.
    !unsafe { kernel_ext_sys::crc32_le(!before, bytes.as_ptr().cast(), bytes.len()) }
}

/// Returns the CRC-32C of Castagnoli (`0xe3069283` of `123456789`).
#[inline]
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    // SAFETY: The function reads the bytes of the slice.
    !unsafe { kernel_ext_sys::crc32c(!before, bytes.as_ptr().cast(), bytes.len()) }
}

/// Returns the CRC-64 of NVMe (`0xae8b14860a799888` of `123456789`).
#[inline]
pub fn crc64_nvme(before: u64, bytes: &[u8]) -> u64 {
    // SAFETY: The function reads the bytes of the slice. It has the inversions itself.
    unsafe { kernel_ext_sys::crc64_nvme(before, bytes.as_ptr().cast(), bytes.len()) }
}

/// Returns the CRC-16 of T10 DIF (`0xd0db` of `123456789`), which inverts nothing.
#[inline]
pub fn crc_t10dif(before: u16, bytes: &[u8]) -> u16 {
    // SAFETY: The function reads the bytes of the slice.
    unsafe { kernel_ext_sys::crc_t10dif_update(before, bytes.as_ptr(), bytes.len()) }
}

impl PageBlock {
    /// Returns the [CRC-32](crc32) of `len` bytes from `offset` on, without a copy. It is that of
    /// no content at all if a device changes the bytes meanwhile.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the range does not lie in the block.
    pub fn crc32(&self, before: u32, offset: usize, len: usize) -> Result<u32> {
        let start = self.range(offset, len)?;
        // SAFETY: `range` checked that the bytes lie in the block. No reference to them is made,
        // and the function may read any bytes, also those that change.
        Ok(!unsafe { kernel_ext_sys::crc32_le(!before, start.cast(), len) })
    }
}
