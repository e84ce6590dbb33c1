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
    transfer::{
        SendEvents,
        SendQp, //
    },
    Cq,
    Peer,
    PollContext, //
};
use vfs_ext::Folios;

use super::{
    endpoint::{
        Endpoint,
        Incoming, //
    },
    guests::Admitted, //
};
use crate::proto::cache::{
    address::Address,
    counter::Counter,
    fragment::{
        FragmentId,
        FragmentLen,
        FRAGMENTS_MAX, //
    },
    pages::{
        PageSet,
        PAGES, //
    },
    reply::Answer,
    request::{
        Request,
        Wanted, //
    },
    responder::{
        serve,
        Cached,
        Serve, //
    },
    PAGE_LEN, //
};

/// How long fragments may take to leave this machine, in milliseconds.
const SENT_MS: u32 = 5_000;

/// The page cache of the mount.
pub(crate) trait PageCache: Send + Sync + 'static {
    /// Takes those of the pages that are cached, with exactly the content that is wanted, into
    /// `folios`, in their order. Returns them, and the size of the file in bytes; [`None`] if the
    /// content is not what is cached. Does not wait for anything.
    fn cached(&self, wanted: &Wanted, folios: &mut Folios) -> Option<(PageSet, u64)>;
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

/// Serves requests, at most as many at a time as there are queue pairs for it.
#[pin_data]
pub(crate) struct Responder<I: Incoming> {
    endpoint: Arc<Endpoint<I>>,
    #[pin]
    idle: Mutex<KVec<Sender>>,
}

impl<I: Incoming> Responder<I> {
    /// Creates `count` queue pairs on the port of `endpoint`, with completions on the CPUs in turn.
    /// Sleeps.
    pub(crate) fn new(endpoint: &Arc<Endpoint<I>>, count: u16) -> Result<Arc<Self>> {
        let mut idle = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        // CAST: 256.
        let fragments_max = FRAGMENTS_MAX as u16;
        let config = SendQp::<Sent>::config(fragments_max);
        for number in 0..count {
            let device = endpoint.pd().device();
            let context = PollContext::Softirq;
            let cq = Cq::new(device, config.cq_entries(), number.into(), context, None)?;
            let sent = Sent {
                done: Arc::pin_init(Completion::new(), GFP_KERNEL)?,
            };
            let qp = SendQp::new(endpoint.pd(), &cq, endpoint.port(), fragments_max, sent)?;
            // CAST: 256.
            let folios = Folios::new(PAGES as u16)?;
            idle.push(Sender { qp, folios }, GFP_KERNEL)?;
        }
        Arc::pin_init(
            pin_init!(Self {
                endpoint: endpoint.clone(),
                idle <- new_mutex!(idle, "Responder::idle"),
            }),
            GFP_KERNEL,
        )
    }

    /// Serves a request to this node as a holder: sends the fragments, if there are any, and
    /// returns what to answer behind them, with the size of the file. Sleeps until they have left.
    pub(crate) fn serve(
        &self,
        request: &Request,
        from: &Address,
        pages: &dyn PageCache,
        admitted: &Admitted,
    ) -> (Answer, u64) {
        let busy = (Answer::Busy { wait_ms: 1 }, 0);
        let Some(mut sender) = self.idle.lock().pop() else {
            return busy;
        };
        sender.folios.clear();
        let found = pages.cached(request.wanted(), &mut sender.folios);
        let cached = found.map(|(held, size_bytes)| Cached {
            size_bytes,
            held,
            fetching: PageSet::EMPTY,
        });
        let decision = match serve(request, cached.as_ref(), self.endpoint.longest()) {
            Serve::Send(held) => match admitted.pay(len_bytes(held)) {
                Ok(()) => Serve::Send(held),
                Err(answer) => Serve::Say(answer),
            },
            other => other,
        };
        match decision {
            Serve::Say(answer) => {
                self.rest(sender);
                (answer, 0)
            }
            Serve::Keep(_) => {
                self.rest(sender);
                (Answer::Miss, 0)
            }
            Serve::Send(held) => match self.send(request, from, sender, held) {
                Ok(()) => {
                    let (bytes, counters) = (len_bytes(held), self.endpoint.counters());
                    counters.add(Counter::SaidPages, bytes / PAGE_LEN);
                    counters.add(Counter::SaidBytes, bytes);
                    let size_bytes = request.wanted().size_bytes();
                    (Answer::Data { pages: held }, size_bytes)
                }
                Err(_) => busy,
            },
        }
    }

    fn rest(&self, mut sender: Sender) {
        sender.folios.clear();
        // There is room for all.
        let _ = self.idle.lock().push_within_capacity(sender);
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
        let imm = |number: u16| {
            let index = index(wanted, held, len, number.into());
            // CAST: Below 256.
            let index = index.unwrap_or(FRAGMENTS_MAX) as u16;
            FragmentId { tag, index }.to_imm()
        };
        let done = qp.handler().done.clone();
        done.reinit();
        let mut sending = match qp.send(folios, len.bytes(), peer, imm) {
            Ok(sending) => sending,
            Err(refused) => {
                if let Some((qp, folios)) = refused.parts {
                    self.rest(Sender { qp, folios });
                }
                return Err(refused.error);
            }
        };
        let count = sending.count();
        let sent = sending.post(0..count);
        let sent = sent.and_then(|()| done.wait_timeout_ms(SENT_MS));
        // A transfer that the device does not end is leaked, with its queue pair.
        let (qp, folios) = sending.finish().map_err(|_| EAGAIN)?;
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
