// SPDX-License-Identifier: GPL-2.0

//! Requests whose path is lost.
//!
//! They keep their chunk id and their data, so that a server that has carried one out already does
//! the same once more (decision 0006 says what that may do, and what it may not). The connections
//! of the lost path are drained: they send no copy of a request any more.

use kernel::sync::rcu;
use rdma::{
    sg,
    Drained, //
};
use rtrs_core::proto::{
    failover::Resent,
    quarantine::Ticket, //
};

use crate::client::{
    io::{
        prepare::{
            READ,
            WRITE, //
        },
        request::DataMapping,
        table::{
            RequestTable,
            MESSAGE_SIZE, //
        },
        transfer::{
            AnyTransfer,
            Outbound, //
        }, //
    },
    path::{
        connections::ADMIN,
        error::PathError,
        fence::LifeEnd, //
    },
    session::{
        quarantine::Quarantine,
        Session, //
    }, //
};

/// A request that was in flight on a lost path, and not answered.
pub(crate) struct UnansweredRequest {
    transfer: AnyTransfer,
    ticket: Ticket,
    is_write: bool,
    id: u16,
    cid: u16,
    /// The number of times that it was sent again so far.
    resent: Resent,
    /// Its message could be read.
    is_whole: bool,
    message: [u8; MESSAGE_SIZE as usize],
    message_len: u16,
}

impl RequestTable {
    /// Ends all requests of path number `path` that were answered, and hands the rest to
    /// `requeue_to`, each with its chunk held. Sleeps.
    ///
    /// `drained` proves that no completion comes any more, and that no device or peer reaches any
    /// memory; nothing is taken if it is about another domain.
    pub(crate) fn take_unanswered(
        &self,
        drained: &Drained<'_>,
        quarantine: &Quarantine,
        path: u8,
        mut requeue_to: impl FnMut(UnansweredRequest),
    ) {
        if !drained.is_of(&self.pd) {
            return;
        }
        for (id, entry) in (0..=u16::MAX).zip(self.entries.iter()) {
            let Some((mut held, answered)) = entry.claim_waiting() else {
                continue;
            };
            held.is_in_doubt = matches!(
                held.sent.data,
                DataMapping::FastReg | DataMapping::FastRegRead
            );
            // The end of the connection has invalidated the key, and no acknowledgement can come.
            if answered {
                let result = held.result;
                quarantine.answered(id);
                self.end(held, result);
                continue;
            }
            let Some(mut transfer) = self.take_transfer(&mut held) else {
                continue;
            };
            if held.sent.data.is_mapped() {
                if let Ok(list) = transfer.sg() {
                    sg::unmap(self, list);
                }
            }
            // Before the chunk's tag or id can be free.
            let ticket = quarantine.lost(id, path);
            let mut unanswered = UnansweredRequest {
                transfer,
                ticket,
                is_write: held.sent.is_write,
                id,
                cid: held.sent.cid,
                resent: held.sent.attempt.resent,
                is_whole: true,
                message: [0; MESSAGE_SIZE as usize],
                message_len: held.sent.usr_len,
            };
            drop(held);
            let message = unanswered
                .message
                .get_mut(..usize::from(unanswered.message_len));
            let read = self
                .messages
                .read(id.into(), 0, message.unwrap_or_default());
            // It does not fail: the message was written there.
            unanswered.is_whole = read.is_ok();
            requeue_to(unanswered);
        }
    }
}

impl Session {
    /// Requeues a request to the upper layer. Its chunk stays held.
    pub(crate) fn give_back(&self, id: u16, transfer: AnyTransfer, ticket: Ticket) {
        self.quarantine.given_back(id);
        transfer.requeue(ticket);
    }

    /// Requeues an unanswered request as [`Self::give_back`] does.
    pub(crate) fn give_back_unanswered(&self, unanswered: UnansweredRequest) {
        self.give_back(unanswered.id, unanswered.transfer, unanswered.ticket);
    }

    /// Sends a request again on another path if there `are_others`, or requeues it to the upper
    /// layer.
    ///
    /// The chunk of a message whose sender has given up is free when the end of the life is proven:
    /// no copy of it ends that.
    pub(crate) fn resend(&self, mut unanswered: UnansweredRequest, are_others: bool, end: LifeEnd) {
        let cid = usize::from(unanswered.cid);
        let message = unanswered
            .message
            .get(..usize::from(unanswered.message_len));
        let message = message.unwrap_or_default();
        let is_valid = unanswered.transfer.is_valid(message);
        if !is_valid && cid == ADMIN && end == LifeEnd::Proven {
            self.quarantine.answered(unanswered.id);
            return unanswered.transfer.requeue(unanswered.ticket);
        }
        let is_valid = are_others && is_valid;
        let again = unanswered.resent.again(is_valid);
        let Some(resent) = again.filter(|_| unanswered.is_whole) else {
            return self.give_back_unanswered(unanswered);
        };
        let guard = rcu::read_lock();
        let Some(paths) = self.paths.read(&guard) else {
            return self.give_back_unanswered(unanswered);
        };
        let sent = if unanswered.is_write {
            self.send_again::<WRITE, _>(
                paths,
                &guard,
                cid,
                unanswered.id,
                message,
                resent,
                unanswered.transfer,
            )
        } else {
            self.send_again::<READ, _>(
                paths,
                &guard,
                cid,
                unanswered.id,
                message,
                resent,
                unanswered.transfer,
            )
        };
        if let Err(back) = sent {
            self.give_back(unanswered.id, back.transfer, unanswered.ticket);
        }
    }

    /// Handles the timeout of the request with this tag: fails the path that it is on, so that it
    /// is sent again on another one. Any context.
    pub fn timed_out(&self, tag: u16) {
        let Some(own) = self.io_id(tag) else {
            return;
        };
        let id = self.quarantine.used_instead_of(own).unwrap_or(own);
        let guard = rcu::read_lock();
        let Some(paths) = self.paths.read(&guard) else {
            return;
        };
        for path in &paths.all {
            let connections = path.connections.read(&guard);
            let entry = connections.and_then(|t| t.requests.entries.get(usize::from(id)));
            if entry.is_some_and(|entry| entry.is_armed()) {
                path.abandon(PathError::RequestTimeout(id));
            }
        }
    }
}
