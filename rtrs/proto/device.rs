// SPDX-License-Identifier: GPL-2.0

//! The requirements of the protocol on an RDMA device, and the division of a server's chunks among
//! the device's memory regions.

use core::fmt;

use super::{
    agreement::PAGES_BESIDE,
    signal::{
        QueueError,
        QueueLimits, //
    },
};
use ferro_proto::errno::Errno;

/// The minimum page size of a memory region, in bytes, which each device supports: a page of the
/// kernel.
pub const PAGE_SIZE_MIN: u32 = 4096;

/// The capabilities of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Work requests can register and invalidate memory.
    pub fast_registration: bool,
    /// The device speaks iWARP.
    pub iwarp: bool,
    /// The page sizes of a region: the sum of these powers of two.
    pub page_sizes: u64,
    /// The maximum number of pages of a region.
    pub pages_max: u32,
    /// The limits of its queues.
    pub queues: QueueLimits,
}

/// The reason why a device cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The device has no registration by work requests.
    NoFastRegistration,
    /// iWARP has no RDMA write with immediate, which each request needs.
    Iwarp,
    /// A chunk has more pages than a region can have.
    Pages {
        /// The number of pages of a chunk.
        needed: u32,
        /// The maximum number of pages of a region.
        most: u32,
    },
    /// A queue would have to be longer than the device allows.
    Queues(QueueError),
}

impl Unfit {
    /// Returns the error that the peer, or the opener of the session, gets.
    pub const fn errno(self) -> Errno {
        match self {
            Unfit::NoFastRegistration | Unfit::Iwarp => Errno::EOPNOTSUPP,
            Unfit::Pages { .. } | Unfit::Queues(_) => Errno::EINVAL,
        }
    }
}

impl From<QueueError> for Unfit {
    fn from(error: QueueError) -> Self {
        Unfit::Queues(error)
    }
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::NoFastRegistration => f.write_str("device has no fast registration of memory"),
            Unfit::Iwarp => f.write_str("device speaks iWARP, which has no write with immediate"),
            Unfit::Pages { needed, most } => {
                write!(
                    f,
                    "device registers {most} pages at a time, a chunk has {needed}"
                )
            }
            Unfit::Queues(error) => write!(f, "{error}"),
        }
    }
}

/// Returns the segments of a send work request, besides one, to try next with a device that has
/// no memory for a send queue of work requests with `pieces` of them; [`None`] if fewer do not
/// help.
///
/// What a queue takes is known to its driver only: that of mlx5 rounds a work request of 17
/// segments up to 448 bytes, one of 9 to 320, of 5 to 256, of up to 3 to 192, and a queue to a
/// power of two, of 2 MiB at most. The number of work requests that it has told is for those
/// without segments.
pub const fn fewer_pieces(pieces: u32) -> Option<u32> {
    match pieces / 2 {
        0 => None,
        fewer => Some(fewer),
    }
}

impl Capabilities {
    /// Checks the requirements of every path.
    pub const fn check(&self) -> Result<(), Unfit> {
        if self.iwarp {
            return Err(Unfit::Iwarp);
        }
        let needed = PAGES_BESIDE as u32; // CAST: widening, in a const function.
        if !self.fast_registration || self.pages_max <= needed {
            return Err(Unfit::NoFastRegistration);
        }
        Ok(())
    }

    /// Divides `depth` chunks of `chunk_size` bytes (a power of two), whose addresses in the
    /// device's view are multiples of `alignment`, among regions of at most `chunks_max` chunks
    /// each.
    ///
    /// The pages have the largest size of the device that the alignment permits; a larger size, or
    /// one that the device does not list, would be encoded wrongly (irdma) or rejected (swiotlb).
    pub fn divide(
        &self,
        depth: u16,
        chunk_size: u32,
        alignment: u64,
        chunks_max: u16,
    ) -> Result<Division, Unfit> {
        let page_size = self.page_size(chunk_size, alignment);
        let needed = chunk_size.checked_div(page_size).unwrap_or(1).max(1);
        let fit = self.pages_max.checked_div(needed).unwrap_or(0);
        if fit == 0 {
            return Err(Unfit::Pages {
                needed,
                most: self.pages_max,
            });
        }
        // As many as possible, with the same number in all regions, which the client requires.
        let chunks = (1..=depth.min(chunks_max))
            .rev()
            .find(|n| u32::from(*n) <= fit && depth.checked_rem(*n) == Some(0))
            .unwrap_or(1);
        Ok(Division { page_size, chunks })
    }

    /// Returns the largest page of the device that divides a chunk.
    fn page_size(&self, chunk_size: u32, alignment: u64) -> u32 {
        let mut size = chunk_size;
        while size > PAGE_SIZE_MIN {
            let listed = self.page_sizes & u64::from(size) != 0;
            if listed && alignment & u64::from(size).wrapping_sub(1) == 0 {
                return size;
            }
            size /= 2;
        }
        PAGE_SIZE_MIN
    }
}

/// The division of chunks among regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// The page size of a region in bytes.
    pub page_size: u32,
    /// The number of chunks of each region.
    pub chunks: u16,
}
