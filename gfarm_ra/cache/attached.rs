// SPDX-License-Identifier: GPL-2.0

//! A node that is attached to its device, and how it answers requests of other nodes.

use kernel::sync::Arc;
use rdma::DeviceId;

use super::{
    admission::{
        Admissions, //
        Admitted,
    },
    endpoint::Endpoint,
    in_flight::ReadsInFlight,
    membership::Membership,
    node::Shared,
    owner::Owner,
    peers::Peers,
    requester::Requests,
    responder::{
        PageCache,
        Responder,
        Served,
        BUSY, //
    },
    workers::Workers, //
};
use crate::proto::cache::{
    address::{
        Address,
        NodeId, //
    },
    counter::Counter,
    reply::{
        Answer,
        Reply, //
    },
    request::{
        Request,
        RequestId,
        Role, //
    }, //
};

/// The state of a node that exists while it is attached to a device.
pub(super) struct Attached {
    pub(super) endpoint: Arc<Endpoint<Shared>>,
    pub(super) peers: Arc<Peers>,
    pub(super) owner: Arc<Owner>,
    pub(super) membership: Arc<Membership<Shared>>,
    pub(super) responder: Arc<Responder<Shared>>,
    pub(super) requests: Arc<Requests<Shared>>,
    pub(super) in_flight: Arc<ReadsInFlight>,
    pub(super) admissions: Arc<Admissions>,
    pub(super) device: DeviceId,
}

/// The node that has sent a request.
#[derive(Clone, Copy)]
pub(super) struct RequestOrigin {
    pub(super) node: NodeId,
    pub(super) address: Address,
}

impl Attached {
    /// Answers a request. Sleeps until its fragments were sent, or spawns a worker that keeps the
    /// request.
    pub(super) fn answer(
        self: &Arc<Self>,
        request: Request,
        origin: RequestOrigin,
        admitted: Admitted,
        pages: Arc<dyn PageCache>,
        keepers: &Arc<Workers>,
    ) {
        let (id, RequestOrigin { node, address, .. }) = (request.id(), origin);
        if request.ask().role != Role::Holder {
            let answer = self.owner.ask(node, request.wanted(), request.ask());
            drop(admitted);
            return self.reply(id, &origin, answer, 0);
        }
        let responder = &self.responder;
        let (answer, size_bytes) =
            match responder.serve(&request, node, &address, &*pages, &admitted) {
                Served::Answer(answer, size_bytes) => (answer, size_bytes),
                Served::NoSender => (BUSY, 0),
                Served::Keep(_) => {
                    let this = self.clone();
                    let work = move || this.keep(&request, &origin, admitted, &*pages);
                    if !keepers.spawn(work) {
                        self.reply(id, &origin, BUSY, 0);
                    }
                    return;
                }
            };
        // The credits in the reply do not count this request.
        drop(admitted);
        self.reply(id, &origin, answer, size_bytes);
    }

    /// Keeps a request until this node has the pages, then answers it. Sleeps.
    fn keep(
        &self,
        request: &Request,
        origin: &RequestOrigin,
        admitted: Admitted,
        pages: &dyn PageCache,
    ) {
        let say = |answer| self.reply(request.id(), origin, answer, 0);
        let RequestOrigin { node, address, .. } = origin;
        let responder = &self.responder;
        let last = responder.keep(request, *node, address, pages, &admitted, say);
        drop(admitted);
        if let Some((answer, size_bytes)) = last {
            self.reply(request.id(), origin, answer, size_bytes);
        }
    }

    /// Sends a reply. May sleep. A reply that cannot be sent is dropped, as if it were lost.
    pub(super) fn reply(&self, id: RequestId, to: &RequestOrigin, answer: Answer, size_bytes: u64) {
        let reply = Reply {
            id,
            size_bytes,
            credits: self.admissions.credits(),
            answer,
        };
        self.endpoint.counters().add(Counter::said(&answer), 1);
        if let Some(bytes) = reply.seal(self.peers.me().node, to.node, self.requests.secret.key()) {
            let _ = self.endpoint.send(&to.address, &bytes);
        }
    }
}
