// SPDX-License-Identifier: GPL-2.0

//! The operations that change one object.

use ferro_proto::errno::Errno;
use seglog::{
    batch::copy,
    collect::Purpose,
    Checksum, //
};

use super::{
    super::{
        body::{
            CHANGES_MAX,
            WRITE_CHANGES_MAX, //
        },
        index::Refused,
        medium::{
            Actions,
            Medium, //
        },
        message::{
            Message,
            Operation,
            Sums, //
        },
        slot::Stored,
        span::{
            ObjectId,
            Piece,
            Span,
            BLOCK_BYTES, //
        },
        ticket::Lane,
    },
    Block,
    Client,
    Data,
    Op,
    Progress,
    Stop,
    Store,
    StoreMemory, //
};

/// Puts a piece over what stays of a block.
pub(super) fn merge(block: &mut Block, piece: &Piece, new: &[u8]) {
    let to = block.get_mut(piece.from as usize..piece.to as usize);
    copy(to.unwrap_or_default(), new);
}

/// Returns the bytes of a piece of what is written.
fn piece_of<'d>(span: &Span, piece: &Piece, bytes: &'d [u8]) -> &'d [u8] {
    let block = u64::from(piece.block).saturating_mul(super::BLOCK_BYTES);
    let at = block.saturating_add(piece.from.into());
    // CAST: Below the bytes of one operation.
    let at = at.saturating_sub(span.offset()) as usize;
    let end = at.saturating_add(piece.to.saturating_sub(piece.from) as usize);
    bytes.get(at..end).unwrap_or_default()
}

impl<M: StoreMemory, D: Medium> Store<M, D> {
    /// Carries out a step.
    pub(super) fn carry_out(
        &mut self,
        client: &mut Client<impl AsMut<[Lane]>>,
        op: &mut Op,
        (message, data): (&Message<'_>, &mut Data<'_>),
        (actions, crc): (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Stop> {
        let with = (actions, crc);
        match message.operation {
            Operation::Create { object, is_new } => {
                self.room(op, (Purpose::Write, 0, 2), with)?;
                self.index.create((object, is_new), &mut self.medium)?;
                self.changed(client, message, object);
            }
            Operation::Delete { object } => {
                self.room(op, (Purpose::Reserved, 0, 2), with)?;
                self.index.delete(object, &mut self.medium)?;
                self.changed(client, message, object);
            }
            Operation::Write {
                object,
                span,
                creates,
                sums,
            } => {
                self.write(op, ((object, creates), &span, sums), data, with)?;
                self.changed(client, message, object);
            }
            Operation::Truncate { object, size } => match op.progress {
                Progress::Trimming(slot) => {
                    self.room(op, (Purpose::Reserved, 0, CHANGES_MAX), with)?;
                    if !self.index.trim(slot, &mut self.medium) {
                        return Err(Stop::Again);
                    }
                }
                _ => {
                    let may = self.may_truncate(client.number, &message.operation);
                    may.map_err(Stop::Refused)?;
                    let left = self.truncate(op, (object, size), data, with)?;
                    self.changed(client, message, object);
                    if let Some(slot) = left {
                        op.progress = Progress::Trimming(slot);
                        // Its last block is stored, and not read again.
                        self.end_old(op);
                        return Err(Stop::Read);
                    }
                }
            },
            Operation::Copy { destination, .. } => {
                self.copy(op, message, data, with)?;
                self.changed(client, message, destination);
            }
            Operation::Snapshot { destination, .. } => {
                self.snapshot(op, message, with)?;
                self.changed(client, message, destination);
            }
            // It may have ended while it was waiting.
            Operation::Lease { .. } if !self.claims.has_lease(client.number, op.claim) => {
                return Err(Stop::Refused(Errno::ESTALE));
            }
            Operation::Flush { .. } => self.flush_object(op)?,
            Operation::Release => self.release(client, message.lease).map_err(Stop::Refused)?,
            _ => (),
        }
        Ok(())
    }

    /// An operation is carried out, of which its batch tells.
    fn changed(
        &mut self,
        client: &mut Client<impl AsMut<[Lane]>>,
        message: &Message<'_>,
        object: ObjectId,
    ) {
        if let Some(ticket) = message.ticket {
            if let Some(slot) = client.tickets.slot(ticket.lane()) {
                self.index.note(slot, ticket, &mut self.medium);
            }
        }
        self.medium.touch(self.index.bit(object));
    }

    /// Has the blocks read that a write keeps in part, and makes sure that there is room for it.
    pub(super) fn ready_to_write(
        &mut self,
        op: &mut Op,
        (object, span): (ObjectId, &Span),
        with: (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Stop> {
        self.have_edges(op, (object, span), (&mut *with.0, with.1))?;
        // An edge is in the first block, or in the last one.
        let [first, last] = self.index.edges(object, span);
        let [first, last] = [first, last].map(|edge| edge.map(|edge| edge.old));
        self.read_old(op, [first, last, None, None])?;
        let blocks = span.block_count() as usize;
        let need = (Purpose::Write, blocks, WRITE_CHANGES_MAX);
        self.room(op, need, with)
    }

    fn write(
        &mut self,
        op: &mut Op,
        ((object, creates), span, sums): ((ObjectId, bool), &Span, Sums<'_>),
        data: &mut Data<'_>,
        (actions, crc): (&mut impl Actions, &impl Checksum),
    ) -> Result<(), Stop> {
        self.ready_to_write(op, (object, span), (actions, crc))?;
        let first = span.blocks().start;
        let mut parts = [0u32; 2];
        for (piece, sum) in span.pieces().zip(sums.iter()) {
            if piece.is_whole() && !self.is_backed() {
                continue;
            }
            let place = usize::from(piece.block != first);
            let bytes = piece_of(span, &piece, data.bytes);
            // What stays is verified, so what is new has to be, too: the block gets another CRC. A
            // file has none: what is written there was right when it came.
            if crc.crc32c(bytes) != sum {
                return Err(Stop::Refused(Errno::EIO));
            }
            if piece.is_whole() {
                continue;
            }
            let has_old = op.old.get(place).is_some_and(Option::is_some);
            let block = data.blocks.get_mut(place);
            let (Some(block), Some(part)) = (block, parts.get_mut(place)) else {
                continue;
            };
            if !has_old {
                block.fill(0);
            }
            merge(block, &piece, bytes);
            *part = crc.crc32c(block);
        }
        let (bytes, edges) = (data.bytes, &*data.blocks);
        let blocks = span.pieces().zip(sums.iter()).map(|(piece, sum)| {
            if piece.is_whole() {
                return (sum, piece_of(span, &piece, bytes));
            }
            let place = usize::from(piece.block != first);
            let block = edges.get(place).map(|block| block.as_slice());
            let sum = parts.get(place).copied();
            (sum.unwrap_or_default(), block.unwrap_or_default())
        });
        self.medium.begin();
        let stored = self.medium.put(blocks, crc);
        let stored = stored.ok_or(Stop::Refused(Errno::ENOSPC))?;
        let to = (object, creates);
        let done = self.index.write(to, span, stored, &mut self.medium);
        self.end_or_undo(done)
    }

    /// Takes back what a refused operation has stored.
    pub(super) fn end_or_undo<T>(&mut self, done: Result<T, Refused>) -> Result<T, Stop> {
        if done.is_err() {
            self.medium.undo();
        }
        Ok(done?)
    }

    /// Stores a block that was made anew.
    pub(super) fn put_one(&mut self, block: &Block, crc: &impl Checksum) -> Result<Stored, Stop> {
        let sum = crc.crc32c(block);
        let stored = self.medium.put([(sum, block.as_slice())].into_iter(), crc);
        stored.ok_or(Stop::Refused(Errno::ENOSPC))
    }

    /// Sets the size; returns the slot of an object whose end is to be removed in more steps.
    fn truncate(
        &mut self,
        op: &mut Op,
        (object, size): (ObjectId, u64),
        data: &mut Data<'_>,
        (actions, crc): (&mut impl Actions, &impl Checksum),
    ) -> Result<Option<u32>, Stop> {
        let shorter = self.index.stat(object).is_ok_and(|stat| size < stat.size);
        let end = Span::new(size / BLOCK_BYTES * BLOCK_BYTES, BLOCK_BYTES);
        if let Some(end) = end.filter(|_| shorter && size % BLOCK_BYTES != 0) {
            self.have(op, (object, &end), (&mut *actions, crc))?;
        }
        let edge = self.index.new_end(object, size);
        self.read_old(op, [edge.map(|edge| edge.old), None, None, None])?;
        // The block in which it ends may be shared, and is one more then.
        let purpose = match edge {
            Some(_) => Purpose::Write,
            None => Purpose::Reserved,
        };
        let need = (purpose, edge.is_some().into(), CHANGES_MAX);
        self.room(op, need, (actions, crc))?;
        self.medium.begin();
        let stored = match (edge, data.blocks.first_mut()) {
            (Some(edge), Some(block)) => {
                let rest = block.get_mut(edge.written.from as usize..);
                rest.unwrap_or_default().fill(0);
                Some(self.put_one(block, crc)?)
            }
            _ => None,
        };
        let done = self
            .index
            .truncate((object, size), stored, &mut self.medium);
        self.end_or_undo(done)
    }
}
