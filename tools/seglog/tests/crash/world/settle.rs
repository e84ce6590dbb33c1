// SPDX-License-Identifier: GPL-2.0

//! Steps that follow by themselves when an IO has ended: epochs, acknowledgements, those of a dump.

use seglog::{
    layout::Layout,
    members::Members,
    superblock::Superblock,
    table::{
        page_members,
        write_page,
        Step, //
    },
};

use super::{
    Kinds,
    World, //
};
use crate::{
    assembly::{
        hash_of,
        Fast, //
    },
    disk::Shape,
    setting::{
        BLOCKS,
        UNIT_BYTES, //
    },
    Mistake,
};

impl World {
    /// Writes a superblock to members.
    pub(super) fn write_superblocks(
        &mut self,
        next: impl Fn(&Superblock) -> Superblock,
        to: Members,
        shape: &Shape,
        mistake: Mistake,
    ) {
        for member in to.iter() {
            let superblock = next(&self.superblocks[member].unwrap());
            self.superblocks[member] = Some(superblock);
            let io = self.begin_io(member, Kinds::Superblock);
            let is_one = mistake == Mistake::OneSlot;
            let at = if is_one {
                0
            } else {
                Layout::slot(superblock.slot())
            };
            let bytes = superblock.bytes(&Fast(mistake));
            self.disks[member].begin(shape, at, &bytes, io);
        }
    }

    pub(super) fn is_writing_superblocks(&self) -> bool {
        self.ios.iter().any(|io| io.kind == Kinds::Superblock)
    }

    /// Does what follows by itself.
    pub(super) fn settle(&mut self, shape: &Shape, mistake: Mistake) {
        let (failing, live) = (self.log.failing(), self.log.live());
        if !failing.is_empty() && live.count() >= 2 {
            if !self.epoch_begun && !self.is_writing_superblocks() {
                self.epoch_begun = true;
                self.epoch = self
                    .epoch
                    .without(hash_of(&(self.epoch.id, failing.bits())), failing);
                let epoch = self.epoch;
                self.write_superblocks(|old| old.with_epoch(epoch), live, shape, mistake);
            }
            let is_durable = self.epoch_begun && !self.is_writing_superblocks();
            if is_durable || mistake == Mistake::EpochNotWaitedFor {
                self.log.epoch_is_durable(failing);
                self.epoch_begun = false;
            }
        }
        while let Some(acknowledged) = self.log.acknowledge() {
            let sequence = acknowledged.sequence;
            let batch = self.batches.remove(0);
            assert_eq!(batch.sequence, sequence);
            for block in 0..BLOCKS {
                let (old, new) = (self.table.entry(block), batch.table.entry(block));
                if old != new {
                    self.segments.assign((old, new), sequence, &shape.layout);
                }
            }
            self.segments.acknowledge(batch.segment, sequence);
            self.table = batch.table;
        }
        if let Some(durable) = self.log.end_flush() {
            self.history.forget(durable);
        }
        self.go_on_with_dump(shape, mistake);
        self.go_on_with_return(shape, mistake);
        // It may need one that begins now.
        self.go_on_with_dump(shape, mistake);
    }

    fn go_on_with_dump(&mut self, shape: &Shape, mistake: Mistake) {
        let is_busy = self.is_writing_superblocks() || !self.log.failing().is_empty();
        if is_busy || self.ios.iter().any(|io| io.kind.is_of_dump()) {
            return;
        }
        let Some(mut dump) = self.dump.take() else {
            return;
        };
        let mut step = dump.step(&shape.layout);
        if step == Step::Flush && mistake == Mistake::DumpFlushLeftOut {
            step = dump.step(&shape.layout);
        }
        let written = self.log.written_members();
        match step {
            Step::Page(page) => {
                let mut bytes = [0; UNIT_BYTES as usize];
                let tag = self.superblocks.iter().flatten().next().unwrap().tag;
                let number = (page, dump.generation());
                let with = (&shape.layout, tag);
                write_page(&mut bytes, number, &self.table, with, &Fast(mistake));
                let is_one = mistake == Mistake::OneArea;
                let at = shape
                    .layout
                    .page(if is_one { 0 } else { dump.area() }, page);
                for member in page_members(page).and(written).iter() {
                    let io = self.begin_io(member, Kinds::Page);
                    self.disks[member].begin(shape, at, &bytes, io);
                }
            }
            Step::Flush => {
                for member in written.iter() {
                    let io = self.begin_io(member, Kinds::DumpFlush);
                    self.disks[member].begin_flush(io);
                }
            }
            Step::Superblocks(mut start) => {
                if mistake == Mistake::DumpStartTooNew {
                    start.cursor = *self.log.cursor();
                }
                self.write_superblocks(|old| old.with_start(start), written, shape, mistake);
            }
            Step::Done => {
                self.start = dump.start();
                return;
            }
        }
        self.dump = Some(dump);
    }
}
