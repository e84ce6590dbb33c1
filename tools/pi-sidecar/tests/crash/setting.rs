// SPDX-License-Identifier: GPL-2.0

//! The setting of a run, which does not change in it: the device, and what the application does.

use pi_sidecar::volume::Volume;
use proto::sidecar::{
    queue::Kind,
    record::Unit,
    Block,
    BLOCK_BYTES, //
};

use crate::{
    disk::Fast,
    recover::Seen,
    Mistake, //
};

/// An operation of the application, which does them in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Op {
    /// Writes a number of blocks.
    Write(u64, u16),
    /// Writes a block with FUA.
    Fua(u64),
    Discard(u64),
    Flush,
}

impl Op {
    pub(crate) fn request(self) -> (Kind, u64, u16) {
        match self {
            Self::Write(block, blocks) => (Kind::Write { fua: false }, block, blocks),
            Self::Fua(block) => (Kind::Write { fua: true }, block, 1),
            Self::Discard(block) => (Kind::Discard, block, 1),
            Self::Flush => (Kind::Flush, 0, 0),
        }
    }
}

/// The faults of a run: one at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Faults {
    None,
    /// A write or a flush that fails, and says so.
    Failures,
    /// A mark of use that comes late, with the superblock from before a growth.
    LateMark,
    All,
}

/// The setting of a run, which does not change in it.
pub(crate) struct Setting {
    pub(crate) volume: Volume<Fast>,
    /// The unit of the device.
    pub(crate) unit: Unit,
    pub(crate) data: Vec<u64>,
    pub(crate) ops: Vec<Op>,
    /// The answers that readers got for each block before the run.
    pub(crate) base: Vec<Seen>,
    /// Added to the numbers of versions.
    pub(crate) base_version: u32,
    pub(crate) is_volatile: bool,
    /// The device has more blocks than it uses, and an administrator lets it grow at any time.
    pub(crate) grows: bool,
    /// The data blocks were zeroes when the device was formatted, and their tuples say so.
    pub(crate) is_zeroed: bool,
    /// The device may rest between requests.
    pub(crate) pauses: bool,
    /// The device may rest for longer between them, and empty its journal.
    pub(crate) drains: bool,
    pub(crate) faults: Faults,
    /// The places in which there may be one.
    pub(crate) places: usize,
    pub(crate) mistake: Mistake,
}

/// The content of a block of data.
pub(crate) fn content(version: u32) -> Block {
    let mut block = [0; BLOCK_BYTES];
    for bytes in block.chunks_exact_mut(4) {
        bytes.copy_from_slice(&version.to_le_bytes());
    }
    block
}

impl Setting {
    /// The version that an operation writes to the block at `offset` in it.
    pub(crate) fn version(&self, op: usize) -> u32 {
        self.base_version + op as u32 + 1
    }

    /// The operations that change a block.
    pub(crate) fn changes(&self, block: u64) -> impl DoubleEndedIterator<Item = usize> + '_ {
        let changes = move |op: &Op| {
            let (_, first, blocks) = op.request();
            (first..first + u64::from(blocks)).contains(&block)
        };
        let ops = self.ops.iter().enumerate();
        ops.filter(move |(_, op)| changes(op))
            .map(|(number, _)| number)
    }
}
