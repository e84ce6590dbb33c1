// SPDX-License-Identifier: GPL-2.0

//! The connection to a target.

use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    },
};
use kernel_ext::sync::{
    atomic::{
        AtomicBool,
        Ordering::Relaxed, //
    },
    Completion, //
};
use rdma::{
    cm::*,
    *, //
};

use super::Trouble;
use crate::proto::{
    connect::{
        Hello,
        Welcome, //
    },
    request::LEN_MAX,
    response,
};

/// The time that a step may take, in milliseconds.
const STEP_MS: u32 = 10_000;

/// The only receive, and its tag; what is sent has the next one.
const TAG_RECEIVE: u32 = 0;
pub(super) const TAG_SEND: u32 = 1;
/// A request and the registration of its memory.
const REQUESTS_MAX: u32 = 2;

/// The slots of the messages.
const SLOT_SEND: u32 = 0;
const SLOT_RECEIVE: u32 = 1;

/// The peer's RDMA reads that may be in flight.
const READS_MAX: u8 = 1;

/// A message that was received.
#[derive(Clone, Copy)]
struct Answer {
    len_bytes: u32,
    bytes: [u8; response::LEN],
}

/// State by which the handlers tell the thread that waits what has happened.
#[pin_data]
struct Signs {
    #[pin]
    connected: Completion,
    #[pin]
    answered: Completion,
    #[pin]
    sent: Completion,
    is_lost: AtomicBool,
    #[pin]
    welcome: Mutex<Result<Welcome, Trouble>>,
    #[pin]
    answer: Mutex<Option<Answer>>,
    #[pin]
    qp: Mutex<Option<OwnedQp<Talk>>>,
}

impl Signs {
    /// Lets all who wait go on, without what they wait for.
    fn lose(&self) {
        self.is_lost.store(true, Relaxed);
        self.connected.complete_all();
        self.answered.complete_all();
        self.sent.complete_all();
    }

    /// Waits, and returns whether the connection is still there. Sleeps, killable.
    fn wait(&self, sign: &Completion, what: &'static str) -> Result<(), Trouble> {
        let waited = sign.wait_killable_timeout_ms(STEP_MS);
        waited.map_err(|error| Trouble::Failed(what, error))?;
        if self.is_lost.load(Relaxed) {
            return Err(Trouble::Lost);
        }
        Ok(())
    }
}

/// The handler of completions, which may sleep.
pub(super) struct Talk {
    signs: Arc<Signs>,
    messages: MessageBuffers,
}

impl QpHandler for Talk {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;
    type Transport = Reliable;

    fn completed(qp: &Qp<Self>, tag: u32, completion: &WorkCompletion) {
        let Talk { signs, messages } = qp.handler();
        let success = match completion.status() {
            Ok(success) => success,
            Err(status) => {
                if !status.is_flush() {
                    pr_err!("a work request failed: {status}\n");
                }
                return signs.lose();
            }
        };
        if tag == TAG_SEND {
            return signs.sent.complete_all();
        }
        let mut bytes = [0; response::LEN];
        // The slot is as long.
        let _ = messages.read(SLOT_RECEIVE, 0, &mut bytes);
        let len_bytes = success.byte_len();
        *signs.answer.lock() = Some(Answer { len_bytes, bytes });
        signs.answered.complete_all();
    }
}

/// A connection to a target. Fields are dropped in declaration order.
pub(super) struct Link {
    qp: OwnedQp<Talk>,
    id: CmId,
    welcome: Welcome,
}

impl Drop for Link {
    fn drop(&mut self) {
        // No packet of the target comes while the queue pair is destroyed.
        let _ = self.id.disconnect();
        let _ = self.qp.close();
    }
}

impl Link {
    /// Connects to a target. Sleeps, killable.
    pub(super) fn connect(address: &SocketAddress) -> Result<Self, Trouble> {
        let failed = |error| Trouble::Failed("no connection", error);
        let signs = Arc::pin_init(
            pin_init!(Signs {
                connected <- Completion::new(),
                answered <- Completion::new(),
                sent <- Completion::new(),
                is_lost: AtomicBool::new(false),
                welcome <- new_mutex!(Err(Trouble::NotConnected)),
                answer <- new_mutex!(None),
                qp <- new_mutex!(None),
            }),
            GFP_KERNEL,
        )
        .map_err(failed)?;
        let events = {
            let signs = signs.clone();
            move |id: &Id, event: Event<'_>| handle(&signs, id, event)
        };
        let id = CmId::new(events, PortSpace::Tcp).map_err(failed)?;
        let resolved = id.resolve_address(None, address, STEP_MS);
        resolved.map_err(failed)?;
        let waited = signs.connected.wait_killable_timeout_ms(STEP_MS);
        let welcome = core::mem::replace(&mut *signs.welcome.lock(), Err(Trouble::NotConnected));
        let welcome = waited.map_err(failed).and(welcome);
        let qp = signs.qp.lock().take();
        match (qp, welcome) {
            (Some(qp), Ok(welcome)) => Ok(Self { qp, id, welcome }),
            (qp, welcome) => {
                // After it no event makes another queue pair, which would keep itself.
                drop(id);
                drop(qp);
                let late = signs.qp.lock().take();
                drop(late);
                Err(welcome.err().unwrap_or(Trouble::NotConnected))
            }
        }
    }

    /// Returns what the target has said of itself.
    pub(super) fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Returns the protection domain.
    pub(super) fn pd(&self) -> &Arc<Pd> {
        self.qp.pd()
    }

    /// Copies `bytes` into the next message, from `offset` on.
    pub(super) fn put(&self, offset: u32, bytes: &[u8]) -> Result<(), Trouble> {
        let put = self.qp.handler().messages.write(SLOT_SEND, offset, bytes);
        put.map_err(|error| Trouble::Failed("a message is too long", error))
    }

    /// Sends the message of `len_bytes`, after what `before` adds to the batch, and waits for the
    /// response of request `id`. Sleeps, killable.
    pub(super) fn ask(
        &self,
        id: u64,
        len_bytes: u32,
        memory: Option<(&Mr, Access)>,
    ) -> Result<response::Status, Trouble> {
        let Talk { signs, messages } = self.qp.handler();
        let refused = |error| Trouble::Failed("a work request is refused", error);
        signs.answered.reinit();
        signs.sent.reinit();
        if signs.is_lost.load(Relaxed) {
            return Err(Trouble::Lost);
        }
        receive(&self.qp).map_err(refused)?;
        let mut space = WrBuffer::new();
        let mut batch = self.qp.batch::<{ REQUESTS_MAX as usize }, 1>(&mut space);
        if let Some((region, access)) = memory {
            batch.reg_mr(TAG_SEND, region, access, SendFlags::NONE);
        }
        let message = messages.segment(SLOT_SEND, 0, len_bytes);
        batch.send(TAG_SEND, &[message], SendFlags::SIGNALED);
        batch.post().map_err(refused)?;
        signs.wait(&signs.sent, "a request is not sent")?;
        signs.wait(&signs.answered, "the target does not answer")?;
        let answer = signs.answer.lock().take().ok_or(Trouble::Lost)?;
        response::parse(answer.len_bytes, &answer.bytes, id).map_err(Trouble::Violation)
    }

    /// Takes the key of `region` from the target. Sleeps, killable.
    pub(super) fn invalidate(&self, region: &Mr) -> Result<(), Trouble> {
        let signs = &self.qp.handler().signs;
        signs.sent.reinit();
        let mut space = WrBuffer::new();
        let mut batch = self.qp.batch::<1, 0>(&mut space);
        batch.local_invalidate(TAG_SEND, region.key(), SendFlags::SIGNALED);
        let posted = batch.post();
        posted.map_err(|error| Trouble::Failed("a key is not taken back", error))?;
        signs.wait(&signs.sent, "a key is not taken back")
    }
}

/// Posts the receive.
fn receive(qp: &Qp<Talk>) -> Result {
    let messages = &qp.handler().messages;
    // Longer than a response, so that one that is too long is seen.
    let into = messages.segment(SLOT_RECEIVE, 0, messages.size());
    qp.post_receive(TAG_RECEIVE, Some(into))
}

/// Creates the queue pair.
fn queue_pair(signs: &Arc<Signs>, id: &Id) -> Result<OwnedQp<Talk>> {
    let pd = Pd::new(id.device().ok_or(ENODEV)?)?;
    let config = QpConfig::new(REQUESTS_MAX, 1, TAG_SEND + 1);
    let entries = config.cq_entries();
    let cq = Cq::new(pd.device(), entries, 0, PollContext::Workqueue, None)?;
    let talk = Talk {
        signs: signs.clone(),
        messages: MessageBuffers::new(&pd, 2, LEN_MAX)?,
    };
    id.create_qp(&pd, &cq, &cq, &config, talk)
}

/// Handles an event of the connection.
fn handle(signs: &Arc<Signs>, id: &Id, event: Event<'_>) -> Result {
    match event {
        Event::AddressResolved => {
            let qp = queue_pair(signs, id).inspect_err(|_| signs.lose())?;
            *signs.qp.lock() = Some(qp);
            id.resolve_route(STEP_MS).inspect_err(|_| signs.lose())
        }
        Event::RouteResolved => {
            let param = ConnectParam {
                responder_resources: READS_MAX,
                ..ConnectParam::default()
            };
            let connected = id.connect(&param, Hello::new().as_bytes());
            connected.inspect_err(|_| signs.lose())
        }
        Event::Established { private } => {
            let welcome = Welcome::parse(private).map_err(Trouble::Violation);
            *signs.welcome.lock() = welcome;
            signs.connected.complete_all();
            Ok(())
        }
        Event::TimewaitExit | Event::AddressChange => Ok(()),
        _ => {
            if !matches!(event, Event::Disconnected) {
                pr_err!("{event}\n");
            }
            signs.lose();
            Ok(())
        }
    }
}
