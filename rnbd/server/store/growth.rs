// SPDX-License-Identifier: GPL-2.0

//! The growth of a device in use: `ctl/devices/D/sidecar/grow`.
//!
//! A [`Growth`] decides the steps; the thread that runs the engine takes them, one IO at a time,
//! among the requests of clients, which know nothing of it. The last one changes the layout between
//! two requests.

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
    pages::PageBlock,
    random,
    sysfs::{
        ShowBuffer,
        StoreContext, //
    }, //
};

use super::{
    engine::{
        Engine,
        Event, //
    },
    files,
    pages::zeroed,
    sector::Sector,
    volume::Volume,
    Crc,
    BLOCK_SECTORS,
    BLOCK_SIZE, //
};
use crate::{
    server::log_limit::CHANGES_LIMIT,
    shown::Shown,
    sidecar::{
        claim::mark::{
            Holder,
            MARK_OFFSET, //
        },
        command::Command,
        growth::{
            Growth,
            Report,
            State,
            Step,
            PI_BLOCKS_MAX, //
        },
        superblock::Superblock,
        Block,
        BLOCK_BYTES, //
    },
};

/// The memory that the steps of a growth write.
struct Memory {
    /// A block that is being filled.
    block: KBox<Block>,
    pages: Arc<PageBlock>,
}

impl Memory {
    fn new() -> Result<Self> {
        let order = PageBlock::order_for(usize::from(PI_BLOCKS_MAX).saturating_mul(BLOCK_BYTES));
        Ok(Self {
            block: zeroed()?,
            pages: Arc::new(PageBlock::new(order)?, GFP_KERNEL)?,
        })
    }
}

/// The growth of a device.
pub(super) struct Growing {
    growth: Growth,
    /// The superblock that the device is used with.
    superblock: KBox<Superblock>,
    /// The server that has the device open, for the mark beside the superblock.
    holder: Holder,
    /// The memory of a growth that runs.
    memory: Option<Memory>,
}

impl Growing {
    /// Returns the state without a growth, for a device that is used with `superblock`.
    pub(super) const fn new(superblock: KBox<Superblock>, holder: Holder) -> Self {
        Self {
            growth: Growth::new(),
            superblock,
            holder,
            memory: None,
        }
    }

    /// Returns the UUID of the device.
    pub(super) fn uuid(&self) -> &[u8; 16] {
        &self.superblock.uuid
    }

    /// Says that the mark of use is about to be written with all of block 0; returns the superblock
    /// to be written with it, if a growth is writing that.
    pub(super) fn mark_begun(&mut self) -> Option<Superblock> {
        self.growth.mark_begun()
    }

    /// Says that this has ended. The caller makes the engine look for a step.
    pub(super) fn mark_ended(&mut self) {
        self.growth.mark_ended();
    }

    /// Writes to memory what a step writes to the device; returns the memory, and its length in
    /// bytes.
    fn fill(&mut self, volume: &Volume, step: Step) -> Option<(Arc<PageBlock>, usize, u32)> {
        let Memory { block, pages } = self.memory.as_mut()?;
        for index in 0..step.blocks() {
            self.growth.fill(step, index, block, volume.seal(), &Crc);
            if step == Step::Superblock {
                let (mark, _) = block.get_mut(MARK_OFFSET..)?.split_first_chunk_mut()?;
                // Another number than all others have, which count up.
                self.holder.mark(random::number() | 1 << 63, mark, &Crc);
            }
            let at = usize::from(index).saturating_mul(BLOCK_BYTES);
            pages.copy_in(at, &block[..]).ok()?;
        }
        let len = u32::from(step.blocks()).saturating_mul(BLOCK_SIZE);
        Some((pages.clone(), 0, len))
    }
}

/// Returns the number of blocks that the device has now.
fn device_blocks(volume: &Volume) -> u64 {
    volume.device().capacity_sectors() / u64::from(BLOCK_SECTORS)
}

/// Prints the file `grow`.
pub(super) fn show(volume: &Volume, page: &mut ShowBuffer<'_>) -> Result {
    let growing = volume.growing().lock();
    let report = Report {
        growth: &growing.growth,
        layout: &growing.superblock.layout,
        device_blocks: device_blocks(volume),
    };
    write!(page, "{report}")
}

/// Handles `start` or `stop`, written to the file `grow`. Sleeps.
///
/// # Errors
///
/// `EINVAL` for another word, `ENOENT` for a stop of a growth that does not run, those of a start
/// that is refused, with a log line, and `ENOMEM`.
pub(super) fn store(volume: ArcBorrow<'_, Volume>, _: &StoreContext<'_>, written: &str) -> Result {
    let words = ("grow", "start or stop");
    match files::command(&volume, words, written, Command::parse)? {
        Command::Start => start(&volume.into()),
        Command::Stop if stop(&volume, "") => Ok(()),
        Command::Stop => Err(ENOENT),
    }
}

/// Begins a growth.
fn start(volume: &Arc<Volume>) -> Result {
    let memory = Memory::new()?;
    let name = volume.device().name().unwrap_or_default();
    let mut growing = volume.growing().lock();
    let Growing {
        growth, superblock, ..
    } = &mut *growing;
    growth
        .start(superblock, device_blocks(volume))
        .map_err(|refusal| {
            pr_err!("{name}: it does not grow: {}\n", Shown(refusal));
            Error::from(refusal.errno())
        })?;
    let (before, after) = (volume.data_blocks(), growth.layout());
    let after = after.map_or(before, |layout| layout.data_blocks());
    growing.memory = Some(memory);
    volume.set_growing(true);
    drop(growing);
    pr_info!("{name}: growth started: from {before} to {after} data blocks\n");
    Volume::kick(volume);
    Ok(())
}

/// Stops a growth, unless its last write is on the way; returns whether one was stopped.
pub(super) fn stop(volume: &Volume, why: &str) -> bool {
    let is_stopped = volume.growing().lock().growth.stop();
    if is_stopped && CHANGES_LIMIT.allow().is_some() {
        let name = volume.device().name().unwrap_or_default();
        pr_info!("{name}: growth stopped{why}: the device has the size that it had\n");
    }
    is_stopped
}

impl Engine {
    /// Starts the next step of a growth, if there is one.
    pub(super) fn start_growth_step(&mut self, volume: &Arc<Volume>) -> bool {
        volume.is_growing() && self.take_growth_step(volume)
    }

    #[cold]
    #[inline(never)]
    fn take_growth_step(&mut self, volume: &Arc<Volume>) -> bool {
        let mut growing = volume.growing().lock();
        if self.store.has_failed() && growing.growth.fail() {
            let name = volume.device().name().unwrap_or_default();
            pr_err!("{name}: growth failed: the device takes no writes until it is opened again\n");
        }
        let Some(step) = growing.growth.next_step() else {
            if growing.growth.state() != State::Running {
                volume.set_growing(false);
                growing.memory = None;
            }
            return false;
        };
        let place = growing.growth.place(step);
        let range = growing.fill(volume, step);
        drop(growing);
        let event = Event::Grown;
        let fua = match step.is_fua() {
            true => Flags::FUA | Flags::SYNC,
            false => Flags::NONE,
        };
        let how = (Op::Write, Flags::META | fua, 0);
        match step {
            Step::Flush => self.submit_flush(volume, event),
            _ => self.submit_range(volume, event, how, Sector::of(place), range),
        }
        true
    }

    /// The step was taken, or has failed; `was_begun`: the device has got it.
    #[cold]
    #[inline(never)]
    pub(super) fn growth_step_ended(&mut self, volume: &Volume, result: Result, was_begun: bool) {
        let name = volume.device().name().unwrap_or_default();
        let mut growing = volume.growing().lock();
        let step = growing.growth.step();
        let grown = growing.growth.ended(result.is_ok());
        if let Some(superblock) = grown {
            let before = self.layout.data_blocks();
            self.layout = superblock.layout;
            volume.set_data_blocks(&self.layout);
            self.store.grown(self.layout.device_blocks());
            *growing.superblock = superblock;
            let after = volume.data_blocks();
            pr_info!("{name}: grown from {before} to {after} data blocks\n");
        }
        if let (Err(error), Some(step)) = (result, step) {
            self.store.growth_failed(step, was_begun);
            pr_err!(
                "{name}: growth failed at {}: {error:?}: the device is used with the size that it \
                 had{}\n",
                Shown(step),
                step.remainder()
            );
        }
    }
}
