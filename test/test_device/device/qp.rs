// SPDX-License-Identifier: GPL-2.0

//! Queue pairs: what is posted to them, and their states.

use super::{
    cq::Cq,
    execute::receive,
    network::Network,
    provider::TestDevice,
    send_work::{
        PostedSend,
        SendWork, //
    },
};
use crate::proto::{
    counts::{
        Counter,
        Counts, //
    },
    fabric::Fabric,
    fault::{
        Fault,
        Kind,
        Place, //
    },
    qp_state::QpState,
    ring::Ring, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::udelay,
        Delta, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work, //
    },
};
use kernel_ext::{
    sync::{
        new_irq_lock,
        IrqLock, //
    },
    workqueue, //
};
use verbs_provider::{
    Completed,
    DmaRange,
    Gid,
    QpChange,
    QpHandle,
    QpInit,
    QpKind,
    Queue,
    SendRequest, //
};

/// The milliseconds that a registration waits for what the consumer does with an early answer.
const EARLY_MS: u32 = 50;

/// The number of the queue pair of management datagrams.
const GENERAL_QP: u32 = 1;

/// The memory of a work request, and its keys.
pub(super) type Segment = (DmaRange, u32);

/// A queue pair.
#[pin_data]
pub(crate) struct Qp {
    pub(super) number: u32,
    pub(super) domain: u32,
    pub(super) handle: Arc<QpHandle>,
    pub(super) send_cq: Arc<Cq>,
    pub(super) recv_cq: Arc<Cq>,
    pub(super) signal_all: bool,
    pub(super) network: Arc<Network>,
    /// The number of its port in the subnet of InfiniBand.
    pub(super) port: Option<usize>,
    kind: QpKind,
    #[pin]
    pub(super) inner: IrqLock<Inner>,
    #[pin]
    work: Work<Qp>,
}

impl_has_work! {
    impl HasWork<Self> for Qp { self.work }
}

/// The state of a queue pair, which changes.
pub(crate) struct Inner {
    pub(super) state: QpState,
    pub(super) dest_qp: u32,
    pub(super) dest_gid: Gid,
    pub(super) qkey: u32,
    pkey_index: u16,
    /// Whether the first send waits for a receive of the peer.
    pub(super) awaits_receive: bool,
    /// Whether it is known which fault the first send meets.
    pub(super) has_met_fault: bool,
    /// Whether a send has arrived whose end is not told yet.
    pub(super) is_unacknowledged: bool,
    pub(super) counts: Counts,
    /// A registration that is posted with the write behind it, after an answer to that.
    late: Option<(PostedSend, Fault)>,
    sends: Posted<PostedSend>,
    /// Sends that have left `sends`, whose places are free when the consumer takes a completion of
    /// one of them or of a later one, as on mlx5; and those of them since the last completion.
    taken: u32,
    unreported: u32,
    pub(super) receives: Posted<u64>,
}

/// Work requests in their order, and the segments of each.
pub(super) struct Posted<T> {
    ring: Ring,
    entries: KVVec<Option<(T, usize)>>,
    segments: KVVec<Option<Segment>>,
    max_sge: usize,
}

impl<T> Posted<T> {
    fn new(places: u32, max_sge: u32) -> Result<Self> {
        let places = usize::try_from(places).map_err(|_| EINVAL)?;
        let max_sge = usize::try_from(max_sge).map_err(|_| EINVAL)?;
        let count = places.checked_mul(max_sge).ok_or(EINVAL)?;
        let mut entries = KVVec::with_capacity(places, GFP_KERNEL)?;
        for _ in 0..places {
            entries.push(None, GFP_KERNEL)?;
        }
        Ok(Self {
            ring: Ring::new(places),
            entries,
            segments: KVVec::from_elem(None, count, GFP_KERNEL)?,
            max_sge,
        })
    }

    fn push(&mut self, request: T, segments: impl Iterator<Item = Segment>) -> Result {
        let place = self.ring.push().ok_or(ENOMEM)?;
        let room = self
            .segments
            .iter_mut()
            .skip(place.saturating_mul(self.max_sge))
            .take(self.max_sge);
        let (mut room, mut count) = (room, 0);
        for segment in segments {
            let Some(to) = room.next() else {
                self.ring.pop_last();
                return Err(EINVAL);
            };
            *to = Some(segment);
            count += 1;
        }
        if let Some(entry) = self.entries.get_mut(place) {
            *entry = Some((request, count));
        }
        Ok(())
    }

    /// Returns the first work request, which stays.
    pub(super) fn first(&self) -> Option<(&T, impl Iterator<Item = Segment> + '_)> {
        let place = self.ring.first()?;
        let (request, count) = self.entries.get(place)?.as_ref()?;
        let segments = self
            .segments
            .iter()
            .skip(place.saturating_mul(self.max_sge));
        Some((request, segments.take(*count).flatten().copied()))
    }

    /// Removes the first work request.
    pub(super) fn pop(&mut self) -> Option<T> {
        let place = self.ring.pop()?;
        Some(self.entries.get_mut(place)?.take()?.0)
    }
}

impl Inner {
    fn push_send(&mut self, send: PostedSend, segments: impl Iterator<Item = Segment>) -> Result {
        let room = u32::try_from(self.sends.ring.room()).unwrap_or(u32::MAX);
        if room <= self.taken {
            return Err(ENOMEM);
        }
        self.sends.push(send, segments)
    }

    /// Returns the first send, which stays.
    pub(super) fn first_send(&self) -> Option<(&PostedSend, impl Iterator<Item = Segment> + '_)> {
        self.sends.first()
    }

    /// Takes the first send, which is executed or flushed. Its place is not free yet.
    pub(super) fn take_send(&mut self) -> Option<PostedSend> {
        let send = self.sends.pop()?;
        self.taken = self.taken.saturating_add(1);
        self.unreported = self.unreported.saturating_add(1);
        Some(send)
    }

    /// Returns the number of sends that a completion which is told now says the end of.
    pub(super) fn report(&mut self) -> u32 {
        core::mem::take(&mut self.unreported)
    }

    /// Frees the places of sends whose end the consumer knows.
    pub(super) fn free(&mut self, sends: u32) {
        self.taken = self.taken.saturating_sub(sends);
    }
}

impl Qp {
    /// Creates a queue pair and adds it to the network.
    pub(super) fn new(
        network: &Arc<Network>,
        port: Option<usize>,
        handle: Arc<QpHandle>,
        init: &QpInit<'_, TestDevice>,
    ) -> Result<Arc<Self>> {
        let number = match init.kind {
            QpKind::General => GENERAL_QP,
            QpKind::Datagram | QpKind::Connected => network.tables.write().new_number(),
        };
        let inner = Inner {
            state: QpState::Reset,
            dest_qp: 0,
            dest_gid: Gid::default(),
            qkey: 0,
            pkey_index: 0,
            awaits_receive: false,
            has_met_fault: false,
            is_unacknowledged: false,
            counts: Counts::default(),
            late: None,
            sends: Posted::new(init.send_wr, init.send_sge)?,
            taken: 0,
            unreported: 0,
            receives: Posted::new(init.recv_wr, init.recv_sge)?,
        };
        let qp = Arc::pin_init(
            pin_init!(Self {
                number,
                domain: init.domain,
                handle,
                send_cq: init.send_cq.clone(),
                recv_cq: init.recv_cq.clone(),
                signal_all: init.signal_all,
                network: network.clone(),
                port,
                kind: init.kind,
                inner <- new_irq_lock!(inner),
                work <- new_work!("rdma_test_device::Qp::work"),
            }),
            GFP_KERNEL,
        )?;
        network.tables.write().add_qp(qp.clone())?;
        Ok(qp)
    }

    /// Returns whether this is the queue pair of management datagrams.
    pub(super) fn is_general(&self) -> bool {
        self.kind == QpKind::General
    }

    /// Returns whether this is one end of a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.kind == QpKind::Connected
    }

    /// Returns the key of its partition, as the table of its port has it now. That of management
    /// datagrams is in all.
    pub(super) fn pkey(&self, fabric: &Fabric) -> u16 {
        let index = usize::from(self.inner.lock().pkey_index);
        match self
            .port
            .filter(|_| !self.is_general())
            .and_then(|port| fabric.port(port))
        {
            Some(port) => port.pkeys.get(index).copied().unwrap_or(0),
            None => u16::MAX,
        }
    }

    /// Changes the state and the attributes.
    pub(super) fn modify(self: &Arc<Self>, change: &QpChange) -> Result {
        let tables = self.network.tables.write();
        let mut inner = self.inner.lock();
        let next = match change.state {
            Some(raw) => QpState::from_raw(raw).ok_or(EINVAL)?,
            None => inner.state,
        };
        if change.state.is_some() && !inner.state.may_become(next) {
            return Err(EINVAL);
        }
        if change.state.is_some() {
            self.network.check_alive()?;
        }
        if change.state.is_some() && next == QpState::Err {
            if let Some(Fault::Refuse(errno)) = self.lasting_fault(Place::ErrorState) {
                return Err(Error::from_errno(errno.saturating_neg()));
            }
        }
        let is_late = next == QpState::Reset
            && inner.state == QpState::Err
            && self.network.faults.lock().is_late_error(self.number);
        inner.state = if is_late { QpState::Err } else { next };
        inner.dest_qp = change.dest_qp_num.unwrap_or(inner.dest_qp);
        inner.dest_gid = change.dest_gid.unwrap_or(inner.dest_gid);
        inner.qkey = change.qkey.unwrap_or(inner.qkey);
        inner.pkey_index = change.pkey_index.unwrap_or(inner.pkey_index);
        if next == QpState::Reset {
            inner.has_met_fault = false;
            while inner.sends.pop().is_some() {}
            (inner.taken, inner.unreported) = (0, 0);
            while inner.receives.pop().is_some() {}
        }
        drop(inner);
        tables.wake_waiting_for(self.number);
        drop(tables);
        self.ring_doorbell();
        Ok(())
    }

    /// Returns the fault that one of its sends meets at this place; `bytes` is the length of one
    /// that is executed.
    pub(super) fn fault(&self, place: Place, kind: Kind, bytes: u64) -> Option<Fault> {
        if !self.is_connected() {
            return None;
        }
        let mut faults = self.network.faults.lock();
        faults.ask(place, self.number, kind, bytes)
    }

    /// Returns the fault that the queue pair has at this place.
    pub(super) fn lasting_fault(&self, place: Place) -> Option<Fault> {
        let is_connected = self.is_connected();
        let faults = self.network.faults.lock();
        faults.lasting(place, self.number, is_connected)
    }

    /// Gives it up, and says so before the work requests that are flushed tell as much.
    pub(super) fn give_up(self: &Arc<Self>) {
        self.handle.report_fatal();
        self.inner.lock().state = QpState::Err;
        self.ring_doorbell();
    }

    pub(super) fn post_send(self: &Arc<Self>, request: &SendRequest<'_, TestDevice>) -> Result {
        let work = SendWork::new(&request.operation);
        let fault = self.fault(Place::Post, work.kind(), 0);
        if let Some(Fault::Post(errno)) = fault {
            return Err(Error::from_errno(errno.saturating_neg()));
        }
        self.network.check_alive()?;
        let send = PostedSend {
            id: request.id,
            signaled: request.signaled,
            solicited: request.solicited,
            work,
        };
        if let SendWork::Write { imm: Some(imm), .. } = send.work {
            self.answer_early(imm)?;
        }
        let mut inner = self.inner.lock();
        if !inner.state.takes_sends() {
            return Err(EINVAL);
        }
        if let Some(fault @ Fault::Answer { .. }) = fault {
            inner.late = Some((send, fault));
            return Ok(());
        }
        let (counter, moves_bytes) = send.work.counter();
        inner.push_send(send, request.segments())?;
        inner.counts.add(counter, 1);
        if moves_bytes {
            let bytes = request.segments().map(|(range, _)| range.bytes()).sum();
            inner.counts.add(Counter::Bytes, bytes);
        }
        Ok(())
    }

    /// Answers early a write whose immediate is `imm`, if a registration waits for it: has the
    /// answer come, lets the consumer act on it, and posts the registration.
    fn answer_early(self: &Arc<Self>, imm: u32) -> Result {
        let mut inner = self.inner.lock();
        let Some((registration, fault)) = inner.late.take() else {
            return Ok(());
        };
        let before = inner.counts.get(Counter::Invalidations);
        drop(inner);
        // Immediates have the byte order of the wire.
        let answer = fault.answer(u32::from_be(imm)).map(u32::to_be);
        receive(self, Completed::ReceiveOfWrite, 0, answer, None, true);
        // The caller may not sleep.
        for _ in 0..EARLY_MS {
            udelay(Delta::from_millis(1));
            if self.inner.lock().counts.get(Counter::Invalidations) != before {
                // It is executed.
                udelay(Delta::from_millis(1));
                break;
            }
        }
        self.inner
            .lock()
            .push_send(registration, core::iter::empty())
    }

    /// Posts a work request that does nothing, also if the device has failed: then the driver
    /// flushes the queue pair.
    pub(super) fn post_last(&self, queue: Queue, id: u64) -> Result {
        let mut inner = self.inner.lock();
        if self.network.check_alive().is_err() {
            inner.state = QpState::Err;
        }
        let nothing = core::iter::empty();
        match queue {
            Queue::Receive => inner.receives.push(id, nothing),
            Queue::Send => {
                let send = PostedSend {
                    id,
                    signaled: true,
                    solicited: false,
                    work: SendWork::Write {
                        addr: 0,
                        key: 0,
                        imm: None,
                    },
                };
                inner.push_send(send, nothing)
            }
        }
    }

    pub(super) fn post_recv(&self, id: u64, segments: impl Iterator<Item = Segment>) -> Result {
        self.network.check_alive()?;
        let mut inner = self.inner.lock();
        if !inner.state.takes_receives() {
            return Err(EINVAL);
        }
        inner.receives.push(id, segments)?;
        inner.counts.add(Counter::Receives, 1);
        Ok(())
    }

    /// Counts one.
    pub(super) fn count(&self, counter: Counter) {
        self.inner.lock().counts.add(counter, 1);
    }

    /// Lets its engine look at the queue pair.
    pub(super) fn ring_doorbell(self: &Arc<Self>) {
        // If it is queued already, the engine will see what was posted.
        if let Some(engine) = self.network.engine_of(self.number) {
            let _ = engine.queue.enqueue::<_, 0>(self.clone());
        }
    }

    /// Removes the queue pair from the network.
    pub(super) fn close(self: &Arc<Self>) {
        let mut tables = self.network.tables.write();
        tables.remove_qp(self);
        self.inner.lock().state = QpState::Reset;
        tables.wake_waiting_for(self.number);
        drop(tables);
        drop(workqueue::cancel_sync::<_, 0>(self));
        self.send_cq.purge(self);
        self.recv_cq.purge(self);
    }
}
