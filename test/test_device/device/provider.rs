// SPDX-License-Identifier: GPL-2.0

//! The device towards `ib_core`.

use super::{
    cq::Cq,
    mr::Mr,
    network::Network,
    qp::Qp, //
};
use crate::proto::{
    counts::Counter,
    send_queue, //
};
use kernel::{
    prelude::*,
    sync::Arc,
    time::{
        delay::fsleep,
        Delta, //
    }, //
};
use verbs_provider::{
    Completion,
    CqHandle,
    DmaRange,
    Gid,
    Limits,
    Provider,
    QpChange,
    QpHandle,
    QpInit,
    QpKind,
    Queue,
    SendRequest,
    Subnet, //
};

/// The RDMA device.
pub(crate) struct TestDevice {
    limits: Limits,
    network: Arc<Network>,
    /// The number of its port in the subnet of InfiniBand.
    port: Option<usize>,
}

impl TestDevice {
    pub(crate) fn new(
        limits: Limits,
        network: Arc<Network>,
        port: Option<usize>,
    ) -> Result<Arc<Self>> {
        let this = Self {
            limits,
            network,
            port,
        };
        Ok(Arc::new(this, GFP_KERNEL)?)
    }
}

// SAFETY: Only `Executor::copy` and `Executor::send_datagram` access memory, of the one work
// request that an engine executes, which has the tables of the network until they are done: for
// reading, or for writing if it is alone. The request is in its queue all the while, as are the
// receive of the peer and the registrations that are used: requests are flushed, and registrations
// ended, by who has the tables for writing; else a request is taken out of its queue by the engine
// that executes it, and a receive by the one that executes the peer's sends, which one engine does.
// So neither has completed. `close_qp` and `close_mr` have the tables for writing; afterwards the
// engines do not find the queue pair (its state is `Reset`) or the region. The pages of a region
// are used only while it is registered.
unsafe impl Provider for TestDevice {
    type Cq = Cq;
    type Qp = Qp;
    type Mr = Mr;

    fn limits(&self) -> Limits {
        self.limits
    }

    fn subnet(&self) -> Option<Subnet> {
        let fabric = self.network.fabric.lock();
        let port = fabric.port(self.port?)?;
        Some(Subnet {
            lid: port.lid,
            prefix: port.prefix,
            pkeys: port.pkeys,
        })
    }

    fn add_gid(&self, index: u32, gid: Gid) -> Result {
        self.network.tables.write().add_gid(index, gid)
    }

    fn remove_gid(&self, index: u32) {
        self.network.tables.write().remove_gid(index);
    }

    fn drains(&self) -> bool {
        crate::DRAINS.get() != 0
    }

    fn create_cq(&self, handle: Arc<CqHandle>, entries: u32, vector: u32) -> Result<Arc<Cq>> {
        if entries == 0 || entries > self.limits.cqe || vector >= self.limits.vectors {
            return Err(EINVAL);
        }
        self.network.check_alive()?;
        Cq::new(handle, self.network.clone(), entries, vector)
    }

    fn close_cq(cq: &Arc<Cq>) {
        cq.close();
    }

    fn poll(cq: &Cq) -> Option<(Arc<Qp>, Completion)> {
        cq.poll()
    }

    fn arm(cq: &Cq, solicited: bool) -> bool {
        cq.arm(solicited)
    }

    fn create_qp(&self, handle: Arc<QpHandle>, init: QpInit<'_, Self>) -> Result<Arc<Qp>> {
        let fits = init.send_wr <= self.limits.qp_wr
            && init.recv_wr <= self.limits.qp_wr
            && init.send_sge <= self.limits.send_sge
            && init.recv_sge <= self.limits.recv_sge;
        if !fits {
            return Err(EINVAL);
        }
        let blocks = send_queue::blocks(init.send_wr, init.send_sge);
        let most = u64::from(crate::MAX_SQ_BLOCKS.get());
        if init.kind == QpKind::Connected && most != 0 && blocks > most {
            return Err(ENOMEM);
        }
        self.network.check_alive()?;
        Qp::new(&self.network, self.port, handle, &init)
    }

    fn handle(qp: &Qp) -> &QpHandle {
        &qp.handle
    }

    fn number(qp: &Qp) -> u32 {
        qp.number
    }

    fn state(qp: &Qp) -> u32 {
        qp.inner.lock().state.to_raw()
    }

    fn modify(qp: &Arc<Qp>, change: &QpChange) -> Result {
        qp.modify(change)
    }

    fn post_send(qp: &Arc<Qp>, request: &SendRequest<'_, Self>) -> Result {
        qp.post_send(request)
    }

    fn post_recv(qp: &Arc<Qp>, id: u64, segments: impl Iterator<Item = (DmaRange, u32)>) -> Result {
        qp.post_recv(id, segments)
    }

    fn post_last(qp: &Arc<Qp>, queue: Queue, id: u64) -> Result {
        qp.post_last(queue, id)
    }

    fn ring_doorbell(qp: &Arc<Qp>, queue: Queue) {
        qp.count(match queue {
            Queue::Send => Counter::SendDoorbells,
            Queue::Receive => Counter::ReceiveDoorbells,
        });
        qp.ring_doorbell();
    }

    fn close_qp(qp: &Arc<Qp>) {
        qp.close();
    }

    fn create_mr(&self, domain: u32, pages: u32) -> Result<(Arc<Mr>, u32)> {
        if pages == 0 || pages > self.limits.fast_reg_pages {
            return Err(EINVAL);
        }
        self.network.check_alive()?;
        fsleep(Delta::from_millis(crate::REGION_MS.get().into()));
        Mr::new(&self.network, domain, pages)
    }

    fn clear_pages(mr: &Mr) {
        mr.clear();
    }

    fn push_page(mr: &Mr, page: DmaRange) -> Result {
        mr.push(page)
    }

    fn close_mr(mr: &Mr) {
        mr.close();
    }
}
