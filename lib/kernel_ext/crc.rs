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

use crate::{
    pages::PageBlock,
    scatterlist::SgList, //
};
use kernel::prelude::*;

/// Returns the CRC-32 of IEEE 802.3 (`0xcbf43926` of `123456789`).
#[inline]
pub fn crc32(before: u32, bytes: &[u8]) -> u32 {
    // CAST: The checksum has 32 bits.
    Checksum::Crc32.update(before.into(), bytes) as u32
}

/// Returns the CRC-32C of Castagnoli (`0xe3069283` of `123456789`).
#[inline]
pub fn crc32c(before: u32, bytes: &[u8]) -> u32 {
    // CAST: The checksum has 32 bits.
    Checksum::Crc32c.update(before.into(), bytes) as u32
}

/// Returns the CRC-64 of NVMe (`0xae8b14860a799888` of `123456789`).
#[inline]
pub fn crc64_nvme(before: u64, bytes: &[u8]) -> u64 {
    Checksum::Crc64Nvme.update(before, bytes)
}

/// Returns the CRC-16 of T10 DIF (`0xd0db` of `123456789`), which inverts nothing.
#[inline]
pub fn crc_t10dif(before: u16, bytes: &[u8]) -> u16 {
    // CAST: The checksum has 16 bits.
    Checksum::CrcT10Dif.update(before.into(), bytes) as u16
}

/// A checksum, computed piece by piece: it is 0 for no bytes, and the inversions are inside, as in
/// zlib.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// The CRC-32 of IEEE 802.3.
    Crc32,
    /// The CRC-64 of NVMe.
    Crc64Nvme,
    /// The CRC-16 of T10 DIF, which inverts nothing.
    CrcT10Dif,
    /// The CRC-32C of Castagnoli.
    Crc32c,
}

impl Checksum {
    /// Returns the checksum of the bytes so far, whose checksum is `value`, and of `data`.
    #[inline]
    pub fn update(self, value: u64, data: &[u8]) -> u64 {
        // SAFETY: The slice is readable.
        unsafe { self.update_raw(value, data.as_ptr(), data.len()) }
    }

    /// Does what [`Self::update`] does, with memory that may change meanwhile: then the result is
    /// any.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `len` bytes at `data` are readable.
    #[inline(always)]
    unsafe fn update_raw(self, value: u64, data: *const u8, len: usize) -> u64 {
        // CAST: A value of a shorter checksum fits it.
        // SAFETY: By the function requirements. The functions only read the bytes, each once.
        unsafe {
            match self {
                Self::Crc32 => {
                    (!kernel_ext_sys::crc32_le(!(value as u32), data.cast(), len)).into()
                }
                Self::Crc64Nvme => kernel_ext_sys::crc64_nvme(value, data.cast(), len),
                Self::CrcT10Dif => {
                    kernel_ext_sys::crc_t10dif_update(value as u16, data, len).into()
                }
                Self::Crc32c => (!kernel_ext_sys::crc32c(!(value as u32), data.cast(), len)).into(),
            }
        }
    }
}

impl PageBlock {
    /// Returns the checksum of the bytes so far, whose checksum is `value`, and of `len` bytes from
    /// `offset` on.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the range does not lie in the block.
    #[inline(always)]
    pub fn checksum(&self, kind: Checksum, value: u64, offset: usize, len: usize) -> Result<u64> {
        let data = self.range(offset, len)?;
        // SAFETY: `range` checked that the bytes lie in the block.
        Ok(unsafe { kind.update_raw(value, data, len) })
    }

    /// Returns the [CRC-32](crc32) of `len` bytes from `offset` on, without a copy. It is that of
    /// no content at all if a device changes the bytes meanwhile.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the range does not lie in the block.
    pub fn crc32(&self, before: u32, offset: usize, len: usize) -> Result<u32> {
        // CAST: The checksum has 32 bits.
        let checksum = self.checksum(Checksum::Crc32, before.into(), offset, len)?;
        Ok(checksum as u32)
    }
}

/// Memory of which each interval has a checksum of its own.
pub trait Intervals {
    /// Calls `each` with the checksum, from 0 on, of each `interval_bytes` of the first `len_bytes`
    /// of the memory, until it fails. Any context.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the memory is shorter, or the length is not that of whole intervals;
    /// else the error of `each`.
    fn checksums(
        &self,
        kind: Checksum,
        interval_bytes: u32,
        len_bytes: u32,
        each: impl FnMut(u64) -> Result,
    ) -> Result;
}

impl Intervals for PageBlock {
    #[inline(always)]
    fn checksums(
        &self,
        kind: Checksum,
        interval_bytes: u32,
        len_bytes: u32,
        mut each: impl FnMut(u64) -> Result,
    ) -> Result {
        let mut running = Running::new(kind, interval_bytes, len_bytes)?;
        let data = self.range(0, len_bytes as usize)?;
        // SAFETY: `range` checked that the bytes lie in the block.
        unsafe { running.add(data, len_bytes, &mut each) }
    }
}

impl Intervals for SgList {
    #[inline(always)]
    fn checksums(
        &self,
        kind: Checksum,
        interval_bytes: u32,
        len_bytes: u32,
        mut each: impl FnMut(u64) -> Result,
    ) -> Result {
        let mut running = Running::new(kind, interval_bytes, len_bytes)?;
        if len_bytes > self.len_bytes() {
            return Err(EINVAL);
        }
        let mut left = len_bytes;
        for index in 0..self.nents() as usize {
            // SAFETY: The entry is in use, so that it describes memory of the list.
            let (data, len) = unsafe { self.entry_memory(index) };
            let len = len.min(left);
            // SAFETY: By the type invariants, the memory of the entry is allocated.
            unsafe { running.add(data, len, &mut each) }?;
            left = left.wrapping_sub(len);
        }
        Ok(())
    }
}

/// The checksum of an interval whose memory comes in pieces.
struct Running {
    kind: Checksum,
    interval_bytes: usize,
    value: u64,
    /// The bytes of the interval that are to come.
    missing: usize,
}

impl Running {
    #[inline(always)]
    fn new(kind: Checksum, interval_bytes: u32, len_bytes: u32) -> Result<Self> {
        if len_bytes.checked_rem(interval_bytes) != Some(0) {
            return Err(EINVAL);
        }
        let interval_bytes = interval_bytes as usize;
        Ok(Self {
            kind,
            interval_bytes,
            value: 0,
            missing: interval_bytes,
        })
    }

    /// Adds `len` bytes at `data`, and calls `each` for each interval that ends in them.
    ///
    /// # Safety
    ///
    /// The caller must ensure that the bytes are readable.
    #[inline(always)]
    unsafe fn add(
        &mut self,
        mut data: *const u8,
        len: u32,
        each: &mut impl FnMut(u64) -> Result,
    ) -> Result {
        let mut len = len as usize;
        if self.missing != self.interval_bytes {
            let rest = len.min(self.missing);
            // SAFETY: By the function requirements; `rest` is at most `len`.
            if let Some(value) = unsafe { self.go_on(data, rest) } {
                each(value)?;
            }
            (data, len) = (data.wrapping_add(rest), len.wrapping_sub(rest));
        }
        // Most intervals are whole: a loop that keeps all in registers.
        while len >= self.interval_bytes {
            // SAFETY: By the function requirements; so many bytes are left.
            let value = unsafe { self.kind.update_raw(0, data, self.interval_bytes) };
            data = data.wrapping_add(self.interval_bytes);
            len = len.wrapping_sub(self.interval_bytes);
            each(value)?;
        }
        if len != 0 {
            // SAFETY: By the function requirements; so many bytes are left, less than an interval.
            let _ = unsafe { self.go_on(data, len) };
        }
        Ok(())
    }

    /// Goes on with a part of an interval, at most what is missing of it; returns its checksum if
    /// it ends there.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `len` bytes at `data` are readable.
    #[inline]
    unsafe fn go_on(&mut self, data: *const u8, len: usize) -> Option<u64> {
        // SAFETY: By the function requirements.
        self.value = unsafe { self.kind.update_raw(self.value, data, len) };
        self.missing = self.missing.wrapping_sub(len);
        if self.missing != 0 {
            return None;
        }
        let value = self.value;
        (self.value, self.missing) = (0, self.interval_bytes);
        Some(value)
    }
}
