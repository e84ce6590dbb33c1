// SPDX-License-Identifier: GPL-2.0

//! Names of objects, and bytes and blocks of them.

use core::ops::Range;

/// The bytes of a block: what is stored, shared between copies, and covered by one CRC.
pub const BLOCK_BYTES: u64 = 4096;
/// The largest size of an object: the number behind its last block has 32 bits.
pub const OBJECT_BYTES_MAX: u64 = u32::MAX as u64 * BLOCK_BYTES;
/// The most bytes of one operation. With the blocks at its edges, their CRCs, and what it assigns
/// they fit into one batch of the log.
pub const IO_BYTES_MAX: u64 = 112 << 10;
/// The most blocks that one operation touches.
pub const IO_BLOCKS_MAX: usize = (IO_BYTES_MAX / BLOCK_BYTES) as usize + 1;

/// The name of an object: 128 bits, which its users choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The upper half.
    pub high: u64,
    /// The lower half.
    pub low: u64,
}

impl ObjectId {
    /// Returns the number of its bucket in a table of so many. Who does not know the key, which is
    /// random, cannot choose names that have the same one.
    pub fn bucket(&self, key: [u64; 2], buckets: usize) -> usize {
        let [one, other] = key;
        let product = u128::from(self.high ^ one).wrapping_mul(u128::from(self.low ^ other));
        // CAST: Both halves.
        let folded = (product >> 64) as u64 ^ product as u64;
        // CAST: Below the number of buckets.
        folded.checked_rem(buckets as u64).unwrap_or_default() as usize
    }
}

/// Bytes of an object: at least one.
///
/// # Invariants
///
/// The end is above the offset, and at most [`OBJECT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Span {
    offset: u64,
    end: u64,
}

/// The bytes of a span that are in one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The number of the block in the object.
    pub block: u32,
    /// The first byte of the block that is in the span.
    pub from: u32,
    /// The byte behind the last one; at most [`BLOCK_BYTES`].
    pub to: u32,
}

impl Piece {
    /// Whether all of the block is in the span.
    pub const fn is_whole(&self) -> bool {
        self.from == 0 && self.to as u64 == BLOCK_BYTES
    }
}

impl Span {
    /// All that an object can have.
    pub const ALL: Self = Self {
        offset: 0,
        end: OBJECT_BYTES_MAX,
    };

    /// Checks the numbers; `None` if there is no byte, or one beyond the largest object.
    pub fn new(offset: u64, bytes: u64) -> Option<Self> {
        let end = offset.checked_add(bytes)?;
        // INVARIANT: `bytes` is not 0.
        (bytes > 0 && end <= OBJECT_BYTES_MAX).then_some(Self { offset, end })
    }

    /// Returns the first byte.
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the byte behind the last one.
    pub const fn end(&self) -> u64 {
        self.end
    }

    /// Returns the number of bytes.
    pub const fn bytes(&self) -> u64 {
        self.end.saturating_sub(self.offset)
    }

    /// Returns the same bytes from another offset on, if an object can have them.
    pub fn moved_to(&self, offset: u64) -> Option<Self> {
        Self::new(offset, self.bytes())
    }

    /// Whether both have a byte in common.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.offset < other.end && other.offset < self.end
    }

    /// Whether all bytes of `other` are in it.
    pub const fn contains(&self, other: &Self) -> bool {
        self.offset <= other.offset && other.end <= self.end
    }

    /// Returns the blocks that it touches.
    pub const fn blocks(&self) -> Range<u32> {
        // CAST: By the invariant the end of the last block is at most that of the largest object.
        (self.offset / BLOCK_BYTES) as u32..self.end.div_ceil(BLOCK_BYTES) as u32
    }

    /// Returns the same with all of the blocks that it touches.
    pub const fn whole_blocks(&self) -> Self {
        let blocks = self.blocks();
        // INVARIANT: The largest object has whole blocks.
        Self {
            offset: (blocks.start as u64).saturating_mul(BLOCK_BYTES),
            end: (blocks.end as u64).saturating_mul(BLOCK_BYTES),
        }
    }

    /// Returns its bytes in a block that it touches.
    pub fn piece(&self, block: u32) -> Piece {
        let start = u64::from(block).saturating_mul(BLOCK_BYTES);
        let within = |byte: u64| byte.saturating_sub(start).min(BLOCK_BYTES);
        Piece {
            block,
            // CAST: At most the bytes of a block.
            from: within(self.offset) as u32,
            to: within(self.end) as u32,
        }
    }

    /// Goes through its pieces: one for each block.
    pub fn pieces(self) -> impl Iterator<Item = Piece> {
        self.blocks().map(move |block| self.piece(block))
    }

    /// Returns how many blocks it touches.
    pub const fn block_count(&self) -> u32 {
        let blocks = self.blocks();
        blocks.end.saturating_sub(blocks.start)
    }

    /// Whether it may be the data of one operation.
    pub const fn is_io(&self) -> bool {
        self.bytes() <= IO_BYTES_MAX
    }
}
