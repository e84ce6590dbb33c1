// SPDX-License-Identifier: GPL-2.0

//! Pages of a read from other nodes: carries out what [`Requester`] decides, in a worker of the
//! read.

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
    Ordering::{
        Acquire,
        Release, //
    }, //
};
use vfs_ext::{
    FileSystem,
    Lent, //
};

use super::{
    chunk_read::ChunkRead,
    data_qps::{
        DataQp,
        DataQps, //
    },
    endpoint::{
        Endpoint,
        Incoming, //
    },
    in_flight::ReadsInFlight,
    inbox::Inbox,
    membership::Membership,
    node::Limits,
    now_us,
    owner::Owner,
    peer_timing::PeerTimings,
    peers::{
        Peers,
        Table, //
    },
    secret::Secret,
    sums::Sums, //
};
use crate::proto::{
    cache::{
        address::NodeId,
        counter::Counter,
        fragment::FragmentLen,
        have::Have,
        pages::{
            PageSet,
            PAGES, //
        },
        read_table::ReadId,
        reply::{
            self,
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
            owners::Owners, //
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

/// The length of a notice's datagram, in bytes.
const HAVE_LEN: usize = HEAD_LEN + Have::LEN + CODE_LEN;

/// The number of chunks of which a subrequest has pages.
const CHUNKS_MAX: usize = 2;

/// Tells whether a read is to end, as all of its mount are that had begun. It does so from before
/// [`Requests::cancel`] is called.
pub(crate) type IsOver<'a> = &'a dyn Fn() -> bool;

/// The notice to others at the end of a read: owners are told which pages this node has then, and
/// those who wait for it that it has ended. The latter by its drop.
pub(crate) struct Notice {
    id: ContentId,
    chunks: [Option<Chunk>; CHUNKS_MAX],
    in_flight: Arc<ReadsInFlight>,
}

/// The pages of a chunk that are read, and the owners that were asked.
struct Chunk {
    number: u64,
    pages: PageSet,
    owners: Owners,
    /// `None` if there was no place for it.
    read_id: Option<ReadId>,
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
            if let Some(read_id) = chunk.read_id {
                self.in_flight.extend(read_id, pages);
            }
            return Some(chunk);
        }
        Some(place.insert(Chunk {
            number,
            pages,
            owners: Owners::NONE,
            read_id: self.in_flight.begin(self.id, number, pages),
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
        let read_ids = self.chunks.iter().flatten().filter_map(|c| c.read_id);
        read_ids.for_each(|read_id| self.in_flight.end(read_id));
    }
}

/// The reads that ask other nodes, at most as many at a time as there are queue pairs for them.
#[pin_data]
pub(crate) struct Requests<I: Incoming> {
    pub(super) endpoint: Arc<Endpoint<I>>,
    pub(super) peers: Arc<Peers>,
    pub(super) membership: Arc<Membership<I>>,
    pub(super) owner: Arc<Owner>,
    in_flight: Arc<ReadsInFlight>,
    pub(super) secret: Arc<Secret>,
    pub(super) sums: Option<Arc<Sums>>,
    inboxes: KVec<Arc<Inbox>>,
    data_qps: Arc<DataQps<I>>,
    pub(super) peer_timings: Arc<PeerTimings>,
    pub(super) fragment_len: FragmentLen,
    is_over: AtomicBool,
    /// Whether the port is to be looked at, as something has come by it although it seems to be
    /// down.
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
        in_flight: &Arc<ReadsInFlight>,
        secret: &Arc<Secret>,
        sums: &Option<Arc<Sums>>,
        limits: &Limits,
    ) -> Result<Arc<Self>> {
        let (fragment_len, count) = (endpoint.longest(), limits.asking);
        let (peers, me) = (&membership.peers, membership.peers.me().node);
        let peer_timings = PeerTimings::new(limits.timeout_us_max)?;
        let mut inboxes = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        for index in 0..count {
            let how = (limits.read_us, sums.is_some());
            let inbox = Inbox::new((index, count), me, fragment_len, how)?;
            inboxes.push(inbox, GFP_KERNEL)?;
        }
        let data_qps = DataQps::new(endpoint, &inboxes)?;
        Arc::pin_init(
            pin_init!(Self {
                endpoint: endpoint.clone(),
                peers: peers.clone(),
                membership: membership.clone(),
                owner: owner.clone(),
                in_flight: in_flight.clone(),
                secret: secret.clone(),
                sums: sums.clone(),
                inboxes,
                data_qps,
                peer_timings,
                fragment_len,
                is_over: AtomicBool::new(false),
                is_port_doubted: AtomicBool::new(false),
                looking <- new_mutex!((), "Requests::looking"),
            }),
            GFP_KERNEL,
        )
    }

    /// Ends all reads in flight as soon as no device writes to their pages. The pages that they
    /// lack are read from the file server. Does not wait for them. Those that ask no node yet find
    /// out themselves that they are over.
    pub(crate) fn cancel(&self) {
        for inbox in self.inboxes.iter() {
            inbox.post(Event::Cancel, |_| {});
        }
    }

    /// Ends the worker that prepares queue pairs. Sleeps.
    pub(crate) fn end_worker(&self) {
        self.data_qps.end();
    }

    /// Ends all reads in flight, as [`cancel`](Self::cancel), and refuses new ones.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Release);
        self.cancel();
    }

    /// Returns whether no read asks a node any more.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Acquire)
    }

    /// Takes the body of a reply of a node that has the key.
    pub(crate) fn replied(&self, from: NodeId, reply: &Reply, sums: reply::Sums<'_>) {
        let counters = self.endpoint.counters();
        // CAST: At most 4096.
        let index = Tags::qp_index(reply.id.tag, self.inboxes.len() as u16);
        let Some(inbox) = self.inboxes.get(usize::from(index)) else {
            counters.add(Counter::ToldLate, 1);
            return;
        };
        let count = |step: &Step| {
            let is_ours = step.note.is_some();
            let told = is_ours.then(|| Counter::told(&reply.answer));
            counters.add(told.unwrap_or(Counter::ToldLate), 1);
            if let (Answer::Data { pages }, true) = (reply.answer, is_ours) {
                // CAST: At most 256.
                counters.add(Counter::ToldPages, pages.len() as u64);
            }
        };
        let step = inbox.post(Event::Replied { from, reply, sums }, count);
        if step.note.is_some() {
            self.peer_timings.granted(from, reply.credits);
            if let Answer::Wait { depth, .. } = reply.answer {
                self.waits(inbox.read_id(), Some((from, depth)));
            }
        }
        self.note(&step);
    }

    /// Notes for which node a read waits, and how far that is from a file server.
    pub(super) fn waits(&self, read_id: Option<ReadId>, node: Option<(NodeId, u8)>) {
        if let Some(read_id) = read_id {
            self.in_flight.waits(read_id, node);
        }
    }

    /// Takes note of what was learned of a peer.
    pub(super) fn note(&self, step: &Step) {
        let Some((node, heard)) = step.note else {
            return;
        };
        let change = self.peer_timings.heard(node, heard);
        if heard == Heard::Silence {
            self.endpoint.counters().add(Counter::Timeouts, 1);
            self.peers.with(|table| table.unanswered(node, now_us()));
        }
        self.changed(change);
    }

    /// Fills pages of a subrequest with those of other nodes, as far as they have them: bytes of
    /// the content `id` of this size, unless the read `is_over`. Returns it with what is to be told
    /// when all its pages are there; `None` if a device keeps it. Sleeps.
    pub(crate) fn fill<T: FileSystem>(
        &self,
        lent: Lent<T>,
        id: ContentId,
        size_bytes: u64,
        is_over: IsOver<'_>,
    ) -> Option<(Lent<T>, Notice)> {
        let (mut lent, mut next) = (lent, 0u16);
        let mut notice = Notice {
            id,
            chunks: [const { None }; CHUNKS_MAX],
            in_flight: self.in_flight.clone(),
        };
        while next < lent.pages() && !self.is_over() && !is_over() {
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
            let read_id = noted.as_ref().and_then(|chunk| chunk.read_id);
            let owners;
            (lent, owners) = self.piece(lent, wanted, read_id, is_over)?;
            // They are told of what a file server is asked for, too: they tell others where it is.
            if let Some(chunk) = noted {
                chunk.owners.add_all(&owners);
            }
            // CAST: At most 256.
            next = next.saturating_add(piece.len() as u16);
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
        read_id: Option<ReadId>,
        is_over: IsOver<'_>,
    ) -> Option<(Lent<T>, Owners)> {
        let Some(lost) = self.asked() else {
            return Some((lent, Owners::NONE));
        };
        let Some(DataQp { qp, cq, inbox }) = self.data_qps.take() else {
            return Some((lent, Owners::NONE));
        };
        self.endpoint.counters().add(Counter::Reads, 1);
        let mut read = ChunkRead::new(self, inbox.clone(), cq.clone(), wanted, (qp, lent));
        read.carry_out(read_id, &lost, is_over);
        let (qp, lent) = read.into_parts()?;
        let owners = inbox.end();
        self.waits(read_id, None);
        self.data_qps.give_back(DataQp { qp, cq, inbox });
        Some((lent, owners))
    }
}
