// SPDX-License-Identifier: GPL-2.0

//! Pages of a read from other nodes: carries out what [`Requester`] decides, in the worker of the
//! file that is read.

use core::mem;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    random,
    sync::atomic::{
        AtomicBool,
        Ordering::Relaxed, //
    },
};
use rdma::{
    transfer::{
        self,
        ReceiveQp,
        Received,
        Receiving, //
    },
    Cq,
    PollContext, //
};
use vfs_ext::{
    FileSystem,
    Lent,
    Selection, //
};

use super::{
    contacts::Contacts,
    endpoint::{
        Endpoint,
        Incoming, //
    },
    inbox::{
        Inbox,
        Landed, //
    },
    now_us,
    owner::Owner,
    peers::Peers,
};
use crate::proto::{
    attr::FileId,
    cache::{
        address::NodeId,
        excluded::Reason,
        fragment::{
            FragmentLen,
            FRAGMENTS_MAX, //
        },
        have::Have,
        owner::ChunkKey,
        pages::{
            PageSet,
            PAGES, //
        },
        reassembly::{
            Move,
            Place, //
        },
        reply::{
            Holder,
            Reply, //
        },
        request::{
            Landing,
            Request,
            RequestId,
            Role,
            Wanted, //
        },
        requester::{
            event::{
                Asking,
                Effect,
                Event,
                Heard,
                Step,
                Whom, //
            },
            owners::Owners,
            Requester, //
        },
        wire::{
            self,
            Head,
            Key,
            Kind,
            DATAGRAM_LEN_MAX, //
        }, //
    },
};

/// The time after which a read that is to end notices that, in milliseconds.
const NOTICE_MS: u64 = 100;

/// The time after which a request is sent for which its peer had no room, in microseconds.
const ROOM_US: u32 = 2_000;

/// A queue pair for the fragments of one read, and what comes for it.
struct Lane {
    qp: ReceiveQp<Landed>,
    inbox: Arc<Inbox>,
}

/// What is to be told to owners at the end of a read.
pub(crate) struct Notice {
    have: Have,
    owners: Owners,
}

/// The reads that ask other nodes, at most as many at a time as there are queue pairs for them.
#[pin_data]
pub(crate) struct Requests<I: Incoming> {
    endpoint: Arc<Endpoint<I>>,
    peers: Arc<Peers>,
    owner: Arc<Owner>,
    key: Key,
    inboxes: KVec<Arc<Inbox>>,
    #[pin]
    idle: Mutex<KVec<Lane>>,
    contacts: Arc<Contacts>,
    fragment_len: FragmentLen,
    is_over: AtomicBool,
}

impl<I: Incoming> Requests<I> {
    /// Creates `count` queue pairs on the port of `endpoint`. Sleeps.
    pub(crate) fn new(
        endpoint: &Arc<Endpoint<I>>,
        peers: &Arc<Peers>,
        owner: &Arc<Owner>,
        key: Key,
        count: u16,
    ) -> Result<Arc<Self>> {
        let fragment_len = FragmentLen::largest(endpoint.mtu_bytes()).ok_or(EINVAL)?;
        let contacts = Contacts::new()?;
        let mut idle = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        let mut inboxes = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        // CAST: 256.
        let fragments_max = FRAGMENTS_MAX as u16;
        let config = ReceiveQp::<Landed>::config(fragments_max);
        for tag in 0..count {
            let device = endpoint.pd().device();
            let context = PollContext::Workqueue;
            let cq = Cq::new(device, config.cq_entries(), tag.into(), context, None)?;
            let inbox = Inbox::new(tag)?;
            let landed = Landed(inbox.clone());
            let qp = ReceiveQp::new(endpoint.pd(), &cq, endpoint.port(), fragments_max, landed)?;
            inboxes.push(inbox.clone(), GFP_KERNEL)?;
            idle.push(Lane { qp, inbox }, GFP_KERNEL)?;
        }
        Arc::pin_init(
            pin_init!(Self {
                endpoint: endpoint.clone(),
                peers: peers.clone(),
                owner: owner.clone(),
                key,
                inboxes,
                idle <- new_mutex!(idle, "Requests::idle"),
                contacts,
                fragment_len,
                is_over: AtomicBool::new(false),
            }),
            GFP_KERNEL,
        )
    }

    /// Has all reads end soon, and begins no other.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    /// Takes the body of a reply of a node that has the key.
    pub(crate) fn replied(&self, from: NodeId, body: &[u8]) {
        let Ok(reply) = Reply::parse(body) else {
            return;
        };
        let Some(inbox) = self.inboxes.get(usize::from(reply.id.tag)) else {
            return;
        };
        let reply = &reply;
        let step = inbox.post(Event::Replied { from, reply });
        if step.note.is_some() {
            self.contacts.granted(from, reply.credits);
        }
        self.note(&step);
    }

    /// Takes note of what was learned of a peer.
    fn note(&self, step: &Step) {
        let Some((node, heard)) = step.note else {
            return;
        };
        self.contacts.heard(node, heard);
        if heard == Heard::Silence {
            self.peers.with(|table| table.unanswered(node, now_us()));
        }
    }

    /// Fills pages of a subrequest with those of other nodes, as far as they have them: bytes of
    /// the content `id` of this size. Returns it with what is to be told when all its pages are
    /// there; `None` if a device keeps it. Sleeps.
    pub(crate) fn fill<T: FileSystem>(
        &self,
        lent: Lent<T>,
        id: FileId,
        size_bytes: u64,
    ) -> Option<(Lent<T>, Option<Notice>)> {
        let (mut lent, mut next) = (lent, 0u16);
        while next < lent.pages() && !self.is_over.load(Relaxed) {
            let page = lent.first_page().saturating_add(next.into());
            let (chunk, start) = (page / PAGES as u64, page % PAGES as u64);
            let rest = u64::from(lent.pages().saturating_sub(next));
            let of_chunk = (PAGES as u64).saturating_sub(start);
            let count = rest.min(of_chunk).min(self.fragment_len.pages_max() as u64);
            // CAST: Both are at most 256, the first one less.
            let pages = PageSet::range(start as u8, count as usize);
            let pages = pages.intersection(PageSet::of_file(chunk, size_bytes));
            let Ok(wanted) = Wanted::new(id, size_bytes, chunk, pages) else {
                break;
            };
            let owners;
            (lent, owners) = self.piece(lent, wanted)?;
            let have = Have::new(id, chunk, pages).ok();
            let notice = have.map(|have| Notice { have, owners });
            // CAST: At most 256.
            let end = next.saturating_add(count as u16);
            let is_whole = |page: u16| lent.is_filled(page);
            // CAST: At most 256.
            let wanted_end = next.saturating_add(pages.len() as u16);
            if !(next..wanted_end).all(is_whole) {
                // The file server has the rest.
                return Some((lent, notice));
            }
            if let Some(notice) = notice {
                self.tell(&notice);
            }
            next = end;
        }
        Some((lent, None))
    }

    /// Tells owners that this node has pages. Sleeps.
    pub(crate) fn tell(&self, notice: &Notice) {
        let me = self.peers.me().node;
        for node in notice.owners.iter() {
            if node == me {
                self.owner.told(me, &notice.have);
                continue;
            }
            let Some(holder) = self.peers.holder(node) else {
                continue;
            };
            let now_us = now_us();
            let head = Head {
                kind: Kind::Have,
                from: me,
                to: Some(node),
                sequence: self
                    .peers
                    .with(|table| table.next_sequence(Some(node), now_us)),
            };
            let mut bytes = [0; DATAGRAM_LEN_MAX];
            let body = notice.have.to_bytes();
            let len = wire::seal(&head, &body, &self.key, &mut bytes).unwrap_or(0);
            if let Some(bytes) = bytes.get(..len) {
                // One that cannot be sent is as good as lost.
                let _ = self.endpoint.send(&holder.address, bytes);
            }
        }
    }

    /// Reads pages of one chunk, as far as others have them.
    fn piece<T: FileSystem>(&self, lent: Lent<T>, wanted: Wanted) -> Option<(Lent<T>, Owners)> {
        let me = self.peers.me().node;
        let Some(machine) = Requester::new(me, wanted, self.fragment_len) else {
            return Some((lent, Owners::NONE));
        };
        let Some(Lane { qp, inbox }) = self.idle.lock().pop() else {
            return Some((lent, Owners::NONE));
        };
        let mut run = Run {
            requests: self,
            inbox,
            wanted,
            hold: Hold::Idle(qp, lent),
            pages: PageSet::EMPTY,
            credit: None,
            timer_us: None,
        };
        run.run(machine);
        let owners = run.inbox.end();
        let Run { inbox, hold, .. } = run;
        let Hold::Idle(qp, lent) = hold else {
            return None;
        };
        // There is room for all.
        let _ = self.idle.lock().push_within_capacity(Lane { qp, inbox });
        Some((lent, owners))
    }
}

/// Where the queue pair and the pages are.
enum Hold<T: FileSystem> {
    Idle(ReceiveQp<Landed>, Lent<T>),
    Receiving(Receiving<Landed, Selection<T>>),
    Received(Received<Landed, Selection<T>>),
    /// With the device, which has not given them back.
    Lost,
}

/// A read that is being carried out.
struct Run<'a, I: Incoming, T: FileSystem> {
    requests: &'a Requests<I>,
    inbox: Arc<Inbox>,
    wanted: Wanted,
    hold: Hold<T>,
    /// The pages that are received, or were last.
    pages: PageSet,
    /// The peer at which a request is counted.
    credit: Option<NodeId>,
    timer_us: Option<u64>,
}

impl<I: Incoming, T: FileSystem> Run<'_, I, T> {
    fn run(&mut self, machine: Requester) {
        let mut effect = self.inbox.begin(machine);
        loop {
            effect = match effect {
                Effect::Wait => self.wait(),
                Effect::Timer { at_us } => {
                    self.timer_us = Some(at_us);
                    self.wait()
                }
                Effect::Ask(asking) => self.ask(&asking),
                Effect::Stop => self.stop(),
                Effect::Settle { complete } => self.settle(complete),
                Effect::Over { .. } => {
                    // The queue pair may have failed before the request was sent.
                    self.finish();
                    self.take_back();
                    self.give_credit_back();
                    return;
                }
            };
            if matches!(self.hold, Hold::Lost) {
                self.give_credit_back();
                return;
            }
        }
    }

    fn step(&self, event: Event<'_>) -> Effect {
        let step = self.inbox.step(event);
        self.requests.note(&step);
        step.effect
    }

    fn give_credit_back(&mut self) {
        if let Some(node) = self.credit.take() {
            self.requests.contacts.give_back(node);
        }
    }

    fn wait(&mut self) -> Effect {
        if self.requests.is_over.load(Relaxed) {
            let effect = self.step(Event::Cancel);
            if effect != Effect::Wait {
                return effect;
            }
        }
        let left_us = self.timer_us.map(|at_us| at_us.saturating_sub(now_us()));
        let left_ms = left_us.map_or(NOTICE_MS, |us| us.div_ceil(1000).min(NOTICE_MS));
        // CAST: At most 100.
        let effect = self.inbox.wait(left_ms as u32);
        if effect == Effect::Wait && self.timer_us.is_some_and(|at_us| at_us <= now_us()) {
            self.timer_us = None;
            return self.step(Event::TimerFired);
        }
        effect
    }

    /// Returns the node to ask; `None` if there is no other one.
    fn whom(&self, asking: &Asking) -> Option<Holder> {
        match asking.whom {
            Whom::Named(holder) => Some(holder),
            Whom::Owner => {
                let peers = &self.requests.peers;
                let key = ChunkKey::new(self.wanted.id().inum, self.wanted.chunk());
                let is_lost = |node| asking.excluded.reason(node) == Some(Reason::NoAnswer);
                let owners = peers.owners(key, peers.me().node, is_lost);
                peers.holder(owners.near)
            }
        }
    }

    fn ask(&mut self, asking: &Asking) -> Effect {
        self.give_credit_back();
        self.timer_us = None;
        let none = Event::Unsent { retry_us: None };
        let requests = self.requests;
        let me = requests.peers.me().node;
        let whom = self.whom(asking);
        let (Some(to), Some(wanted)) = (whom, self.wanted.part(asking.pages)) else {
            return self.step(none);
        };
        let Some(ask) = self.inbox.ask_of(to.node) else {
            return self.step(none);
        };
        if to.node == me {
            let answer = requests.owner.ask(me, &wanted, &ask);
            return self.step(Event::Answered(answer));
        }
        let Some(timing) = requests.contacts.take(to.node) else {
            let retry_us = Some(ROOM_US);
            return self.step(Event::Unsent { retry_us });
        };
        self.credit = Some(to.node);
        let landing = match asking.role {
            Role::Holder => match self.land(asking.pages) {
                Some(landing) => Some(landing),
                None => return self.step(none),
            },
            Role::Owner | Role::NamedOwner => None,
        };
        let mut number = [0; 8];
        random::fill(&mut number);
        let id = RequestId {
            tag: self.inbox.tag(),
            cookie: u64::from_le_bytes(number),
        };
        // CAST: At most 200.
        let timeout_ms = timing.timeout_us.div_ceil(1000) as u16;
        let request = Request::new(id, wanted, landing, ask, timeout_ms);
        let sequence = {
            let now_us = now_us();
            let next = |table: &mut super::peers::Table| table.next_sequence(Some(to.node), now_us);
            requests.peers.with(next)
        };
        let node = to.node;
        let effect = self.step(Event::Sending { node, id, timing });
        let sealed = request
            .ok()
            .and_then(|r| r.seal(me, node, sequence, &requests.key));
        if let Some(bytes) = sealed {
            // One that cannot be sent is as good as lost: the timer expires.
            let _ = requests.endpoint.send(&to.address, &bytes);
        }
        effect
    }

    /// Lays receives over pages; `None` if the device cannot.
    fn land(&mut self, pages: PageSet) -> Option<Landing> {
        let Hold::Idle(qp, lent) = mem::replace(&mut self.hold, Hold::Lost) else {
            return None;
        };
        let first = lent.first_page();
        let chunk = self.wanted.chunk();
        let selection = lent.select(|page| {
            let page = first.saturating_add(page.into());
            // CAST: Below 256.
            page / PAGES as u64 == chunk && pages.contains((page % PAGES as u64) as u8)
        });
        let mut drawn = [0; 4];
        random::fill(&mut drawn);
        let qkey = (u32::from_le_bytes(drawn) & i32::MAX as u32).max(1);
        let fragment_len = self.requests.fragment_len;
        let Ok(landing) = Landing::new(qp.number(), qkey, fragment_len) else {
            self.hold = Hold::Idle(qp, selection.into_lent());
            return None;
        };
        let skip = selection.skip();
        match qp.receive(selection, skip, fragment_len.bytes(), qkey) {
            Ok(receiving) => {
                self.pages = pages;
                self.hold = Hold::Receiving(receiving);
                Some(landing)
            }
            Err(refused) => {
                if let Some((qp, selection)) = refused.parts {
                    self.hold = Hold::Idle(qp, selection.into_lent());
                }
                None
            }
        }
    }

    /// Stops the queue pair, for the machine.
    fn stop(&mut self) -> Effect {
        self.timer_us = None;
        self.finish();
        let effect = self.step(Event::Stopped);
        if !matches!(effect, Effect::Settle { .. }) {
            self.take_back();
        }
        effect
    }

    /// Stops the queue pair, if it receives.
    fn finish(&mut self) {
        if !matches!(self.hold, Hold::Receiving(_)) {
            return;
        }
        if let Hold::Receiving(receiving) = mem::replace(&mut self.hold, Hold::Lost) {
            let mut receiving = receiving;
            // Until then the device may write to the pages: the reader waits (decision 0014).
            let received = loop {
                match receiving.finish() {
                    Ok(received) => break received,
                    Err(again) => receiving = again,
                }
            };
            self.hold = Hold::Received(received);
        }
    }

    /// Puts fragments at their places, and gives the pages to the subrequest.
    fn settle(&mut self, complete: PageSet) -> Effect {
        if let Hold::Received(received) = &mut self.hold {
            let place = |place| match place {
                Place::Slot(slot) => transfer::Place::Slot(slot.into()),
                Place::Spare => transfer::Place::Spare,
            };
            let mut moved = Ok(());
            while let Some(Move { from, to }) = self.inbox.next_move() {
                moved = moved.and_then(|()| received.copy(place(from), place(to)));
            }
            if moved.is_ok() {
                for page in complete.iter() {
                    // CAST: Below 256.
                    let number = self.pages.rank(page) as u16;
                    // A page that is refused is read from the file server.
                    let _ = received.deliver(number);
                }
            }
        }
        self.take_back();
        self.step(Event::Settled)
    }

    /// Takes queue pair and pages back from a transfer that has ended.
    fn take_back(&mut self) {
        match mem::replace(&mut self.hold, Hold::Lost) {
            Hold::Received(received) => {
                let (qp, selection) = received.into_parts();
                self.hold = Hold::Idle(qp, selection.into_lent());
            }
            other => self.hold = other,
        }
    }
}
