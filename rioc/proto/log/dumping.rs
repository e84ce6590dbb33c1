// SPDX-License-Identifier: GPL-2.0

//! Dumps of the entries.

use seglog::{
    layout::Layout,
    table::{
        write_page,
        Dump,
        Step, //
    },
    Checksum, //
};

use super::{
    super::{
        entry::Entry,
        medium::{
            Actions,
            Io,
            Medium, //
        },
    },
    assembly::Words,
    LogMemory,
    Logged, //
};

/// The segments of which the next assembly may have to follow one.
const FOLLOWED_SHARE: u64 = 32;
/// The segments that it may have to follow in any log.
const FOLLOWED_MIN: u64 = 4;

impl<M: LogMemory> Logged<M> {
    /// Whether a dump is to begin: an assembly would have to follow too much, or an operation waits
    /// for a segment, and some may be free behind it.
    fn wants_dump(&self) -> bool {
        let uses = self.log.cursor().segment_sequence;
        let followed = uses.saturating_sub(self.start.cursor.segment_sequence);
        let share = u64::from(self.layout.parts().segments) / FOLLOWED_SHARE;
        let is_due = followed > share.max(FOLLOWED_MIN) || (self.is_blocked && followed > 0);
        is_due && Dump::begin(&self.log, &self.start).start().cursor != self.start.cursor
    }

    /// Takes the next step of a dump, if none is in flight.
    pub(super) fn go_on_with_dump(
        &mut self,
        entry: impl Fn(u32) -> Entry,
        (actions, crc): (&mut impl Actions, &impl Checksum),
    ) {
        if self.is_dumping || self.is_stopped() {
            return;
        }
        if self.dump.is_none() && self.wants_dump() {
            self.dump = Some((Dump::begin(&self.log, &self.start), 0));
        }
        let Some((mut dump, mut knows)) = self.dump.clone() else {
            return;
        };
        self.is_dumping = true;
        match dump.step(&self.layout) {
            Step::Page(page) => {
                let words = Words {
                    entry,
                    entries: self.layout.parts().entries,
                    uses: self.uses.as_mut(),
                };
                let number = (page, dump.generation());
                let with = (&self.layout, self.tag);
                write_page(actions.page(), number, &words, with, crc);
                knows = self.last();
                actions.write_page(self.layout.page(dump.area(), page));
            }
            // A crash may take batches of which pages know: their entries would be of operations
            // that were never carried out.
            Step::Flush if self.log.acknowledged() < knows => {
                self.is_dumping = false;
                return;
            }
            Step::Flush => actions.flush(Io::Dump),
            Step::Superblocks(start) => {
                self.superblock = self.superblock.with_start(start);
                let at = Layout::slot(self.superblock.slot());
                actions.write_superblock(at, &self.superblock.bytes(crc));
            }
            Step::Done => {
                self.is_dumping = false;
                self.start = dump.start();
                self.dump = None;
                self.is_blocked = false;
                return;
            }
        }
        self.dump = Some((dump, knows));
    }
}
