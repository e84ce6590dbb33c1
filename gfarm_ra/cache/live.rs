// SPDX-License-Identifier: GPL-2.0

//! What a node has on its device, and how it answers others with it.

use kernel::sync::Arc;
use rdma::DeviceId;

use super::{
    endpoint::Endpoint,
    fetches::Fetches,
    guests::{
        Admitted,
        Guests, //
    },
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

/// What a node has on its device.
pub(super) struct Live {
    pub(super) endpoint: Arc<Endpoint<Shared>>,
    pub(super) peers: Arc<Peers>,
    pub(super) owner: Arc<Owner>,
    pub(super) membership: Arc<Membership<Shared>>,
    pub(super) responder: Arc<Responder<Shared>>,
    pub(super) requests: Arc<Requests<Shared>>,
    pub(super) fetches: Arc<Fetches>,
    pub(super) guests: Arc<Guests>,
    pub(super) device: DeviceId,
}

/// A node that has asked.
#[derive(Clone, Copy)]
pub(super) struct Asker {
    pub(super) node: NodeId,
    pub(super) address: Address,
}

impl Live {
    /// Answers a request. Sleeps until its fragments have left.
    pub(super) fn answer(
        self: &Arc<Self>,
        request: Request,
        asker: Asker,
        admitted: Admitted,
        pages: Arc<dyn PageCache>,
        keepers: &Arc<Workers>,
    ) {
        let (id, Asker { node, address, .. }) = (request.id(), asker);
        if request.ask().role != Role::Holder {
            let answer = self.owner.ask(node, request.wanted(), request.ask());
            drop(admitted);
            return self.reply(id, &asker, answer, 0);
        }
        let responder = &self.responder;
        let (answer, size_bytes) =
            match responder.serve(&request, node, &address, &*pages, &admitted) {
                Served::Answer(answer, size_bytes) => (answer, size_bytes),
                Served::NoSender => (BUSY, 0),
                Served::Keep(_) => {
                    let this = self.clone();
                    let work = move || this.keep(&request, &asker, admitted, &*pages);
                    if !keepers.spawn(work) {
                        self.reply(id, &asker, BUSY, 0);
                    }
                    return;
                }
            };
        // What the reply tells the node counts what is left for it without this request.
        drop(admitted);
        self.reply(id, &asker, answer, size_bytes);
    }

    /// Keeps a request until this node has the pages. Sleeps.
    fn keep(&self, request: &Request, asker: &Asker, admitted: Admitted, pages: &dyn PageCache) {
        let say = |answer| self.reply(request.id(), asker, answer, 0);
        let Asker { node, address, .. } = asker;
        let responder = &self.responder;
        let last = responder.keep(request, *node, address, pages, &admitted, say);
        drop(admitted);
        if let Some((answer, size_bytes)) = last {
            self.reply(request.id(), asker, answer, size_bytes);
        }
    }

    /// Sends a reply. One that cannot be sent is as good as lost.
    pub(super) fn reply(&self, id: RequestId, to: &Asker, answer: Answer, size_bytes: u64) {
        let reply = Reply {
            id,
            size_bytes,
            credits: self.guests.credits(),
            answer,
        };
        self.endpoint.counters().add(Counter::said(&answer), 1);
        if let Some(bytes) = reply.seal(self.peers.me().node, to.node, self.requests.secret.key()) {
            let _ = self.endpoint.send(&to.address, &bytes);
        }
    }
}
