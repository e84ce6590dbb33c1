// SPDX-License-Identifier: GPL-2.0

//! A device for its requests.

use block_ext::{
    bdev::BlockDevice,
    bio::BioPool, //
};
use kernel::sync::Arc;
use kernel_ext::sync::{
    CompleteOnDrop,
    Completion, //
};
use rtrs_server::Operation;

use super::{
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
    /// The operations of requests that go straight to the block layer.
    permitted: Ops,
    /// The operations that the access mode permits.
    permitted_by_access: Ops,
    protection: Option<Arc<Protection>>,
    queue: Option<Arc<dyn RequestQueue>>,
    // Dropped after `device`: completes when no request is left.
    _unused: CompleteOnDrop,
}

impl Target {
    /// Creates the target of requests to `device`, which go straight to the block layer without
    /// protection information and a queue; `unused` completes when it is dropped.
    pub(crate) fn new(
        device: Arc<BlockDevice>,
        bios: Arc<BioPool<Io>>,
        access: AccessMode,
        (protection, queue): (Option<Arc<Protection>>, Option<Arc<dyn RequestQueue>>),
        unused: Arc<Completion>,
    ) -> Self {
        let permitted = access.permitted();
        let is_plain = protection.is_none() && queue.is_none();
        Self {
            device,
            bios,
            permitted: if is_plain { permitted } else { Ops::NONE },
            permitted_by_access: permitted,
            protection,
            queue,
            _unused: CompleteOnDrop::new(unused),
        }
    }

    /// Returns whether the mapping permits the operation, and it goes straight to the block layer.
    #[inline]
    pub(super) fn allows(&self, op: Op) -> bool {
        self.permitted.contains(op)
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
