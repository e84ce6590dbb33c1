// SPDX-License-Identifier: GPL-2.0

//! The parts in which pages are sent: each is one datagram, and its immediate says which one it is.
//!
//! The pages that were asked for, in ascending order and each whole, are a row of bytes. Fragment k
//! is bytes kF to (k+1)F of it. The numbers do not depend on which of the pages are sent, so a
//! fragment names its place without any other message.

use super::{
    pages::PageSet,
    PAGE_LEN, //
};

/// The maximum number of fragments of a request.
pub const FRAGMENTS_MAX: usize = 256;

const LEN_MIN_LOG: u8 = 8;
const LEN_MAX_LOG: u8 = 12;

const _: () = assert!(1 << LEN_MAX_LOG == PAGE_LEN);

/// The length of fragments, F: a power of two from 256 to 4096, so no fragment is of two pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FragmentLen {
    log: u8,
}

impl FragmentLen {
    /// Takes a length in bytes.
    pub fn new(bytes: u32) -> Option<Self> {
        let fits = bytes.is_power_of_two();
        // CAST: At most 32.
        let log = bytes.trailing_zeros() as u8;
        (fits && (LEN_MIN_LOG..=LEN_MAX_LOG).contains(&log)).then_some(Self { log })
    }

    /// Returns the largest length that a datagram of at most `mtu_bytes` has room for.
    pub fn largest(mtu_bytes: u32) -> Option<Self> {
        // CAST: Below 32.
        let log = mtu_bytes.checked_ilog2()? as u8;
        (log >= LEN_MIN_LOG).then_some(Self {
            log: log.min(LEN_MAX_LOG),
        })
    }

    /// Returns the length in bytes.
    pub const fn bytes(self) -> u32 {
        1u32.wrapping_shl(self.log as u32)
    }

    /// Returns the number of fragments of a page, from 1 to 16.
    pub const fn per_page(self) -> usize {
        1usize.wrapping_shl(LEN_MAX_LOG.wrapping_sub(self.log) as u32)
    }

    /// Returns the number of pages that one request may ask for, from 16 to 256.
    pub const fn pages_max(self) -> usize {
        FRAGMENTS_MAX.wrapping_shr(LEN_MAX_LOG.wrapping_sub(self.log) as u32)
    }

    /// Returns the number of fragments of pages, if a request may ask for as many.
    pub fn count(self, pages: PageSet) -> Option<usize> {
        // At most 256 times 16.
        let count = pages.len().wrapping_mul(self.per_page());
        (count <= FRAGMENTS_MAX).then_some(count)
    }

    /// Returns the fragments of the pages at a place in the row: the numbers from the first one to
    /// the one behind the last.
    pub fn of_page(self, rank: usize) -> core::ops::Range<usize> {
        let first = rank.saturating_mul(self.per_page());
        first..first.saturating_add(self.per_page())
    }
}

/// The immediate of a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentId {
    /// The tag of the request.
    pub tag: u16,
    /// The number of the fragment.
    pub index: u16,
}

impl FragmentId {
    /// Returns the immediate.
    pub const fn to_imm(self) -> u32 {
        // CAST: Lossless; `From` is not const.
        (self.tag as u32) << 16 | self.index as u32
    }

    /// Reads an immediate; all are valid.
    pub const fn from_imm(imm: u32) -> Self {
        // CAST: The two halves.
        Self {
            tag: (imm >> 16) as u16,
            index: imm as u16,
        }
    }
}
