// SPDX-License-Identifier: GPL-2.0

//! Requests that go straight to the block layer: a bio over the request's pages, whose end is the
//! answer.

use block_ext::{
    bdev::BlockDevice,
    bio::{
        Bio,
        BioData,
        BioPool, //
    },
    Flags, //
};
use kernel::prelude::*;
use kernel_ext::sync::Lent;
use rtrs_server::Operation;

use super::{
    backlog::Backlog,
    flags_of,
    op_of,
    target::Target, //
};
use crate::proto::message::IoRequest;

/// A request in flight: the operation to answer, and the device that it keeps open.
pub(crate) struct Io {
    operation: Operation,
    target: Lent<Target>,
}

impl BioData for Io {
    type Tuples = ();

    #[inline]
    fn device(&self) -> &BlockDevice {
        self.target.device()
    }

    #[inline]
    fn pool(&self) -> &BioPool<Self> {
        self.target.bios()
    }

    #[inline]
    fn end(self, result: Result) {
        // Gives the target back first, as the client may close the device when it has the answer.
        drop(self.target);
        self.operation.reply(result);
    }

    #[cold]
    fn refused(self, _error: Error) {
        Backlog::add(self.target, self.operation);
    }
}

/// Submits `request`, which [`Target::allows`], to the block layer, which does not wait for a disk
/// that can refuse it; `operation` is answered when it has ended.
#[inline(always)]
pub(crate) fn submit(target: Lent<Target>, request: IoRequest, operation: Operation) {
    let may_refuse = target.refusal();
    submit_with(target, request, operation, may_refuse);
}

/// Does what [`submit`] does for a request that has waited in the [`Backlog`]. Sleeps while the
/// disk takes no more.
#[cold]
pub(super) fn submit_in_turn(target: Lent<Target>, request: IoRequest, operation: Operation) {
    submit_with(target, request, operation, Flags::NONE);
}

#[inline(always)]
fn submit_with(
    target: Lent<Target>,
    request: IoRequest,
    mut operation: Operation,
    may_refuse: Flags,
) {
    let rw = request.rw;
    let has_data = rw.op.has_data();
    if has_data {
        operation.promise_data();
    }
    let io = Io { operation, target };
    let mut bio = Bio::new(io, op_of(rw.op), flags_of(rw) | may_refuse, request.sector);
    // A priority that does not exist is ignored.
    let _ = bio.set_ioprio(request.prio);
    let filled = if has_data {
        bio.add_own_pages(|io| io.operation.memory(), 0, request.size)
    } else {
        bio.set_len_bytes(request.size)
    };
    // Dropping the bio ends it with an error.
    if filled.is_ok() {
        bio.submit();
    }
}
