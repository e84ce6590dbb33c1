// SPDX-License-Identifier: GPL-2.0

//! The requests of one mapping of a device with a sidecar, on their way to its engine.

use kernel::{
    prelude::*,
    str::CString,
    sync::Arc, //
};
use kernel_ext::sync::{
    atomic::{
        AtomicU32,
        Ordering, //
    },
    new_wait_queue,
    WaitQueue, //
};
use rtrs_server::{
    Operation,
    OperationQueue, //
};

use super::{
    volume::Volume,
    Request,
    BLOCK_SECTORS,
    BLOCK_SIZE, //
};
use crate::{
    pi_stats::PiStats,
    proto::{
        message::IoRequest,
        pi::{
            Format,
            Geometry,
            Mode, //
        },
    },
    server::{
        io::{
            direction_of,
            protection::Protection,
            target::RequestQueue, //
        },
        log_limit::LOG_LIMIT, //
    },
    shown::Shown,
    sidecar::tuple::Verdict, //
};

/// The requests of one mapping.
#[pin_data]
pub(crate) struct ClientQueue {
    volume: Arc<Volume>,
    /// Session and device, for the log.
    label: CString,
    protection: Option<Arc<Protection>>,
    stats: Arc<PiStats>,
    version: u8,
    /// Requests that were pushed and have not ended.
    running: AtomicU32,
    #[pin]
    waiting: OperationQueue,
    #[pin]
    idle: WaitQueue,
}

impl ClientQueue {
    /// Creates the queue of a mapping.
    pub(super) fn new(volume: Arc<Volume>, request: Request<'_>) -> Result<Arc<Self>> {
        let stats = match &request.protection {
            Some(protection) => protection.stats().clone(),
            None => {
                let geometry = Geometry::new(Mode::Store, Format::Crc64, BLOCK_SIZE);
                Arc::new(PiStats::new(geometry.ok_or(EINVAL)?), GFP_KERNEL)?
            }
        };
        let Request {
            label,
            protection,
            version,
            ..
        } = request;
        Arc::pin_init(
            pin_init!(Self {
                volume,
                label,
                protection,
                stats,
                version,
                running: AtomicU32::new(0),
                waiting <- OperationQueue::new(),
                idle <- new_wait_queue!("rnbd_server::ClientQueue::idle"),
            }),
            GFP_KERNEL,
        )
    }

    /// Takes the request that came first.
    pub(super) fn pop(&self) -> Option<Operation> {
        self.waiting.pop()
    }

    /// Answers a request.
    pub(super) fn answer(&self, operation: Operation, result: Result) {
        // Before the answer: the client may close the device when it has it.
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.idle.wake_all();
        }
        operation.reply(result);
    }

    /// Waits until all requests have ended; no more are added. Sleeps.
    pub(super) fn wait_idle(&self) {
        let is_idle = || self.running.load(Ordering::Acquire) == 0;
        self.idle.wait_until(is_idle);
    }

    /// Removes the queue from its device.
    pub(super) fn detach(self: &Arc<Self>) {
        self.volume.remove_client_queue(self);
    }

    /// Parses a request, which was parsed and checked before it was queued. Any context.
    ///
    /// # Errors
    ///
    /// The error that the client gets; there is none for a request that was checked.
    pub(super) fn parse(&self, operation: &Operation) -> Result<IoRequest> {
        let (user, len) = (operation.user(), operation.data_len());
        let direction = direction_of(operation);
        let parsed = match &self.protection {
            Some(protection) => {
                let geometry = protection.geometry();
                IoRequest::parse_protected(user, len, direction, self.version, geometry)
                    .map(|(request, _)| request)
            }
            None => IoRequest::parse(user, len, direction, self.version),
        };
        parsed.map_err(|reason| reason.errno().into())
    }

    /// Returns the protection information of the client's requests.
    pub(super) fn protection(&self) -> Option<&Protection> {
        self.protection.as_deref()
    }

    /// Returns whether the tuples of the client are those of the sidecar.
    pub(super) fn has_own_tuples(&self) -> bool {
        let mode = self.protection().map(|it| it.geometry().mode());
        mode == Some(Mode::Store)
    }

    /// Returns the number of data blocks of the device.
    pub(super) fn data_blocks(&self) -> u64 {
        self.volume.data_blocks()
    }

    /// Returns the UUID of the sidecar.
    pub(super) fn uuid(&self) -> [u8; 16] {
        *self.volume.growing().lock().uuid()
    }

    /// Returns what was seen.
    pub(super) fn stats(&self) -> &Arc<PiStats> {
        &self.stats
    }

    /// Counts and logs a block that a read cannot give.
    #[cold]
    pub(super) fn reject(&self, block: u64, verdict: Verdict) {
        self.stats.count_error(true);
        if LOG_LIMIT.allow().is_some() {
            pr_err!(
                "{}: read refused: data block {block}: {}\n",
                &*self.label,
                Shown(verdict)
            );
        }
    }
}

impl RequestQueue for ClientQueue {
    // Requests come from work items: those of completion queues, and those of paths.
    fn push(&self, operation: Operation) {
        self.running.fetch_add(1, Ordering::Relaxed);
        self.waiting.push(operation);
        Volume::submitted(&self.volume);
    }

    fn sectors(&self) -> u64 {
        self.data_blocks().saturating_mul(BLOCK_SECTORS.into())
    }
}
