// SPDX-License-Identifier: GPL-2.0

//! Requests of other nodes for pages that this one has cached: `proto` decides, pages go from the
//! page cache without a copy.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::sync::Completion;
use rdma::{
    Cq,
    Peer,
    PollContext, //
};
use rdma_transfer::{
    SendEvents,
    SendQp, //
};
use vfs_ext::Folios;

use super::{
    admission::Admitted,
    endpoint::{
        Endpoint,
        Incoming, //
    },
    in_flight::ReadsInFlight,
    now_us,
    sums::Sums, //
};
use crate::proto::cache::{
    address::{
        Address,
        NodeId, //
    },
    counter::Counter,
    fragment::{
        FragmentId,
        FragmentLen,
        FRAGMENTS_MAX, //
    },
    keep::{
        Keep,
        Kept, //
    },
    pages::{
        PageSet,
        PAGES, //
    },
    read_table::Awaited,
    reply::Answer,
    request::{
        Request,
        Wanted, //
    },
    responder::{
        serve_sound,
        HeldPages,
        Serve, //
    },
    sums::Verify,
    PAGE_LEN, //
};

/// The answer if the device refuses a transfer.
pub(super) const BUSY: Answer = Answer::Busy { wait_ms: 1 };

/// The maximum time that fragments may take to leave this machine, in milliseconds.
const SENT_MS: u32 = 5_000;

/// The time after which a request is looked at again whose pages are about to be seen in the page
/// cache, or for which there was no queue pair, in milliseconds.
const SOON_MS: u32 = 2;

/// The decision about a request.
pub(crate) enum Served {
    /// The answer, behind the fragments if there are any, with the size of the file in bytes.
    Answer(Answer, u64),
    /// The request is to be [kept](Responder::keep).
    Keep(Awaited),
    /// Each queue pair is sending.
    NoSender,
}

/// The page cache of the mount.
pub(crate) trait PageCache: Send + Sync + 'static {
    /// Takes those of the pages that are cached, with exactly the content that is wanted, into
    /// `folios`, in their order. Returns them, and the size of the file in bytes; [`None`] if the
    /// content is not what is cached. Does not wait for anything.
    fn cached(&self, wanted: &Wanted, folios: &mut Folios) -> Option<(PageSet, u64)>;

    /// Drops damaged pages of those that are `held`, which are `folios`: not what was read anew
    /// since they were taken, nor what is locked. Waits for nothing, as a request holds a queue
    /// pair meanwhile.
    fn drop_pages(&self, held: &Wanted, damaged: PageSet, folios: &Folios);
}

/// The end of the transfer that runs.
struct Sent {
    done: Arc<Completion>,
}

impl SendEvents for Sent {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;

    fn sent(&self) {
        self.done.complete_all();
    }

    fn failed(&self) {
        self.done.complete_all();
    }
}

/// A queue pair and the folios of one transfer.
struct Sender {
    qp: SendQp<Sent>,
    folios: Folios,
}

impl Sender {
    /// Creates one, whose completions are handled on the CPU of `number`. Sleeps.
    fn new<I: Incoming>(endpoint: &Endpoint<I>, number: u16) -> Result<Self> {
        // CAST: 256.
        let fragments_max = FRAGMENTS_MAX as u16;
        let (device, context) = (endpoint.pd().device(), PollContext::Softirq);
        let entries = SendQp::<Sent>::config(fragments_max).cq_entries();
        let cq = Cq::new(device, entries, number.into(), context, None)?;
        let sent = Sent {
            done: Arc::pin_init(Completion::new(), GFP_KERNEL)?,
        };
        let qp = SendQp::new(endpoint.pd(), &cq, &endpoint.port(), fragments_max, sent)?;
        // CAST: 256.
        let folios = Folios::new(PAGES as u16)?;
        Ok(Self { qp, folios })
    }
}

/// The pages of the mount, of which some are taken to be sent.
struct HeldFolios<'a> {
    pages: &'a dyn PageCache,
    sums: Option<&'a Sums>,
    folios: &'a mut Folios,
    admitted: &'a Admitted,
}

impl HeldPages for HeldFolios<'_> {
    fn known(&mut self, wanted: &Wanted) -> PageSet {
        self.sums.map_or(PageSet::EMPTY, |sums| sums.known(wanted))
    }

    fn take(&mut self, wanted: &Wanted) -> Option<(PageSet, u64)> {
        self.folios.clear();
        self.pages.cached(wanted, self.folios)
    }

    fn pay(&mut self, pages: PageSet) -> Result<(), Answer> {
        self.admitted.pay(len_bytes(pages))
    }

    fn damaged(&mut self, wanted: &Wanted) -> PageSet {
        self.sums
            .map_or(PageSet::EMPTY, |sums| sums.damaged(wanted, self.folios))
    }

    fn drop_pages(&mut self, held: &Wanted, damaged: PageSet) {
        self.pages.drop_pages(held, damaged, self.folios);
    }
}

/// The queue pairs that send nothing, and the number of those that have not been needed yet.
struct Senders {
    idle: KVec<Sender>,
    unmade: u16,
}

/// Serves requests, at most as many at a time as there are queue pairs for it.
#[pin_data]
pub(crate) struct Responder<I: Incoming> {
    endpoint: Arc<Endpoint<I>>,
    in_flight: Arc<ReadsInFlight>,
    sums: Option<Arc<Sums>>,
    #[pin]
    senders: Mutex<Senders>,
}

impl<I: Incoming> Responder<I> {
    /// Prepares `count` queue pairs on the port of `endpoint`, with completions on the CPUs in
    /// turn: the first one is created now, the others when they are needed. Sleeps.
    pub(crate) fn new(
        endpoint: &Arc<Endpoint<I>>,
        in_flight: &Arc<ReadsInFlight>,
        sums: &Option<Arc<Sums>>,
        count: u16,
    ) -> Result<Arc<Self>> {
        let mut idle = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        let mut unmade = count;
        if let Some(left) = count.checked_sub(1) {
            idle.push(Sender::new(endpoint, left)?, GFP_KERNEL)?;
            unmade = left;
        }
        Arc::pin_init(
            pin_init!(Self {
                endpoint: endpoint.clone(),
                in_flight: in_flight.clone(),
                sums: sums.clone(),
                senders <- new_mutex!(Senders { idle, unmade }, "Responder::senders"),
            }),
            GFP_KERNEL,
        )
    }

    /// Serves a request of a node to this one as a holder. Sleeps until the fragments have left, if
    /// there are any, and for nothing else.
    pub(crate) fn serve(
        &self,
        request: &Request,
        node: NodeId,
        from: &Address,
        pages: &dyn PageCache,
        admitted: &Admitted,
    ) -> Served {
        let Some(mut sender) = self.sender() else {
            return Served::NoSender;
        };
        let wanted = request.wanted();
        // Before the page cache: what ends in between is there.
        let awaited = self.in_flight.awaited(wanted.id(), wanted.chunk(), node);
        let mut held = HeldFolios {
            pages,
            sums: self.sums(),
            folios: &mut sender.folios,
            admitted,
        };
        let (longest, verify) = (self.endpoint.longest(), self.verify());
        match serve_sound(request, awaited.pages, longest, verify, &mut held) {
            Serve::Say(answer) => {
                self.rest(sender);
                Served::Answer(answer, 0)
            }
            Serve::Keep(_) => {
                self.rest(sender);
                Served::Keep(awaited)
            }
            Serve::Send(held) => match self.send(request, from, sender, held) {
                Ok(()) => {
                    let (bytes, counters) = (len_bytes(held), self.endpoint.counters());
                    counters.add(Counter::SaidPages, bytes / PAGE_LEN);
                    counters.add(Counter::SaidBytes, bytes);
                    let size_bytes = wanted.size_bytes();
                    Served::Answer(Answer::Data { pages: held }, size_bytes)
                }
                Err(_) => Served::Answer(BUSY, 0),
            },
        }
    }

    /// Returns the sums of pages, if they are made.
    pub(super) fn sums(&self) -> Option<&Sums> {
        self.sums.as_deref()
    }

    fn verify(&self) -> Verify {
        self.sums().map_or(Verify::Off, Sums::verify)
    }

    /// Keeps a request until this node has the pages that it is reading, and serves it then; says
    /// meanwhile that it does. Returns the last answer; `None` if the reader has gone to the file
    /// server. Sleeps for up to [`READ_US_MAX`].
    ///
    /// [`READ_US_MAX`]: crate::proto::cache::requester::READ_US_MAX
    pub(crate) fn keep(
        &self,
        request: &Request,
        node: NodeId,
        from: &Address,
        pages: &dyn PageCache,
        admitted: &Admitted,
        say: impl Fn(Answer),
    ) -> Option<(Answer, u64)> {
        let mut keep = Keep::new(now_us());
        let mut depth = 0;
        loop {
            let ends = self.in_flight.ends();
            let is_soon = match self.serve(request, node, from, pages, admitted) {
                Served::Answer(answer, size_bytes) => return Some((answer, size_bytes)),
                Served::Keep(awaited) => {
                    depth = awaited.depth;
                    awaited.is_settling
                }
                Served::NoSender => true,
            };
            if self.in_flight.is_over() {
                return Some((Answer::Miss, 0));
            }
            let now_us = now_us();
            let until_us = match keep.look(now_us, depth) {
                Kept::Forget => return None,
                Kept::Until(until_us) => until_us,
                Kept::Say(answer, until_us) => {
                    say(answer);
                    until_us
                }
            };
            // CAST: At most a second.
            let left_ms = until_us.saturating_sub(now_us).div_ceil(1000).min(1000) as u32;
            let wait_ms = if is_soon { SOON_MS } else { left_ms };
            self.in_flight.wait(ends, wait_ms);
        }
    }

    fn rest(&self, mut sender: Sender) {
        sender.folios.clear();
        // There is room for all.
        let _ = self.senders.lock().idle.push_within_capacity(sender);
    }

    /// Takes a queue pair that sends nothing; `None` if all send, or none can be made now. Sleeps.
    fn sender(&self) -> Option<Sender> {
        let left = {
            let mut senders = self.senders.lock();
            if let Some(mut sender) = senders.idle.pop() {
                sender.qp.set_partition(self.endpoint.port().pkey_index);
                return Some(sender);
            }
            let left = senders.unmade.checked_sub(1)?;
            senders.unmade = left;
            left
        };
        let sender = Sender::new(&self.endpoint, left).ok();
        if sender.is_none() {
            let mut senders = self.senders.lock();
            senders.unmade = senders.unmade.saturating_add(1);
        }
        sender
    }

    /// Sends the pages `held`, which are the folios of the sender.
    fn send(&self, request: &Request, from: &Address, sender: Sender, held: PageSet) -> Result {
        let Sender { qp, folios } = sender;
        let landing = request.landing().ok_or(EINVAL)?;
        let handle = match self.endpoint.handle(from) {
            Ok(handle) => handle,
            Err(error) => {
                self.rest(Sender { qp, folios });
                return Err(error);
            }
        };
        let peer = Peer {
            address: &handle,
            qp_number: landing.qpn(),
            qkey: landing.qkey(),
        };
        let (wanted, len) = (request.wanted().pages(), landing.fragment_len());
        let tag = request.id().tag;
        let has_all = wanted == held;
        let imm = |number: u16| {
            let index = match has_all {
                true => number,
                // CAST: At most 256.
                false => index(wanted, held, len, number.into()).unwrap_or(FRAGMENTS_MAX) as u16,
            };
            FragmentId { tag, index }.to_imm()
        };
        let done = qp.handler().done.clone();
        done.reinit();
        let mut sending = match qp.send(folios, len.bytes(), peer, imm) {
            Ok(sending) => sending,
            Err(refused) => {
                let (qp, folios) = refused.parts;
                self.rest(Sender { qp, folios });
                return Err(refused.error);
            }
        };
        let count = sending.count();
        let sent = sending.post(0..count);
        let sent = sent.and_then(|()| done.wait_timeout_ms(SENT_MS));
        // Until then the device may read the pages: this worker waits (decision 0014).
        let (qp, folios) = sending.end();
        self.rest(Sender { qp, folios });
        sent
    }
}

/// Returns the length of pages, in bytes.
fn len_bytes(pages: PageSet) -> u64 {
    // CAST: At most 256.
    (pages.len() as u64).saturating_mul(PAGE_LEN)
}

/// Returns the number among the fragments of the wanted pages of fragment `number` of those that
/// are sent.
fn index(wanted: PageSet, held: PageSet, len: FragmentLen, number: usize) -> Option<usize> {
    let rank = number.checked_div(len.per_page())?;
    let within = number.checked_rem(len.per_page())?;
    let rank = wanted.rank(held.nth(rank)?);
    len.of_page(rank).nth(within)
}
