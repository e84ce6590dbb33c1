// SPDX-License-Identifier: GPL-2.0

//! The memory of stores, all of which is allocated when they begin.

use kernel::prelude::*;
use kernel_ext::{
    crc,
    pages::PageBlock,
    random, //
};
use seglog::Checksum;

use crate::proto::{
    claim::{
        Claim,
        Claims,
        CLAIMS_MAX, //
    },
    limits::Limits,
    medium::Pages,
    pages::{
        Page,
        PageTable, //
    },
    slot::{
        Blocks,
        Slot,
        Stored,
        NONE, //
    },
    span::{
        BLOCK_BYTES,
        IO_BYTES_MAX, //
    },
    store::{
        Block,
        StoreMemory, //
    },
};

/// The requests that a client may have in flight: the chunks of its session.
pub(crate) const DEPTH: u16 = 64;
/// The clients that a store knows, those that are gone included.
pub(super) const CLIENTS_MAX: usize = 64;
/// The requests that a store may have.
pub(super) const REQUESTS_MAX: usize = CLIENTS_MAX * DEPTH as usize;
/// The limits of a client: what its session allows.
pub(super) const LIMITS: Limits = Limits {
    operations_max: DEPTH as u32,
    bytes_max: DEPTH as u64 * 2 * IO_BYTES_MAX,
    leases_max: 64,
};
/// The claims of a store: those of all clients together, so that none takes those of others.
const CLAIMS: usize = LIMITS.claims_of(CLIENTS_MAX as u32) as usize;
const _: () = assert!(CLAIMS <= CLAIMS_MAX as usize);
/// The lists of claims, by their hashes.
const CLAIM_BUCKETS: usize = 1024;
/// The pages of which memory is taken at a time.
const PIECE_ORDER: u32 = 4;
/// The blocks of a piece.
const PIECE_BLOCKS: u32 = 1 << PIECE_ORDER;

/// The kernel's CRC-32C.
pub(super) struct Crc;

impl Checksum for Crc {
    fn crc32c(&self, bytes: &[u8]) -> u32 {
        crc::crc32c(0, bytes)
    }
}

/// Elements whose number does not change.
pub(super) struct Elements<T>(KVVec<T>);

impl<T: Clone> Elements<T> {
    /// Allocates them. Sleeps.
    pub(super) fn new(of: T, count: usize) -> Result<Self> {
        Ok(Self(KVVec::from_elem(of, count, GFP_KERNEL)?))
    }
}

impl<T> AsRef<[T]> for Elements<T> {
    fn as_ref(&self) -> &[T] {
        &self.0
    }
}

impl<T> AsMut<[T]> for Elements<T> {
    fn as_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

/// The memory of a store in the kernel.
pub(super) struct Tables;

impl StoreMemory for Tables {
    type Slots = Elements<Slot>;
    type Buckets = Elements<u32>;
    type Claims = Elements<Claim>;
}

/// Returns a key of hashes.
pub(super) fn random_key() -> [u64; 2] {
    [random::number(), random::number()]
}

/// Allocates the claims of a store. Sleeps.
pub(super) fn claims() -> Result<Claims<Elements<Claim>, Elements<u32>>> {
    let buckets = Elements::new(NONE, CLAIM_BUCKETS)?;
    Ok(Claims::new(
        Elements::new(Claim::FREE, CLAIMS)?,
        buckets,
        // CAST: Its lower half.
        (random_key(), random::number() as u32),
    ))
}

/// The pages of a store in memory.
pub(super) struct RamPages {
    table: PageTable<Elements<Page>>,
    pieces: KVVec<PageBlock>,
    /// Memory through which a block moves from one page to another.
    moved: KBox<Block>,
}

/// Returns the piece of a page, and the byte at which the page begins.
fn split(number: u32) -> (usize, usize) {
    let at = (number % PIECE_BLOCKS) as usize;
    let piece = (number / PIECE_BLOCKS) as usize;
    (piece, at.saturating_mul(BLOCK_BYTES as usize))
}

impl RamPages {
    /// Allocates pages for blocks. Sleeps.
    pub(super) fn new(blocks: u32) -> Result<Self> {
        let count = blocks.div_ceil(PIECE_BLOCKS) as usize;
        let mut pieces = KVVec::with_capacity(count, GFP_KERNEL)?;
        for _ in 0..count {
            pieces.push(PageBlock::new(PIECE_ORDER)?, GFP_KERNEL)?;
        }
        Ok(Self {
            table: PageTable::new(Elements::new(Page::UNUSED, blocks as usize)?),
            pieces,
            moved: KBox::new([0; BLOCK_BYTES as usize], GFP_KERNEL)?,
        })
    }

    fn write(&self, number: u32, bytes: &[u8]) -> Result {
        let (piece, at) = split(number);
        self.pieces.get(piece).ok_or(EINVAL)?.copy_in(at, bytes)
    }

    /// Copies a block of an extent out; returns its CRC.
    pub(super) fn get(&self, stored: &Stored, block: u8, to: &mut Block) -> Result<u32> {
        let first = u32::try_from(stored.place).map_err(|_| EIO)?;
        let (number, sum) = self.table.find(first, block).ok_or(EIO)?;
        let (piece, at) = split(number);
        self.pieces.get(piece).ok_or(EIO)?.copy_out(at, to)?;
        Ok(sum)
    }
}

impl Pages for RamPages {
    fn put<'b>(&mut self, blocks: impl Iterator<Item = (u32, &'b [u8])>) -> Option<Stored> {
        let (mut first, mut last, mut count) = (None, None, 0u8);
        for (sum, bytes) in blocks {
            let added = self.table.add(last, sum);
            let Some(number) = added.filter(|number| self.write(*number, bytes).is_ok()) else {
                let place = u64::from(first?);
                self.free(Stored { place, stamp: 0 }, Blocks::of(0, count));
                return None;
            };
            first = first.or(added);
            (last, count) = (Some(number), count.saturating_add(1));
        }
        let place = u64::from(first?);
        Some(Stored { place, stamp: 0 })
    }

    fn free(&mut self, stored: Stored, blocks: Blocks) {
        // CAST: The number of a page.
        let moved = self.table.free(stored.place as u32, blocks);
        if let Some((from, to)) = moved {
            let (piece, at) = split(from);
            let from = self.pieces.get(piece);
            // Both are pages of this store.
            let _ = from.map(|from| from.copy_out(at, &mut *self.moved));
            let _ = self.write(to, &*self.moved);
        }
    }
}
