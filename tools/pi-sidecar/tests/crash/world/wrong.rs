// SPDX-License-Identifier: GPL-2.0

//! Faults of the device, and mistakes of its users.

use proto::sidecar::{
    queue::{
        Kind,
        Ticket, //
    },
    record::{
        Builder,
        Entry,
        Head,
        Record, //
    },
    store::{
        Action,
        Memory, //
    },
    superblock::Version,
    tuple::Tuple,
    Block,
    Checksum,
    BLOCK_BYTES, //
};

use super::{
    Event,
    Progress,
    Purpose,
    World,
    STORE, //
};
use crate::{
    disk::{
        visible,
        Fast,
        Shape,
        TINY_BYTES, //
    },
    setting::{
        Faults,
        Setting, //
    },
    Mistake, //
};

/// The part of a failed write that is on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Left {
    Nothing,
    Part,
    All,
}

/// The loss of a volatile cache when a flush fails, or the one behind a write with FUA, which are
/// told so once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Loss {
    Nothing,
    /// All that was written, and not flushed.
    All,
    /// All of that, and what is being written, though that ends well.
    More,
    /// One of the writes that have ended, by its number; the cache keeps the others.
    One(usize),
    /// All of these but one.
    AllBut(usize),
}

/// The fault of a run. No run has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Fault {
    /// A write was acknowledged, and is nowhere: at a place, of an operation if it is of data.
    Lost(usize, Option<usize>),
    /// A write or a flush has failed, and has said so.
    Failed,
    /// A write has failed, and what it has left is not read back at first, as the lease has ended.
    FailedUnseen { is_over: bool },
    /// The next reading of a PI block fails, or has failed.
    NoPiBlock { is_over: bool },
    /// The next IO of the store is not begun, or was not, as the lease has ended.
    Refused { is_over: bool },
    /// The superblock is that from before the growth, or will be.
    LateMark,
    /// A bit of a block has changed.
    Changed(usize),
}

impl World {
    /// Returns what a failure can take with it now: nothing, all, or some of what the cache has.
    fn losses(&self) -> Vec<Loss> {
        let writes = self.writes.iter().enumerate();
        let ended: Vec<_> = writes.filter(|(_, write)| write.is_done).collect();
        let mut losses = vec![Loss::Nothing, Loss::All, Loss::More];
        if ended.len() > 1 {
            losses.extend(ended.iter().map(|(number, _)| Loss::One(*number)));
        }
        if ended.len() > 2 {
            losses.extend(ended.iter().map(|(number, _)| Loss::AllBut(*number)));
        }
        losses
    }

    /// The faults that there can be now.
    pub(super) fn add_faults(&self, setting: &Setting, events: &mut Vec<Event>) {
        if setting.faults == Faults::LateMark {
            return events.push(Event::MarkComes);
        }
        let running = self.writes.iter().enumerate();
        for (number, _) in running.filter(|(_, write)| !write.is_done) {
            let failures = [Left::Nothing, Left::Part, Left::All];
            events.extend(failures.map(|left| Event::WriteFails(number, left)));
            let (purpose, fua) = self.purposes[number];
            if matches!(purpose, Purpose::Data(_)) {
                events.extend(failures.map(|left| Event::WriteFailsUnseen(number, left)));
            }
            if fua && setting.is_volatile {
                let losses = self.losses();
                events.extend(losses.into_iter().map(|loss| Event::FuaFails(number, loss)));
            }
            if setting.faults == Faults::All {
                events.push(Event::WriteIsLost(number));
            }
        }
        if self.flushing[STORE].is_some() {
            events.extend(self.losses().into_iter().map(Event::FlushFails));
        }
        events.push(Event::IsRefused);
        if setting.faults != Faults::All {
            return;
        }
        if self.progress.iter().all(|p| *p == Progress::Waiting) {
            events.push(Event::NoPiBlock);
        }
        events.extend((0..setting.places).map(Event::BlockChanges));
    }

    /// Returns whether an IO is not begun. Until the next event the device is not to be used.
    pub(super) fn is_refused(&mut self, action: &Action) -> bool {
        let is_read_back = matches!(action, Action::ReadBack(_));
        let is_over = match self.fault {
            Some(Fault::FailedUnseen { is_over }) if is_read_back => is_over,
            Some(Fault::Refused { is_over }) => is_over,
            _ => true,
        };
        if is_over {
            return false;
        }
        match *action {
            Action::ReadPiBlock { slot, .. } => self.store.pi_block_read(slot, false),
            Action::WriteRecord { .. } => self.store.record_refused(),
            Action::Data { ticket, .. } => self.store.data_refused(ticket, &mut self.pages),
            Action::WriteBack { slot, .. } => self.store.write_back_refused(slot),
            Action::Flush => self.store.flush_refused(),
            Action::ReadBack(ticket) => self.store.read_back_refused(ticket),
            Action::Answer { .. } => return false,
        }
        self.fault = Some(match self.fault {
            Some(Fault::FailedUnseen { .. }) => Fault::FailedUnseen { is_over: true },
            _ => Fault::Refused { is_over: true },
        });
        self.store.permit(false);
        true
    }

    /// A write is acknowledged and nowhere.
    pub(super) fn write_is_lost(&mut self, number: usize) {
        let (purpose, _) = self.purposes[number];
        let op = match purpose {
            Purpose::Data(ticket) => Some(self.op_of(ticket)),
            _ => None,
        };
        self.fault = Some(Fault::Lost(self.writes[number].place, op));
        self.remove(number);
        self.ended(purpose, true);
    }

    /// A write ends with an error.
    pub(super) fn write_fails(
        &mut self,
        setting: &Setting,
        shape: &mut Shape,
        number: usize,
        left: Left,
    ) {
        let (purpose, _) = self.purposes[number];
        self.fault = Some(Fault::Failed);
        match left {
            Left::Nothing => {
                self.remove(number);
            }
            Left::Part => {
                self.writes[number].parts.truncate(1);
                self.writes[number].is_done = true;
            }
            Left::All => self.writes[number].is_done = true,
        }
        if left != Left::Nothing && !setting.is_volatile {
            self.apply(shape, number);
        }
        self.ended(purpose, false);
    }

    /// A flush of the store ends with an error.
    pub(super) fn flush_fails(&mut self, loss: Loss) {
        self.fault = Some(Fault::Failed);
        self.flushing[STORE] = None;
        self.lose(loss, None);
        self.store.flushed(false);
    }

    /// A write with FUA ends with an error: its data are lost as well.
    pub(super) fn fua_fails(&mut self, number: usize, loss: Loss) {
        let (purpose, _) = self.purposes[number];
        self.fault = Some(Fault::Failed);
        self.lose(loss, Some(number));
        self.ended(purpose, false);
    }

    /// Loses that, and the write that has `failed`.
    fn lose(&mut self, loss: Loss, failed: Option<usize>) {
        for number in (0..self.writes.len()).rev() {
            let is_done = self.writes[number].is_done;
            let is_lost = match loss {
                Loss::Nothing => false,
                Loss::All | Loss::More => is_done,
                Loss::One(lost) => number == lost,
                Loss::AllBut(kept) => is_done && number != kept,
            };
            if is_lost || failed == Some(number) {
                self.remove(number);
            } else if loss == Loss::More {
                self.writes[number].parts.clear();
            }
        }
    }

    /// The mistake: only the first entry of a block says what was there before.
    pub(super) fn without_old<'b>(
        &self,
        setting: &Setting,
        record: &[u8],
        other: &'b mut Block,
    ) -> &'b [u8] {
        let mut whole = [0; BLOCK_BYTES];
        whole[..record.len()].copy_from_slice(record);
        let (seal, crc) = (setting.volume.seal(), setting.volume.checksum());
        let parsed = Record::parse(&whole, &self.layout, seal, crc).unwrap();
        let unit = setting.volume.superblock().unit(setting.unit);
        let mut builder = Builder::new(other, unit);
        for entry in parsed.entries() {
            let sequence = parsed.head().sequence;
            let mut before = setting.changes(entry.first);
            let is_first = !before.any(|op| (1..sequence).contains(&self.records[op]));
            let old = if is_first {
                entry.old
            } else {
                Tuple::default()
            };
            assert!(builder.push(&Entry { old, ..entry }));
        }
        builder.finish(parsed.head(), seal, crc)
    }

    /// The mistake: all requests in the record have their tuples in memory now.
    pub(super) fn set_tuples(&mut self, setting: &Setting) {
        for (number, progress) in self.progress.clone().into_iter().enumerate() {
            let Progress::Submitted(ticket) = progress else {
                continue;
            };
            let (kind, first, blocks) = setting.ops[number].request();
            if !matches!(kind, Kind::Write { .. }) {
                continue;
            }
            for offset in 0..blocks {
                let (_, index) = proto::sidecar::group::place(first + u64::from(offset));
                let tuple = self.pages.tuple(ticket, offset);
                proto::sidecar::group::set_tuple(self.pages.pi_block_mut(0), index, &tuple);
            }
        }
    }

    /// A record is started: notes which operations are in it, and which it must know to be durable.
    pub(super) fn note_record(&mut self, setting: &Setting, record: &[u8], sequence: u64) {
        let mut whole = [0; BLOCK_BYTES];
        whole[..record.len()].copy_from_slice(record);
        let (seal, crc) = (setting.volume.seal(), setting.volume.checksum());
        let parsed = Record::parse(&whole, &self.layout, seal, crc).unwrap();
        for entry in parsed.entries() {
            let is_new = |op: &usize| {
                matches!(self.progress[*op], Progress::Submitted(_)) && self.records[*op] == 0
            };
            // Those to the same block come one after the other; blocks of one operation share it.
            let op = setting.changes(entry.first).find(is_new);
            if let Some(op) = op.filter(|op| entry.first == setting.ops[*op].request().1) {
                self.records[op] = sequence;
            }
        }
        self.telling = 0;
        for op in 0..self.progress.len() {
            let is_before = |other: &usize| (1..=self.records[op]).contains(&self.records[*other]);
            let is_durable = |other: usize| self.progress[other] == Progress::Durable;
            if self.records[op] != 0 && (0..self.progress.len()).filter(is_before).all(is_durable) {
                self.telling |= 1 << op;
            }
        }
    }

    /// Writes a record, with the setting's mistake.
    pub(super) fn write_record(
        &mut self,
        setting: &Setting,
        shape: &mut Shape,
        mut head: Head,
        fua: bool,
    ) {
        match setting.mistake {
            Mistake::TailTooNew => head.tail = head.sequence,
            Mistake::FlushesNotTold => head.flushed = 0,
            Mistake::SizeNotTold => head.device_blocks = 0,
            Mistake::FlushesToldTooEarly => head.flushed = head.sequence,
            _ => {}
        }

        // A buffer that is used again and again.
        let mut buffer = [0xa5; BLOCK_BYTES];
        let crc = setting.volume.checksum();
        let mut record = self.store.fill(head, &self.pages, &mut buffer, crc);
        let mut other = [0; BLOCK_BYTES];
        if setting.mistake == Mistake::OldTuplesLeftOut {
            record = self.without_old(setting, record, &mut other);
        }
        self.note_record(setting, record, head.sequence);
        let is_whole = setting.volume.superblock().version == Version::One;
        assert_eq!(record.len() == BLOCK_BYTES, is_whole);
        if setting.mistake == Mistake::LastUnitLeftOut {
            record = &record[..record.len() - TINY_BYTES];
        }
        let at = self.layout.record(head.sequence);
        let fua = fua && setting.mistake != Mistake::RecordWithoutFua;
        if setting.mistake == Mistake::DataBeforeRecord {
            self.put(shape, at, record, fua, Purpose::None);
            self.store.record_written(true);
        } else {
            self.put(shape, at, record, fua, Purpose::Record);
        }
        if setting.mistake == Mistake::PiBlockBeforeRecord {
            self.set_tuples(setting);
        }
    }

    /// Reads back what a write that has failed has left.
    pub(super) fn read_back(&mut self, setting: &Setting, shape: &Shape, ticket: Ticket) {
        let (_, first, blocks) = setting.ops[self.op_of(ticket)].request();
        let crcs: Vec<u64> = (first..first + u64::from(blocks))
            .map(|block| {
                let place = shape.place(self.layout.data(block).unwrap().0);
                let parts = visible(shape, &self.medium, &self.writes, place);
                let mut data = [0; BLOCK_BYTES];
                shape.join(place, &parts, &mut data);
                Fast::RIGHT.crc64(&data)
            })
            .collect();
        let crc_of = |offset: u16| crcs.get(usize::from(offset)).copied();
        self.store.settle(ticket, crc_of, &mut self.pages);
    }
}
