// SPDX-License-Identifier: GPL-2.0

//! The requests of a store, and which of them wait for each other.
//!
//! A request that changes blocks excludes all others to the same blocks, in the order in which
//! they came: two writes that are in flight together could leave a mixture that neither tuple
//! fits, and a read could see the data of a write with the tuple before it.

use core::{
    borrow::BorrowMut,
    marker::PhantomData, //
};

use super::{
    group,
    record::ENTRIES_MAX,
    tickets::TICKETS_MAX, //
};

pub use super::tickets::{
    Ticket,
    Tickets, //
};

/// The maximum number of blocks of a request. A write is limited by [`ENTRIES_MAX`] as well.
pub const REQUEST_BLOCKS_MAX: u16 = 256;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Reads blocks.
    Read,
    /// Writes blocks.
    Write {
        /// The data are durable when the request ends.
        fua: bool,
    },
    /// Discards blocks, or writes zeroes: they read as zeroes then.
    Discard,
    /// Makes durable what was acknowledged before; of no blocks.
    Flush,
}

impl Kind {
    const fn changes(self) -> bool {
        matches!(self, Self::Write { .. } | Self::Discard)
    }
}

/// A request.
///
/// # Invariants
///
/// It has 1 to [`REQUEST_BLOCKS_MAX`] blocks, of at most two groups; a flush has none. All of it
/// fits in one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Request {
    kind: Kind,
    first: u64,
    blocks: u16,
}

impl Request {
    /// A request to `blocks` data blocks from `first` on, of a device with `data_blocks`; `None` if
    /// there are no such blocks, or too many for one request. A flush is of 0 blocks.
    pub fn new(kind: Kind, first: u64, blocks: u16, data_blocks: u64) -> Option<Self> {
        let end = first.checked_add(blocks.into())?;
        let is_flush = matches!(kind, Kind::Flush);
        let is_valid = blocks <= REQUEST_BLOCKS_MAX && end <= data_blocks;
        // INVARIANT: 256 blocks are of two groups at most.
        let request = Self {
            kind,
            first,
            blocks,
        };
        let is_fitting = is_flush == (blocks == 0) && request.entries() <= ENTRIES_MAX;
        (is_valid && is_fitting).then_some(request)
    }

    /// Returns the operation of the request.
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// The first data block.
    pub const fn first(&self) -> u64 {
        self.first
    }

    /// The number of data blocks.
    pub const fn blocks(&self) -> u16 {
        self.blocks
    }

    /// The first data block behind the request.
    pub const fn end(&self) -> u64 {
        // CAST: widening; `u64::from` is not const.
        self.first.wrapping_add(self.blocks as u64)
    }

    /// The groups whose tuples the request needs.
    pub fn groups(&self) -> [Option<u64>; 2] {
        if self.blocks == 0 {
            return [None, None];
        }
        let (first, _) = group::place(self.first);
        let (last, _) = group::place(self.end().wrapping_sub(1));
        [Some(first), (last != first).then_some(last)]
    }

    /// The number of entries of the request in a record: one for each block that is written, one
    /// for each group that is discarded.
    pub fn entries(&self) -> usize {
        match self.kind {
            Kind::Write { .. } => self.blocks.into(),
            Kind::Discard => self.groups().iter().flatten().count(),
            Kind::Read | Kind::Flush => 0,
        }
    }

    /// Returns whether the requests must not be in flight together.
    pub fn excludes(&self, other: &Self) -> bool {
        let overlap = self.first < other.end() && other.first < self.end();
        overlap && (self.kind.changes() || other.kind.changes())
    }
}

/// A place for a request with the state `S`; at first there is none.
pub type Place<S> = Option<Queued<S>>;

/// The requests in flight, with their states `S`, in the places `P`: an array, or a vector. Places
/// beyond [`TICKETS_MAX`] are not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Queue<S, P> {
    entries: P,
    used: Tickets,
    count: u64,
    _states: PhantomData<S>,
}

/// A request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Queued<S> {
    /// The request.
    pub request: Request,
    /// Its place in the order of arrival.
    order: u64,
    /// Its state.
    pub state: S,
}

impl<S: Copy, P: BorrowMut<[Place<S>]>> Queue<S, P> {
    /// The empty queue; none of the places has a request.
    pub const fn new(entries: P) -> Self {
        Self {
            entries,
            used: Tickets::NONE,
            count: 0,
            _states: PhantomData,
        }
    }

    /// Adds a request; `None` if there are as many as can be in flight.
    pub fn add(&mut self, request: Request, state: S) -> Option<Ticket> {
        let free = self.used.first_free();
        let mut entries = self.entries.borrow_mut().iter_mut().take(TICKETS_MAX);
        *entries.nth(free)? = Some(Queued {
            request,
            order: self.count,
            state,
        });
        self.used.insert(free);
        self.count = self.count.wrapping_add(1);
        Some(free)
    }

    /// Removes a request; returns it.
    pub fn remove(&mut self, ticket: Ticket) -> Option<Queued<S>> {
        let removed = self.entries.borrow_mut().get_mut(ticket)?.take();
        self.used.remove(ticket);
        if self.used.is_empty() {
            self.count = 0;
        }
        removed
    }

    /// Returns a request.
    pub fn get(&self, ticket: Ticket) -> Option<&Queued<S>> {
        self.entries.borrow().get(ticket)?.as_ref()
    }

    /// Returns a request, to change its state.
    pub fn get_mut(&mut self, ticket: Ticket) -> Option<&mut Queued<S>> {
        self.entries.borrow_mut().get_mut(ticket)?.as_mut()
    }

    /// Returns the requests.
    pub fn iter(&self) -> impl Iterator<Item = (Ticket, &Queued<S>)> {
        self.those(self.used)
    }

    /// Returns the requests of a set.
    pub fn those(&self, of: Tickets) -> impl Iterator<Item = (Ticket, &Queued<S>)> {
        of.iter()
            .filter_map(|ticket| Some((ticket, self.get(ticket)?)))
    }

    /// Returns the oldest request of a set, of those for which `wanted` is true.
    pub fn oldest(&self, of: Tickets, wanted: impl Fn(&Queued<S>) -> bool) -> Option<Ticket> {
        self.those(of)
            .filter(|(_, entry)| wanted(entry))
            .min_by_key(|(_, entry)| entry.order)
            .map(|(ticket, _)| ticket)
    }

    /// Returns whether no request that came before excludes this one.
    pub fn may_run(&self, queued: &Queued<S>) -> bool {
        let is_before = |other: &Queued<S>| other.order < queued.order;
        let excludes = |other: &Queued<S>| queued.request.excludes(&other.request);
        !self
            .iter()
            .any(|(_, other)| is_before(other) && excludes(other))
    }
}
