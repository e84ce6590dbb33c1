// SPDX-License-Identifier: GPL-2.0

//! The scrub of a device in use: `ctl/devices/D/sidecar/scrub`.
//!
//! An [`OnlineScrub`] decides what is read and keeps what was found; the work item of the device
//! reads it among the requests of clients, one piece at a time, with the priority of idle IO.

use block_ext::{
    Flags,
    Op, //
};
use kernel::{
    prelude::*,
    sync::{
        Arc,
        ArcBorrow, //
    },
};
use kernel_ext::{
    crc::Checksum,
    pages::PageBlock,
    sysfs::{
        ShowBuffer,
        StoreContext, //
    },
};

use super::{
    engine::{
        Engine,
        Event, //
    },
    files,
    sector::Sector,
    volume::Volume,
    BLOCK_SIZE, //
};
use crate::{
    server::log_limit::LOG_LIMIT,
    shown::Shown,
    sidecar::{
        command::ScrubCommand,
        online_scrub::{
            OnlineScrub,
            State,
            PIECE_BLOCKS_MAX, //
        },
        queue::{
            Kind,
            Request,
            Ticket, //
        },
        tuple::Verdict,
        BLOCK_BYTES, //
    },
};

/// `IOPRIO_CLASS_IDLE` of `include/uapi/linux/ioprio.h`, in its place.
const IDLE: u16 = 3 << 13;

/// The state of the scrub of a volume.
pub(super) struct Scrub {
    online: OnlineScrub,
    /// The memory into which a piece is read, while a scrub runs.
    memory: Option<Arc<PageBlock>>,
}

impl Scrub {
    /// No scrub.
    pub(super) const fn new() -> Self {
        Self {
            online: OnlineScrub::new(),
            memory: None,
        }
    }

    /// Returns whether a PI block that cannot be read is to be written anew now.
    pub(super) fn mends(&self) -> bool {
        self.online.mends()
    }

    /// A PI block was written anew.
    pub(super) fn mended(&mut self) {
        self.online.mended();
    }
}

/// Prints the file `scrub`.
pub(super) fn show(volume: &Volume, page: &mut ShowBuffer<'_>) -> Result {
    let scrub = volume.scrub().lock().online;
    write!(page, "{scrub}")
}

/// Handles `start`, `mend` or `stop`, written to the file `scrub`. Sleeps.
///
/// # Errors
///
/// `EINVAL` for another word, `ENOENT` for a stop of a scrub that does not run, `EBUSY` for a start
/// while one runs, and `ENOMEM`.
pub(super) fn store(volume: ArcBorrow<'_, Volume>, _: &StoreContext<'_>, written: &str) -> Result {
    let words = ("scrub", "start, mend or stop");
    match files::command(&volume, words, written, ScrubCommand::parse)? {
        ScrubCommand::Start { mends } => start(&volume.into(), mends),
        ScrubCommand::Stop if volume.scrub().lock().online.stop() => {
            let name = volume.device().name().unwrap_or_default();
            pr_info!("{name}: scrub stopped\n");
            Ok(())
        }
        ScrubCommand::Stop => Err(ENOENT),
    }
}

/// Begins a scrub.
fn start(volume: &Arc<Volume>, mends: bool) -> Result {
    let order = PageBlock::order_for(usize::from(PIECE_BLOCKS_MAX).saturating_mul(BLOCK_BYTES));
    let memory = Arc::new(PageBlock::new(order)?, GFP_KERNEL)?;
    let name = volume.device().name().unwrap_or_default();
    let mut scrub = volume.scrub().lock();
    if !scrub.online.start(volume.data_blocks(), mends) {
        return Err(EBUSY);
    }
    scrub.memory = Some(memory);
    volume.set_scrubbing(true);
    drop(scrub);
    pr_info!("{name}: scrub started: {} blocks\n", volume.data_blocks());
    Volume::kick(volume);
    Ok(())
}

impl Engine {
    /// Returns whether a request is the scrub's.
    pub(super) fn is_scrub(&self, ticket: Ticket) -> bool {
        self.scrub == Some(ticket)
    }

    /// Starts the next piece of a scrub if there is one, and room for it.
    pub(super) fn start_scrub_piece(&mut self, volume: &Arc<Volume>) -> bool {
        if self.scrub.is_some() || !volume.is_scrubbing() {
            return false;
        }
        let mut scrub = volume.scrub().lock();
        let Some(piece) = scrub.online.next_piece(&self.layout) else {
            volume.set_scrubbing(false);
            scrub.memory = None;
            return false;
        };
        let blocks = volume.data_blocks();
        let request = Request::new(Kind::Read, piece.first, piece.blocks, blocks);
        self.scrub = request.and_then(|request| self.store.submit(request));
        if self.scrub.is_none() {
            scrub.online.withdraw();
        }
        self.scrub.is_some()
    }

    /// Reads the piece, which the store permits now.
    pub(super) fn read_scrub_piece(&mut self, volume: &Arc<Volume>, ticket: Ticket) {
        let scrub = volume.scrub().lock();
        let piece = scrub.online.reading();
        let at = piece.and_then(|piece| self.layout.data(piece.first));
        let blocks = piece.map_or(0, |piece| u32::from(piece.blocks));
        let len = blocks.saturating_mul(BLOCK_SIZE);
        if let Some(memory) = &scrub.memory {
            // A piece of blocks without data is checked also if it cannot be read: as zeroes, not
            // as the piece before it. The memory has room for a piece.
            let _ = memory.zero(0, len as usize);
        }
        let range = scrub.memory.clone().map(|memory| (memory, 0, len));
        drop(scrub);
        let event = Event::Data(ticket);
        let at = Sector::of(at.map(|(at, _)| at));
        self.submit_range(volume, event, (Op::Read, Flags::NONE, IDLE), at, range);
    }

    /// The piece was read, or could not be: checks it.
    pub(super) fn scrub_piece_read(&mut self, volume: &Volume, ticket: Ticket, result: Result) {
        let mut scrub = volume.scrub().lock();
        let memory = scrub.memory.clone();
        let piece = scrub.online.reading();
        if let (Ok(()), Some(piece), Some(memory)) = (result, piece, &memory) {
            for index in 0..piece.blocks {
                let at = usize::from(index).saturating_mul(BLOCK_BYTES);
                let crc = memory.checksum(Checksum::Crc64Nvme, 0, at, BLOCK_BYTES);
                let (verdict, _) =
                    self.store
                        .check(ticket, index, crc.unwrap_or_default(), &self.pages);
                // What is at the place of a block without data need not have been read.
                let is_empty = crc.is_ok_and(|crc| crc == self.zeroes);
                scrub.online.checked(verdict, is_empty);
                if !verdict.is_readable() {
                    let block = piece.first.saturating_add(index.into());
                    complain(volume, block, Some(verdict));
                }
            }
        }
        end_piece(volume, &mut scrub.online, result.is_ok());
        drop(scrub);
        self.store
            .data_done(ticket, result.is_ok(), &mut self.pages);
    }

    /// The request of the piece has ended.
    pub(super) fn scrub_piece_ended(&mut self, volume: &Volume) {
        self.scrub = None;
        let mut scrub = volume.scrub().lock();
        // Where its tuples cannot be read, the store has not had it read.
        if scrub.online.reading().is_some() {
            end_piece(volume, &mut scrub.online, false);
        }
    }
}

/// Takes note that a piece has ended, and logs what is known then.
fn end_piece(volume: &Volume, scrub: &mut OnlineScrub, was_read: bool) {
    if let Some(block) = scrub.ended(was_read) {
        complain(volume, block, None);
    }
    if scrub.state() == State::Finished {
        tell(volume, scrub);
    }
}

/// Logs a block that is not readable.
#[cold]
fn complain(volume: &Volume, block: u64, verdict: Option<Verdict>) {
    if LOG_LIMIT.allow().is_none() {
        return;
    }
    let name = volume.device().name().unwrap_or_default();
    match verdict {
        Some(verdict) => pr_err!("{name}: scrub: data block {block}: {}\n", Shown(verdict)),
        None => pr_err!("{name}: scrub: data block {block}: it cannot be read\n"),
    }
}

/// Logs what a scrub has found.
fn tell(volume: &Volume, scrub: &OnlineScrub) {
    let name = volume.device().name().unwrap_or_default();
    let found = scrub.found();
    pr_info!(
        "{name}: scrub finished: {} good, {} never written, {} bad\n",
        found.good,
        found.unwritten,
        found.bad()
    );
    if found.not_empty != 0 {
        pr_warn!(
            "{name}: scrub: {} blocks read as zeroes and have something else at their place: they \
             were discarded, or have lost their tuples\n",
            found.not_empty
        );
    }
}
