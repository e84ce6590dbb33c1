// SPDX-License-Identifier: GPL-2.0

//! Pages of a read from other nodes: carries out what [`Requester`] decides, in the worker of the
//! file that is read.

mod outage;

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::sync::atomic::{
    AtomicBool,
    AtomicU32,
    Ordering::{
        Acquire,
        Release, //
    }, //
};
use rdma::{
    transfer::ReceiveQp,
    Cq, //
};
use vfs_ext::{
    FileSystem,
    Lent, //
};

use super::{
    contacts::Contacts,
    endpoint::{
        Endpoint,
        Incoming, //
    },
    fetches::Fetches,
    inbox::{
        Inbox,
        Landed, //
    },
    membership::Membership,
    node::Limits,
    now_us,
    owner::Owner,
    peers::{
        Peers,
        Table, //
    },
    run::Run,
    secret::Secret, //
};
use crate::proto::{
    cache::{
        address::NodeId,
        counter::Counter,
        fetching::Ticket,
        fragment::{
            FragmentLen,
            FRAGMENTS_MAX, //
        },
        have::Have,
        pages::{
            PageSet,
            PAGES, //
        },
        reply::{
            Answer,
            Reply, //
        },
        request::Wanted,
        requester::{
            event::{
                Event,
                Heard,
                Step, //
            },
            owners::Owners,
            Duty, //
        },
        tags::Tags,
        wire::{
            self,
            Head,
            Kind,
            CODE_LEN,
            HEAD_LEN, //
        }, //
    },
    identity::ContentId,
};

/// A queue pair for the fragments of one read, and what comes for it.
struct Lane {
    qp: ReceiveQp<Landed>,
    cq: Arc<Cq>,
    inbox: Arc<Inbox>,
}

impl Lane {
    /// Creates the queue pair of an inbox. Sleeps.
    fn new<I: Incoming>(endpoint: &Endpoint<I>, inbox: Arc<Inbox>) -> Result<Self> {
        // CAST: 256.
        let fragments_max = FRAGMENTS_MAX as u16;
        let device = endpoint.pd().device();
        let entries = ReceiveQp::<Landed>::config(fragments_max).cq_entries();
        // The worker of the read takes what has come when it has the reply.
        let cq = Cq::polled_with_notify(device, entries, inbox.lane().into(), inbox.clone())?;
        let landed = Landed(inbox.clone());
        let qp = ReceiveQp::new(endpoint.pd(), &cq, endpoint.port(), fragments_max, landed)?;
        Ok(Self { qp, cq, inbox })
    }
}

/// The queue pairs that no read uses, and the inboxes of those that have not been needed yet: each
/// takes a time that a mount would wait for, and most mounts never need all. There is room for all
/// in both lists.
struct Lanes {
    idle: KVec<Lane>,
    unmade: KVec<Arc<Inbox>>,
}

/// The length of a notice's datagram, in bytes.
const HAVE_LEN: usize = HEAD_LEN + Have::LEN + CODE_LEN;

/// The number of chunks of which a subrequest has pages.
const CHUNKS_MAX: usize = 2;

/// What is told to others at the end of a read: to owners which pages this node has then, and to
/// those who wait for it that it has ended. The latter by its drop.
pub(crate) struct Notice {
    id: ContentId,
    chunks: [Option<Chunk>; CHUNKS_MAX],
    fetches: Arc<Fetches>,
}

/// The pages of a chunk that are read, and the owners that were asked.
struct Chunk {
    number: u64,
    pages: PageSet,
    owners: Owners,
    /// `None` if there was no place for it.
    ticket: Option<Ticket>,
}

impl Notice {
    /// Notes that pages of a chunk are read from now on.
    fn begin(&mut self, number: u64, pages: PageSet) -> Option<&mut Chunk> {
        let is_place = |place: &&mut Option<Chunk>| match place {
            None => true,
            Some(chunk) => chunk.number == number,
        };
        let place = self.chunks.iter_mut().find(is_place)?;
        if let Some(chunk) = place {
            chunk.pages = chunk.pages.union(pages);
            if let Some(ticket) = chunk.ticket {
                self.fetches.extend(ticket, pages);
            }
            return Some(chunk);
        }
        Some(place.insert(Chunk {
            number,
            pages,
            owners: Owners::NONE,
            ticket: self.fetches.begin(self.id, number, pages),
        }))
    }

    fn iter(&self) -> impl Iterator<Item = (Have, Owners)> + '_ {
        self.chunks.iter().flatten().filter_map(|chunk| {
            let have = Have::new(self.id, chunk.number, chunk.pages).ok()?;
            Some((have, chunk.owners))
        })
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        let tickets = self.chunks.iter().flatten().filter_map(|c| c.ticket);
        tickets.for_each(|ticket| self.fetches.end(ticket));
    }
}

/// The reads that ask other nodes, at most as many at a time as there are queue pairs for them.
#[pin_data]
pub(crate) struct Requests<I: Incoming> {
    pub(super) endpoint: Arc<Endpoint<I>>,
    pub(super) peers: Arc<Peers>,
    pub(super) membership: Arc<Membership<I>>,
    pub(super) owner: Arc<Owner>,
    fetches: Arc<Fetches>,
    pub(super) secret: Arc<Secret>,
    inboxes: KVec<Arc<Inbox>>,
    #[pin]
    lanes: Mutex<Lanes>,
    pub(super) contacts: Arc<Contacts>,
    pub(super) fragment_len: FragmentLen,
    /// How often all reads were to end.
    interrupts: AtomicU32,
    is_over: AtomicBool,
    /// Something has come by a port that is down, as it seems.
    is_port_doubted: AtomicBool,
    /// Locked while a task looks at the port.
    #[pin]
    looking: Mutex<()>,
}

impl<I: Incoming> Requests<I> {
    /// Creates what the requests at a time need on the port of `endpoint`, and a first queue pair.
    /// Sleeps.
    pub(crate) fn new(
        endpoint: &Arc<Endpoint<I>>,
        membership: &Arc<Membership<I>>,
        owner: &Arc<Owner>,
        fetches: &Arc<Fetches>,
        secret: &Arc<Secret>,
        limits: &Limits,
    ) -> Result<Arc<Self>> {
        let (fragment_len, count) = (endpoint.longest(), limits.asking);
        let (peers, me) = (&membership.peers, membership.peers.me().node);
        let contacts = Contacts::new(limits.timeout_us_max)?;
        let mut idle = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        let mut unmade = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        let mut inboxes = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        for lane in 0..count {
            let inbox = Inbox::new((lane, count), me, fragment_len, limits.read_us)?;
            inboxes.push(inbox.clone(), GFP_KERNEL)?;
            // The first one is made now: a device that cannot is found out by the mount.
            match lane {
                0 => idle.push(Lane::new(endpoint, inbox)?, GFP_KERNEL)?,
                _ => unmade.push(inbox, GFP_KERNEL)?,
            }
        }
        Arc::pin_init(
            pin_init!(Self {
                endpoint: endpoint.clone(),
                peers: peers.clone(),
                membership: membership.clone(),
                owner: owner.clone(),
                fetches: fetches.clone(),
                secret: secret.clone(),
                inboxes,
                lanes <- new_mutex!(Lanes { idle, unmade }, "Requests::lanes"),
                contacts,
                fragment_len,
                interrupts: AtomicU32::new(0),
                is_over: AtomicBool::new(false),
                is_port_doubted: AtomicBool::new(false),
                looking <- new_mutex!((), "Requests::looking"),
            }),
            GFP_KERNEL,
        )
    }

    /// Has all reads end that are under way, as soon as no device writes to their pages. What they
    /// have not got is read from the file server.
    pub(crate) fn interrupt(&self) {
        self.interrupts.fetch_add(1, Release);
        self.cancel();
    }

    fn cancel(&self) {
        for inbox in self.inboxes.iter() {
            inbox.post(Event::Cancel);
        }
    }

    /// The same, and begins no other.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Release);
        self.interrupt();
    }

    /// Returns whether all reads were to end since this was their count.
    pub(super) fn is_interrupted(&self, since: u32) -> bool {
        self.is_over.load(Acquire) || self.interrupts.load(Acquire) != since
    }

    /// Takes the body of a reply of a node that has the key.
    pub(crate) fn replied(&self, from: NodeId, reply: &Reply) {
        let counters = self.endpoint.counters();
        // CAST: At most 4096.
        let lane = Tags::lane(reply.id.tag, self.inboxes.len() as u16);
        let Some(inbox) = self.inboxes.get(usize::from(lane)) else {
            counters.add(Counter::ToldLate, 1);
            return;
        };
        let step = inbox.post(Event::Replied { from, reply });
        if step.note.is_some() {
            counters.add(Counter::told(&reply.answer), 1);
            if let Answer::Data { pages } = reply.answer {
                // CAST: At most 256.
                counters.add(Counter::ToldPages, pages.len() as u64);
            }
            self.contacts.granted(from, reply.credits);
            if let Answer::Wait { depth, .. } = reply.answer {
                self.waits(inbox.ticket(), Some((from, depth)));
            }
        } else {
            counters.add(Counter::ToldLate, 1);
        }
        self.note(&step);
    }

    /// Notes for which node a read waits, and how far that is from a file server.
    pub(super) fn waits(&self, ticket: Option<Ticket>, node: Option<(NodeId, u8)>) {
        if let Some(ticket) = ticket {
            self.fetches.waits(ticket, node);
        }
    }

    /// Takes note of what was learned of a peer.
    pub(super) fn note(&self, step: &Step) {
        let Some((node, heard)) = step.note else {
            return;
        };
        let change = self.contacts.heard(node, heard);
        if heard == Heard::Silence {
            self.endpoint.counters().add(Counter::Timeouts, 1);
            self.peers.with(|table| table.unanswered(node, now_us()));
        }
        self.changed(change);
    }

    /// Fills pages of a subrequest with those of other nodes, as far as they have them: bytes of
    /// the content `id` of this size. Who `owes` others pages does not wait for long. Returns it
    /// with what is to be told when all its pages are there; `None` if a device keeps it. Sleeps.
    pub(crate) fn fill<T: FileSystem>(
        &self,
        lent: Lent<T>,
        id: ContentId,
        size_bytes: u64,
        owes: bool,
    ) -> Option<(Lent<T>, Notice)> {
        let since = self.interrupts.load(Acquire);
        let (mut lent, mut next) = (lent, 0u16);
        let mut duty = if owes { Duty::Owes } else { Duty::Nothing };
        let mut notice = Notice {
            id,
            chunks: [const { None }; CHUNKS_MAX],
            fetches: self.fetches.clone(),
        };
        while next < lent.pages() && !self.is_interrupted(since) {
            let page = lent.first_page().saturating_add(next.into());
            let (chunk, start) = (page / PAGES as u64, page % PAGES as u64);
            let rest = u64::from(lent.pages().saturating_sub(next));
            let of_chunk = rest.min((PAGES as u64).saturating_sub(start));
            // CAST: Both are at most 256, the first one less.
            let pages = PageSet::range(start as u8, of_chunk as usize);
            let piece = pages.lowest(self.fragment_len.pages_max());
            let pages = piece.intersection(PageSet::of_file(chunk, size_bytes));
            let Ok(wanted) = Wanted::new(id, size_bytes, chunk, pages) else {
                // Behind the end of the file.
                break;
            };
            let kept = Some(&mut notice).filter(|_| lent.subrequest().is_cached());
            let noted = kept.and_then(|notice| notice.begin(chunk, pages));
            let ticket = noted.as_ref().and_then(|chunk| chunk.ticket);
            let owners;
            (lent, owners) = self.piece(lent, wanted, (duty, ticket), since)?;
            // They are told of what a file server is asked for, too: they tell others where it is.
            if let Some(chunk) = noted {
                chunk.owners.add_all(&owners);
            }
            // CAST: At most 256.
            let end = next.saturating_add(piece.len() as u16);
            if (next..end).any(|page| !lent.is_filled(page)) {
                duty = Duty::Owes;
            }
            next = end;
        }
        Some((lent, notice))
    }

    /// Tells owners that this node has pages. Sleeps.
    pub(crate) fn tell(&self, notice: &Notice) {
        for (have, owners) in notice.iter() {
            for owner in owners.iter() {
                self.tell_owner(owner, &have);
            }
        }
    }

    fn tell_owner(&self, node: NodeId, have: &Have) {
        let me = self.peers.me().node;
        if node == me {
            return self.owner.told(me, have);
        }
        let Some(holder) = self.peers.holder(node) else {
            return;
        };
        let now_us = now_us();
        let next = |table: &mut Table| table.next_sequence(Some(node), now_us);
        let head = Head {
            kind: Kind::Have,
            from: me,
            to: Some(node),
            sequence: self.peers.with(next),
        };
        let mut bytes = [0; HAVE_LEN];
        let sealed = wire::seal(&head, &have.to_bytes(), self.secret.key(), &mut bytes);
        if sealed.is_some() {
            // One that cannot be sent is as good as lost.
            let _ = self.endpoint.send(&holder.address, &bytes);
        }
    }

    /// Reads pages of one chunk, as far as others have them.
    // A frame of its own, which ends before the file server is asked.
    #[inline(never)]
    fn piece<T: FileSystem>(
        &self,
        lent: Lent<T>,
        wanted: Wanted,
        (duty, ticket): (Duty, Option<Ticket>),
        since: u32,
    ) -> Option<(Lent<T>, Owners)> {
        let Some(lost) = self.asked() else {
            return Some((lent, Owners::NONE));
        };
        let Some(Lane { qp, cq, inbox }) = self.lane() else {
            return Some((lent, Owners::NONE));
        };
        self.endpoint.counters().add(Counter::Reads, 1);
        let mut run = Run::new(self, inbox.clone(), cq.clone(), wanted, (qp, lent));
        run.carry_out(duty, ticket, &lost, since);
        let (qp, lent) = run.into_parts()?;
        let owners = inbox.end();
        self.waits(ticket, None);
        // There is room for all.
        let lane = Lane { qp, cq, inbox };
        let _ = self.lanes.lock().idle.push_within_capacity(lane);
        Some((lent, owners))
    }

    /// Takes a queue pair that no read uses; `None` if all are in use, or none can be made now.
    /// Sleeps. No allocation in it waits for IO, as the caller has seen to.
    fn lane(&self) -> Option<Lane> {
        let inbox = {
            let mut lanes = self.lanes.lock();
            if let Some(lane) = lanes.idle.pop() {
                return Some(lane);
            }
            lanes.unmade.pop()?
        };
        let lane = Lane::new(&self.endpoint, inbox.clone()).ok();
        if lane.is_none() {
            // The next read may have more luck.
            let _ = self.lanes.lock().unmade.push_within_capacity(inbox);
        }
        lane
    }
}
