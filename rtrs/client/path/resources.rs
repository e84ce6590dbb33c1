// SPDX-License-Identifier: GPL-2.0

//! The objects that a path keeps from one life to the next: all that do not depend on its peer.
//!
//! Dirty pages and swap may wait for a lost path. It therefore keeps what it needs to connect
//! again: completion queues, the requests with their regions and message buffers, the protection
//! domain. Only identifiers and queue pairs are created anew, since a queue pair's number must not
//! be reused while packets of its last connection may be under way (decision 0010).

use kernel::{
    prelude::*,
    sync::{
        Arc,
        UniqueArc, //
    },
};
use rdma::{
    Cq,
    Device,
    Notify,
    Pd,
    PollContext,
    QpConfig, //
};
use rtrs_core::proto::{
    handshake::Accepted,
    read_buffers::ReadBuffers, //
};

use crate::client::{
    io::table::RequestTable,
    path::{
        drain::Undrained,
        Path, //
        SendCqNotify,
    }, //
};

/// The completion queues of one connection, and the number of work requests that they are for.
#[derive(Clone)]
pub(crate) struct Queues {
    pub(crate) receives: Arc<Cq>,
    /// Its completions raise no interrupt unless a notification is requested.
    pub(crate) sends: Arc<Cq>,
    max_recv_wr: u32,
    max_send_wr: u32,
}

impl Queues {
    fn new(
        path: &Arc<Path>,
        device: &Device,
        config: &QpConfig,
        cpu: u32,
        context: PollContext,
    ) -> Result<Self> {
        // Draining takes one more of each.
        let late = Arc::new(SendCqNotify(path.clone()), GFP_KERNEL)?;
        let told: Arc<dyn Notify> = late.clone();
        let entries = config.max_recv_wr.saturating_add(2);
        let receives = Cq::new(device, entries, cpu, context, Some(told))?;
        let entries = config.max_send_wr.saturating_add(2);
        let sends = Cq::polled_with_notify(device, entries, cpu, late)?;
        Ok(Self {
            receives,
            sends,
            max_recv_wr: config.max_recv_wr,
            max_send_wr: config.max_send_wr,
        })
    }

    fn are_for(&self, config: &QpConfig) -> bool {
        let fit = self.max_recv_wr == config.max_recv_wr && self.max_send_wr == config.max_send_wr;
        fit && !self.receives.is_broken() && !self.sends.is_broken()
    }
}

/// The objects that a path connects with; [`Path::attempts`] guards them.
///
/// They are unused while there is no connection: the queues are empty, and no request is in the
/// table. The queues hold the path, so they are dropped before the path is closed.
pub(crate) struct Resources {
    pd: Option<Arc<Pd>>,
    /// The queues by the number of the connection.
    queues: KVec<Queues>,
    requests: Option<Pin<UniqueArc<RequestTable>>>,
    /// The connections that could not be drained; while there are some, there is no connection, and
    /// nothing else is used.
    pub(crate) undrained: Option<Undrained>,
}

impl Resources {
    pub(crate) const NONE: Self = Self {
        pd: None,
        queues: KVec::new(),
        requests: None,
        undrained: None,
    };

    /// Returns the protection domain on `device`. The objects of another device are dropped.
    pub(crate) fn pd(&mut self, device: &Device) -> Result<Arc<Pd>> {
        if let Some(pd) = self.pd.as_ref().filter(|pd| pd.device() == device) {
            return Ok(pd.clone());
        }
        *self = Self::NONE;
        let pd = Pd::new(device)?;
        self.pd = Some(pd.clone());
        Ok(pd)
    }

    /// Returns the completion queues of connection `cid`; those before it exist.
    pub(crate) fn queues(
        &mut self,
        path: &Arc<Path>,
        device: &Device,
        cid: u16,
        config: &QpConfig,
        context: PollContext,
    ) -> Result<Queues> {
        let index = usize::from(cid);
        if let Some(queues) = self.queues.get(index) {
            if queues.are_for(config) {
                return Ok(queues.clone());
            }
            // One of them has lost completions. Sizes follow from the session's depth and the
            // device.
            self.queues.truncate(index);
        }
        let queues = Queues::new(path, device, config, path.session.cpu_of(cid), context)?;
        self.queues.push(queues.clone(), GFP_KERNEL)?;
        Ok(queues)
    }

    /// Returns the requests of a new life, with what the server grants to it.
    pub(crate) fn requests(
        &mut self,
        pd: &Arc<Pd>,
        granted: Accepted,
        pages_max: u32,
        read_buffers: Option<ReadBuffers>,
    ) -> Result<Arc<RequestTable>> {
        if let Some(mut requests) = self.requests.take() {
            if requests.as_mut().get_mut().renew(granted) {
                return Ok(requests.into());
            }
        }
        RequestTable::new(pd, granted, pages_max, read_buffers)
    }

    /// Takes back what a life has used whose connections are gone. Sleeps.
    pub(crate) fn take_back(&mut self, requests: Arc<RequestTable>) {
        let unique = Arc::into_unique_or_drop(requests);
        let repaired = unique.and_then(|mut requests| {
            let done = requests.as_mut().get_mut().repair();
            done.is_ok().then_some(requests)
        });
        self.requests = repaired;
    }
}
