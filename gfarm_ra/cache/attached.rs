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
    pages::PageSet,
    reply::{
        Answer,
        Reply,
        REPLY_LEN_MAX, //
    },
    request::{
        Request,
        RequestId,
        Role, //
    },
    sums::Entry, //
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
        self.conclude(&request, &origin, answer, size_bytes);
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
            self.conclude(request, origin, answer, size_bytes);
        }
    }

    /// Sends the last reply to a request, with the sums of the pages if they were asked for.
    fn conclude(&self, request: &Request, to: &RequestOrigin, answer: Answer, size_bytes: u64) {
        match (answer, request.ask().wants_sums) {
            (Answer::Data { pages }, true) => {
                if !self.reply_with_sums(request, to, pages, size_bytes) {
                    // The sums had to make room for others meanwhile.
                    self.reply(request.id(), to, BUSY, 0);
                }
            }
            _ => self.reply(request.id(), to, answer, size_bytes),
        }
    }

    /// Sends a reply with the sums of the pages that were sent; returns whether they are known.
    // A frame of its own, which is there for this only.
    #[inline(never)]
    fn reply_with_sums(
        &self,
        request: &Request,
        to: &RequestOrigin,
        pages: PageSet,
        size_bytes: u64,
    ) -> bool {
        let reply = Reply {
            id: request.id(),
            size_bytes,
            credits: self.admissions.credits(),
            answer: Answer::Data { pages },
        };
        let mut bytes = [0; REPLY_LEN_MAX];
        let (me, key) = (self.peers.me().node, self.requests.secret.key());
        let given = request.wanted().part(pages);
        let sealed = given.zip(self.responder.sums()).and_then(|(given, sums)| {
            let mut seal = |entry: &Entry| {
                reply.seal_with_sums(me, to.node, key, &mut bytes, |page| entry.sum(page))
            };
            sums.with(&given, &mut seal)?
        });
        let Some(bytes) = sealed.and_then(|len| bytes.get(..len)) else {
            return false;
        };
        self.endpoint
            .counters()
            .add(Counter::said(&reply.answer), 1);
        let _ = self.endpoint.send(&to.address, bytes);
        true
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
