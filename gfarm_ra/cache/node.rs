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
    counters::Counters,
    endpoint::{
        Endpoint,
        Incoming, //
    },
    fetches::Fetches,
    guests::Guests,
    live::{
        Asker,
        Live, //
    },
    membership::Membership,
    now_us,
    owner::Owner,
    peers::Peers,
    place::Found,
    requester::{
        Notice,
        Requests, //
    },
    responder::{
        PageCache,
        Responder, //
    },
    secret::Secret,
    workers::Workers, //
};
use crate::proto::{
    cache::{
        address::{
            Address,
            NodeId,
            Port, //
        },
        breaker::Cut,
        counter::Counter,
        ibaddr::{
            edits,
            Edit, //
        },
        peer::Standing,
        reply::{
            Answer,
            Refusal, //
        },
        request::{
            Request,
            RequestId, //
        },
        responder::{
            receive,
            Received, //
        },
        wire::{
            self,
            Datagram,
            Head,
            Key, //
        }, //
    }, //
    identity::ContentId,
};

/// The requests of others for which fragments are sent at a time; others wait for that.
const SENDING: u16 = 16;

/// The requests of others that are kept at a time.
const KEEPING: u16 = 64;

/// The requests of others that are refused at a time: no admission counts them.
const REFUSING: u16 = 64;

/// How much a node does, as the administrator lets it.
pub(crate) struct Limits {
    /// The receives that are posted for messages, and the requests that are served at a time.
    pub(crate) serving: u16,
    /// The requests to others at a time; what needs more asks the file server.
    pub(crate) asking: u16,
    /// How long an answer is waited for at most, in microseconds.
    pub(crate) timeout_us_max: u32,
    /// The time for which a read waits at most for a node that waits for the pages itself, in
    /// microseconds.
    pub(crate) read_us: u64,
    /// The bytes that are sent to others in a second; 0 is no limit.
    pub(crate) rate_bytes: u64,
}

/// A node, which ends with its drop.
pub(crate) struct Node {
    shared: Arc<Shared>,
    _watch: PortWatch,
}

/// What the handlers and workers of a node have.
#[pin_data]
pub(super) struct Shared {
    me: NodeId,
    secret: Arc<Secret>,
    pages: Arc<dyn PageCache>,
    counters: Arc<Counters>,
    guests: Arc<Guests>,
    /// Locked while the node begins: the removal of its device waits for that.
    #[pin]
    making: Mutex<()>,
    /// There until the node ends. Who takes it closes the endpoint, before it is dropped.
    #[pin]
    live: Mutex<Option<Arc<Live>>>,
    /// As above; dropped by who takes it, and not by a worker of its own.
    #[pin]
    queue: Mutex<Option<WorkQueue>>,
    /// For requests of others that are kept until this node has the pages.
    keepers: Arc<Workers>,
    /// For requests that are refused.
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
        key: Key,
        pages: Arc<dyn PageCache>,
    ) -> Result<Self> {
        let me = loop {
            if let Some(me) = NodeId::new(random::number()) {
                break me;
            }
        };
        let flags = Flags::UNBOUND | Flags::MEM_RECLAIM;
        let queue = WorkQueue::new(c"gfarm_cache", flags, SENDING)?;
        let (counters, secret) = (Counters::new()?, Secret::new(key)?);
        let guests = Guests::new(limits.serving, limits.rate_bytes)?;
        let keepers = Workers::new(c"gfarm_keep", KEEPING)?;
        let refusers = Workers::new(c"gfarm_refuse", REFUSING)?;
        let shared = Arc::pin_init(
            pin_init!(Shared {
                me,
                secret,
                pages,
                counters,
                guests,
                making <- new_mutex!((), "Shared::making"),
                live <- new_mutex!(None, "Shared::live"),
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
        let (incoming, counters) = (this.shared.clone(), &this.shared.counters);
        // The device cannot go unnoticed from here on.
        let found = place()?;
        let endpoint = Endpoint::new(&found, limits.serving.into(), incoming, counters)?;
        drop(found);
        let peers = Peers::new(me, endpoint.address())?;
        let owner = Owner::new(&peers)?;
        let fetches = Fetches::new()?;
        let secret = &this.shared.secret;
        let membership = Membership::new(&endpoint, &peers, secret)?;
        let live = Live {
            requests: Requests::new(&endpoint, &membership, &owner, &fetches, secret, limits)?,
            owner,
            membership,
            responder: Responder::new(&endpoint, &fetches, SENDING.min(limits.serving))?,
            guests: this.shared.guests.clone(),
            fetches,
            device: endpoint.pd().device().id(),
            endpoint,
            peers,
        };
        let live = Arc::new(live, GFP_KERNEL)?;
        *this.shared.live.lock() = Some(live.clone());
        drop(making);
        live.membership.look();
        // It may have changed before it was told of here.
        this.shared.look_at_port(&live);
        Ok(this)
    }

    /// Returns how files are read from other nodes.
    pub(crate) fn reads(&self) -> Reads {
        Reads(self.shared.clone())
    }

    /// Has what asks other nodes now go to the file servers, as `umount -f` asks.
    pub(crate) fn interrupt(&self) {
        if let Some(live) = self.shared.live() {
            live.requests.interrupt();
        }
    }

    /// Has nothing ask other nodes any more: the mount ends.
    pub(crate) fn end_reads(&self) {
        if let Some(live) = self.shared.live() {
            live.requests.end();
        }
    }

    /// Returns what others see of it; it may outlive the node, and then sees nothing.
    pub(crate) fn view(&self) -> View {
        View(self.shared.clone())
    }
}

/// How files are read from other nodes. It keeps no device: that may go while a file server is
/// waited for.
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
        owes: bool,
    ) -> Option<(Lent<T>, Option<Notice>)> {
        let Some(live) = self.0.live() else {
            return Some((lent, None));
        };
        let filled = memory::without_io(|| live.requests.fill(lent, id, size_bytes, owes));
        filled.map(|(lent, notice)| (lent, Some(notice)))
    }

    /// Counts bytes that file servers are asked for.
    pub(crate) fn left(&self, bytes: u64) {
        self.0.counters.add(Counter::GfsdBytes, bytes);
    }

    /// Tells owners that pages are there, see [`Requests::tell`]. Sleeps, as above.
    pub(crate) fn tell(&self, notice: &Notice) {
        if let Some(live) = self.0.live() {
            memory::without_io(|| live.requests.tell(notice));
        }
    }
}

/// How a peer is, in a word, and how many pages have come from it.
pub(crate) type PeerState = (&'static str, u64);

/// What is seen of a node from outside.
#[derive(Clone)]
pub(crate) struct View(Arc<Shared>);

impl View {
    /// Calls `line` with the address of this node, and then with that of each peer, how it is, and
    /// how many pages have come from it; a peer that was registered by hand and has not answered
    /// yet is `unknown`.
    pub(crate) fn addresses(&self, line: &mut dyn FnMut(&Address, Option<PeerState>)) {
        let live = self.0.live.lock();
        if let Some(live) = live.as_ref() {
            line(&live.peers.me().address, None);
            live.peers.with(|table| {
                for peer in table.peers() {
                    let state = peer.standing().map_or("unknown", Standing::name);
                    line(&peer.address(), Some((state, peer.pages())));
                }
            });
        }
    }

    /// Returns why no other node is asked; `None` if they are, or there is no device any more.
    pub(crate) fn cut(&self) -> Option<Cut> {
        self.0.live()?.requests.cut()
    }

    /// Returns what it has counted.
    pub(crate) fn counters(&self) -> &Counters {
        &self.0.counters
    }

    /// Registers peers by hand, or removes them: lines of `ibaddr`, until the first that is wrong.
    ///
    /// # Errors
    ///
    /// Returns `ENODEV` if the device has gone, or what is wrong with a line.
    pub(crate) fn edit(&self, written: &[u8]) -> Result {
        let live = self.0.live.lock();
        let live = live.as_ref().ok_or(ENODEV)?;
        let me = live.peers.me().address;
        let edited = edits(written, me).try_for_each(|edit| {
            let done = edit.and_then(|edit| {
                live.peers.with(|table| match edit {
                    Edit::Add(address) => table.add(address, now_us()),
                    Edit::Remove(address) => table.remove(address),
                })
            });
            done.map_err(Error::from)
        });
        live.membership.look();
        edited
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl Shared {
    fn live(&self) -> Option<Arc<Live>> {
        self.live.lock().clone()
    }

    /// Ends the node: nothing comes any more, and what has come is handled. Sleeps.
    fn end(&self) {
        let Some(live) = self.live.lock().take() else {
            return;
        };
        live.requests.end();
        live.membership.leave();
        // The handlers have returned when this does, so none of them has the last reference. A
        // device that does not flush the queue pair has it leaked by its drop.
        let _ = live.endpoint.close();
        // A handler may have had the worker look once more.
        live.membership.end();
        live.fetches.close();
        let queue = self.queue.lock().take();
        // Waits for the workers, of which one may have another keep a request.
        drop(queue);
        self.keepers.end();
        self.refusers.end();
        drop(live);
    }

    /// The state of a port has changed, it does not matter how: events overtake each other.
    fn port(&self, device: DeviceId, port: u32) {
        let live = self.live();
        if let Some(live) = live
            .filter(|live| live.device == device && u32::from(live.endpoint.port().port) == port)
        {
            self.look_at_port(&live);
        }
    }

    /// Has a worker look at the port: who tells of it holds locks that a look may wait for. If
    /// there is none, the next answer of a node has another look.
    fn look_at_port(&self, live: &Arc<Live>) {
        let live = live.clone();
        self.spawn(move || live.requests.look_at_port());
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
    fn handle(&self, live: &Arc<Live>, datagram: &Datagram<'_>, from: Port, qpn: u32) {
        let node = datagram.head.from;
        let admit = |head: &Head| live.peers.admit(head, from, qpn);
        match receive(datagram, self.me, admit) {
            Ok(Received::Hello(gossip, number)) => {
                live.membership.greeted(&gossip, (from, qpn), number);
            }
            Ok(Received::Members(gossip)) => {
                if live.membership.answered(&gossip) {
                    live.requests.answered();
                }
            }
            Ok(Received::Reply(reply)) => live.requests.replied(node, &reply),
            Ok(Received::Have(have)) => live.owner.told(node, &have),
            Ok(Received::Request(address, request)) => self.request(live, node, address, request),
            Err(why) => self.counters.dropped(why.into()),
        }
        if live.requests.doubts_port() {
            self.look_at_port(live);
        }
    }

    fn request(
        &self,
        live: &Arc<Live>,
        node: NodeId,
        address: Address,
        request: Result<Request, RequestId>,
    ) {
        self.counters.add(Counter::Requests, 1);
        let live = live.clone();
        let asker = Asker { node, address };
        let valid = request.map_err(|id| (id, Answer::Refused(Refusal::Invalid)));
        let admitted = valid.and_then(|request| match self.guests.admit(node) {
            Ok(admitted) => Ok((request, admitted)),
            Err(answer) => Err((request.id(), answer)),
        });
        let (request, admitted) = match admitted {
            Ok(admitted) => admitted,
            Err((id, answer)) => {
                // The node that asks hears nothing, and asks elsewhere.
                let refuse = move || live.reply(id, &asker, answer, 0);
                if !self.refusers.spawn(refuse) {
                    self.counters.add(Counter::DroppedMemory, 1);
                }
                return;
            }
        };
        let (pages, keepers) = (self.pages.clone(), self.keepers.clone());
        self.spawn(move || live.answer(request, asker, admitted, pages, &keepers));
    }
}

impl Incoming for Shared {
    fn datagram(&self, bytes: &[u8], from: Port, qpn: u32) {
        let datagram = match wire::open(bytes, self.secret.key()) {
            Ok(datagram) => datagram,
            Err(why) => {
                self.counters.dropped(why.into());
                return;
            }
        };
        if let Some(live) = self.live() {
            // Readers wait for what is answered here.
            memory::without_io(|| self.handle(&live, &datagram, from, qpn));
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

    fn device_failed(&self, device: DeviceId) {
        if let Some(live) = self.live().filter(|live| live.device == device) {
            // Other listeners wait for this one meanwhile.
            self.spawn(move || live.requests.device_failed());
        }
    }

    fn device_removed(&self, device: DeviceId) {
        drop(self.making.lock());
        let live = self.live();
        if live.is_some_and(|live| live.device == device) {
            pr_info!("the device of a mount has gone: it asks file servers only from now on\n");
            self.end();
        }
    }
}
