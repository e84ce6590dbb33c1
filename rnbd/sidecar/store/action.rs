// SPDX-License-Identifier: GPL-2.0

//! Actions that a store asks of its caller.

use super::super::{
    queue::Ticket,
    record::Head,
    sectors::Part,
    tuple::Tuple,
    Block, //
};

/// The memory of the caller.
pub trait Memory {
    /// The PI block in a slot.
    fn pi_block(&self, slot: usize) -> &Block;

    /// The PI block in a slot, to be changed.
    fn pi_block_mut(&mut self, slot: usize) -> &mut Block;

    /// The tuple of a block of a write, sealed; `offset` counts the request's blocks.
    fn tuple(&self, ticket: Ticket, offset: u16) -> Tuple;
}

/// An IO, or an end of a request, that the caller carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Read the PI block of a group into a slot; ends with [`Store::pi_block_read`].
    ReadPiBlock {
        /// The slot.
        slot: usize,
        /// The group.
        group: u64,
    },
    /// Write a record, what [`Store::fill`] returns; ends with [`Store::record_written`].
    WriteRecord {
        /// Its head.
        head: Head,
        /// Tells that the write has to be durable when it ends.
        fua: bool,
    },
    /// Read, write or discard the data of a request; ends with [`Store::data_done`].
    Data {
        /// The request.
        ticket: Ticket,
        /// The data must be durable when the write ends.
        fua: bool,
    },
    /// Read the data of a write that has failed; ends with [`Store::settle`].
    ReadBack(Ticket),
    /// Write a PI block back, from a copy that is made now; ends with [`Store::written_back`].
    WriteBack {
        /// The slot.
        slot: usize,
        /// The group.
        group: u64,
        /// The part that is to be written at least; the rest is there already.
        part: Part,
        /// Tells that the write has to be durable when it ends.
        fua: bool,
    },
    /// Flush the device's cache; ends with [`Store::flushed`].
    Flush,
    /// Answer a request; it is not in the store any more.
    Answer {
        /// The request.
        ticket: Ticket,
        /// Whether it has succeeded.
        is_ok: bool,
    },
}

/// Work of a store beside requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rest {
    /// Work that requests need, and no other.
    #[default]
    None,
    /// A mark is written behind the newest record, too.
    Pause,
    /// All tuples are written back, and the journal is emptied: for a device that rests, or is
    /// closed.
    Drain,
}
