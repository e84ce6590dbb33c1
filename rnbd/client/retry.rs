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
use rtrs_client::Ticket;
use rtrs_core::proto::quarantine;

use super::{
    device::Device,
    queue::Queue, //
};
use crate::proto::cache::Note;

/// Pause before a request that was lost is started again, in milliseconds. While the disk is held
/// it waits for longer: until it is unquiesced.
const AGAIN_MS: u32 = 10;

/// What is remembered of a request.
#[derive(Default)]
pub(super) struct History {
    /// When it was lost first, or had to wait for its chunk.
    since: Option<Instant<Monotonic>>,
    /// RTRS has lost it, and knows it by this.
    ticket: Option<Ticket>,
    /// The device's number that it was sent with last.
    pub(super) remote_id: u32,
    /// What its acknowledgement means for the server's cache.
    pub(super) note: Note,
}

impl History {
    /// What RTRS is to be told of the request.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        self.ticket
    }
}

/// Ends a request; the next one in its place was not lost.
#[inline]
pub(super) fn end(mut request: Request<Queue>, result: Result) {
    if request.pdu().since.is_some() {
        *request.pdu_mut() = History::default();
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
        if error == errno::EALREADY {
            self.wait_for_chunk(request);
            return Ok(());
        }
        let later = error == EBUSY || error == EAGAIN || error == ENOMEM;
        if later || (error == errno::ECONNABORTED && self.may_recover()) {
            return Err(Rejected(request));
        }
        self.log_failed(request.op(), error);
        end(request, Err(EIO));
        Ok(())
    }

    /// A request was acknowledged.
    #[inline]
    pub(super) fn acknowledged(request: Request<Queue>) {
        let note = request.pdu().note;
        if note != Note::Nothing {
            request.queue().cache().acknowledged(note);
        }
        end(request, Ok(()));
    }

    /// A flush is to fail, because writes before it are gone.
    #[cold]
    pub(super) fn fail_flush(&self, request: Request<Queue>) -> Result<(), Rejected<Queue>> {
        pr_err!(
            "{self}: a flush fails, for writes that were acknowledged before it are gone with the \
             server's cache\n"
        );
        end(request, Err(EIO));
        Ok(())
    }

    /// A request was answered with an error.
    #[cold]
    pub(super) fn failed(request: Request<Queue>, error: Error) {
        let device = request.queue();
        device.log_failed(request.op(), error);
        if error == errno::ENOTCONN {
            // In this word servers say that they have no device of that number open.
            device.not_open_there(request.pdu().remote_id);
        }
        end(request, Err(error));
    }

    /// A request was sent, and there is nobody who could answer any more: it is started anew,
    /// unless that has gone on for longer than requests are to wait.
    #[cold]
    pub(super) fn requeue(mut request: Request<Queue>, ticket: Ticket) {
        request.pdu_mut().ticket = Some(ticket);
        // It goes out as it was, or not before the server is done with what it has of it.
        request.forbid_merges();
        let limit_ms = request.queue().rtrs().fast_io_fail_ms();
        Self::try_later(request, limit_ms, errno::ECONNABORTED);
    }

    /// The server may still work in the request's chunk on one that was lost. It waits beside the
    /// queue, where it is in no other request's way.
    #[cold]
    fn wait_for_chunk(&self, request: Request<Queue>) {
        let limit_ms = quarantine::wait_limit_ms(self.rtrs().fast_io_fail_ms());
        Self::try_later(request, limit_ms, errno::EALREADY);
    }

    /// Starts a request again, unless that has gone on for `limit_ms`: then it fails because of
    /// `error`.
    fn try_later(mut request: Request<Queue>, limit_ms: Option<u64>, error: Error) {
        let since = *request.pdu_mut().since.get_or_insert_with(Instant::now);
        let device = request.queue();
        let waited_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(0);
        if device.may_recover() && limit_ms.is_none_or(|limit_ms| waited_ms <= limit_ms) {
            return request.requeue_later(AGAIN_MS);
        }
        device.log_failed(request.op(), error);
        end(request, Err(EIO));
    }
}
