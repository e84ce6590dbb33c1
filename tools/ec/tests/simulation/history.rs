// SPDX-License-Identifier: GPL-2.0

//! The versions that each block may have.

/// The version of a block: 0 for zeroes, else a number that only one write has.
pub(crate) type Version = u64;

#[derive(Clone, Default)]
pub(crate) struct Block {
    /// The version that was acknowledged last.
    pub(crate) current: Version,
    /// The version that a power failure leaves at least.
    floor: Version,
    /// The versions that were issued since, in order: writes of a block do not overlap in time.
    later: Vec<Version>,
    pub(crate) is_in_flight: bool,
}

pub(crate) struct History {
    pub(crate) blocks: Vec<Block>,
    /// The version that was current when the flush in flight began, and the number of `later` that
    /// it covers.
    flushing: Option<Vec<(Version, usize)>>,
}

impl History {
    pub(crate) fn new(blocks: usize) -> Self {
        Self {
            blocks: vec![Block::default(); blocks],
            flushing: None,
        }
    }

    pub(crate) fn issue(&mut self, block: usize, version: Version) {
        let block = &mut self.blocks[block];
        block.later.push(version);
        block.is_in_flight = true;
    }

    pub(crate) fn acknowledge(&mut self, block: usize, version: Version) {
        let block = &mut self.blocks[block];
        block.current = version;
        block.is_in_flight = false;
    }

    /// A write that never began has failed.
    pub(crate) fn refuse(&mut self, block: usize, version: Version) {
        let block = &mut self.blocks[block];
        assert_eq!(block.later.pop(), Some(version));
        block.is_in_flight = false;
    }

    pub(crate) fn begin_flush(&mut self) {
        let covered = |block: &Block| {
            let count = block.later.len() - usize::from(block.is_in_flight);
            (block.current, count)
        };
        self.flushing = Some(self.blocks.iter().map(covered).collect());
    }

    pub(crate) fn end_flush(&mut self) {
        let Some(flushed) = self.flushing.take() else {
            return;
        };
        for (block, (floor, count)) in self.blocks.iter_mut().zip(flushed) {
            block.later.drain(..count);
            block.floor = floor;
        }
    }

    /// Whether a read that began when `then` was current may give `version`.
    pub(crate) fn may_read(&self, block: usize, then: Version, version: Version) -> bool {
        let block = &self.blocks[block];
        version == then || version == block.current || block.later.last() == Some(&version)
    }

    /// After a power failure this was found.
    pub(crate) fn found(&mut self, number: usize, version: Version) -> Result<(), String> {
        let block = &mut self.blocks[number];
        if version != block.floor && !block.later.contains(&version) {
            return Err(format!(
                "block {number} has version {version}: {} was durable, {:?} came later",
                block.floor, block.later
            ));
        }
        *block = Block {
            current: version,
            floor: version,
            later: Vec::new(),
            is_in_flight: false,
        };
        self.flushing = None;
        Ok(())
    }
}
