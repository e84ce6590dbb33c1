// SPDX-License-Identifier: GPL-2.0

//! Messages as operations of RTRS have them, and their answers.

use kernel::prelude::*;
use rtrs_server::Operation;
use zerocopy::IntoBytes;

use super::LOG_LIMIT;
use crate::proto::{
    answer::Short,
    message::{
        Direction,
        Malformed,
        Message, //
    },
    ticket::Outcome,
    wire, //
};

/// Reads the message of an operation.
pub(super) fn message_of(operation: &Operation) -> Result<Message<'_>, Malformed> {
    let direction = match operation.is_read() {
        true => Direction::Read,
        false => Direction::Write,
    };
    Message::parse(operation.user(), (direction, operation.data_len()))
}

/// Answers a malformed message.
pub(super) fn refuse(operation: Operation, session: &CStr, why: Malformed) {
    if let Some(suppressed) = LOG_LIMIT.allow() {
        pr_err!(
            "session {}: message refused: {} ({suppressed} more were)\n",
            session,
            format_args!("{why}")
        );
    }
    operation.reply(Err(why.errno().into()));
}

/// Answers with an outcome.
pub(super) fn reply(mut operation: Operation, outcome: Outcome) {
    let result = match i32::from(outcome.errno) {
        0 if operation.user().first() == Some(&wire::LEASE) => {
            let lease = outcome.lease;
            let answer = Short {
                lease,
                ..Short::default()
            };
            operation.write_reply(answer.to_wire(wire::LEASE).as_bytes())
        }
        0 => Ok(()),
        errno => Err(Error::from_errno(errno.wrapping_neg())),
    };
    operation.reply(result);
}
