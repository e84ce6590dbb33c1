// SPDX-License-Identifier: GPL-2.0

//! The growth of a device: it takes the space that it has got since it was formatted, or has grown
//! last.
//!
//! ```text
//! new PI blocks ── flush ── copy of the superblock (FUA) ── superblock (FUA) ── new layout
//! ```
//!
//! Nothing that exists is moved or overwritten but the superblock, one sector, last: a crash before
//! leaves the device as it was, and one after has a device that has grown. The old copy of the
//! superblock stays where it is, behind the old last segment. The new one is durable only after the
//! PI blocks that it describes, so a repair from it is right as well.
//!
//! Requests go on meanwhile: they use the old layout until the superblock is durable, and nothing
//! of the new space before. [`Growth`] is driven by the server for a device in use, and by the
//! program for one that is not.

use core::fmt;

use ferro_proto::errno::Errno;

use super::{
    group::{
        self,
        Blank, //
    },
    layout::{
        Layout,
        Misfit,
        SUPERBLOCK, //
    },
    superblock::Superblock,
    tuple::Seal,
    Block,
    Checksum,
    BLOCK_SECTORS, //
};

/// The maximum number of PI blocks that are written together.
pub const PI_BLOCKS_MAX: u16 = 16;

/// The reason why a device does not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A growth runs, or the last step of one that was stopped has not ended.
    Running,
    /// The superblock of a growth to another size may be there, though its write has failed: what
    /// that describes is not written over.
    Unknown,
    /// The device has as many blocks as before.
    NotGrown(u64),
    /// The device has fewer blocks than before.
    Shrunk {
        /// The number of blocks that the sidecar uses.
        expected: u64,
        /// The number of blocks now.
        found: u64,
    },
    /// The new space has no room for a group.
    TooSmall {
        /// The number of blocks now.
        found: u64,
        /// The number of blocks from which on it can grow.
        needed: u64,
    },
    /// The layout is not possible.
    Layout(Misfit),
}

impl Refusal {
    /// Returns the error of the administrator's command.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Running | Self::Unknown => Errno::EBUSY,
            Self::NotGrown(_) | Self::TooSmall { .. } => Errno::ENOSPC,
            Self::Shrunk { .. } => Errno::EUCLEAN,
            Self::Layout(_) => Errno::EFBIG,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running => f.write_str("it is growing"),
            Self::Unknown => f.write_str(
                "it may have grown to another size, when a write of the superblock failed: unmap \
                 it in all sessions, and map it again",
            ),
            Self::NotGrown(blocks) => write!(
                f,
                "it has {blocks} blocks of 4096 bytes, as before: enlarge the device first"
            ),
            Self::Shrunk { expected, found } => write!(
                f,
                "it had {expected} blocks of 4096 bytes, and has {found}: give it back what it had"
            ),
            Self::TooSmall { found, needed } => write!(
                f,
                "it has {found} blocks of 4096 bytes, and needs {needed} to take 1 MiB of data more"
            ),
            Self::Layout(misfit) => misfit.fmt(f),
        }
    }
}

/// Returns the layout of a device that has `device_blocks` blocks now, when it has grown.
///
/// # Errors
///
/// Returns why it cannot grow.
pub fn plan(layout: &Layout, device_blocks: u64) -> Result<Layout, Refusal> {
    let expected = layout.device_blocks();
    if device_blocks == expected {
        return Err(Refusal::NotGrown(expected));
    }
    if device_blocks < expected {
        let found = device_blocks;
        return Err(Refusal::Shrunk { expected, found });
    }
    layout.grown(device_blocks).map_err(|misfit| match misfit {
        Misfit::TooSmall => Refusal::TooSmall {
            found: device_blocks,
            needed: layout.grown_blocks_min(),
        },
        misfit => Refusal::Layout(misfit),
    })
}

/// The state of a growth, as the file `grow` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// No growth was asked for since the device was opened.
    Idle,
    /// The growth runs.
    Running,
    /// The growth was stopped: the device is as before.
    Stopped,
    /// A step has failed: the device is as before. If it was the last one, that may be on the
    /// device, and be seen when it is opened next.
    Failed,
    /// The device has grown.
    Finished,
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Idle => "idle",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
            Self::Finished => "finished",
        })
    }
}

/// A step: one IO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Write PI blocks of groups without data; they are contiguous on the device.
    PiBlocks {
        /// The first group.
        first: u64,
        /// The number of groups: 1 to [`PI_BLOCKS_MAX`].
        count: u16,
    },
    /// Flush the device's cache.
    Flush,
    /// Write the copy of the superblock, with FUA.
    Copy,
    /// Write the superblock, with FUA.
    Superblock,
}

impl Step {
    /// Returns the number of blocks that it writes.
    pub const fn blocks(self) -> u16 {
        match self {
            Self::PiBlocks { count, .. } => count,
            Self::Flush => 0,
            Self::Copy | Self::Superblock => 1,
        }
    }

    /// Returns whether a failure ends the writes of clients as well: a flush is one of all that is
    /// in the device's cache, as is what a device with a cache does behind a step with
    /// [FUA](Self::is_fua). What the other steps write is used only if they succeed.
    pub const fn is_for_all(self) -> bool {
        matches!(self, Self::Flush)
    }

    /// Returns what it may have left if it has failed, for the end of a line of the log. A write
    /// that has failed may be there; one of the superblock as well if it was not begun, as the mark
    /// of use may have been written with the new one meanwhile.
    pub const fn remainder(self) -> &'static str {
        match self {
            Self::Superblock => ", until it is opened again: then it may have grown",
            Self::PiBlocks { .. } | Self::Flush | Self::Copy => "",
        }
    }

    /// Returns whether it writes with FUA.
    pub const fn is_fua(self) -> bool {
        matches!(self, Self::Copy | Self::Superblock)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::PiBlocks { .. } => "the tuples of the new blocks",
            Self::Flush => "the flush of the tuples",
            Self::Copy => "the new copy of the superblock",
            Self::Superblock => "the superblock",
        })
    }
}

/// The layout that the device will have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Target {
    superblock: Superblock,
    /// The groups that it has got, from this one on.
    first: u64,
    /// The next step: the first group whose PI block was not written, or a step after those.
    next: Step,
}

/// The growth of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Growth {
    state: State,
    target: Option<Target>,
    /// The step that is being taken.
    step: Option<Step>,
    /// The layout of a superblock of which it is not known whether it is there.
    unknown: Option<Layout>,
    /// A mark of use is on its way, with all of block 0.
    is_marking: bool,
}

impl Growth {
    /// Returns the state without a growth.
    pub const fn new() -> Self {
        Self {
            state: State::Idle,
            target: None,
            step: None,
            unknown: None,
            is_marking: false,
        }
    }

    /// Begins the growth of a device with `superblock`, which has `device_blocks` blocks now.
    ///
    /// # Errors
    ///
    /// Returns why it cannot grow.
    pub fn start(&mut self, superblock: &Superblock, device_blocks: u64) -> Result<(), Refusal> {
        if self.state == State::Running || self.step.is_some() {
            return Err(Refusal::Running);
        }
        let layout = self.plan(&superblock.layout, device_blocks)?;
        let first = superblock.layout.groups();
        *self = Self {
            state: State::Running,
            target: Some(Target {
                superblock: Superblock {
                    layout,
                    ..*superblock
                },
                first,
                next: Step::PiBlocks { first, count: 0 },
            }),
            step: None,
            unknown: self.unknown,
            is_marking: self.is_marking,
        };
        Ok(())
    }

    /// Returns the layout of the device when it has grown from `layout` to `device_blocks` blocks.
    /// One that may have grown to another size does not: tuples would be written over others.
    fn plan(&self, layout: &Layout, device_blocks: u64) -> Result<Layout, Refusal> {
        let planned = plan(layout, device_blocks)?;
        match self.unknown {
            Some(unknown) if unknown != planned => Err(Refusal::Unknown),
            _ => Ok(planned),
        }
    }

    /// Stops the growth; returns `false` if none runs, or it is too late: its last write is on the
    /// way.
    pub fn stop(&mut self) -> bool {
        let can_stop = self.state == State::Running && self.step != Some(Step::Superblock);
        if can_stop {
            self.state = State::Stopped;
        }
        can_stop
    }

    /// The device takes no writes: a growth that runs has failed. Returns whether one runs.
    pub fn fail(&mut self) -> bool {
        let is_running = self.state == State::Running;
        if is_running {
            self.state = State::Failed;
        }
        is_running
    }

    /// Returns the step to be taken now; ends with [`ended`](Self::ended).
    pub fn next_step(&mut self) -> Option<Step> {
        if self.state != State::Running || self.step.is_some() {
            return None;
        }
        let target = self.target.as_ref()?;
        let step = match target.next {
            Step::PiBlocks { first, .. } => {
                let left = target.superblock.layout.groups().saturating_sub(first);
                let count = u16::try_from(left).unwrap_or(u16::MAX).min(PI_BLOCKS_MAX);
                Step::PiBlocks { first, count }
            }
            Step::Superblock if self.is_marking => return None,
            step => step,
        };
        self.step = Some(step);
        Some(step)
    }

    /// Returns the first block of the device that a step writes; `None` for the flush.
    pub fn place(&self, step: Step) -> Option<u64> {
        let layout = &self.target.as_ref()?.superblock.layout;
        match step {
            Step::PiBlocks { first, .. } => layout.pi_block(first),
            Step::Flush => None,
            Step::Copy => Some(layout.copy()),
            Step::Superblock => Some(SUPERBLOCK),
        }
    }

    /// Writes what a step writes to the block `index` of those that it writes.
    pub fn fill(
        &self,
        step: Step,
        index: u16,
        block: &mut Block,
        seal: &Seal,
        crc: &impl Checksum,
    ) {
        let target = self.target.as_ref();
        match (step, self.place(step), target) {
            (Step::PiBlocks { first, .. }, ..) => {
                // The new space was not made zeroes.
                let group = first.saturating_add(index.into());
                group::format(block, group, seal, Blank::Unknown);
            }
            (Step::Copy | Step::Superblock, Some(here), Some(target)) => {
                target.superblock.write(block, here, crc);
            }
            _ => block.fill(0),
        }
    }

    /// The step has ended. Returns the superblock that is valid from now on, if it was the last
    /// one.
    pub fn ended(&mut self, is_ok: bool) -> Option<Superblock> {
        let step = self.step.take()?;
        let target = self.target.as_mut()?;
        if step == Step::Superblock {
            self.unknown = (!is_ok).then_some(target.superblock.layout);
        }
        if !is_ok {
            self.fail();
            return None;
        }
        target.next = match step {
            Step::PiBlocks { first, count } => {
                let first = first.saturating_add(count.into());
                if first < target.superblock.layout.groups() {
                    Step::PiBlocks { first, count: 0 }
                } else {
                    Step::Flush
                }
            }
            Step::Flush => Step::Copy,
            Step::Copy | Step::Superblock => Step::Superblock,
        };
        let has_grown = step == Step::Superblock;
        if has_grown {
            self.state = State::Finished;
        }
        has_grown.then_some(target.superblock)
    }

    /// Returns the step that is being taken.
    pub const fn step(&self) -> Option<Step> {
        self.step
    }

    /// Returns the superblock that is being written: all that is described is durable, so who
    /// writes block 0 at the same time writes the same one. It is valid when that step has ended.
    pub fn ending(&self) -> Option<&Superblock> {
        let is_ending = self.step == Some(Step::Superblock);
        let target = self.target.as_ref().filter(|_| is_ending)?;
        Some(&target.superblock)
    }

    /// The mark of use is about to be read and written anew with all of block 0, which may last
    /// longer than the lease. Returns the superblock to be written with it, if a growth is writing
    /// that; it begins no such write before [`mark_ended`](Self::mark_ended).
    pub fn mark_begun(&mut self) -> Option<Superblock> {
        self.is_marking = true;
        self.ending().copied()
    }

    /// The mark was written, or has failed: there may be a step to be taken.
    pub fn mark_ended(&mut self) {
        self.is_marking = false;
    }

    /// Returns how far it is.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Returns the layout of the device when it has grown, if a growth was begun.
    pub fn layout(&self) -> Option<&Layout> {
        Some(&self.target.as_ref()?.superblock.layout)
    }

    /// Returns the number of PI blocks that were written, and of those to be written.
    pub fn progress(&self) -> (u64, u64) {
        let Some(target) = &self.target else {
            return (0, 0);
        };
        let all = target.superblock.layout.groups();
        let next = match target.next {
            Step::PiBlocks { first, .. } => first,
            _ => all,
        };
        let since = |group: u64| group.saturating_sub(target.first);
        (since(next), since(all))
    }
}

impl Default for Growth {
    fn default() -> Self {
        Self::new()
    }
}

/// The content of the file `grow`: a line for each value, and what to do next.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// The growth.
    pub growth: &'a Growth,
    /// The layout that the device is used with.
    pub layout: &'a Layout,
    /// The number of blocks that the device has now.
    pub device_blocks: u64,
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.growth.state();
        let (written, all) = self.growth.progress();
        let planned = self.growth.plan(self.layout, self.device_blocks);
        let blocks = self.layout.data_blocks();
        writeln!(f, "state {state}")?;
        writeln!(f, "blocks {blocks}")?;
        writeln!(f, "device_blocks {}", self.layout.device_blocks())?;
        writeln!(f, "device_has {}", self.device_blocks)?;
        writeln!(f, "tuple_blocks {all}")?;
        writeln!(f, "written {written}")?;
        match (state, planned) {
            (State::Running, _) => writeln!(f, "next wait, or: echo stop > grow"),
            (_, Ok(grown)) => {
                let gained = grown.data_blocks().saturating_sub(blocks);
                writeln!(f, "next echo start > grow, for {gained} blocks more")
            }
            (State::Finished, Err(Refusal::NotGrown(_))) => {
                let sectors = blocks.saturating_mul(BLOCK_SECTORS.into());
                writeln!(
                    f,
                    "next at each client: echo {sectors} > /sys/block/rnbd<N>/rnbd/resize"
                )
            }
            (_, Err(refusal)) => writeln!(f, "next nothing: {refusal}"),
        }
    }
}
