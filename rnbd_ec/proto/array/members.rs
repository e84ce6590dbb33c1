// SPDX-License-Identifier: GPL-2.0

//! Members that fail, and return.

use core::fmt;

use seglog::{
    collect::Purpose,
    members::{
        Members,
        DATA_COLUMNS,
        MEMBERS, //
    },
    resync::{
        Resync,
        Step, //
    },
    superblock::Superblock,
    table::{
        lose,
        Dump, //
    },
    Checksum, //
};

use super::{
    Actions,
    Array,
    Memory, //
};

/// The time for which a member that answers may owe the end of an IO, in milliseconds.
const SILENT_MS: u64 = 1000;

/// The reason why a member cannot be taken back now, or not be taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotNow {
    /// The member lives, or is being resynchronised.
    InUse,
    /// IOs to it from before it failed have not ended.
    Ios(u32),
    /// Fewer members live than it takes.
    Stopped,
    /// Another member returns, an epoch is being written, or there is no room for a batch.
    Busy,
    /// The superblock is of another array, or a number in it is too high.
    NotIt,
    /// The user has taken it away.
    KeptOut,
    /// Another member has owed the end of an IO for so many milliseconds.
    Silent(usize, u64),
}

impl fmt::Display for NotNow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse => f.write_str("it is in use"),
            Self::Ios(count) => write!(
                f,
                "{count} IOs to it have not ended: wait, or unmap its device by force"
            ),
            Self::Stopped => f.write_str("fewer than two other members live"),
            Self::Busy => f.write_str("another change of members has not ended"),
            Self::NotIt => f.write_str("it is not this member of this array"),
            Self::KeptOut => f.write_str("it was failed by hand"),
            Self::Silent(member, owed_ms) => write!(
                f,
                "member {member} has not answered for {owed_ms} ms: fail that one, or wait"
            ),
        }
    }
}

/// Whether a member does not answer that has owed the end of an IO for so many milliseconds.
pub fn is_silent(owed_ms: u64) -> bool {
    owed_ms > SILENT_MS
}

impl<M: Memory> Array<M> {
    /// A member has failed: an IO has ended with an error, or not in time.
    pub fn fail(&mut self, member: usize) {
        let failed = Members::of(member);
        // Also one that is being told that it is written: its superblock would be waited for.
        if !self.live().or(self.returning()).contains(member) {
            return;
        }
        self.log.fail(member);
        let uses = self.log.may_be_lost_from()..u64::MAX;
        lose(&mut self.words, failed, uses.clone(), &self.layout);
        self.segments.lose(failed, uses);
        self.fruitless = None;
        self.superblocks_pending = self.superblocks_pending.minus(failed);
        self.dump_pending = self.dump_pending.minus(failed);
        if let Some(dump) = &mut self.dump {
            dump.member_failed(&self.layout);
        }
        self.telling = self.telling.filter(|telling| *telling != member);
    }

    /// Takes a member away by hand, as if it had failed, until [`Self::release`]. `owed_ms` is for
    /// how long each has owed the end of an IO. While one hangs no other one is taken away: the
    /// epoch would become durable on one member only, and if the one that hangs fails, too, no two
    /// members are left that an assembly can go on with.
    ///
    /// # Errors
    ///
    /// Returns that too few others live, or which one does not answer.
    pub fn take_away(&mut self, member: usize, owed_ms: [u64; MEMBERS]) -> Result<(), NotNow> {
        let others = self.live().minus(Members::of(member));
        if others.count() < DATA_COLUMNS {
            return Err(NotNow::Stopped);
        }
        let is_written = self.live().or(self.returning()).contains(member);
        let mut each = (0..MEMBERS).zip(owed_ms);
        let silent = each.find(|(other, ms)| others.contains(*other) && is_silent(*ms));
        if let Some((other, ms)) = silent.filter(|_| is_written) {
            return Err(NotNow::Silent(other, ms));
        }
        self.fail(member);
        self.kept_out = Some(member);
        Ok(())
    }

    /// Lets a member that was taken away by hand return as others do.
    pub fn release(&mut self) {
        self.kept_out = None;
    }

    /// Returns the member that was taken away by hand. One more would leave too few.
    pub fn kept_out(&self) -> Option<usize> {
        self.kept_out
    }

    /// Writes the epoch without those that have failed, and goes on when it is durable.
    pub(super) fn go_on_with_epoch(&mut self, actions: &mut impl Actions, crc: &impl Checksum) {
        if self.log.failing().is_empty() || self.is_stopped() || self.is_writing_superblocks() {
            return;
        }
        if let Some(failed) = self.epoch_begun.take() {
            // One that has failed meanwhile needs another epoch.
            self.log.epoch_is_durable(failed);
            actions.failed(failed);
        }
        let failing = self.log.failing();
        if failing.is_empty() {
            return;
        }
        self.epoch_begun = Some(failing);
        self.epoch = self.epoch.without(actions.random(), failing);
        let (epoch, live) = (self.epoch, self.log.live());
        self.write_superblocks(|old| old.with_epoch(epoch), live, (actions, crc));
    }

    /// Returns what a new device is given, to take the place of a member: both slots are zeroed
    /// before it is written. `id` is a random number that is not 0; `reads` are as for
    /// [`Self::check_return`].
    ///
    /// # Errors
    ///
    /// Returns why not now.
    pub fn replacement(
        &mut self,
        member: usize,
        (id, reads): (u64, u32),
    ) -> Result<Superblock, NotNow> {
        self.check_return(member, reads)?;
        let survivor = self.survivor().ok_or(NotNow::Stopped)?;
        Ok(survivor.replacement(member, id))
    }

    fn survivor(&self) -> Option<&Superblock> {
        let mut live = self.log.live().iter();
        live.find_map(|member| self.superblocks.get(member)?.as_ref())
    }

    /// Checks whether a member can be taken back now. `reads` are those that it has not answered,
    /// which its user counts: who has its number would be blamed for them.
    ///
    /// # Errors
    ///
    /// Returns why not now.
    pub fn check_return(&mut self, member: usize, reads: u32) -> Result<(), NotNow> {
        if self.log.written_members().contains(member) || self.telling == Some(member) {
            return Err(NotNow::InUse);
        }
        let ios = self.ios(member).saturating_add(reads);
        if ios > 0 {
            return Err(NotNow::Ios(ios));
        }
        if self.is_stopped() {
            return Err(NotNow::Stopped);
        }
        // It closes a segment; and it needs room to be resynchronised.
        let is_busy = self.free(Purpose::Reserved).is_none()
            || self.is_writing_superblocks()
            || self.telling.is_some()
            || self.resync.is_some()
            || !self.log.failing().is_empty();
        if is_busy {
            return Err(NotNow::Busy);
        }
        Ok(())
    }

    /// Takes a member back: the one that was away, with what it had, or a new device in its place.
    /// `own` is its superblock; it was flushed before that was read. `reads` are as for
    /// [`Self::check_return`].
    ///
    /// # Errors
    ///
    /// Returns why not now.
    pub fn take_back(
        &mut self,
        (own, reads): (Superblock, u32),
        actions: &mut impl Actions,
        crc: &impl Checksum,
    ) -> Result<(), NotNow> {
        let member = own.member;
        self.check_return(member, reads)?;
        if self.kept_out == Some(member) {
            return Err(NotNow::KeptOut);
        }
        let survivor = self.survivor().ok_or(NotNow::Stopped)?;
        if !survivor.is_of_same_array(&own) || own.check_room(&self.epoch).is_err() {
            return Err(NotNow::NotIt);
        }
        let next = self.log.cursor().segment_sequence.saturating_add(1);
        let devices = survivor.devices_with(&own, next);
        let since = devices.get(member).map_or(u64::MAX, |device| device.since);
        let this = Members::of(member);
        lose(&mut self.words, this, 0..since, &self.layout);
        self.segments.lose(this, 0..since);
        self.fruitless = None;
        let start = self.start;
        *self.superblocks.get_mut(member).ok_or(NotNow::NotIt)? = Some(Superblock { start, ..own });
        self.telling = Some(member);
        let (epoch, told) = (self.epoch, self.log.live().or(this));
        let tell = |old: &Superblock| old.with_devices(devices, epoch);
        self.write_superblocks(tell, told, (actions, crc));
        Ok(())
    }

    /// Takes a new device in the place of a member, as [`Self::take_back`] does; one that was taken
    /// away by hand is released for it.
    ///
    /// # Errors
    ///
    /// Returns why not now; nothing has changed.
    pub fn take_new(
        &mut self,
        with: (Superblock, u32),
        actions: &mut impl Actions,
        crc: &impl Checksum,
    ) -> Result<(), NotNow> {
        let kept_out = self.kept_out.take();
        let taken = self.take_back(with, actions, crc);
        if taken.is_err() {
            self.kept_out = kept_out;
        }
        taken
    }

    /// Returns what a member that returns needs next.
    pub(super) fn resync_step(&self) -> Option<Step> {
        let mut resync = self.resync?;
        let dumping = self.dump.as_ref().map(Dump::start);
        Some(resync.step(&self.log, &self.segments, (&self.start, dumping.as_ref())))
    }

    /// Goes on with a member that returns.
    pub(super) fn go_on_with_return(&mut self, actions: &mut impl Actions, crc: &impl Checksum) {
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
        let step = resync.step(&self.log, &self.segments, held);
        self.resync = Some(resync);
        match step {
            // The user does that: see `need`.
            Step::Wait | Step::Batch | Step::Collect => {}
            Step::Dump => {
                self.begin_dump();
            }
            Step::Over => self.resync = None,
            Step::Join => {
                self.resync = None;
                let member = resync.member();
                self.log.join(member);
                self.collect_again();
                self.epoch = self.epoch.with(actions.random(), member);
                let (epoch, written) = (self.epoch, self.log.written_members());
                self.write_superblocks(|old| old.with_epoch(epoch), written, (actions, crc));
                actions.joined(member);
            }
        }
    }
}
