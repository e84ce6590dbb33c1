// SPDX-License-Identifier: GPL-2.0

//! Copies by reference.

use ferro_proto::errno::Errno;
use seglog::{
    collect::Purpose,
    Checksum, //
};

use super::{
    super::{
        body::CHANGES_MAX,
        medium::{
            Actions,
            Medium, //
        },
        message::{
            Message,
            Operation, //
        },
        span::ObjectId,
    },
    changing::merge,
    Data,
    Op,
    Progress,
    Stop,
    Store,
    StoreMemory, //
};

impl<M: StoreMemory, D: Medium> Store<M, D> {
    pub(super) fn copy(
        &mut self,
        op: &mut Op,
        message: &Message<'_>,
        data: &mut Data<'_>,
        (actions, crc): (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Stop> {
        let Operation::Copy {
            source,
            span,
            destination,
            offset,
            creates,
        } = message.operation
        else {
            return Ok(());
        };
        let edges = self
            .index
            .copy_edges((source, &span), (destination, offset))?;
        if self.is_backed() {
            // First, as what is shared may be dropped to make room.
            let need = (Purpose::Write, edges.len(), CHANGES_MAX);
            self.room(op, need, (&mut *actions, crc))?;
            let to = span.moved_to(offset).ok_or(Stop::Refused(Errno::EFBIG))?;
            self.have_source(op, (source, &span), (&mut *actions, crc))?;
            self.have_edges(op, (destination, &to), (&mut *actions, crc))?;
        }
        let [first, last] = edges.map(|edge| edge.map_or((None, None), |e| (e.old, e.new)));
        self.read_old(op, [first.0, last.0, first.1, last.1])?;
        let blocks = edges.iter().flatten().count();
        self.room(op, (Purpose::Write, blocks, CHANGES_MAX), (actions, crc))?;
        self.medium.begin();
        let mut stored = [None; 2];
        let [old, other, new, other_new] = &mut *data.blocks;
        let blocks = [(old, new, first), (other, other_new, last)];
        for ((edge, to), (old, new, sources)) in edges.iter().zip(&mut stored).zip(blocks) {
            let Some(edge) = edge else { continue };
            if sources.0.is_none() {
                old.fill(0);
            }
            if sources.1.is_none() {
                new.fill(0);
            }
            let piece = &edge.written;
            let bytes = new.get(piece.from as usize..piece.to as usize);
            merge(old, piece, bytes.unwrap_or_default());
            match self.put_one(old, crc) {
                Ok(place) => *to = Some(place),
                Err(stop) => {
                    self.medium.undo();
                    return Err(stop);
                }
            }
        }
        let to = (destination, offset, creates);
        let done = self
            .index
            .copy((source, &span), to, stored, &mut self.medium);
        self.end_or_undo(done)
    }

    /// Takes a step of a copy of a whole object. Its batches have a hidden one; the last one gives
    /// it the name.
    pub(super) fn snapshot(
        &mut self,
        op: &mut Op,
        message: &Message<'_>,
        with: (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Stop> {
        let Operation::Snapshot {
            source,
            destination,
            is_new,
        } = message.operation
        else {
            return Ok(());
        };
        let Progress::Filling(hidden, from) = op.progress else {
            self.room(op, (Purpose::Write, 0, CHANGES_MAX), with)?;
            let to = (destination, is_new);
            let hidden = self.index.begin_snapshot(source, to, &mut self.medium)?;
            op.progress = Progress::Filling(hidden, 0);
            return Err(Stop::Again);
        };
        let may = self.may_fill(op, (source, from), with);
        if let Err(Stop::Refused(_)) = may {
            self.index.discard(hidden, &mut self.medium);
        }
        let to = may?;
        let changes = &mut self.medium;
        let step = self
            .index
            .continue_snapshot(source, (hidden, from..to), changes);
        let done = match step {
            Ok(Some(next)) => {
                op.progress = Progress::Filling(hidden, next);
                return Err(Stop::Again);
            }
            // The last step and the name are in one batch.
            Ok(None) => self.index.link(hidden, is_new, changes),
            Err(refused) => Err(refused),
        };
        if done.is_err() {
            self.index.discard(hidden, changes);
        }
        Ok(done?)
    }
    /// Makes sure that a step of a copy of a whole object can be taken; returns the block up to
    /// which it may go.
    fn may_fill(
        &mut self,
        op: &mut Op,
        from: (ObjectId, u32),
        (actions, crc): (&mut impl Actions, &impl Checksum),
    ) -> Result<u32, Stop> {
        // First, as what is shared may be dropped to make room.
        let need = (Purpose::Write, 0, CHANGES_MAX);
        self.room(op, need, (&mut *actions, crc))?;
        self.have_next(op, from, (actions, crc))
    }
}
