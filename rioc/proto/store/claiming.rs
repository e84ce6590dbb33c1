// SPDX-License-Identifier: GPL-2.0

//! Requests that arrive and end: their tickets, limits, claims and leases.

use ferro_proto::errno::Errno;

use super::{
    super::{
        claim::{
            Denied,
            Use, //
        },
        medium::{
            Actions,
            Medium, //
        },
        message::{
            Message,
            Operation, //
        },
        span::{
            ObjectId,
            Span,
            OBJECT_BYTES_MAX, //
        },
        ticket::{
            Found,
            Lane,
            Outcome, //
        },
    },
    Client,
    Done,
    Op,
    Progress,
    Store,
    StoreMemory, //
};

/// The state of a request that has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The request takes its first step.
    Begins,
    /// The request waits for those before it: [`Actions::begins`] tells when it begins.
    Waits,
    /// The request is answered at once, and never begins.
    Answer(Outcome),
    /// A copy of it is carried out: it arrives again when that one was answered.
    Repeated,
    /// Its client has given it up: it is dropped.
    Late,
}

/// Returns the use of all bytes of an object from one on.
fn cut(object: ObjectId, from: u64) -> Option<Use> {
    let from = from.min(OBJECT_BYTES_MAX.saturating_sub(1));
    Some(Use {
        object,
        span: Span::new(from, OBJECT_BYTES_MAX.saturating_sub(from))?,
        is_write: true,
    })
}

/// Returns what an operation uses: what it changes, and what it reads beside that.
fn uses(operation: &Operation<'_>) -> Option<(Use, Option<Use>)> {
    let used = |object: ObjectId, span: Span, is_write: bool| Use {
        object,
        span,
        is_write,
    };
    Some(match *operation {
        Operation::Create { object, .. } | Operation::Delete { object } => {
            (used(object, Span::ALL, true), None)
        }
        Operation::Read { object, span } => (used(object, span, false), None),
        Operation::Write { object, span, .. } => (used(object, span, true), None),
        Operation::Truncate { object, size } => (cut(object, size)?, None),
        Operation::Copy {
            source,
            span,
            destination,
            offset,
            ..
        } => {
            let written = used(destination, span.moved_to(offset)?, true);
            (written, Some(used(source, span, false)))
        }
        Operation::Snapshot {
            source,
            destination,
            ..
        } => {
            let written = used(destination, Span::ALL, true);
            (written, Some(used(source, Span::ALL, false)))
        }
        _ => return None,
    })
}

impl<M: StoreMemory, D: Medium> Store<M, D> {
    /// A request has come.
    pub fn arrive(
        &mut self,
        client: &mut Client<impl AsMut<[Lane]>>,
        op: &mut Op,
        message: &Message<'_>,
    ) -> Arrived {
        if message.incarnation != client.incarnation {
            // The store that it is for is not here, or knows its client no more.
            return refused(Errno::ENODEV);
        }
        match message.ticket.map(|ticket| client.tickets.begin(ticket)) {
            None | Some(Found::New) => (),
            Some(Found::Done(outcome)) => {
                return Arrived::Answer(self.again(client.number, outcome));
            }
            Some(Found::Wait) => return Arrived::Repeated,
            Some(Found::Late) => return Arrived::Late,
            Some(Found::NoLane) => return refused(Errno::EINVAL),
        }
        let bytes = message.operation.data_bytes().into();
        let begun = client.account.begin(bytes, &client.limits);
        let claimed = match begun {
            Ok(()) => {
                op.bytes = bytes;
                let claimed = self.claim(client, op, message);
                if claimed.is_err() {
                    client.account.end(bytes);
                }
                claimed
            }
            Err(exceeded) => Err(exceeded.errno()),
        };
        match claimed {
            Ok(true) => Arrived::Waits,
            Ok(false) => Arrived::Begins,
            Err(errno) => {
                let answer = refused(errno);
                if let (Some(ticket), Arrived::Answer(outcome)) = (message.ticket, answer) {
                    client.tickets.end(ticket, outcome);
                }
                answer
            }
        }
    }

    /// Returns the answer of a copy of an operation that was carried out: a lease may have ended
    /// since, as those of a client do when its last path is lost.
    fn again(&self, client: u32, outcome: Outcome) -> Outcome {
        if outcome.lease == 0 || self.claims.has_lease(client, outcome.lease) {
            return outcome;
        }
        Outcome {
            errno: Denied::LeaseGone.errno().get(),
            lease: 0,
        }
    }

    /// Returns what an operation uses, of objects as they are: one that becomes longer changes what
    /// is read of the bytes behind its end of before.
    fn uses(&self, operation: &Operation<'_>) -> Option<(Use, Option<Use>)> {
        let Operation::Truncate { object, size } = *operation else {
            return uses(operation);
        };
        let before = self.index.stat(object).map_or(size, |stat| stat.size);
        Some((cut(object, size.min(before))?, None))
    }

    /// Whether no lease of another client excludes what a truncation changes: the object may be
    /// shorter than it was when this arrived.
    pub(super) fn may_truncate(&self, client: u32, operation: &Operation<'_>) -> Result<(), Errno> {
        let used = self.uses(operation).map(|(used, _)| used);
        let checked = self.claims.check((client, 0), used.as_slice());
        checked.map_err(Denied::errno)
    }

    /// Claims what a request uses; returns whether it waits.
    fn claim(
        &mut self,
        client: &mut Client<impl AsMut<[Lane]>>,
        op: &mut Op,
        message: &Message<'_>,
    ) -> Result<bool, Errno> {
        let (number, tag) = (client.number, op.tag);
        if let Operation::Lease {
            object,
            span,
            is_writer,
        } = message.operation
        {
            let used = Use {
                object,
                span,
                is_write: is_writer,
            };
            let begun = client.account.begin_lease(&client.limits);
            begun.map_err(|exceeded| exceeded.errno())?;
            let leased = self.claims.lease((number, tag), &used);
            let leased = leased.inspect_err(|_| client.account.end_lease());
            let leased = leased.map_err(Denied::errno)?;
            op.claim = leased.number;
            return Ok(leased.is_waiting);
        }
        let Some((used, other)) = self.uses(&message.operation) else {
            return Ok(false);
        };
        if !used.is_write {
            let checked = self.claims.check((number, message.lease), &[used]);
            return checked.map(|()| false).map_err(Denied::errno);
        }
        let by = (number, message.lease, tag);
        let arrived = self.claims.operation(by, (used, other));
        let arrived = arrived.map_err(Denied::errno)?;
        op.claim = arrived.number;
        Ok(arrived.is_waiting)
    }

    /// Returns the batch that has what an operation may have seen.
    pub(super) fn seen(&self, operation: &Operation<'_>) -> u64 {
        let objects = match uses(operation) {
            Some((used, other)) => [Some(used.object), other.map(|other| other.object)],
            None => [None; 2],
        };
        let bits = objects.into_iter().flatten().map(|id| self.index.bit(id));
        self.medium.changed_by(bits.fold(0, |all, bit| all | bit))
    }

    /// A request has no more steps: those that wait for it may begin.
    pub(super) fn end(&mut self, op: &mut Op, is_lease: bool, actions: &mut impl Actions) {
        self.end_old(op);
        if !is_lease && op.claim != 0 {
            self.claims.end(op.claim, |tag| actions.begins(tag));
        }
    }

    /// A request is given up that waits for others, or whose blocks could not be read: it has
    /// changed nothing. [`Self::answered`] follows.
    pub fn give_up(&mut self, op: &mut Op, actions: &mut impl Actions) {
        self.end(op, false, actions);
    }

    /// A request that waits for room ends as its store does. A truncation that has set the size is
    /// done, as the rest is never seen; others have changed nothing. [`Self::answered`] follows.
    pub fn end_early(&mut self, op: &mut Op, actions: &mut impl Actions) -> Done {
        let is_done = matches!(op.progress, Progress::Trimming(_));
        if let Progress::Filling(hidden, _) = op.progress {
            self.index.discard(hidden, &mut self.medium);
        }
        self.give_up(op, actions);
        let errno = if is_done { 0 } else { Errno::ENODEV.get() };
        let outcome = Outcome { errno, lease: 0 };
        let after = if is_done { self.medium.last() } else { 0 };
        Done { outcome, after }
    }

    /// A request is answered: what it has changed is durable, or will never be.
    pub fn answered(
        &mut self,
        client: &mut Client<impl AsMut<[Lane]>>,
        (op, message): (&Op, &Message<'_>),
        outcome: Outcome,
    ) {
        if let Some(ticket) = message.ticket {
            client.tickets.end(ticket, outcome);
        }
        client.account.end(op.bytes);
    }

    /// Ends a request whose changes, or what it has seen, will never be durable: returns what its
    /// client is told instead of `outcome`. A lease that it was to get ends, as no one else would
    /// end it.
    pub fn fail(
        &mut self,
        client: &mut Client<impl AsMut<[Lane]>>,
        outcome: Outcome,
        actions: &mut impl Actions,
    ) -> Outcome {
        if outcome.lease != 0 && self.revoke(outcome.lease, actions).is_some() {
            client.lease_ended();
        }
        Outcome {
            errno: Errno::EIO.get(),
            lease: 0,
        }
    }

    /// A client ends the lease of its message.
    pub(super) fn release(
        &mut self,
        client: &mut Client<impl AsMut<[Lane]>>,
        lease: u32,
    ) -> Result<(), Errno> {
        let released = self.claims.release(client.number, lease);
        released.map_err(Denied::errno)?;
        client.account.end_lease();
        Ok(())
    }

    /// An administrator ends a lease; returns the number of the client that had it, of which
    /// [`Client::lease_ended`] is to be told. A request that waits for it is told to begin, and
    /// gets an error.
    pub fn revoke(&mut self, lease: u32, actions: &mut impl Actions) -> Option<u32> {
        self.claims.revoke(lease, |tag| actions.begins(tag))
    }

    /// Takes a step of the end of the leases of a client that is gone, from `from` on, at first 0;
    /// returns where the next step begins, or `None` if it has none. Its operations stay until they
    /// have ended.
    pub fn end_leases(
        &mut self,
        client: u32,
        from: u32,
        actions: &mut impl Actions,
    ) -> Option<u32> {
        let begins = |tag| actions.begins(tag);
        self.claims.end_client(client, from, begins)
    }
}

fn refused(errno: Errno) -> Arrived {
    Arrived::Answer(Outcome {
        errno: errno.get(),
        lease: 0,
    })
}
