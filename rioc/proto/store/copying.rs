// SPDX-License-Identifier: GPL-2.0

//! Copies by reference.

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
        self.room(op, (Purpose::Write, 0, CHANGES_MAX), with)?;
        let changes = &mut self.medium;
        let Progress::Filling(hidden, from) = op.progress else {
            let to = (destination, is_new);
            let hidden = self.index.begin_snapshot(source, to, changes)?;
            op.progress = Progress::Filling(hidden, 0);
            return Err(Stop::Again);
        };
        let step = self
            .index
            .continue_snapshot(source, (hidden, from), changes);
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
}
