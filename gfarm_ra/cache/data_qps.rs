// SPDX-License-Identifier: GPL-2.0

//! The queue pairs for the fragments of reads. Each request has a key of its own, and to change
//! that of a queue pair is a command to the adapter's firmware: a worker does it between two reads.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::random;
use rdma::Cq;
use rdma_transfer::ReceiveQp;

use super::{
    endpoint::{
        Endpoint,
        Incoming, //
    },
    inbox::{
        Inbox,
        Landed, //
    },
    workers::Workers, //
};
use crate::proto::cache::{
    address::random_qkey,
    fragment::FRAGMENTS_MAX, //
};

/// Returns a key for one request.
pub(super) fn new_qkey() -> u32 {
    random_qkey(random::number())
}

/// A queue pair for the fragments of one read, and what comes for it.
pub(super) struct DataQp {
    pub(super) qp: ReceiveQp<Landed>,
    pub(super) cq: Arc<Cq>,
    pub(super) inbox: Arc<Inbox>,
}

impl DataQp {
    /// Creates the queue pair of an inbox. Sleeps.
    fn new<I: Incoming>(endpoint: &Endpoint<I>, inbox: Arc<Inbox>) -> Result<Self> {
        // CAST: 256.
        let fragments_max = FRAGMENTS_MAX as u16;
        let device = endpoint.pd().device();
        let entries = ReceiveQp::<Landed>::config(fragments_max).cq_entries();
        // The worker of the read takes what has come when it has the reply.
        let cq = Cq::polled_with_notify(device, entries, inbox.qp_index().into(), inbox.clone())?;
        let landed = Landed(inbox.clone());
        let qp = ReceiveQp::new(endpoint.pd(), &cq, &endpoint.port(), fragments_max, landed)?;
        Ok(Self { qp, cq, inbox })
    }
}

/// The queue pairs that no read uses. There is room for all in each list.
struct Lists {
    /// Queue pairs that the worker has prepared.
    idle: KVec<DataQp>,
    /// Queue pairs that have the key of their last request yet.
    used: KVec<DataQp>,
    /// The inboxes of those that have not been needed yet: each takes a time that a mount would
    /// wait for, and most mounts never need all.
    unmade: KVec<Arc<Inbox>>,
}

/// The queue pairs of a node for reads.
#[pin_data]
pub(super) struct DataQps<I: Incoming> {
    endpoint: Arc<Endpoint<I>>,
    #[pin]
    lists: Mutex<Lists>,
    /// Locked while the worker has a queue pair, which is in no list then.
    #[pin]
    renewing: Mutex<()>,
    worker: Arc<Workers>,
}

impl<I: Incoming> DataQps<I> {
    /// Creates the first queue pair; the others are created when they are needed. Sleeps.
    pub(super) fn new(endpoint: &Arc<Endpoint<I>>, inboxes: &[Arc<Inbox>]) -> Result<Arc<Self>> {
        let count = inboxes.len();
        let mut lists = Lists {
            idle: KVec::with_capacity(count, GFP_KERNEL)?,
            used: KVec::with_capacity(count, GFP_KERNEL)?,
            unmade: KVec::with_capacity(count, GFP_KERNEL)?,
        };
        for inbox in inboxes {
            let inbox = inbox.clone();
            // The first one is made now: a device that cannot is found out by the mount.
            match lists.idle.is_empty() {
                true => lists.idle.push(DataQp::new(endpoint, inbox)?, GFP_KERNEL)?,
                false => lists.unmade.push(inbox, GFP_KERNEL)?,
            }
        }
        let worker = Workers::new(c"gfarm_keys", 1)?;
        Arc::pin_init(
            pin_init!(Self {
                endpoint: endpoint.clone(),
                lists <- new_mutex!(lists, "DataQps::lists"),
                renewing <- new_mutex!((), "DataQps::renewing"),
                worker,
            }),
            GFP_KERNEL,
        )
    }

    /// Takes a queue pair that no read uses; `None` if all are in use, or none can be made now.
    /// Sleeps. No allocation in it waits for IO, as the caller has seen to.
    pub(super) fn take(&self) -> Option<DataQp> {
        let taken = self.take_listed();
        if taken.is_some() {
            return taken;
        }
        // The worker may have one, and takes no other one before the lists are looked at.
        let _renewing = self.renewing.lock();
        self.take_listed()
    }

    fn take_listed(&self) -> Option<DataQp> {
        let inbox = {
            let mut lists = self.lists.lock();
            let taken = lists.idle.pop();
            let taken = taken.or_else(|| lists.used.pop());
            if let Some(mut data_qp) = taken {
                data_qp.qp.set_partition(self.endpoint.port().pkey_index);
                return Some(data_qp);
            }
            lists.unmade.pop()?
        };
        let data_qp = DataQp::new(&self.endpoint, inbox.clone()).ok();
        if data_qp.is_none() {
            // The next read may have more luck.
            let _ = self.lists.lock().unmade.push_within_capacity(inbox);
        }
        data_qp
    }

    /// Takes a queue pair back from a read. Sleeps.
    pub(super) fn give_back(self: &Arc<Self>, data_qp: DataQp) {
        // There is room for all.
        let _ = self.lists.lock().used.push_within_capacity(data_qp);
        let this = self.clone();
        // Without a worker the next read has the key changed itself.
        let _ = self.worker.spawn(move || while this.renew() {});
    }

    /// Has one queue pair prepared for its next request. Returns whether there may be another one.
    /// Sleeps.
    fn renew(&self) -> bool {
        let _renewing = self.renewing.lock();
        let used = self.lists.lock().used.pop();
        let Some(mut data_qp) = used else {
            return false;
        };
        data_qp.qp.set_partition(self.endpoint.port().pkey_index);
        data_qp.qp.prepare_ahead(new_qkey());
        let _ = self.lists.lock().idle.push_within_capacity(data_qp);
        true
    }

    /// Ends the worker. Sleeps.
    pub(super) fn end(&self) {
        self.worker.end();
    }
}
