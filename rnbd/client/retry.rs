// SPDX-License-Identifier: GPL-2.0

//! Requests that did not get through: which of them wait, and which fail.

use block_ext::mq::{
    Rejected,
    Request, //
};
use kernel::{
    prelude::*,
    time::{
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::errno;

use super::{
    device::Device,
    queue::Queue, //
};

/// Pause before a request that was lost is started again, in milliseconds. While the disk is held it
/// waits for longer: until it is let go.
const AGAIN_MS: u32 = 10;

/// When a request was lost first, if it was.
#[derive(Default)]
pub(super) struct Loss(Option<Instant<Monotonic>>);

/// Ends a request; the next one in its place has no history.
#[inline]
pub(super) fn end(mut request: Request<Queue>, result: Result) {
    if request.pdu().0.is_some() {
        *request.pdu_mut() = Loss::default();
    }
    request.end(result);
}

impl Device {
    /// The device is not open on the server: a request waits, or fails.
    #[cold]
    pub(super) fn refuse(&self, request: Request<Queue>) -> Result<(), Rejected<Queue>> {
        self.take_back(errno::ECONNABORTED, request)
    }

    /// Ends a request that RTRS has not taken, or gives it back to the block layer to try later.
    #[cold]
    pub(super) fn take_back(
        &self,
        error: Error,
        request: Request<Queue>,
    ) -> Result<(), Rejected<Queue>> {
        let later = error == EBUSY || error == EAGAIN || error == ENOMEM;
        if later || (error == errno::ECONNABORTED && self.is_hopeful()) {
            return Err(Rejected(request));
        }
        self.log_failed(request.op(), error);
        end(request, Err(EIO));
        Ok(())
    }

    /// A request was sent, and there is nobody who could answer any more: it is started anew, unless
    /// that has gone on for longer than requests are to wait.
    #[cold]
    pub(super) fn lost(mut request: Request<Queue>) {
        let first = *request.pdu_mut().0.get_or_insert_with(Instant::now);
        let device = request.queue();
        let waited_ms = u64::try_from(first.elapsed().as_millis()).unwrap_or(0);
        let limit_ms = device.rtrs().fast_io_fail_ms();
        if device.is_hopeful() && limit_ms.is_none_or(|limit_ms| waited_ms <= limit_ms) {
            return request.requeue_later(AGAIN_MS);
        }
        device.log_failed(request.op(), errno::ECONNABORTED);
        end(request, Err(EIO));
    }
}
