// SPDX-License-Identifier: GPL-2.0

//! Requests that were not sent or not answered: which of them wait, and which fail.

use block_ext::mq::{
    Rejected,
    Request, //
};
use ferro_proto::errno::Errno;
use kernel::{
    prelude::*,
    time::{
        Instant,
        Monotonic, //
    }, //
};
use kernel_ext::errno;
use rtrs_client::Ticket;
use rtrs_core::proto::shortage;

use super::{
    device::Device,
    queue::Queue, //
};
use crate::proto::{
    cache::Note,
    pi::FirstGuardHash,
    retry::{
        self,
        NotSent,
        AGAIN_MS, //
    },
};

/// The history of a request.
#[derive(Default)]
pub(super) struct History {
    /// The time at which it was lost first, or had to wait for its chunk.
    since: Option<Instant<Monotonic>>,
    /// The ticket that RTRS gave it when it was lost.
    ticket: Option<Ticket>,
    /// The number of times that it was lost and not answered since.
    lost: u8,
    /// The device's number with which it was sent last.
    pub(super) remote_id: u32,
    /// The meaning of its acknowledgement for the server's cache.
    pub(super) note: Note,
    /// The hash of the tuples that were generated first, of a write with protection information.
    /// A function that ends such a request resets it, as [`end`] does not.
    pub(super) guard_hash: FirstGuardHash,
}

impl History {
    /// Returns the ticket with which RTRS identifies the request.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }
}

/// Ends a request, and resets its history for the next request with its tag.
#[inline]
pub(super) fn end(mut request: Request<Queue>, result: Result) {
    if request.pdu().since.is_some() {
        *request.pdu_mut() = History::default();
    }
    request.end(result);
}

impl Device {
    /// Requeues or fails a request of a device that is not open on the server.
    #[cold]
    pub(super) fn refuse(&self, request: Request<Queue>) -> Result<(), Rejected<Queue>> {
        self.take_back(errno::ECONNABORTED, request)
    }

    /// Ends a request that RTRS has not taken, or requeues it to the block layer.
    #[cold]
    pub(super) fn take_back(
        &self,
        error: Error,
        mut request: Request<Queue>,
    ) -> Result<(), Rejected<Queue>> {
        let errno = Errno::new(error.to_errno()).unwrap_or(Errno::EIO);
        match NotSent::new(errno, self.may_recover()) {
            NotSent::Requeue => {
                let history = request.pdu_mut();
                history.guard_hash.rejected(history.since.is_some());
                return Err(Rejected(request));
            }
            NotSent::WaitForChunk => return self.wait_for_chunk(request),
            NotSent::Fail => {
                request.pdu_mut().guard_hash.ended();
                self.log_failed(request.op(), error);
                end(request, Err(EIO));
            }
        }
        Ok(())
    }

    /// Ends a request that was acknowledged.
    #[inline]
    pub(super) fn acknowledged(request: Request<Queue>) {
        let note = request.pdu().note;
        if note != Note::Nothing {
            request.queue().cache().acknowledged(note);
        }
        end(request, Ok(()));
    }

    /// Fails a flush, because writes before it are lost.
    #[cold]
    pub(super) fn fail_flush(&self, mut request: Request<Queue>) -> Result<(), Rejected<Queue>> {
        pr_err!(
            "{self}: a flush fails, for writes that were acknowledged before it are gone with the \
             server's cache\n"
        );
        request.pdu_mut().guard_hash.ended();
        end(request, Err(EIO));
        Ok(())
    }

    /// Ends a request that was answered with an error.
    #[cold]
    pub(super) fn failed(request: Request<Queue>, error: Error) {
        let device = request.queue();
        device.log_failed(request.op(), error);
        if error == errno::ENOTCONN {
            // With this error servers say that they have no device of that number open.
            device.not_open_there(request.pdu().remote_id);
        }
        end(request, Err(error));
    }

    /// Requeues a request that was sent and will not be answered, unless it has been requeued for
    /// longer than requests may wait.
    #[cold]
    pub(super) fn requeue(mut request: Request<Queue>, ticket: Ticket) {
        let lost = request.pdu().lost.saturating_add(1);
        let ticket = match retry::pause_ms(lost) {
            AGAIN_MS => ticket,
            pause_ms => request.queue().rtrs().pause(ticket, pause_ms),
        };
        let history = request.pdu_mut();
        (history.lost, history.ticket) = (lost, Some(ticket));
        // It is sent as it was, or not before the server is done with the lost copy.
        request.forbid_merges();
        let limit_ms = request.queue().rtrs().fast_io_fail_ms();
        Self::try_later(request, limit_ms, errno::ECONNABORTED);
    }

    /// Requeues a request in whose chunk the server may still work on a lost one, or that is
    /// paused. It waits beside the queue, where it does not delay other requests.
    #[cold]
    pub(super) fn wait_for_chunk(&self, request: Request<Queue>) -> Result<(), Rejected<Queue>> {
        let ticket = request.pdu().ticket;
        let limit_ms = match ticket.is_some_and(|ticket| self.rtrs().is_paused(ticket)) {
            // It would be sent otherwise.
            true => None,
            false => shortage::wait_limit_ms(self.rtrs().fast_io_fail_ms()),
        };
        Self::try_later(request, limit_ms, errno::EALREADY);
        Ok(())
    }

    /// Starts a request again later, unless it has been tried for `limit_ms`: then it fails because
    /// of `error`.
    fn try_later(mut request: Request<Queue>, limit_ms: Option<u64>, error: Error) {
        let since = *request.pdu_mut().since.get_or_insert_with(Instant::now);
        let device = request.queue();
        let waited_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(0);
        if retry::may_wait(device.may_recover(), waited_ms, limit_ms) {
            return request.requeue_later(AGAIN_MS);
        }
        device.log_failed(request.op(), error);
        end(request, Err(EIO));
    }
}
