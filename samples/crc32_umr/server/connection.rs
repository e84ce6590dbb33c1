// SPDX-License-Identifier: GPL-2.0

//! A connection. Its requests are served one at a time, in the context of the completions of its
//! receives, which may sleep; what they send completes in another queue.

use kernel::{
    fmt, new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::{
    errno::ESHUTDOWN,
    pages::PageBlock,
    sync::{
        atomic::{
            AtomicBool,
            Ordering::Relaxed, //
        },
        Completion, //
    },
};
use rdma::{
    cm::*,
    *, //
};

use super::{
    Target,
    EVENT_LIMIT,
    LOG_LIMIT, //
};
use crate::{
    proto::{
        request::{
            BLOCKS_MAX,
            LEN_MAX,
            SIGNATURE_LEN, //
        },
        response,
        Violation, //
    },
    ELEMENTS_MAX, //
};
use chunk4k::{
    CHUNK_LEN,
    DATA_LEN, //
};

/// The receives of a connection.
pub(super) const DEPTH: u16 = 4;
/// The tag of what is sent; the receives have those below.
pub(super) const TAG_SEND: u32 = DEPTH as u32;
/// A gather list for each chunk, one for the checksum, and the response.
pub(super) const REQUESTS_MAX: usize = BLOCKS_MAX + 2;
/// The elements of them.
pub(super) const ELEMENTS: usize = BLOCKS_MAX + 2;
/// The offsets in the buffer of answers of the checksum of data that is read, and of the response.
pub(super) const SIGNATURE_AT: u32 = 0;
pub(super) const RESPONSE_AT: u32 = SIGNATURE_LEN;
/// The RDMA reads of this end that may be in flight: no more than any initiator must permit.
const READS_MAX: u8 = 1;
/// The time that the adapter may take for what is sent, in milliseconds.
const SEND_MS: u32 = 10_000;

/// The reason why a connection ends.
pub(super) enum Why {
    /// The peer has sent what no peer may send.
    Violation(Violation),
    /// The adapter or this machine failed.
    Failed(&'static str, Error),
    /// The connection was ended.
    Gone,
}

impl From<Violation> for Why {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violation(violation) => fmt::Display::fmt(violation, f),
            Self::Failed(what, error) => f.write_fmt(fmt!("{what}: {error:?}")),
            Self::Gone => f.write_str("it is gone"),
        }
    }
}

/// The state that the handlers of a connection use.
#[pin_data]
pub(super) struct State {
    pub(super) target: Arc<Target>,
    pub(super) number: u64,
    /// The slots of messages that are received, one for each receive.
    pub(super) received: MessageBuffers,
    /// One slot: the checksum of data that is read, and the response.
    pub(super) answers: MessageBuffers,
    /// The chunks of the request at hand; RDMA goes to and from their data.
    pub(super) staging: Arc<PageMapping>,
    /// The chunks that a write replaces.
    pub(super) old: Arc<PageBlock>,
    /// The data on their way from a message to the chunks.
    #[pin]
    pub(super) bounce: Mutex<KVec<u8>>,
    /// The elements that a gather list may have.
    pub(super) elements_max: usize,
    #[pin]
    sent: Completion,
    is_broken: AtomicBool,
    is_ending: AtomicBool,
}

/// The handler of a connection's completions.
pub(super) struct Handler(pub(super) Arc<State>);

/// A connection. Fields are dropped in declaration order.
pub(super) struct Connection {
    number: u64,
    id: CmId,
    qp: OwnedQp<Handler>,
}

impl Connection {
    /// Accepts a connection request. Sleeps.
    pub(super) fn accept(
        target: &Arc<Target>,
        number: u64,
        request: ConnectRequest<'_>,
        welcome: &[u8],
    ) -> Result<Self> {
        let ending = target.clone();
        let events = move |_id: &Id, event: Event<'_>| {
            if matches!(event, Event::TimewaitExit | Event::AddressChange) {
                return Ok(());
            }
            if EVENT_LIMIT.allow().is_some() {
                pr_info!("connection {number}: {event}\n");
            }
            if !matches!(event, Event::Established { .. }) {
                ending.end_later(number);
            }
            Ok(())
        };
        let pending = request.prepare(events)?;
        let qp = queue_pair(target, number, pending.id()?)?;
        let param = ConnectParam {
            initiator_depth: READS_MAX,
            ..ConnectParam::default()
        };
        let id = pending.accept(&param, welcome)?;
        Ok(Self { number, id, qp })
    }

    /// Returns its number.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // What is left to send is flushed, so that the handlers return.
        let _ = self.id.disconnect();
        if let Err(error) = self.qp.close() {
            pr_err!("connection {}: {error:?}\n", self.number);
        }
    }
}

/// Creates the queue pair of a connection, with its receives.
fn queue_pair(target: &Arc<Target>, number: u64, id: &Id) -> Result<OwnedQp<Handler>> {
    let device = id.device().ok_or(ENODEV)?;
    let pd = Pd::new(device)?;
    let elements_max = u32::from(ELEMENTS_MAX.get())
        .min(device.max_send_sge())
        .min(device.max_read_sge())
        .clamp(1, ELEMENTS as u32);
    let config = QpConfig {
        max_send_sge: elements_max,
        receive_tags: DEPTH.into(),
        // CAST: a few.
        ..QpConfig::new(REQUESTS_MAX as u32, DEPTH.into(), TAG_SEND + 1)
    };
    let order = PageBlock::order_for(BLOCKS_MAX * CHUNK_LEN);
    let staging = Arc::new(PageBlock::new(order)?, GFP_KERNEL)?;
    let received = MessageBuffers::new(&pd, DEPTH.into(), LEN_MAX)?;
    // CAST: a few bytes.
    let answers = MessageBuffers::new(&pd, 1, RESPONSE_AT + response::LEN as u32)?;
    let staging = PageMapping::new(&pd, staging, DmaDirection::Bidirectional)?;
    let old = Arc::new(PageBlock::new(order)?, GFP_KERNEL)?;
    let bounce = KVec::from_elem(0, DATA_LEN, GFP_KERNEL)?;
    let state = pin_init!(State {
        target: target.clone(),
        number,
        received,
        answers,
        staging,
        old,
        bounce <- new_mutex!(bounce),
        elements_max: elements_max as usize,
        sent <- Completion::new(),
        is_broken: AtomicBool::new(false),
        is_ending: AtomicBool::new(false),
    });
    let state = Arc::pin_init(state, GFP_KERNEL)?;
    let queue = || Cq::new(device, config.cq_entries(), 0, PollContext::Workqueue, None);
    let qp = id.create_qp(&pd, &queue()?, &queue()?, &config, Handler(state))?;
    for tag in 0..u32::from(DEPTH) {
        qp.handler().0.receive(&qp, tag)?;
    }
    Ok(qp)
}

impl State {
    /// Posts receive `tag`.
    pub(super) fn receive(&self, qp: &Qp<Handler>, tag: u32) -> Result {
        qp.post_receive(tag, Some(self.received.segment(tag, 0, LEN_MAX)))
    }

    /// Posts `batch`, whose last work request is signalled, and waits until it is done. Sleeps.
    pub(super) fn run<const N: usize, const S: usize>(
        &self,
        mut batch: Batch<'_, Handler, N, S>,
    ) -> Result<(), Why> {
        // Nothing else is in flight: requests are served one at a time.
        self.sent.reinit();
        let posted = batch.post();
        posted.map_err(|error| match error {
            ESHUTDOWN => Why::Gone,
            error => Why::Failed("a work request is refused", error),
        })?;
        let done = self.sent.wait_timeout_ms(SEND_MS);
        done.map_err(|error| Why::Failed("a work request does not end", error))?;
        if self.is_broken.load(Relaxed) {
            return Err(Why::Gone);
        }
        Ok(())
    }

    /// Ends the connection soon. Any process context.
    fn end(&self, why: &Why) {
        if self.is_ending.swap(true, Relaxed) {
            return;
        }
        if matches!(why, Why::Violation(_)) {
            self.target.figures().violations.fetch_add(1, Relaxed);
        }
        if !matches!(why, Why::Gone) && LOG_LIMIT.allow().is_some() {
            pr_err!("connection {}: {why}: it ends\n", self.number);
        }
        self.target.end_later(self.number);
    }
}

impl QpHandler for Handler {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;
    type Transport = Reliable;

    fn completed(qp: &Qp<Self>, _tag: u32, completion: &WorkCompletion) {
        let state = &qp.handler().0;
        if let Err(status) = completion.status() {
            state.is_broken.store(true, Relaxed);
            if !status.is_flush() && LOG_LIMIT.allow().is_some() {
                pr_err!("connection {}: {status}: it ends\n", state.number);
            }
            state.end(&Why::Gone);
        }
        state.sent.complete_all();
    }

    fn received(qp: &Qp<Self>, tag: u32, completion: &WorkCompletion) {
        let state = &qp.handler().0;
        let served = match completion.status() {
            Ok(success) => state.serve(qp, tag, success.byte_len()),
            Err(status) if status.is_flush() => Err(Why::Gone),
            Err(status) => Err(Why::Failed("a receive failed", status.into())),
        };
        if let Err(why) = served {
            state.end(&why);
        }
    }
}
