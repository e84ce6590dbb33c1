// SPDX-License-Identifier: GPL-2.0

//! What the protocol needs of an RDMA device, and how a server divides its chunks among the
//! device's memory regions.

use core::fmt;

use super::signal::{
    QueueError,
    QueueLimits, //
};
use ferro_proto::errno::Errno;

/// Smallest page of a memory region, in bytes. Each device has it.
const PAGE_SIZE_MIN: u32 = 4096;

/// What a device is capable of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Memory can be registered and invalidated by work requests.
    pub fast_registration: bool,
    /// It speaks iWARP.
    pub iwarp: bool,
    /// Sizes that the pages of a region can have: the sum of these powers of two.
    pub page_sizes: u64,
    /// Most pages of a region.
    pub pages_max: u32,
    /// Its queues.
    pub queues: QueueLimits,
}

/// Why a device cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// No work request registers memory there.
    NoFastRegistration,
    /// iWARP has no RDMA write with an immediate, of which each request is one.
    Iwarp,
    /// A chunk has more pages than a region can have.
    Pages {
        /// Pages of a chunk.
        needed: u32,
        /// Pages of a region.
        most: u32,
    },
    /// A queue would have to be longer than the device allows.
    Queues(QueueError),
}

impl Unfit {
    /// Returns the number that the peer, or the opener of the session, gets to see.
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

impl Capabilities {
    /// Checks what every path needs.
    pub const fn check(&self) -> Result<(), Unfit> {
        if self.iwarp {
            return Err(Unfit::Iwarp);
        }
        if !self.fast_registration || self.pages_max == 0 {
            return Err(Unfit::NoFastRegistration);
        }
        Ok(())
    }

    /// Divides `depth` chunks of `chunk_size` bytes (a power of two), whose addresses in the
    /// device's view are multiples of `alignment`, among regions of at most `chunks_max` chunks
    /// each.
    ///
    /// The pages are as large as the device has them; larger ones than the alignment allows, and
    /// those that the device does not list, would be encoded wrongly (irdma) or refused (swiotlb).
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
        // As many as possible, such that all regions have equally many: the client insists on that.
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

/// How chunks lie in regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// Bytes of each page of a region.
    pub page_size: u32,
    /// Chunks of each region.
    pub chunks: u16,
}
