// SPDX-License-Identifier: GPL-2.0

//! A client's request, which is carried out piece by piece: a piece is as much as the sidecar's
//! journal takes in one record, and is contiguous on the device.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    errno,
    pages::PageBlock, //
};
use rtrs_server::Operation;

use super::{
    client_queue::ClientQueue,
    BLOCK_SECTORS,
    BLOCK_SIZE, //
};
use crate::{
    proto::{
        flags::{
            Op,
            RwFlags, //
        },
        message::IoRequest, //
    },
    sidecar::{
        group,
        layout::Layout,
        queue::{
            Kind,
            REQUEST_BLOCKS_MAX, //
        },
        record::ENTRIES_MAX, //
    },
};

/// Whether the device's cache is flushed before the blocks are written, or as the whole request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Flush {
    No,
    Wanted,
    Running,
    Ended,
}

/// A request of a client.
pub(super) struct Job {
    operation: Operation,
    client_queue: Arc<ClientQueue>,
    /// The memory of the data.
    pages: Option<Arc<PageBlock>>,
    request: IoRequest,
    /// The first data block.
    first: u64,
    blocks: u32,
    /// The blocks that were started.
    next: u32,
    /// The pieces that are being carried out.
    running: u32,
    flush: Flush,
    error: Option<Error>,
}

/// A part of a request that is carried out at once.
#[derive(Clone, Copy)]
pub(super) struct Piece {
    /// The place of the request.
    pub(super) job: usize,
    /// The operation.
    pub(super) kind: Kind,
    /// The first block, counted in the request.
    pub(super) offset: u32,
    /// The number of blocks.
    pub(super) blocks: u16,
}

impl Job {
    /// Begins a request; answers it if that is not possible.
    pub(super) fn new(
        operation: Operation,
        client_queue: Arc<ClientQueue>,
        data_blocks: u64,
    ) -> Option<Self> {
        match Self::check(&operation, &client_queue, data_blocks) {
            Ok((request, first, blocks)) => {
                Some(Self::begin(operation, client_queue, request, first, blocks))
            }
            Err(error) => {
                client_queue.answer(operation, Err(error));
                None
            }
        }
    }

    fn check(
        operation: &Operation,
        client_queue: &ClientQueue,
        data_blocks: u64,
    ) -> Result<(IoRequest, u64, u32)> {
        let request = client_queue.parse(operation)?;
        match request.rw.op {
            Op::SecureErase => return Err(errno::EOPNOTSUPP),
            // It has no position.
            Op::Flush => return Ok((request, 0, 0)),
            _ => {}
        }
        let sectors = u64::from(BLOCK_SECTORS);
        let is_aligned = request.sector % sectors == 0 && request.size % BLOCK_SIZE == 0;
        if !is_aligned {
            return Err(EINVAL);
        }
        let (first, blocks) = (request.sector / sectors, request.size / BLOCK_SIZE);
        // The error of the block layer for what is beyond the end.
        let end = first.checked_add(blocks.into()).ok_or(EIO)?;
        if end > data_blocks {
            return Err(EIO);
        }
        Ok((request, first, blocks))
    }

    fn begin(
        mut operation: Operation,
        client_queue: Arc<ClientQueue>,
        request: IoRequest,
        first: u64,
        blocks: u32,
    ) -> Self {
        let rw = request.rw;
        let pages = match rw.op.has_data() {
            true => operation.pages().ok(),
            false => None,
        };
        let error = (rw.op.has_data() && pages.is_none()).then_some(EIO);
        let is_flush = rw.op == Op::Flush || rw.flags.has(RwFlags::PREFLUSH);
        Self {
            operation,
            client_queue,
            pages,
            request,
            first,
            blocks,
            next: 0,
            running: 0,
            flush: if is_flush { Flush::Wanted } else { Flush::No },
            error,
        }
    }

    /// Returns the next piece, for the place `job` of the request; `None` if none can be started
    /// now.
    pub(super) fn next_piece(&self, job: usize, layout: &Layout) -> Option<Piece> {
        if self.error.is_some() {
            return None;
        }
        let piece = |kind, blocks| Piece {
            job,
            kind,
            offset: self.next,
            blocks,
        };
        match self.flush {
            Flush::Wanted => return Some(piece(Kind::Flush, 0)),
            Flush::Running => return None,
            Flush::No | Flush::Ended => {}
        }
        let left = u64::from(self.blocks.checked_sub(self.next)?);
        let block = self.block(self.next);
        let (_, contiguous) = layout.data(block).filter(|_| left != 0)?;
        let (kind, most) = match self.request.rw.op {
            Op::Read => (Kind::Read, u64::from(REQUEST_BLOCKS_MAX)),
            Op::Write => {
                let fua = self.request.rw.flags.has(RwFlags::FUA);
                (Kind::Write { fua }, ENTRIES_MAX as u64)
            }
            _ => {
                let (_, index) = group::place(block);
                (
                    Kind::Discard,
                    group::GROUP_BLOCKS.saturating_sub(index.into()),
                )
            }
        };
        let blocks = left.min(contiguous).min(most);
        Some(piece(kind, u16::try_from(blocks).ok()?))
    }

    /// The piece was started.
    pub(super) fn started(&mut self, piece: &Piece) {
        self.running = self.running.saturating_add(1);
        match piece.kind {
            Kind::Flush => self.flush = Flush::Running,
            _ => self.next = self.next.saturating_add(piece.blocks.into()),
        }
    }

    /// A piece has ended.
    pub(super) fn ended(&mut self, piece: &Piece, is_ok: bool) {
        self.running = self.running.saturating_sub(1);
        if piece.kind == Kind::Flush {
            self.flush = Flush::Ended;
        }
        if !is_ok {
            self.fail(EIO);
        }
    }

    /// The request fails, with the first error.
    pub(super) fn fail(&mut self, error: Error) {
        let _ = self.error.get_or_insert(error);
    }

    /// Returns whether nothing is left to do but the answer.
    pub(super) fn is_finished(&self) -> bool {
        let has_flushed = matches!(self.flush, Flush::No | Flush::Ended);
        let is_complete = self.next == self.blocks && has_flushed;
        self.running == 0 && (is_complete || self.error.is_some())
    }

    /// Returns whether its flush has ended, and its blocks are not all started.
    pub(super) fn is_resumed(&self) -> bool {
        self.flush == Flush::Ended && self.next != self.blocks && self.error.is_none()
    }

    /// Returns the data block of an offset.
    pub(super) fn block(&self, offset: u32) -> u64 {
        self.first.wrapping_add(offset.into())
    }

    /// Returns the mapping that it came from.
    pub(super) fn client_queue(&self) -> &ClientQueue {
        &self.client_queue
    }

    /// Returns the memory of the data.
    pub(super) fn pages(&self) -> Option<&Arc<PageBlock>> {
        self.pages.as_ref()
    }

    /// Returns the request.
    pub(super) fn request(&self) -> &IoRequest {
        &self.request
    }

    /// Returns whether the device may discard the blocks, too.
    pub(super) fn discards(&self) -> bool {
        self.request.rw.op == Op::Discard
    }

    /// Answers the request.
    pub(super) fn answer(self) {
        let Self {
            operation,
            client_queue,
            pages,
            request,
            first,
            error,
            ..
        } = self;
        let result = match (error, request.rw.op, client_queue.protection(), &pages) {
            (Some(error), ..) => Err(error),
            (None, Op::Read, Some(protection), Some(pages)) if !client_queue.has_own_tuples() => {
                protection.make(pages, first, request.size)
            }
            _ => Ok(()),
        };
        drop(pages);
        client_queue.answer(operation, result);
    }
}
