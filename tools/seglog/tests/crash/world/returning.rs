// SPDX-License-Identifier: GPL-2.0

//! A member returns: it is told, written, resynchronised, and in sync again.

use seglog::{
    collect::Purpose,
    layout::Layout,
    members::Members,
    resync::{
        Resync,
        Step, //
    },
    superblock::Superblock,
    table::Dump,
};

use super::World;
use crate::{
    assembly::{
        hash_of,
        superblock_of,
        Fast, //
    },
    disk::{
        Disk,
        Shape, //
    },
    Mistake,
};

impl World {
    /// Takes a member back: the one that was away, or a new device in its place, or the old one
    /// again.
    pub(super) fn take_back(
        &mut self,
        member: usize,
        is_new: bool,
        shape: &Shape,
        mistake: Mistake,
    ) -> Option<()> {
        // It closes a segment; and it needs room to be resynchronised.
        let is_busy = self.free(Purpose::Write, shape, mistake).is_none()
            || self.is_writing_superblocks()
            || self.telling.is_some()
            || !self.log.failing().is_empty();
        let live = self.log.live();
        let survivor = live.iter().next().and_then(|live| self.superblocks[live]);
        let survivor = survivor.filter(|_| !is_busy)?;
        let crc = Fast(mistake);
        self.returns += 1;
        let old = self.shelf.take().filter(|(of, _)| is_new && *of == member);
        if let Some((_, old)) = old {
            self.disks[member] = old;
        } else if is_new {
            let id = hash_of(&(&self.disks, self.next_io));
            let own = survivor.replacement(member, id);
            let disk = &mut self.disks[member];
            self.shelf = Some((member, disk.clone()));
            *disk = Disk::new(shape);
            disk.begin(shape, Layout::slot(own.slot()), &own.bytes(&crc), 1);
            disk.end(1, true);
        }
        if mistake != Mistake::TakenBackWithIo {
            self.disks[member].arrive();
            if mistake != Mistake::ReturnedUnflushed {
                // A superblock may be among what has arrived: the other slot is overwritten next.
                self.disks[member].begin_flush(1);
                self.disks[member].end_flush(1);
            }
        }
        let own = superblock_of(shape, &self.disks[member], &crc)?;
        let is_known = match mistake {
            Mistake::NewDeviceTakenForTheOld => own.devices[member].id != 0,
            Mistake::OldDeviceTakenForTheNew => own.devices[member].id == 0,
            _ => false,
        };
        let devices = if is_known {
            survivor.devices
        } else {
            let next = self.log.cursor().segment_sequence + 1;
            survivor.devices_with(&own, next)
        };
        let since = devices[member].since;
        self.lose(Members::of(member), 0..since, shape);
        let start = self.start;
        self.superblocks[member] = Some(Superblock { start, ..own });
        self.telling = Some(member);
        let told = if mistake == Mistake::ReturnedUntold {
            live
        } else {
            live.or(Members::of(member))
        };
        let epoch = self.epoch;
        let next = |old: &Superblock| old.with_devices(devices, epoch);
        self.write_superblocks(next, told, shape, mistake);
        Some(())
    }

    /// Returns what the member that returns needs next.
    pub(super) fn resync_step(&self) -> Option<Step> {
        let mut resync = self.resync?;
        let dumping = self.dump.as_ref().map(Dump::start);
        Some(resync.step(&self.log, &self.segments, (&self.start, dumping.as_ref())))
    }

    /// Goes on with a member that returns.
    pub(super) fn go_on_with_return(&mut self, shape: &Shape, mistake: Mistake) {
        if self.is_writing_superblocks() {
            return;
        }
        if let Some(member) = self.telling.take() {
            self.log.take_back(member);
            self.resync = Some(Resync::begin(member, &self.log));
        }
        let Some(mut resync) = self.resync else {
            return;
        };
        let dumping = self.dump.as_ref().map(Dump::start);
        let held = (&self.start, dumping.as_ref());
        let mut step = resync.step(&self.log, &self.segments, held);
        self.resync = Some(resync);
        let is_early = match mistake {
            Mistake::JoinedBeforeCollected => step == Step::Collect,
            Mistake::JoinedBeforeDump => step == Step::Dump,
            _ => false,
        };
        if is_early {
            step = Step::Join;
        }
        match step {
            // Collecting does that.
            Step::Wait | Step::Batch | Step::Collect => {}
            Step::Dump => {
                let _ = self.begin_dump();
            }
            Step::Over => self.resync = None,
            Step::Join => {
                self.resync = None;
                let member = resync.member();
                self.log.join(member);
                let id = hash_of(&(self.epoch.id, member, self.next_io));
                self.epoch = self.epoch.with(id, member);
                let epoch = self.epoch;
                let written = self.log.written_members();
                self.write_superblocks(|old| old.with_epoch(epoch), written, shape, mistake);
            }
        }
    }
}
