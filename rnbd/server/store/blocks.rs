// SPDX-License-Identifier: GPL-2.0

//! The data of requests and their tuples: what is written is given a tuple, what was read is
//! checked.

use block_ext::{
    Flags,
    Op, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    crc::Checksum,
    errno,
    pages::PageBlock,
    sync::{
        atomic::Ordering::Relaxed, //
    },
};

use super::{
    engine::{
        Engine,
        Event, //
    },
    job::{
        Job,
        Piece, //
    },
    sector::Sector,
    volume::Volume,
    BLOCK_SIZE, //
};
use crate::{
    proto::pi::{
        tuple::{
            APP_ESCAPE,
            TUPLE_LEN_MAX, //
        },
        Format,
        Tuple, //
    },
    sidecar::{
        queue::{
            Kind,
            Request,
            Ticket, //
        },
        record::ENTRIES_MAX,
        tuple::{
            Meaning,
            Seal,
            Verdict, //
        },
        BLOCK_BYTES, //
    },
};

/// A write that has failed, of which is read back what it has left. The store wants one at a time.
pub(super) struct ReadBack {
    /// The page into which a block is read. The memory of the data is the client's again when it is
    /// answered.
    page: Arc<PageBlock>,
    /// The CRCs of the blocks that were read.
    crcs: KVec<Option<u64>>,
}

impl ReadBack {
    /// Allocates the memory for it.
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            page: Arc::new(PageBlock::new(0)?, GFP_KERNEL)?,
            crcs: KVec::with_capacity(ENTRIES_MAX, GFP_KERNEL)?,
        })
    }
}

impl Job {
    /// Returns the CRC of the block at an offset, as it is in memory.
    fn crc(&self, offset: u32) -> Option<u64> {
        let at = (offset as usize).checked_mul(BLOCK_BYTES)?;
        let pages = self.pages()?;
        pages.checksum(Checksum::Crc64Nvme, 0, at, BLOCK_BYTES).ok()
    }

    /// Returns the place of the client's tuple of the block at an offset.
    fn place_of_tuple(&self, offset: u32) -> Option<usize> {
        let before = (offset as usize).checked_mul(TUPLE_LEN_MAX)?;
        (self.request().size as usize).checked_add(before)
    }

    /// Returns guard and application tag of the client's tuple, if it protects the block.
    fn client_tuple(&self, offset: u32) -> Option<(u64, u16)> {
        if !self.client_queue().has_own_tuples() {
            return None;
        }
        let mut bytes = [0; TUPLE_LEN_MAX];
        self.pages()?
            .copy_out(self.place_of_tuple(offset)?, &mut bytes)
            .ok()?;
        let tuple = Tuple::read(Format::Crc64, &bytes)?;
        (tuple.app != APP_ESCAPE).then_some((tuple.guard, tuple.app))
    }

    /// Gives the client the tuple of the block at an offset.
    fn give_tuple(&self, offset: u32, guard: u64, app: u16) -> Option<()> {
        let tuple = Tuple {
            app,
            ..Tuple::new(Format::Crc64, guard, self.block(offset))
        };
        let bytes = tuple.write(Format::Crc64);
        self.pages()?
            .copy_in(self.place_of_tuple(offset)?, &bytes)
            .ok()
    }

    /// The block at an offset has no data: it reads as zeroes.
    fn zero(&self, offset: u32) -> Option<()> {
        let at = (offset as usize).checked_mul(BLOCK_BYTES)?;
        self.pages()?.zero(at, BLOCK_BYTES).ok()
    }
}

impl Engine {
    /// Makes the tuples of a write: those of the client, where it has some, have been verified.
    pub(super) fn make_tuples(&mut self, seal: &Seal, ticket: Ticket, piece: &Piece) {
        let Some(Some(job)) = self.jobs.get(piece.job) else {
            return;
        };
        for index in 0..piece.blocks {
            let offset = piece.offset.saturating_add(index.into());
            let made = || Some((job.crc(offset)?, 0));
            let (guard, app) = job.client_tuple(offset).or_else(made).unwrap_or_default();
            let tuple = seal.data(job.block(offset), guard, app);
            self.pages
                .set_tuple(ticket, index, tuple.unwrap_or_default());
        }
        if job.client_queue().protection().is_none() {
            let written = &job.client_queue().stats().written;
            written.fetch_add(piece.blocks.into(), Relaxed);
        }
    }

    /// The IO of the data of a request has ended.
    pub(super) fn data_ended(&mut self, ticket: Ticket, result: Result) {
        let piece = self.pieces.get(ticket).copied().flatten();
        let kind = piece.map(|piece| piece.kind);
        // A discard that fails leaves the data, which do not count any more.
        let is_ok = result.is_ok() || kind == Some(Kind::Discard);
        match (piece, result) {
            (Some(piece), Err(error)) if !is_ok => self.fail(&piece, error),
            (Some(piece), Ok(())) if piece.kind == Kind::Read => self.check(ticket, &piece),
            _ => {}
        }
        self.store.data_done(ticket, is_ok, &mut self.pages);
    }

    /// A piece of a request has failed.
    pub(super) fn fail(&mut self, piece: &Piece, error: Error) {
        if let Some(Some(job)) = self.jobs.get_mut(piece.job) {
            job.fail(error);
        }
    }

    /// Checks the blocks that were read.
    fn check(&mut self, ticket: Ticket, piece: &Piece) {
        let result = match self.jobs.get(piece.job) {
            Some(Some(job)) => self.check_blocks(job, ticket, piece),
            _ => Ok(()),
        };
        if let Err(error) = result {
            self.fail(piece, error);
        }
    }

    fn check_blocks(&self, job: &Job, ticket: Ticket, piece: &Piece) -> Result {
        let client_queue = job.client_queue();
        for index in 0..piece.blocks {
            let offset = piece.offset.saturating_add(index.into());
            let crc = job.crc(offset).ok_or(EIO)?;
            let (verdict, tuple) = self.store.check(ticket, index, crc, &self.pages);
            let block = job.block(offset);
            let (guard, app) = match verdict {
                Verdict::Good => match self.store.seal().meaning(&tuple, block) {
                    Meaning::Data { guard, app } => (guard, app),
                    _ => return Err(EIO),
                },
                Verdict::Unwritten => {
                    job.zero(offset).ok_or(EIO)?;
                    (self.zeroes, 0)
                }
                Verdict::Lost | Verdict::WrongGuard | Verdict::WrongReference => {
                    client_queue.reject(block, verdict);
                    return Err(errno::EILSEQ);
                }
            };
            if client_queue.has_own_tuples() {
                job.give_tuple(offset, guard, app).ok_or(EIO)?;
            }
        }
        if client_queue.has_own_tuples() || client_queue.protection().is_none() {
            client_queue
                .stats()
                .read
                .fetch_add(piece.blocks.into(), Relaxed);
        }
        Ok(())
    }

    /// Reads back the blocks of a write that has failed, one after the other.
    pub(super) fn read_back(&mut self, volume: &Arc<Volume>, ticket: Ticket) {
        self.read_back.crcs.clear();
        self.read_next_back(volume, ticket);
    }

    fn read_next_back(&mut self, volume: &Arc<Volume>, ticket: Ticket) {
        let first = self.store.request(ticket).map(Request::first);
        let block = first.and_then(|first| first.checked_add(self.read_back.crcs.len() as u64));
        let at = block.and_then(|block| self.layout.data(block));
        let at = Sector::of(at.map(|(at, _)| at));
        let range = Some((self.read_back.page.clone(), 0, BLOCK_SIZE));
        let event = Event::ReadBack(ticket);
        self.submit_range(volume, event, (Op::Read, Flags::SYNC, 0), at, range);
    }

    /// A block of a write that has failed was read back, or cannot be read.
    pub(super) fn block_read_back(&mut self, volume: &Arc<Volume>, ticket: Ticket, is_ok: bool) {
        let ReadBack { page, crcs } = &mut self.read_back;
        let crc = page.checksum(Checksum::Crc64Nvme, 0, 0, BLOCK_BYTES);
        // There is room for all blocks of a request.
        let is_kept = crcs
            .push_within_capacity(crc.ok().filter(|_| is_ok))
            .is_ok();
        let blocks = self.store.request(ticket).map_or(0, Request::blocks);
        if is_kept && crcs.len() < usize::from(blocks) {
            return self.read_next_back(volume, ticket);
        }
        let crcs = &self.read_back.crcs;
        let crc_of = |offset: u16| crcs.get(usize::from(offset)).copied().flatten();
        self.store.settle(ticket, crc_of, &mut self.pages);
    }

    /// The device may not be used, for how long is not known: who waits for a write that has
    /// failed is answered without a look at what it has left.
    #[cold]
    pub(super) fn hold(&mut self) {
        self.store.permit(false);
        for ticket in self.store.unseen().iter() {
            self.piece_ended(ticket, false);
        }
    }
}
