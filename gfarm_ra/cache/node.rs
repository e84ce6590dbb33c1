// SPDX-License-Identifier: GPL-2.0

//! A mount as a node of the cooperative cache.

use kernel::{
    alloc::flags::GFP_NOWAIT,
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::{
    memory,
    random,
    workqueue::{
        Flags,
        WorkQueue, //
    }, //
};
use rdma::{
    DeviceId,
    PortEvents,
    PortWatch, //
};
use vfs_ext::{
    FileSystem,
    Lent, //
};

use super::{
    admission::Admissions,
    attached::{
        Attached, //
        RequestOrigin,
    },
    counters::Counters,
    endpoint::{
        Endpoint,
        Incoming, //
    },
    in_flight::ReadsInFlight,
    membership::Membership,
    owner::Owner,
    peers::Peers,
    place::Found,
    requester::{
        IsOver,
        Notice,
        Requests, //
    },
    responder::{
        PageCache,
        Responder, //
    },
    secret::Secret,
    sums::Sums,
    workers::Workers, //
};
use crate::proto::{
    cache::{
        address::{
            Address,
            NodeId,
            Port, //
        },
        counter::Counter,
        reply::{
            Answer,
            Refusal, //
        },
        request::{
            Request,
            RequestId, //
        },
        responder::{
            self,
            receive,
            Received, //
        },
        sums::Verify,
        waiting::{
            KEEPING_MAX,
            REFUSING_MAX, //
        },
        wire::{
            Datagram,
            Head,
            QpRole, //
        }, //
    }, //
    identity::ContentId,
};

/// The requests of others for which fragments are sent at a time; others wait for that.
const SENDING: u16 = 16;

/// The limits of a node that the administrator sets.
pub(crate) struct Limits {
    /// The receives that are posted for messages, and the requests that are served at a time.
    pub(crate) serving: u16,
    /// The requests to others at a time; what needs more asks the file server.
    pub(crate) asking: u16,
    /// The maximum time for which an answer is waited for, in microseconds.
    pub(crate) timeout_us_max: u32,
    /// The time for which a read waits at most for a node that waits for the pages itself, in
    /// microseconds.
    pub(crate) read_us: u64,
    /// The bytes that are sent to others in a second; 0 is no limit.
    pub(crate) rate_bytes: u64,
    /// The length of the directory, in bytes.
    pub(crate) directory_len_bytes: u64,
    /// Whether pages are compared with their sums.
    pub(crate) verify: Verify,
}

/// A node, which ends with its drop.
pub(crate) struct Node {
    pub(super) shared: Arc<Shared>,
    _watch: PortWatch,
}

/// The state that the handlers and workers of a node share.
#[pin_data]
pub(super) struct Shared {
    me: NodeId,
    secret: Arc<Secret>,
    pages: Arc<dyn PageCache>,
    pub(super) counters: Arc<Counters>,
    /// The sums of pages, if they are made.
    sums: Option<Arc<Sums>>,
    admissions: Arc<Admissions>,
    /// Locked while the node begins: the removal of its device waits for that.
    #[pin]
    making: Mutex<()>,
    /// The state on the device, until the node ends. The thread that takes it closes the endpoint,
    /// before it is dropped.
    #[pin]
    pub(super) attached: Mutex<Option<Arc<Attached>>>,
    /// The queue of the node's workers until it ends; dropped by the thread that takes it, which is
    /// not one of its workers.
    #[pin]
    queue: Mutex<Option<WorkQueue>>,
    /// The workers for requests of other nodes that are kept until this node has the pages.
    keepers: Arc<Workers>,
    /// The workers for requests that are refused.
    refusers: Arc<Workers>,
}

impl Node {
    /// Begins. Nothing is known of other nodes yet. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns the errors of `place`, which finds the port, and of [`Endpoint::new`].
    pub(crate) fn new(
        place: impl FnOnce() -> Result<Found>,
        limits: &Limits,
        secret: Arc<Secret>,
        pages: Arc<dyn PageCache>,
    ) -> Result<Self> {
        let me = loop {
            if let Some(me) = NodeId::new(random::number()) {
                break me;
            }
        };
        let flags = Flags::UNBOUND | Flags::MEM_RECLAIM;
        let queue = WorkQueue::new(c"gfarm_cache", flags, SENDING)?;
        let counters = Counters::new()?;
        let sums = Sums::new(limits.verify, &counters)?;
        let admissions = Admissions::new(limits.serving, limits.rate_bytes)?;
        let keepers = Workers::new(c"gfarm_keep", KEEPING_MAX)?;
        let refusers = Workers::new(c"gfarm_refuse", REFUSING_MAX)?;
        let shared = Arc::pin_init(
            pin_init!(Shared {
                me,
                secret,
                pages,
                counters,
                sums,
                admissions,
                making <- new_mutex!((), "Shared::making"),
                attached <- new_mutex!(None, "Shared::attached"),
                queue <- new_mutex!(Some(queue), "Shared::queue"),
                keepers,
                refusers,
            }),
            GFP_KERNEL,
        )?;
        let this = Self {
            _watch: PortWatch::new(shared.clone())?,
            shared,
        };
        let making = this.shared.making.lock();
        // The device cannot go unnoticed from here on.
        let attached = this.shared.attach(place()?, limits)?;
        *this.shared.attached.lock() = Some(attached.clone());
        drop(making);
        attached.membership.look();
        // It may have changed before it was told of here.
        this.shared.look_at_port(&attached);
        Ok(this)
    }

    /// Returns where the sums of pages go that a file server has sent, if they are made.
    pub(crate) fn sums(&self) -> Option<&Sums> {
        self.shared.sums.as_deref()
    }

    /// Returns how files are read from other nodes.
    pub(crate) fn reads(&self) -> Reads {
        Reads(self.shared.clone())
    }

    /// Sends reads that ask other nodes now to the file servers, as `umount -f` asks.
    pub(crate) fn interrupt(&self) {
        if let Some(attached) = self.shared.attached() {
            attached.requests.cancel();
        }
    }

    /// Ends all reads from other nodes for good, as the mount ends.
    pub(crate) fn end_reads(&self) {
        if let Some(attached) = self.shared.attached() {
            attached.requests.end();
        }
    }
}

/// A handle by which files are read from other nodes. It keeps no device: that may be removed while
/// a file server is waited for.
#[derive(Clone)]
pub(crate) struct Reads(Arc<Shared>);

impl Reads {
    /// Fills pages of a subrequest with those of other nodes, see [`Requests::fill`]; none if the
    /// node has no device any more. Sleeps. No allocation in it waits for IO: what is read may be
    /// what is waited for.
    pub(crate) fn fill<T: FileSystem>(
        &self,
        lent: Lent<T>,
        id: ContentId,
        size_bytes: u64,
        is_over: IsOver<'_>,
    ) -> Option<(Lent<T>, Option<Notice>)> {
        let Some(attached) = self.0.attached() else {
            return Some((lent, None));
        };
        let filled = memory::without_io(|| attached.requests.fill(lent, id, size_bytes, is_over));
        filled.map(|(lent, notice)| (lent, Some(notice)))
    }

    /// Counts `number` more. Any context.
    pub(crate) fn count(&self, counter: Counter, number: u64) {
        self.0.counters.add(counter, number);
    }

    /// Tells owners that pages are there, see [`Requests::tell`]. Sleeps, as above.
    pub(crate) fn tell(&self, notice: &Notice) {
        if let Some(attached) = self.0.attached() {
            memory::without_io(|| attached.requests.tell(notice));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl Shared {
    /// Makes what a node has on its device. Sleeps.
    fn attach(self: &Arc<Self>, found: Found, limits: &Limits) -> Result<Arc<Attached>> {
        let group = found.group;
        let (incoming, serving) = (self.clone(), limits.serving);
        let requests = (serving, limits.asking);
        let endpoint = Endpoint::new(found, requests, incoming, &self.counters)?;
        let peers = Peers::new(self.me, endpoint.address(), group)?;
        let owner = Owner::new(&peers, limits.directory_len_bytes)?;
        let in_flight = ReadsInFlight::new()?;
        let (secret, sums) = (&self.secret, &self.sums);
        let membership = Membership::new(&endpoint, &peers, secret)?;
        let attached = Attached {
            requests: Requests::new(
                &endpoint,
                &membership,
                &owner,
                &in_flight,
                secret,
                sums,
                limits,
            )?,
            owner,
            membership,
            responder: Responder::new(&endpoint, &in_flight, sums, SENDING.min(serving))?,
            admissions: self.admissions.clone(),
            in_flight,
            device: endpoint.pd().device().id(),
            endpoint,
            peers,
        };
        Ok(Arc::new(attached, GFP_KERNEL)?)
    }

    pub(super) fn attached(&self) -> Option<Arc<Attached>> {
        self.attached.lock().clone()
    }

    /// Ends the node: nothing comes any more, and what has come is handled. Sleeps.
    fn end(&self) {
        let Some(attached) = self.attached.lock().take() else {
            return;
        };
        attached.requests.end();
        attached.membership.leave();
        // The handlers have returned when this does, so none of them has the last reference. A
        // device that does not flush the queue pair has it leaked by its drop.
        let _ = attached.endpoint.close();
        // A handler may have had the worker look once more.
        attached.membership.end();
        attached.in_flight.close();
        let queue = self.queue.lock().take();
        // Waits for the workers, of which one may have another keep a request.
        drop(queue);
        attached.requests.end_worker();
        self.keepers.end();
        self.refusers.end();
        drop(attached);
    }

    /// The state of a port has changed, it does not matter how: events overtake each other.
    fn port(&self, device: DeviceId, port: u32) {
        let attached = self.attached();
        if let Some(attached) = attached.filter(|attached| {
            attached.device == device && u32::from(attached.endpoint.port().port) == port
        }) {
            self.look_at_port(&attached);
        }
    }

    /// Has a worker look at the port: who tells of it holds locks that a look may wait for. If
    /// there is none, the next answer of a node has another look.
    fn look_at_port(&self, attached: &Arc<Attached>) {
        let attached = attached.clone();
        self.spawn(move || attached.requests.look_at_port());
    }

    /// Has a worker carry out `work`; drops it if there is no memory, or the node has ended.
    fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        if let Some(queue) = self.queue.lock().as_ref() {
            // The node that asks hears nothing, and asks elsewhere.
            let work = || memory::without_io(work);
            if queue.try_spawn(GFP_NOWAIT, work).is_err() {
                self.counters.add(Counter::DroppedMemory, 1);
            }
        }
    }

    /// Handles a datagram of a node that has the key.
    fn handle(&self, attached: &Arc<Attached>, datagram: &Datagram<'_>, from: Port, qpn: u32) {
        let node = datagram.head.from;
        let admit = |head: &Head| attached.peers.admit(head, from, qpn);
        match receive(datagram, admit) {
            Ok(Received::Hello(gossip, number)) => {
                attached.membership.greeted(&gossip, (from, qpn), number);
            }
            Ok(Received::Members(gossip)) => {
                if attached.membership.answered(&gossip) {
                    attached.requests.answered();
                }
            }
            Ok(Received::Reply(reply, sums)) => attached.requests.replied(node, &reply, sums),
            Ok(Received::Have(have)) => attached.owner.told(node, &have),
            Ok(Received::Request(address, request)) => {
                self.request(attached, node, address, request)
            }
            Err(why) => self.counters.dropped(why.into()),
        }
        if attached.requests.doubts_port() {
            self.look_at_port(attached);
        }
    }

    fn request(
        &self,
        attached: &Arc<Attached>,
        node: NodeId,
        address: Address,
        request: Result<Request, RequestId>,
    ) {
        self.counters.add(Counter::Requests, 1);
        let attached = attached.clone();
        let origin = RequestOrigin { node, address };
        let valid = request.map_err(|id| (id, Answer::Refused(Refusal::Invalid)));
        let admitted = valid.and_then(|request| match self.admissions.admit(node) {
            Ok(admitted) => Ok((request, admitted)),
            Err(answer) => Err((request.id(), answer)),
        });
        let (request, admitted) = match admitted {
            Ok(admitted) => admitted,
            Err((id, answer)) => {
                // The node that asks hears nothing, and asks elsewhere.
                let refuse = move || attached.reply(id, &origin, answer, 0);
                if !self.refusers.spawn(refuse) {
                    self.counters.add(Counter::DroppedMemory, 1);
                }
                return;
            }
        };
        let (pages, keepers) = (self.pages.clone(), self.keepers.clone());
        self.spawn(move || attached.answer(request, origin, admitted, pages, &keepers));
    }
}

impl Incoming for Shared {
    fn datagram(&self, bytes: &[u8], qp: QpRole, from: Port, qpn: u32) {
        let datagram = match responder::open(bytes, qp, self.me, self.secret.key()) {
            Ok(datagram) => datagram,
            Err(why) => {
                self.counters.dropped(why.into());
                return;
            }
        };
        if let Some(attached) = self.attached() {
            // Readers wait for what is answered here.
            memory::without_io(|| self.handle(&attached, &datagram, from, qpn));
        }
    }
}

impl PortEvents for Shared {
    fn port_up(&self, device: DeviceId, port: u32) {
        self.port(device, port);
    }

    fn port_down(&self, device: DeviceId, port: u32) {
        self.port(device, port);
    }

    fn addresses_changed(&self, device: DeviceId, port: u32) {
        self.port(device, port);
    }

    fn device_failed(&self, device: DeviceId) {
        if let Some(attached) = self.attached().filter(|attached| attached.device == device) {
            // Other listeners wait for this one meanwhile.
            self.spawn(move || attached.requests.device_failed());
        }
    }

    fn device_removed(&self, device: DeviceId) {
        drop(self.making.lock());
        let attached = self.attached();
        if attached.is_some_and(|attached| attached.device == device) {
            pr_info!("the device of a mount has gone: it asks file servers only from now on\n");
            self.end();
        }
    }
}
