// SPDX-License-Identifier: GPL-2.0

//! Executing what was posted, with the tables of the network.

use super::{
    mr::Regions,
    network::Executor,
    qp::Qp,
    send_work::{
        PostedSend,
        SendWork, //
    },
    step::{
        Held,
        Outcome, //
    },
    tables::Aim,
};
use crate::proto::{
    fabric::is_same_partition,
    fault::{
        Fault,
        Place, //
    },
    gather::copy_pieces,
    key::{
        Refusal,
        LOCAL_WRITE,
        REMOTE_READ,
        REMOTE_WRITE, //
    },
    message::{
        receives_datagram,
        Delivery,
        Status, //
    },
    qp_state::QpState,
};
use core::iter::once;
use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::sync::atomic::Ordering;
use verbs_provider::{
    Completed,
    Completion,
    Datagram,
    DmaRange,
    Source, //
};

/// The bytes in front of a datagram.
const GRH_BYTES: usize = 40;

/// The bit of `remote_qkey` that says that the key of the sending queue pair counts.
const OWN_QKEY: u32 = 1 << 31;

impl Executor {
    /// Executes a send. `aim` is where it goes, if it is one of a connection.
    pub(super) fn execute(
        &mut self,
        tables: &mut Held<'_>,
        qp: &Arc<Qp>,
        send: &PostedSend,
        aim: Option<Aim>,
    ) -> Outcome {
        let done = |ok: bool, status| {
            let status = if ok { Status::Success } else { status };
            Outcome::Done(status, 0)
        };
        match &send.work {
            SendWork::Send {
                datagram: Some(datagram),
                imm,
                ..
            } => {
                self.send_datagram(tables, qp, datagram, *imm, send.solicited);
                Outcome::Done(Status::Success, 0)
            }
            SendWork::Invalidate { key } => {
                let result = match crate::REFUSE_INVALIDATIONS.get() {
                    0 => tables.regions().and_then(|r| r.invalidate(qp.domain, *key)),
                    _ => Err(Refusal::NoKey),
                };
                done(result.is_ok(), Status::MemoryManagement)
            }
            SendWork::Register {
                mr,
                key,
                access,
                extent,
            } => {
                let register = |r: &mut Regions| r.register(qp.domain, mr, *key, *access, *extent);
                let result = tables.regions().and_then(register);
                if result == Ok(true) {
                    pr_err!("key {key:#x} is registered after its invalidation\n");
                }
                done(result.is_ok(), Status::MemoryManagement)
            }
            SendWork::Send { .. } | SendWork::Write { .. } | SendWork::Read { .. } => {
                self.transfer(tables, send, aim)
            }
        }
    }

    /// Executes what needs the peer of a connection.
    fn transfer(&mut self, tables: &mut Held<'_>, send: &PostedSend, aim: Option<Aim>) -> Outcome {
        let Some((Some(peer), delivery)) = aim else {
            return Outcome::Done(Status::RetryExceeded, 0);
        };
        match delivery {
            Delivery::AwaitReceive => Outcome::AwaitReceive,
            Delivery::Refuse { sender, receiver } => {
                if let Some(status) = receiver {
                    fail_receive(&peer, status);
                }
                Outcome::Done(sender, 0)
            }
            Delivery::Execute => match self.access_peer(tables, &peer, send) {
                Ok(read) => Outcome::Done(Status::Success, read),
                Err((sender, receiver)) => {
                    fail_receive(&peer, receiver);
                    Outcome::Done(sender, 0)
                }
            },
        }
    }

    /// Moves the bytes of a send; returns the number of those that were read, or the status of the
    /// sender and of the peer.
    fn access_peer(
        &mut self,
        tables: &mut Held<'_>,
        peer: &Arc<Qp>,
        send: &PostedSend,
    ) -> Result<u32, (Status, Status)> {
        let len = self.from.bytes();
        let access_error = (Status::RemoteAccess, Status::LocalOperation);
        match send.work {
            SendWork::Read { addr, key } => {
                let len = self.to.bytes();
                self.from.clear();
                if len > 0 {
                    tables
                        .regions
                        .append(&mut self.from, peer.domain, (key, REMOTE_READ), addr, len)
                        .map_err(|_| access_error)?;
                }
                self.copy(len);
                Ok(u32::try_from(len).unwrap_or(u32::MAX))
            }
            SendWork::Write { addr, key, imm } => {
                self.to.clear();
                if len > 0 {
                    tables
                        .regions
                        .append(&mut self.to, peer.domain, (key, REMOTE_WRITE), addr, len)
                        .map_err(|_| access_error)?;
                }
                self.copy(len);
                if imm.is_some() {
                    let completed = Completed::ReceiveOfWrite;
                    receive(peer, completed, len, imm, None, send.solicited);
                }
                Ok(0)
            }
            SendWork::Send {
                imm, invalidate, ..
            } => {
                let failed = (Status::RemoteOperation, Status::LocalProtection);
                let inner = peer.inner.lock();
                let (_, segments) = inner.receives.first().ok_or(failed)?;
                tables
                    .regions
                    .gather(&mut self.to, peer.domain, LOCAL_WRITE, segments)
                    .map_err(|_| failed)?;
                drop(inner);
                if let Some(key) = invalidate {
                    let regions = tables.regions().map_err(|_| failed)?;
                    regions.invalidate(peer.domain, key).map_err(|_| failed)?;
                }
                self.copy(len);
                receive(
                    peer,
                    Completed::Receive,
                    len,
                    imm,
                    invalidate,
                    send.solicited,
                );
                Ok(0)
            }
            SendWork::Invalidate { .. } | SendWork::Register { .. } => Ok(0),
        }
    }

    /// Sends a datagram; one that its receiver does not take is lost, as on a wire.
    fn send_datagram(
        &mut self,
        tables: &Held<'_>,
        qp: &Arc<Qp>,
        datagram: &Datagram,
        imm: Option<u32>,
        solicited: bool,
    ) {
        let fabric = *qp.network.fabric.lock();
        let Some(peer) = tables.receiver(datagram, &fabric).cloned() else {
            return;
        };
        if !is_same_partition(peer.pkey(&fabric), qp.pkey(&fabric)) {
            return;
        }
        let lid = qp.port.and_then(|port| Some(fabric.port(port)?.lid));
        let qkey = match datagram.qkey & OWN_QKEY {
            0 => datagram.qkey,
            _ => qp.inner.lock().qkey,
        };
        let mut header = [0; GRH_BYTES];
        for (to, from) in header
            .iter_mut()
            .skip(8)
            .zip(Iterator::chain(datagram.from.iter(), &datagram.to))
        {
            *to = *from;
        }
        let len = self.from.bytes();
        let inner = peer.inner.lock();
        let Some((_, mut segments)) = inner.receives.first() else {
            return;
        };
        let Some(rest) = segments
            .next()
            .and_then(|(range, key)| Some((range.fill(&header)?, key)))
        else {
            return;
        };
        let gathered = tables.regions.gather(
            &mut self.to,
            peer.domain,
            LOCAL_WRITE,
            Iterator::chain(once(rest), segments),
        );
        let room = self.to.bytes();
        if gathered.is_err() || !receives_datagram(inner.state, inner.qkey, qkey, room, len) {
            return;
        }
        drop(inner);
        self.copy(len);
        let Some(id) = peer.inner.lock().receives.pop() else {
            return;
        };
        let all = len.saturating_add(40);
        let completion = Completion {
            id,
            status: Status::Success.to_raw(),
            completed: Completed::Receive,
            len: u32::try_from(all).unwrap_or(u32::MAX),
            imm,
            invalidated: None,
            source: Some(Source {
                qp_num: qp.number,
                lid,
            }),
        };
        peer.recv_cq.push(peer.clone(), completion, solicited);
    }

    fn copy(&mut self, len: u64) {
        let flip = self.flip.take().map(u64::from);
        let mut before = 0u64;
        copy_pieces(&self.from, &self.to, len, |from: DmaRange, to: DmaRange| {
            from.copy_to(&to);
            if let Some(bit) = flip.and_then(|bit| bit.checked_sub(before)) {
                to.flip(bit);
            }
            before = before.saturating_add(to.bytes().saturating_mul(8));
        });
    }
}

/// Completes the first receive of a queue pair.
pub(super) fn receive(
    qp: &Arc<Qp>,
    completed: Completed,
    len: u64,
    imm: Option<u32>,
    invalidated: Option<u32>,
    solicited: bool,
) {
    let mut inner = qp.inner.lock();
    let Some(id) = inner.receives.pop() else {
        return;
    };
    let is_early = inner.is_unacknowledged;
    drop(inner);
    if let Some(engine) = qp.network.engine_of(qp.number).filter(|_| is_early) {
        engine.early_answers.fetch_add(1, Ordering::Relaxed);
    }
    let completion = Completion {
        id,
        status: Status::Success.to_raw(),
        completed,
        len: u32::try_from(len).unwrap_or(u32::MAX),
        imm,
        invalidated,
        source: None,
    };
    qp.recv_cq.push(qp.clone(), completion, solicited);
}

/// Moves a queue pair into the error state, and completes its first receive so.
fn fail_receive(qp: &Arc<Qp>, status: Status) {
    let mut inner = qp.inner.lock();
    inner.state = QpState::Err;
    let first = inner.receives.pop();
    drop(inner);
    if let Some(id) = first {
        complete(qp, id, Completed::Receive, status);
    }
    qp.ring_doorbell();
}

/// Completes what was posted to a queue pair in the error state; returns whether there was any.
pub(super) fn flush(qp: &Arc<Qp>, receive: Option<u64>, send: Option<PostedSend>) -> bool {
    let was_any = receive.is_some() || send.is_some();
    if let Some(id) = receive {
        complete(qp, id, Completed::Receive, Status::Flushed);
    }
    if let Some(send) = send {
        complete_send(qp, &send, Status::Flushed, 0);
    }
    was_any
}

/// Completes a receive that failed.
fn complete(qp: &Arc<Qp>, id: u64, completed: Completed, status: Status) {
    let completion = Completion {
        id,
        status: status.to_raw(),
        completed,
        len: 0,
        imm: None,
        invalidated: None,
        source: None,
    };
    qp.recv_cq.push(qp.clone(), completion, true);
}

pub(super) fn complete_send(qp: &Arc<Qp>, send: &PostedSend, status: Status, len: u32) {
    let completed = match send.work {
        SendWork::Send { .. } => Completed::Send,
        SendWork::Write { .. } => Completed::Write,
        SendWork::Read { .. } => Completed::Read,
        SendWork::Invalidate { .. } => Completed::Invalidate,
        SendWork::Register { .. } => Completed::Register,
    };
    let completion = Completion {
        id: send.id,
        status: status.to_raw(),
        completed,
        len,
        imm: None,
        invalidated: None,
        source: None,
    };
    match qp.fault(Place::Completion, send.work.kind(), 0) {
        Some(Fault::Overrun) => qp.send_cq.overrun(),
        Some(Fault::Fatal) => {
            qp.send_cq.push(qp.clone(), completion, false);
            qp.give_up();
        }
        _ => qp.send_cq.push(qp.clone(), completion, false),
    }
}
