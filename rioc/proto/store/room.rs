// SPDX-License-Identifier: GPL-2.0

//! Room for what an operation stores, and the blocks that it reads before.

use ferro_proto::errno::Errno;
use seglog::{
    collect::Purpose,
    log::Wait,
    Checksum, //
};

use super::{
    super::{
        body::CHANGES_MAX,
        claim::Use,
        index::Source,
        medium::{
            Actions,
            Medium,
            Need, //
        },
        slot::USES_MAX,
        span::{
            ObjectId,
            Span, //
        },
    },
    Op,
    Stop,
    Store,
    StoreMemory,
    OLD_MAX, //
};

/// The number of no client: the store itself uses something.
const SERVER: u32 = u32::MAX;
/// The objects that a step of an operation tries to evict at most.
const EVICT_TRIES: usize = 16;
/// The slots that a step of an operation looks at for them.
const EVICT_SLOTS: u32 = 4096;

/// The use of blocks that are waited for: some are for reading only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum For {
    /// Writing, or copying.
    Writes,
    /// Reading, after which they may go.
    Reads,
}

impl<M: StoreMemory, D: Medium> Store<M, D> {
    /// Removes an object that no client uses or has a lease of, if there is one in the slots that
    /// this step looks at. Returns how the operation goes on.
    fn evict(&mut self, op: &mut Op, actions: &mut impl Actions) -> Stop {
        let Some(first) = self.evicts_from else {
            return Stop::Refused(Errno::ENOSPC);
        };
        let (mut from, mut left) = (first, EVICT_SLOTS);
        // In the first rounds all may have been used. Who reads them all the time, between the
        // steps, does not keep them for ever: the last round takes what it finds.
        let count = u64::from(self.index.slots().count());
        let last = count.saturating_mul(USES_MAX.into());
        let most = last.saturating_add(count);
        for _ in 0..EVICT_TRIES {
            if left == 0 || op.looked >= most {
                break;
            }
            let (oldest, next) = self.index.oldest(from, left, op.looked >= last);
            let end = if next > from {
                next
            } else {
                self.index.slots().count()
            };
            let looked = end.saturating_sub(from);
            op.looked = op.looked.saturating_add(looked.into());
            left = left.saturating_sub(looked);
            from = next;
            self.evicts_from = Some(from);
            if oldest.is_some_and(|object| self.evict_one(object, actions)) {
                op.looked = 0;
                return Stop::Wait(Wait::Segment);
            }
        }
        if op.looked >= most {
            op.looked = 0;
            return Stop::Refused(Errno::ENOSPC);
        }
        self.end_old(op);
        Stop::Again
    }

    /// Removes an object, if it is not in use; returns whether it has.
    fn evict_one(&mut self, object: ObjectId, actions: &mut impl Actions) -> bool {
        let used = Use {
            object,
            span: Span::ALL,
            is_write: true,
        };
        let claimed = self.claims.operation((SERVER, 0, 0), (used, None));
        let Ok(claim) = claimed else {
            return false;
        };
        let is_gone = !claim.is_waiting && self.index.delete(object, &mut self.medium).is_ok();
        self.claims.end(claim.number, |tag| actions.begins(tag));
        is_gone
    }

    /// Makes sure that there is room for an operation.
    pub(super) fn room(
        &mut self,
        op: &mut Op,
        need: Need,
        with: (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Stop> {
        self.room_for(op, (need, For::Writes), with)
    }

    /// Makes sure that there is room for something.
    pub(super) fn room_for(
        &mut self,
        op: &mut Op,
        (need, of): (Need, For),
        with: (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Stop> {
        if !self.has_room((need, of)) {
            // What was deleted, or is evicted, makes room.
            if self.index.is_reaping() {
                return Err(Stop::Wait(Wait::Segment));
            }
            match self.is_backed() {
                true => self.make_room(op, (need, of))?,
                false => return Err(self.evict(op, with.0)),
            }
        }
        self.prepare(need, with).map_err(|wait| match wait {
            Wait::Stopped | Wait::TooLong => Stop::Refused(Errno::EIO),
            _ => Stop::Wait(wait),
        })
    }

    /// Has blocks read before an operation changes something. They are those of this moment, so
    /// others are read if they are elsewhere by then.
    pub(super) fn read_old(
        &mut self,
        op: &mut Op,
        old: [Option<Source>; OLD_MAX],
    ) -> Result<(), Stop> {
        if op.old == old {
            return Ok(());
        }
        self.end_old(op);
        for source in old.iter().flatten() {
            self.index.pin(Some(source));
            self.medium.begin_read(&source.stored);
        }
        op.old = old;
        Err(Stop::Read)
    }

    pub(super) fn end_old(&mut self, op: &mut Op) {
        for source in core::mem::take(&mut op.old).into_iter().flatten() {
            self.medium.end_read(&source.stored);
            self.index.unpin(&source, &mut self.medium);
        }
    }

    /// Takes a step of what is left to be done when nothing waits for it; returns whether more is.
    ///
    /// # Errors
    ///
    /// Returns what is waited for.
    pub fn reap(&mut self, with: (&mut impl Actions, &impl Checksum)) -> Result<bool, Wait> {
        if !self.index.is_reaping() {
            return Ok(false);
        }
        self.prepare((Purpose::Reserved, 0, CHANGES_MAX), with)?;
        Ok(self.index.reap(&mut self.medium))
    }

    /// Takes a step of the removal of what is behind the end of the object in a slot, as a restart
    /// may have left it; returns whether more is left of it.
    ///
    /// # Errors
    ///
    /// Returns what is waited for.
    pub fn trim(
        &mut self,
        slot: u32,
        with: (&mut impl Actions, &impl Checksum),
    ) -> Result<bool, Wait> {
        self.prepare((Purpose::Reserved, 0, CHANGES_MAX), with)?;
        Ok(!self.index.trim(slot, &mut self.medium))
    }
}
