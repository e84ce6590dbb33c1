// SPDX-License-Identifier: GPL-2.0

//! The IO requests of a client: submits a bio over the request's pages, and answers when it ends.
//!
//! All of this is the IO path: the only allocation is that of the bio (from its pool), and there is
//! no sleeping lock. `proto` has checked that the numbers of a request are consistent, and the
//! session that the mapping permits it.

use block_ext::{
    bdev::BlockDevice,
    bio::{
        Bio,
        BioData,
        BioPool, //
    },
    Flags, //
};
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::sync::{
    CompleteOnDrop,
    Completion,
    Lent, //
};
use rtrs_server::Operation;

use super::{
    protection::Protection,
    store::ClientQueue, //
};
use crate::proto::{
    access::AccessMode,
    flags::{
        Op,
        Ops,
        Rw,
        RwFlags, //
    },
    message::{
        Direction,
        IoRequest,
        Malformed, //
    },
};

/// The state of a device for its requests.
///
/// It is lent to the requests in flight, which the mapping waits for when it closes the device.
pub(crate) struct Target {
    device: Arc<BlockDevice>,
    bios: Arc<BioPool<Io>>,
    /// The operations of requests without protection information that are permitted.
    permitted: Ops,
    /// The operations of requests with protection information that are permitted.
    permitted_protected: Ops,
    protection: Option<Arc<Protection>>,
    /// The queue to which requests go if the device has a sidecar.
    client_queue: Option<Arc<ClientQueue>>,
    // Dropped after `device`: completes when no request is left.
    _unused: CompleteOnDrop,
}

impl Target {
    /// Creates the target of requests to `device`; `unused` completes when it is dropped.
    pub(crate) fn new(
        device: Arc<BlockDevice>,
        bios: Arc<BioPool<Io>>,
        access: AccessMode,
        (protection, client_queue): (Option<Arc<Protection>>, Option<Arc<ClientQueue>>),
        unused: Arc<Completion>,
    ) -> Self {
        let permitted = access.permitted();
        let is_plain = protection.is_none() && client_queue.is_none();
        Self {
            device,
            bios,
            permitted: if is_plain { permitted } else { Ops::NONE },
            permitted_protected: permitted,
            protection,
            client_queue,
            _unused: CompleteOnDrop::new(unused),
        }
    }

    /// Returns whether the mapping permits the operation, and it goes straight to the device:
    /// without protection information and without a sidecar.
    #[inline]
    pub(crate) fn allows(&self, op: Op) -> bool {
        self.permitted.contains(op)
    }

    /// Returns whether the access mode of the mapping permits the operation.
    pub(crate) fn allows_protected(&self, op: Op) -> bool {
        self.permitted_protected.contains(op)
    }

    /// Checks that a request without data is within the device.
    #[inline(always)]
    pub(super) fn check_range(&self, request: IoRequest) -> Result<(), Malformed> {
        match request.rw.op {
            // A flush has no range.
            Op::Read | Op::Write | Op::Flush => Ok(()),
            Op::Discard | Op::SecureErase | Op::WriteZeroes => {
                self.check_range_without_data(request)
            }
        }
    }

    #[cold]
    fn check_range_without_data(&self, request: IoRequest) -> Result<(), Malformed> {
        let capacity_sectors = match &self.client_queue {
            Some(client_queue) => client_queue.sectors(),
            None => self.device.capacity_sectors(),
        };
        request.check_range(capacity_sectors)
    }

    /// Returns the protection information of the requests, if they have one.
    pub(crate) fn protection(&self) -> Option<&Arc<Protection>> {
        self.protection.as_ref()
    }

    /// Returns where requests go if the device has a sidecar.
    pub(super) fn client_queue(&self) -> Option<&Arc<ClientQueue>> {
        self.client_queue.as_ref()
    }

    /// Returns the device.
    pub(crate) fn device(&self) -> &BlockDevice {
        &self.device
    }
}

/// A request in flight: the operation to answer, and the device that it keeps open.
pub(crate) struct Io {
    operation: Operation,
    target: Lent<Target>,
}

impl BioData for Io {
    type Tuples = ();

    #[inline]
    fn device(&self) -> &BlockDevice {
        &self.target.device
    }

    #[inline]
    fn pool(&self) -> &BioPool<Self> {
        &self.target.bios
    }

    #[inline]
    fn end(self, result: Result) {
        // Gives the target back first, as the client may close the device when it has the answer.
        drop(self.target);
        self.operation.reply(result);
    }
}

/// Submits `request`, which [`Target::allows`], to the block layer; `operation` is answered when it
/// has ended.
#[inline(always)]
pub(crate) fn submit(target: Lent<Target>, request: IoRequest, mut operation: Operation) {
    let rw = request.rw;
    let has_data = rw.op.has_data();
    if has_data {
        operation.promise_data();
    }
    let io = Io { operation, target };
    let mut bio = Bio::new(io, op_of(rw.op), flags_of(rw), request.sector);
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

/// Returns the direction of a request's data.
#[inline]
pub(super) fn direction_of(operation: &Operation) -> Direction {
    if operation.is_read() {
        Direction::Read
    } else {
        Direction::Write
    }
}

/// Converts an operation for the block layer.
#[inline]
pub(super) fn op_of(op: Op) -> block_ext::Op {
    match op {
        Op::Read => block_ext::Op::Read,
        Op::Write => block_ext::Op::Write,
        Op::Flush => block_ext::Op::Flush,
        Op::Discard => block_ext::Op::Discard,
        Op::SecureErase => block_ext::Op::SecureErase,
        Op::WriteZeroes => block_ext::Op::WriteZeroes,
    }
}

/// Converts the flags of an operation for the block layer.
#[inline]
pub(super) fn flags_of(rw: Rw) -> Flags {
    let flag = |flag, as_bio| match rw.flags.has(flag) {
        true => as_bio,
        false => Flags::NONE,
    };
    flag(RwFlags::SYNC, Flags::SYNC)
        | flag(RwFlags::FUA, Flags::FUA)
        | flag(RwFlags::PREFLUSH, Flags::PREFLUSH)
        | flag(RwFlags::NOUNMAP, Flags::NOUNMAP)
}
