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
    endpoint::{
        Endpoint,
        Incoming,
        Place, //
    },
    membership::Membership,
    now_us,
    owner::Owner,
    peers::Peers,
    requester::{
        Notice,
        Requests, //
    },
    responder::{
        PageCache,
        Responder, //
    },
};
use crate::proto::{
    attr::FileId,
    cache::{
        address::{
            Address,
            NodeId,
            Port, //
        },
        admission::CREDITS_FIRST,
        have::Have,
        ibaddr::{
            edits,
            Edit, //
        },
        reply::{
            Answer,
            Refusal,
            Reply, //
        },
        request::{
            Request,
            RequestId,
            Role, //
        },
        wire::{
            self,
            Datagram,
            Key,
            Kind, //
        }, //
    }, //
};

/// The requests of others that are served at a time.
const SERVING: u16 = 16;

/// The reads of this node that ask others at a time; further ones ask the file server.
const ASKING: u16 = 16;

/// A node, which ends with its drop.
pub(crate) struct Node {
    shared: Arc<Shared>,
    _watch: PortWatch,
}

/// What the handlers and workers of a node have.
#[pin_data]
struct Shared {
    me: NodeId,
    key: Key,
    pages: Arc<dyn PageCache>,
    /// Locked while the node begins: the removal of its device waits for that.
    #[pin]
    making: Mutex<()>,
    /// There until the node ends. Who takes it closes the endpoint, before it is dropped.
    #[pin]
    live: Mutex<Option<Arc<Live>>>,
    /// As above; dropped by who takes it, and not by a worker of its own.
    #[pin]
    queue: Mutex<Option<WorkQueue>>,
}

/// What a node has on its device.
struct Live {
    endpoint: Arc<Endpoint<Shared>>,
    peers: Arc<Peers>,
    owner: Arc<Owner>,
    membership: Arc<Membership<Shared>>,
    responder: Arc<Responder<Shared>>,
    requests: Arc<Requests<Shared>>,
    device: DeviceId,
}

impl Node {
    /// Begins. Nothing is known of other nodes yet. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Endpoint::new`].
    pub(crate) fn new(place: &Place<'_>, key: Key, pages: Arc<dyn PageCache>) -> Result<Self> {
        let mut number = [0; 8];
        let me = loop {
            random::fill(&mut number);
            if let Some(me) = NodeId::new(u64::from_le_bytes(number)) {
                break me;
            }
        };
        let flags = Flags::UNBOUND | Flags::MEM_RECLAIM;
        let queue = WorkQueue::new(c"gfarm_cache", flags, SERVING)?;
        let shared = Arc::pin_init(
            pin_init!(Shared {
                me,
                key,
                pages,
                making <- new_mutex!((), "Shared::making"),
                live <- new_mutex!(None, "Shared::live"),
                queue <- new_mutex!(Some(queue), "Shared::queue"),
            }),
            GFP_KERNEL,
        )?;
        let this = Self {
            _watch: PortWatch::new(shared.clone())?,
            shared,
        };
        let making = this.shared.making.lock();
        let endpoint = Endpoint::new(place, this.shared.clone())?;
        let peers = Peers::new(me, endpoint.address())?;
        let owner = Owner::new(&peers)?;
        let live = Live {
            requests: Requests::new(&endpoint, &peers, &owner, key, ASKING)?,
            owner,
            membership: Membership::new(&endpoint, &peers, key)?,
            responder: Responder::new(&endpoint, SERVING)?,
            device: endpoint.pd().device().id(),
            endpoint,
            peers,
        };
        let live = Arc::new(live, GFP_KERNEL)?;
        let membership = live.membership.clone();
        *this.shared.live.lock() = Some(live);
        drop(making);
        membership.look();
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
        id: FileId,
        size_bytes: u64,
    ) -> Option<(Lent<T>, Option<Notice>)> {
        let Some(live) = self.0.live() else {
            return Some((lent, None));
        };
        let filled = memory::without_io(|| live.requests.fill(lent, id, size_bytes));
        filled.map(|(lent, notice)| (lent, Some(notice)))
    }

    /// Tells owners that pages are there, see [`Requests::tell`]. Sleeps, as above.
    pub(crate) fn tell(&self, notice: &Notice) {
        if let Some(live) = self.0.live() {
            memory::without_io(|| live.requests.tell(notice));
        }
    }
}

/// What is seen of a node from outside.
#[derive(Clone)]
pub(crate) struct View(Arc<Shared>);

impl View {
    /// Calls `line` with the address of this node, and then with that of each peer.
    pub(crate) fn addresses(&self, line: &mut dyn FnMut(&Address)) {
        let live = self.0.live.lock();
        if let Some(live) = live.as_ref() {
            line(&live.peers.me().address);
            live.peers.with(|table| {
                table.peers().for_each(|peer| line(&peer.address()));
            });
        }
    }

    /// Registers peers by hand, or removes them: lines of `ibaddr`, until the first that is wrong.
    ///
    /// # Errors
    ///
    /// Returns `ENODEV` if the device has gone, or what is wrong with a line.
    pub(crate) fn edit(&self, written: &[u8]) -> Result {
        let live = self.0.live.lock();
        let live = live.as_ref().ok_or(ENODEV)?;
        let edited = edits(written).try_for_each(|edit| {
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
        let queue = self.queue.lock().take();
        // Waits for the workers.
        drop(queue);
        drop(live);
    }

    /// Has a worker carry out `work`; drops it if there is no memory, or the node has ended.
    fn spawn(&self, work: impl FnOnce() + Send + 'static) {
        if let Some(queue) = self.queue.lock().as_ref() {
            // The node that asks hears nothing, and asks elsewhere.
            let _ = queue.try_spawn(GFP_NOWAIT, || memory::without_io(work));
        }
    }

    /// Handles a datagram of a node that has the key.
    fn handle(&self, live: &Arc<Live>, datagram: &Datagram<'_>, from: Port, qpn: u32) {
        if matches!(datagram.head.kind, Kind::Hello | Kind::Members) {
            live.membership.heard(datagram, from, qpn);
            return;
        }
        if datagram.head.to != Some(self.me) {
            return;
        }
        if datagram.head.kind == Kind::Reply {
            live.requests.replied(datagram.head.from, datagram.body);
            return;
        }
        let Some(address) = live.peers.admit(&datagram.head, from, qpn) else {
            return;
        };
        let node = datagram.head.from;
        match datagram.head.kind {
            Kind::Request => self.request(live, node, address, datagram.body),
            Kind::Have => {
                if let Ok(have) = Have::parse(datagram.body) {
                    live.owner.told(node, &have);
                }
            }
            _ => {}
        }
    }

    fn request(&self, live: &Arc<Live>, node: NodeId, address: Address, body: &[u8]) {
        let (key, live) = (self.key, live.clone());
        let request = match Request::parse(body) {
            Ok(request) => request,
            Err(_) => {
                let Some(id) = Request::id_of(body) else {
                    return;
                };
                let answer = Answer::Refused(Refusal::Invalid);
                self.spawn(move || live.reply(id, node, &address, answer, 0, &key));
                return;
            }
        };
        let pages = self.pages.clone();
        self.spawn(move || {
            let (answer, size_bytes) = match request.ask().role {
                Role::Holder => live.responder.serve(&request, &address, &*pages),
                _ => (live.owner.ask(node, request.wanted(), request.ask()), 0),
            };
            live.reply(request.id(), node, &address, answer, size_bytes, &key);
        });
    }
}

impl Live {
    /// Sends a reply. One that cannot be sent is as good as lost.
    fn reply(
        &self,
        id: RequestId,
        to: NodeId,
        address: &Address,
        answer: Answer,
        size_bytes: u64,
        key: &Key,
    ) {
        let reply = Reply {
            id,
            size_bytes,
            credits: CREDITS_FIRST,
            answer,
        };
        if let Some(bytes) = reply.seal(self.peers.me().node, to, key) {
            let _ = self.endpoint.send(address, &bytes);
        }
    }
}

impl Incoming for Shared {
    fn datagram(&self, bytes: &[u8], from: Port, qpn: u32) {
        let Ok(datagram) = wire::open(bytes, &self.key) else {
            return;
        };
        if let Some(live) = self.live() {
            // Readers wait for what is answered here.
            memory::without_io(|| self.handle(&live, &datagram, from, qpn));
        }
    }
}

impl PortEvents for Shared {
    fn port_up(&self, _device: DeviceId, _port: u32) {}
    fn port_down(&self, _device: DeviceId, _port: u32) {}
    fn device_added(&self, _device: DeviceId) {}

    fn device_removed(&self, device: DeviceId) {
        drop(self.making.lock());
        let live = self.live();
        if live.is_some_and(|live| live.device == device) {
            pr_info!("the device of a mount has gone: it asks file servers only from now on\n");
            self.end();
        }
    }
}
