// SPDX-License-Identifier: GPL-2.0

//! Dumps of the table, and the writes of superblocks.

use seglog::{
    layout::Layout,
    members::Members,
    superblock::Superblock,
    table::{
        page_members,
        write_page,
        Dump,
        Step, //
    },
    Checksum, //
};

use super::{
    Actions,
    Array,
    Io,
    Memory, //
};

impl<M: Memory> Array<M> {
    /// Writes a superblock to members. No other one is being written.
    pub(super) fn write_superblocks(
        &mut self,
        next: impl Fn(&Superblock) -> Superblock,
        to: Members,
        (actions, crc): (&mut impl Actions, &impl Checksum),
    ) {
        self.superblocks_pending = Members::NONE;
        for member in to.iter() {
            let Some(Some(superblock)) = self.superblocks.get_mut(member) else {
                continue;
            };
            *superblock = next(superblock);
            let at = Layout::slot(superblock.slot());
            let bytes = superblock.bytes(crc);
            self.superblocks_pending = self.superblocks_pending.or(Members::of(member));
            self.begin_io(member);
            actions.write_superblock(member, at, &bytes);
        }
    }

    /// Whether a superblock is being written.
    pub(super) fn is_writing_superblocks(&self) -> bool {
        !self.superblocks_pending.is_empty()
    }

    /// Begins a dump, if none is in progress; whether one is now.
    pub fn begin_dump(&mut self) -> bool {
        if self.is_stopped() {
            return false;
        }
        if self.dump.is_none() {
            self.dump = Some(Dump::begin(&self.log, &self.start));
        }
        true
    }

    /// Whether a dump would name a later start.
    pub(super) fn dump_helps(&self) -> bool {
        Dump::begin(&self.log, &self.start).start().cursor != self.start.cursor
    }

    pub(super) fn go_on_with_dump(&mut self, actions: &mut impl Actions, crc: &impl Checksum) {
        let is_busy = self.is_writing_superblocks()
            || !self.dump_pending.is_empty()
            || !self.log.failing().is_empty();
        if is_busy {
            return;
        }
        let Some(mut dump) = self.dump.take() else {
            return;
        };
        let written = self.log.written_members();
        match dump.step(&self.layout) {
            Step::Page(page) => {
                let number = (page, dump.generation());
                let with = (&self.layout, self.tag);
                write_page(actions.page(), number, &self.words, with, crc);
                let at = self.layout.page(dump.area(), page);
                self.dump_pending = page_members(page).and(written);
                for member in self.dump_pending.iter() {
                    self.begin_io(member);
                    actions.write_page(member, at);
                }
            }
            Step::Flush => {
                self.dump_pending = written;
                for member in written.iter() {
                    self.begin_io(member);
                    actions.flush(member, Io::DumpFlush);
                }
            }
            Step::Superblocks(start) => {
                let next = |old: &Superblock| old.with_start(start);
                self.write_superblocks(next, written, (actions, crc));
            }
            Step::Done => {
                self.start = dump.start();
                self.is_low = self.is_running_low();
                return;
            }
        }
        self.dump = Some(dump);
    }
}
