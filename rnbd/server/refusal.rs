// SPDX-License-Identifier: GPL-2.0

//! Refusals of requests and messages, with one log line each, if there are not too many.

use kernel::prelude::*;
use kernel_ext::errno;
use rtrs_server::Operation;

use super::{
    log_limit::LOG_LIMIT,
    session::Session, //
};
use crate::{
    proto::message::Malformed,
    shown::Shown, //
};

impl Session {
    #[cold]
    pub(super) fn refuse_change(&self, device_id: u32, operation: Operation) {
        if LOG_LIMIT.allow().is_some() {
            pr_err!(
                "session {}: request refused: device {} is open read-only\n",
                self.name(),
                device_id
            );
        }
        operation.reply(Err(EROFS));
    }

    #[cold]
    pub(super) fn refuse_unknown(&self, device_id: u32, operation: Operation) {
        if LOG_LIMIT.allow().is_some() {
            pr_err!(
                "session {}: request for device {}, which is not open: refused\n",
                self.name(),
                device_id
            );
        }
        operation.reply(Err(errno::ENOTCONN));
    }

    #[cold]
    pub(super) fn refuse(&self, reason: Malformed, operation: Operation) {
        operation.reply(Err(self.log_refusal(reason)));
    }

    /// Logs why a request or message is refused; returns the error that the client gets.
    #[cold]
    pub(super) fn log_refusal(&self, reason: Malformed) -> Error {
        if LOG_LIMIT.allow().is_some() {
            pr_err!(
                "session {}: request refused: {}\n",
                self.name(),
                Shown(reason)
            );
        }
        reason.errno().into()
    }
}
