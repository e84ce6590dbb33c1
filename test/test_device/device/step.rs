// SPDX-License-Identifier: GPL-2.0

//! Steps of an engine: which work request is next, who may be beside it, and when its end is told.

use super::{
    execute::{
        complete_send,
        flush, //
    },
    mr::Regions,
    network::{
        Engine,
        Executor, //
    },
    qp::Qp,
    send_work::{
        PostedSend,
        SendWork, //
    },
    tables::{
        Aim,
        Tables, //
    },
};
use crate::proto::{
    engine::runs_beside,
    fault::{
        Fault,
        Place, //
    },
    key::{
        Refusal,
        LOCAL_WRITE, //
    },
    message::Status,
    qp_state::QpState,
};
use core::{
    mem::replace,
    ops::Deref, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::WorkItem, //
};
use kernel_ext::sync::atomic::Ordering;

/// The tables, as an engine has them while it executes.
pub(super) enum Held<'a> {
    /// Held for reading, as others may do as well.
    Beside(&'a Tables),
    /// Held for writing.
    Alone(&'a mut Tables),
}

impl Deref for Held<'_> {
    type Target = Tables;

    fn deref(&self) -> &Tables {
        match self {
            Self::Beside(tables) => tables,
            Self::Alone(tables) => tables,
        }
    }
}

impl Held<'_> {
    fn is_alone(&self) -> bool {
        matches!(self, Self::Alone(_))
    }

    /// Returns the regions, to change them; fails beside other engines, where none asks for it.
    pub(super) fn regions(&mut self) -> Result<&mut Regions, Refusal> {
        match self {
            Self::Beside(_) => Err(Refusal::NotAllowed),
            Self::Alone(tables) => Ok(&mut tables.regions),
        }
    }
}

/// The result of the first send of a queue pair.
pub(super) enum Outcome {
    Done(Status, u32),
    AwaitReceive,
}

/// The result of a step.
enum Step {
    /// Nothing to do.
    Idle,
    /// The step is to be done while no other engine executes.
    Alone,
    /// More may be to do.
    More,
    /// The send is executed; its end is to be told, and there may be more.
    Ended(PostedSend, Status, u32),
}

impl WorkItem for Qp {
    type Pointer = Arc<Qp>;

    fn run(this: Arc<Qp>) {
        this.network.tables.read().wake_waiting_for(this.number);
        let Some(engine) = this.network.engine_of(this.number) else {
            return;
        };
        let mut executor = engine.executor.lock();
        for _ in 0..crate::TURN.get() {
            if !executor.turn(engine, &this) {
                return;
            }
        }
        drop(executor);
        this.ring_doorbell();
    }
}

impl Executor {
    /// Executes or flushes one work request; returns whether there may be more.
    fn turn(&mut self, engine: &Engine, qp: &Arc<Qp>) -> bool {
        let tables = &qp.network.tables;
        let mut step = self.step(engine, &mut Held::Beside(&tables.read()), qp);
        if matches!(step, Step::Alone) {
            step = self.step(engine, &mut Held::Alone(&mut tables.write()), qp);
        }
        match step {
            Step::Idle | Step::Alone => false,
            Step::More => true,
            Step::Ended(send, status, len) => {
                acknowledge(qp, &send, status, len);
                true
            }
        }
    }

    fn step(&mut self, engine: &Engine, tables: &mut Held<'_>, qp: &Arc<Qp>) -> Step {
        let mut inner = qp.inner.lock();
        let is_dead = qp.network.check_alive().is_err();
        match inner.state {
            QpState::Reset => return Step::Idle,
            QpState::Err if qp.lasting_fault(Place::Flush).is_some() => return Step::Idle,
            state if state == QpState::Err || is_dead && !qp.is_connected() => {
                if !tables.is_alone() {
                    return Step::Alone;
                }
                let receive = inner.receives.pop();
                let send = inner.take_send();
                drop(inner);
                return match flush(qp, receive, send) {
                    true => Step::More,
                    false => Step::Idle,
                };
            }
            QpState::Rts if !is_dead => {}
            _ => return Step::Idle,
        }
        let Some((send, segments)) = inner.first_send() else {
            return Step::Idle;
        };
        let send = send.clone();
        // What a read brings is written to local memory.
        let (list, wanted) = match send.work {
            SendWork::Read { .. } => (&mut self.to, LOCAL_WRITE),
            _ => (&mut self.from, 0),
        };
        let gathered = tables.regions.gather(list, qp.domain, wanted, segments);
        drop(inner);
        let receive = send.work.receive();
        let aim = receive.map(|receive| tables.aim(qp, receive, self.from.bytes()));
        let delivery = aim.as_ref().map(|(_, delivery)| *delivery);
        if !tables.is_alone() && !runs_beside(delivery, send.work.changes_keys()) {
            return Step::Alone;
        }
        let is_of_connection = aim.is_some();
        let execute = || self.first(tables, qp, send, aim, gathered);
        match is_of_connection {
            true => engine.count_send(&qp.network, execute),
            false => execute(),
        }
    }

    /// Executes the first send, whose local memory is gathered.
    fn first(
        &mut self,
        tables: &mut Held<'_>,
        qp: &Arc<Qp>,
        send: PostedSend,
        aim: Option<Aim>,
        gathered: Result<(), Status>,
    ) -> Step {
        let is_signaled = send.signaled || qp.signal_all;
        let mut inner = qp.inner.lock();
        let is_new = !replace(&mut inner.has_met_fault, true);
        inner.is_unacknowledged = is_signaled;
        drop(inner);
        let bytes = self.from.bytes();
        let fault = is_new.then(|| qp.fault(Place::Execution, send.work.kind(), bytes));
        let outcome = match (fault.flatten(), gathered) {
            (Some(Fault::Status(raw)), _) => Outcome::Done(Status::Demanded(raw), 0),
            (Some(Fault::Lose), _) => Outcome::Done(Status::Success, 0),
            (Some(Fault::Flip(bit)), Ok(())) => {
                self.flip = Some(bit);
                let outcome = self.execute(tables, qp, &send, aim);
                self.flip = None;
                outcome
            }
            (_, Ok(())) => self.execute(tables, qp, &send, aim),
            (_, Err(status)) => Outcome::Done(status, 0),
        };
        let mut inner = qp.inner.lock();
        let (status, len) = match outcome {
            Outcome::AwaitReceive => {
                inner.awaits_receive = true;
                inner.is_unacknowledged = false;
                return Step::Idle;
            }
            Outcome::Done(status, len) => (status, len),
        };
        drop(inner.take_send());
        inner.has_met_fault = false;
        if status != Status::Success {
            inner.state = QpState::Err;
        }
        if is_signaled || status != Status::Success {
            return Step::Ended(send, status, len);
        }
        Step::More
    }
}

/// Tells the end of a send, as late as the peer's acknowledgement comes. Others may go on with what
/// has arrived meanwhile.
fn acknowledge(qp: &Arc<Qp>, send: &PostedSend, status: Status, len: u32) {
    let late = crate::ACK_US.get();
    if late > 0 && qp.is_connected() {
        let under_way = &qp.network.under_way;
        under_way.fetch_add(1, Ordering::Relaxed);
        fsleep(Delta::from_micros(late.into()));
        under_way.fetch_sub(1, Ordering::Relaxed);
    }
    qp.inner.lock().is_unacknowledged = false;
    complete_send(qp, send, status, len);
}
