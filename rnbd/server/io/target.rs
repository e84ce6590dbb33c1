// SPDX-License-Identifier: GPL-2.0

//! A device for its requests.

use block_ext::{
    bdev::BlockDevice,
    bio::BioPool,
    Flags, //
};
use kernel::sync::Arc;
use kernel_ext::sync::{
    atomic::{
        AtomicU32,
        Ordering::Relaxed, //
    },
    CompleteOnDrop,
    Completion, //
};
use rtrs_server::Operation;

use super::{
    backlog::Backlog,
    plain::Io,
    protection::Protection, //
};
use crate::proto::{
    access::AccessMode,
    flags::{
        Op,
        Ops, //
    },
    message::{
        IoRequest,
        Malformed, //
    },
};

/// The queue of a device whose requests do not go straight to the block layer: one with a sidecar.
pub(crate) trait RequestQueue: Send + Sync {
    /// Adds a request that the mapping permits, and whose protection information, if it has some,
    /// was verified. It may be carried out before this returns. Sleeps.
    fn push(&self, operation: Operation);

    /// Returns the number of sectors that the client sees.
    fn sectors(&self) -> u64;
}

/// The state of a device for its requests.
///
/// The session's table lends it to the requests in flight, and the mapping waits for these when it
/// closes the device.
pub(crate) struct Target {
    device: Arc<BlockDevice>,
    bios: Arc<BioPool<Io>>,
    backlog: Arc<Backlog>,
    /// The flag of what the handler submits.
    refusal: Flags,
    /// The operations of requests that go straight to the block layer, at once: a set of [`Ops`].
    at_once: AtomicU32,
    /// The operations that the access mode permits.
    permitted_by_access: Ops,
    protection: Option<Arc<Protection>>,
    queue: Option<Arc<dyn RequestQueue>>,
    // Dropped after `device`: completes when no request is left.
    _unused: CompleteOnDrop,
}

impl Target {
    /// Creates the target of requests to `device`, which go straight to the block layer without
    /// protection information and a queue, or wait in `backlog`; `unused` completes when it is
    /// dropped.
    pub(crate) fn new(
        device: Arc<BlockDevice>,
        (bios, backlog): (Arc<BioPool<Io>>, Arc<Backlog>),
        access: AccessMode,
        (protection, queue): (Option<Arc<Protection>>, Option<Arc<dyn RequestQueue>>),
        unused: Arc<Completion>,
    ) -> Self {
        let (at_once, refusal) = (backlog.at_once().into_raw(), backlog.refusal());
        Self {
            device,
            bios,
            backlog,
            refusal,
            at_once: AtomicU32::new(at_once.into()),
            permitted_by_access: access.permitted(),
            protection,
            queue,
            _unused: CompleteOnDrop::new(unused),
        }
    }

    /// Returns whether the mapping permits the operation, and it goes straight to the block layer,
    /// at once.
    #[inline]
    pub(super) fn allows(&self, op: Op) -> bool {
        // CAST: `submit_at_once` stored a byte.
        Ops::from_raw(self.at_once.load(Relaxed) as u8).contains(op)
    }

    /// Says which operations go straight to the block layer from now on.
    pub(super) fn submit_at_once(&self, ops: Ops) {
        self.at_once.store(ops.into_raw().into(), Relaxed);
    }

    /// Returns the flag by which the handler asks the disk to refuse a request, if it can.
    #[inline]
    pub(super) fn refusal(&self) -> Flags {
        self.refusal
    }

    /// Returns the requests that wait until the disk takes them.
    pub(super) fn backlog(&self) -> &Arc<Backlog> {
        &self.backlog
    }

    /// Returns whether the access mode of the mapping permits the operation.
    pub(super) fn is_permitted(&self, op: Op) -> bool {
        self.permitted_by_access.contains(op)
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
        request.check_range(match &self.queue {
            Some(queue) => queue.sectors(),
            None => self.device.capacity_sectors(),
        })
    }

    /// Returns the protection information of the requests, if they have one.
    pub(super) fn protection(&self) -> Option<&Arc<Protection>> {
        self.protection.as_ref()
    }

    /// Returns where requests go if the device has a queue.
    pub(super) fn queue(&self) -> Option<&dyn RequestQueue> {
        self.queue.as_deref()
    }

    /// Returns the device.
    #[inline]
    pub(super) fn device(&self) -> &BlockDevice {
        &self.device
    }

    /// Returns the pool of the bios of its requests.
    #[inline]
    pub(super) fn bios(&self) -> &BioPool<Io> {
        &self.bios
    }
}
