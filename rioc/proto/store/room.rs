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
        claim::Use,
        index::Source,
        medium::{
            Actions,
            Medium,
            Need, //
        },
        span::Span,
    },
    Op,
    Stop,
    Store,
    StoreMemory,
    OLD_MAX, //
};

/// The number of no client: the store itself uses something.
const SERVER: u32 = u32::MAX;
/// The objects that an operation looks at to evict one.
const EVICT_TRIES: usize = 16;

impl<M: StoreMemory, D: Medium> Store<M, D> {
    /// Removes an object that no client uses or has a lease of; returns whether there is one, of
    /// some that were looked at.
    fn evict(&mut self, actions: &mut impl Actions) -> bool {
        for _ in 0..EVICT_TRIES {
            let oldest = self.evicts_from.and_then(|from| self.index.oldest(from));
            let Some((object, next)) = oldest else {
                return false;
            };
            self.evicts_from = Some(next);
            let used = Use {
                object,
                span: Span::ALL,
                is_write: true,
            };
            let claimed = self.claims.operation((SERVER, 0, 0), (used, None));
            let Ok(claim) = claimed else {
                continue;
            };
            let is_gone = !claim.is_waiting && self.index.delete(object, &mut self.medium).is_ok();
            self.claims.end(claim.number, |tag| actions.begins(tag));
            if is_gone {
                return true;
            }
        }
        false
    }

    /// Makes sure that there is room for an operation.
    pub(super) fn room(
        &mut self,
        need: Need,
        with: (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Stop> {
        let (purpose, blocks, _) = need;
        let (used, most) = self.medium.room();
        let is_full = used.saturating_add(blocks as u64) > most;
        if purpose == Purpose::Write && blocks > 0 && is_full {
            // What was deleted, or is evicted, makes room.
            return Err(if self.index.is_reaping() || self.evict(with.0) {
                Stop::Wait(Wait::Segment)
            } else {
                Stop::Refused(Errno::ENOSPC)
            });
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
}
