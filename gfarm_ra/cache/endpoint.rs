// SPDX-License-Identifier: GPL-2.0

//! The queue pairs for messages of a mount, and its address: messages of other nodes come to the
//! public one, and go from there. Replies come to the other one, which strangers do not know: who
//! floods the public one has no reply lost.

use kernel::{
    new_mutex, new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    },
};
use kernel_ext::random;
use rdma::{
    AddressHandle,
    Cq,
    DatagramPort,
    Gid,
    Pd,
    Peer,
    PollContext,
    PortAddress, //
};

pub(crate) use super::message_qp::Incoming;
use super::{
    counters::Counters,
    handles::{
        Handles,
        HANDLES, //
    },
    message_qp::{
        MessageQp,
        Shape, //
    },
    place::{
        Found,
        Local, //
    }, //
};
use crate::proto::cache::{
    address::{
        random_qkey,
        Address,
        QueuePair, //
    },
    fragment::FragmentLen,
    place::Unusable,
    wire::QpRole, //
};

/// The queue pairs for messages. Dropping them sleeps; what has come is handled before.
#[pin_data]
pub(crate) struct Endpoint<I: Incoming> {
    public: Arc<MessageQp<I>>,
    replies: Arc<MessageQp<I>>,
    pd: Arc<Pd>,
    counters: Arc<Counters>,
    found: Found,
    /// The port as it was seen last, and the address of the public queue pair.
    #[pin]
    local: SpinLock<Local>,
    #[pin]
    handles: Mutex<Handles>,
}

impl<I: Incoming> Endpoint<I> {
    /// Creates the queue pairs, with receives for `serving` messages at once at the public one, and
    /// for `asking` at the other one: a request is sent again, and one that is kept is answered
    /// again, after milliseconds at the earliest. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns an error of the device if it has not enough of something, `ENOMEM` if an allocation
    /// fails.
    pub(crate) fn new(
        found: Found,
        (serving, asking): (u16, u16),
        incoming: Arc<I>,
        counters: &Arc<Counters>,
    ) -> Result<Arc<Self>> {
        let public = Shape::new(QpRole::Public, serving);
        let replies = Shape::new(QpRole::Replies, asking);
        let pd = Pd::new(&found.device)?;
        // One for both: its worker takes what comes in the order in which it has come, so a reply
        // waits for the receives of the public queue pair at most, however many datagrams come.
        let entries = public.cq_entries().saturating_add(replies.cq_entries());
        let context = PollContext::Workqueue;
        let cq = Cq::new(&found.device, entries, 0, context, None)?;
        let on = (&pd, &cq);
        let port = found.port();
        let own = DatagramPort {
            qkey: random_qkey(random::number()),
            ..port
        };
        let mtu_bytes = found.mtu_bytes;
        let replies = MessageQp::new(on, replies, &own, mtu_bytes, incoming.clone(), counters)?;
        let public = MessageQp::new(on, public, &port, mtu_bytes, incoming, counters)?;
        let local = found.local(public.name().qpn()).ok_or(EINVAL)?;
        let handles = Handles::new()?;
        Arc::pin_init(
            pin_init!(Self {
                public,
                replies,
                pd,
                counters: counters.clone(),
                local <- new_spinlock!(local, "Endpoint::local"),
                found,
                handles <- new_mutex!(handles, "Endpoint::handles"),
            }),
            GFP_KERNEL,
        )
    }

    /// Ends them: nothing is sent any more, and the handlers of what has come have returned.
    /// Sleeps.
    ///
    /// # Errors
    ///
    /// Returns an error if the device does not flush a queue pair.
    pub(crate) fn close(&self) -> Result {
        let closed = self.public.close();
        self.replies.close().and(closed)
    }

    /// Starts those again that have failed, or whose partition has another index, see
    /// [`MessageQp::restart_failed`]. Sleeps. Not after [`close`](Self::close).
    pub(crate) fn restart_failed(&self) {
        self.public.restart_failed(self.port());
        self.replies.restart_failed(self.port());
    }

    /// Returns the queue pair to which nodes that are asked reply.
    pub(crate) fn replies(&self) -> QueuePair {
        self.replies.name()
    }

    /// Returns the address of this node.
    pub(crate) fn address(&self) -> Address {
        self.local.lock().address
    }

    /// Looks at the port anew; returns the address of the queue pair if that has changed. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns why the port cannot be used now.
    pub(crate) fn look(&self) -> Result<Option<Address>, Unusable> {
        let old = *self.local.lock();
        let new = self.found.look_again(&old)?;
        if new == old {
            return Ok(None);
        }
        *self.local.lock() = new;
        for place in 0..HANDLES {
            let old = self.handles.lock().take(place);
            // Not under the lock: the device may take its time.
            drop(old);
        }
        Ok((new.address != old.address).then_some(new.address))
    }

    /// Returns the domain of the queue pair.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Returns the port, for queue pairs of data.
    pub(crate) fn port(&self) -> DatagramPort {
        self.local.lock().port
    }

    /// Returns the longest fragments that are sent and asked for.
    pub(crate) fn longest(&self) -> FragmentLen {
        self.found.longest
    }

    /// Returns what counts what happens here.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Has an address looked up anew for the next message to it. Sleeps.
    pub(crate) fn forget(&self, to: &Address) {
        let forgotten = self.handles.lock().remove(to);
        drop(forgotten);
    }

    /// Returns whether an address needs no look-up.
    pub(crate) fn knows(&self, to: &Address) -> bool {
        self.handles.lock().find(to).is_some()
    }

    /// Returns the handle for an address, which may have to be looked up: that takes up to a second
    /// if no machine has it. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns what the look-up says.
    pub(crate) fn handle(&self, to: &Address) -> Result<AddressHandle> {
        if let Some(handle) = self.handles.lock().find(to) {
            return Ok(handle);
        }
        let (gid, port) = (Gid(to.gid()), self.port());
        let address = PortAddress {
            gid: (gid != Gid::default()).then_some(gid),
            lid: to.lid(),
            service_level: to.sl(),
            port: port.port,
            gid_index: port.gid_index,
            traffic_class: self.found.traffic_class,
        };
        let handle = AddressHandle::new(self.pd(), &address)?;
        let replaced = {
            let mut handles = self.handles.lock();
            // Another task may have made one meanwhile.
            if let Some(handle) = handles.find(to) {
                return Ok(handle);
            }
            // Or the port has changed, and with it all handles.
            if self.port() != port {
                return Ok(handle);
            }
            handles.add(to, handle.clone())
        };
        drop(replaced);
        Ok(handle)
    }

    /// Sends a message to a queue pair of a node. Sleeps if the address is new.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`MessageQp::send`], or of the look-up of the address.
    pub(crate) fn send(&self, to: &Address, bytes: &[u8]) -> Result {
        let handle = self.handle(to)?;
        let peer = Peer {
            address: &handle,
            qp_number: to.qpn(),
            qkey: to.qkey(),
        };
        self.public.send(peer, bytes)
    }
}
