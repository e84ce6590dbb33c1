// SPDX-License-Identifier: GPL-2.0

//! A queue pair to which messages of other nodes come, and from which they may go.

use kernel::{
    new_mutex, new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        MutexGuard,
        SpinLock, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
};
use kernel_ext::{
    ratelimit::RateLimit,
    sync::{
        atomic::{
            AtomicBool,
            AtomicU32,
            Ordering::{
                Acquire,
                Relaxed,
                Release, //
            }, //
        },
        SetOnce, //
    },
};
use rdma::{
    Cq,
    Datagram,
    DatagramPort,
    MessageBuffers,
    OwnedQp,
    Pd,
    Peer,
    Qp,
    QpConfig,
    QpHandler,
    RecvRing,
    SendFlags,
    Source,
    WorkCompletion,
    GRH_LEN, //
};

use super::counters::Counters;
use crate::proto::cache::{
    address::{
        Port,
        QueuePair, //
    },
    counter::Counter,
    wire::{
        receives,
        QpRole,
        DATAGRAM_LEN_MAX,
        RECEIVE_BATCH, //
    }, //
};

/// The bytes of a message with what stands before it.
const WHOLE_LEN: usize = GRH_LEN as usize + DATAGRAM_LEN_MAX;

/// The messages that are on their way from the public queue pair at a time; the other one sends
/// none, and has one buffer.
const SENDS: u32 = 64;

/// Limits the lines about queue pairs that have failed.
static LOG: RateLimit = RateLimit::new(10_000, 5);

/// About the time for which a send has the queue pair locked.
const SEND_TIME: Delta = Delta::from_micros(20);

/// The receiver of the datagrams that come.
pub(crate) trait Incoming: Send + Sync + 'static {
    /// Handles a datagram that has come to a queue pair, of which nothing is known but its length.
    /// Process context, in the worker of the completion queue: it may sleep, but holds up those
    /// behind it.
    fn datagram(&self, bytes: &[u8], qp: QpRole, from: Port, qpn: u32);
}

/// The sizes of a queue pair, and what it is for.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    role: QpRole,
    receives: u32,
    sends: u32,
}

impl Shape {
    /// Returns those of a queue pair to which `number` messages may come at once.
    pub(super) fn new(role: QpRole, number: u16) -> Self {
        let sends = match role {
            QpRole::Public => SENDS,
            QpRole::Replies => 1,
        };
        Self {
            role,
            receives: receives(number),
            sends,
        }
    }

    fn config(self) -> QpConfig {
        let tags = self.receives.saturating_add(self.sends);
        QpConfig::new(self.sends, self.receives, tags)
    }

    /// Returns the entries that it needs in its completion queue.
    pub(super) fn cq_entries(self) -> u32 {
        self.config().cq_entries()
    }
}

/// The handler of the queue pair.
struct Messages<I> {
    incoming: Arc<I>,
    counters: Arc<Counters>,
    ring: SetOnce<RecvRing>,
    outgoing: MessageBuffers,
    outbox: Arc<Outbox>,
    shape: Shape,
}

/// The state that decides whether a message can be sent now.
#[pin_data]
struct Outbox {
    /// The queue pair has failed, and is not started again yet, or it is closed.
    is_down: AtomicBool,
    /// The buffers that are not on their way.
    #[pin]
    free: SpinLock<KVec<u16>>,
}

impl Outbox {
    fn new(sends: u32) -> Result<Arc<Self>> {
        let mut slots = KVec::with_capacity(sends as usize, GFP_KERNEL)?;
        for slot in 0..sends {
            // CAST: Below `SENDS`.
            slots.push(slot as u16, GFP_KERNEL)?;
        }
        Arc::pin_init(
            pin_init!(Self {
                is_down: AtomicBool::new(false),
                free <- new_spinlock!(slots, "Outbox::free"),
            }),
            GFP_KERNEL,
        )
    }

    fn give_back(&self, slot: u32) {
        // CAST: Below `SENDS`. There is room for all.
        let _ = self.free.lock().push_within_capacity(slot as u16);
    }

    /// The queue pair has failed: the membership's worker starts it again. Any context.
    fn fail(&self) {
        self.is_down.store(true, Release);
    }

    fn is_down(&self) -> bool {
        self.is_down.load(Acquire)
    }
}

impl<I: Incoming> QpHandler for Messages<I> {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;
    type Transport = Datagram;

    fn completed(qp: &Qp<Self>, tag: u32, completion: &WorkCompletion) {
        let this = qp.handler();
        if !completion.is_success() {
            this.outbox.fail();
        }
        if let Some(slot) = tag.checked_sub(this.shape.receives) {
            this.outbox.give_back(slot);
            return;
        }
        let (Some(completion), Some(ring)) = (completion.success(), this.ring.as_ref()) else {
            return;
        };
        let mut whole = [0; WHOLE_LEN];
        let is_read = ring.read(tag, &mut whole).is_ok();
        // An error is that of a queue pair that is being closed.
        let _ = ring.consumed(qp);
        let len = completion.byte_len() as usize;
        let bytes = whole.get(GRH_LEN as usize..len);
        let header = whole.first_chunk();
        this.counters.add(Counter::Datagrams, 1);
        let (true, Some(bytes), Some(header)) = (is_read, bytes, header) else {
            this.counters.dropped(Counter::DroppedLength);
            return;
        };
        let source: Source = completion.source();
        let gid = source.gid(header).map(|gid| gid.0);
        match Port::of_source(gid, source.lid()) {
            Some(from) => {
                let (role, qpn) = (this.shape.role, source.qp_number());
                this.incoming.datagram(bytes, role, from, qpn);
            }
            None => this.counters.dropped(Counter::DroppedAddress),
        }
    }

    fn broken(qp: &Qp<Self>, why: &'static CStr) {
        pr_err!("queue pair {}: {}\n", qp.number(), why);
        qp.handler().outbox.fail();
    }
}

/// The queue pair. Dropping it sleeps; what has come is handled before.
#[pin_data]
pub(super) struct MessageQp<I: Incoming> {
    /// Senders only try the lock, see [`open`](Self::open): the membership's worker and the unmount
    /// hold it while they wait for the handlers of the queue pair, some of which send.
    #[pin]
    qp: Mutex<OwnedQp<Messages<I>>>,
    outbox: Arc<Outbox>,
    name: QueuePair,
    /// The index of the partition with which the queue pair was started.
    pkey_index: AtomicU32,
}

impl<I: Incoming> MessageQp<I> {
    /// Creates the queue pair on `port`, with the key of that, and posts its receives, for
    /// datagrams of up to `mtu_bytes`. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns an error of the device if it has not enough of something, `ENOMEM` if an allocation
    /// fails.
    pub(super) fn new(
        (pd, cq): (&Arc<Pd>, &Arc<Cq>),
        shape: Shape,
        port: &DatagramPort,
        mtu_bytes: u32,
        incoming: Arc<I>,
        counters: &Arc<Counters>,
    ) -> Result<Arc<Self>> {
        let outbox = Outbox::new(shape.sends)?;
        let messages = Messages {
            incoming,
            counters: counters.clone(),
            ring: SetOnce::new(),
            outgoing: MessageBuffers::new(pd, shape.sends, DATAGRAM_LEN_MAX as u32)?,
            outbox: outbox.clone(),
            shape,
        };
        let qp = Qp::datagram(pd, (cq, cq), &shape.config(), port, messages)?;
        // Room for any datagram: one that is too long for its receive may stop a queue pair. And
        // for any message, which is read whole, also on a port whose datagrams are shorter.
        // CAST: A few messages of 1 KiB.
        let whole_bytes = (GRH_LEN.saturating_add(mtu_bytes)).max(WHOLE_LEN as u32);
        let ring = RecvRing::new(&qp, shape.receives, RECEIVE_BATCH, whole_bytes)?;
        qp.handler().ring.populate(ring);
        if let Some(ring) = qp.handler().ring.as_ref() {
            ring.post(&qp)?;
        }
        let name = QueuePair::new(qp.number(), port.qkey).map_err(|_| EINVAL)?;
        let pkey_index = port.pkey_index.into();
        Arc::pin_init(
            pin_init!(Self {
                qp <- new_mutex!(qp, "MessageQp::qp"),
                outbox,
                name,
                pkey_index: AtomicU32::new(pkey_index),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns how others name it.
    pub(super) fn name(&self) -> QueuePair {
        self.name
    }

    /// Ends it: nothing is sent any more, and the handlers of what has come have returned. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns an error if the device does not flush the queue pair.
    pub(super) fn close(&self) -> Result {
        self.outbox.fail();
        self.qp.lock().close()
    }

    /// Starts the queue pair again, with the same number and key, if it has failed, or its
    /// partition has another index on `port`: what was on its way is lost. rxe stops a queue pair
    /// whose packet it cannot hand on, for want of memory or because the link goes down at that
    /// moment. Sleeps. Not after [`close`](Self::close).
    pub(super) fn restart_failed(&self, port: DatagramPort) {
        let index = u32::from(port.pkey_index);
        let has_moved = self.pkey_index.load(Relaxed) != index;
        if has_moved {
            self.outbox.fail();
        }
        if !self.outbox.is_down() {
            return;
        }
        let port = DatagramPort {
            qkey: self.name.qkey(),
            ..port
        };
        let mut qp = self.qp.lock();
        let started = qp.restart(&port).and_then(|()| {
            self.pkey_index.store(index, Relaxed);
            // The queue pair is empty, and its handlers have returned: none can set it again.
            self.outbox.is_down.store(false, Release);
            match qp.handler().ring.as_ref() {
                Some(ring) => ring.post(&qp),
                None => Ok(()),
            }
        });
        if started.is_err() {
            // It is tried again.
            self.outbox.fail();
        }
        if has_moved && started.is_ok() || LOG.allow().is_none() {
            return;
        }
        let number = qp.number();
        match started {
            Ok(()) => pr_warn!("queue pair {number} had failed, and was started again\n"),
            Err(why) => {
                pr_warn!("queue pair {number} has failed, and cannot be started: {why:?}\n")
            }
        }
    }

    /// Sends a message to a peer. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `EAGAIN` if too many are on their way or the queue pair has failed, `EINVAL` if it
    /// is too long, or an error of the device.
    pub(super) fn send(&self, peer: Peer<'_>, bytes: &[u8]) -> Result {
        let qp = self.open().ok_or(EAGAIN)?;
        let messages = qp.handler();
        let slot = self.outbox.free.lock().pop().ok_or(EAGAIN)?;
        let slot = u32::from(slot);
        let len = u32::try_from(bytes.len()).map_err(|_| EINVAL)?;
        let sent = messages.outgoing.write(slot, 0, bytes).and_then(|()| {
            let message = messages.outgoing.segment(slot, 0, len);
            let tag = messages.shape.receives.saturating_add(slot);
            qp.send_to(tag, [message], peer, None, SendFlags::SIGNALED)
        });
        sent.inspect_err(|_| self.outbox.give_back(slot))
    }

    /// Locks the queue pair for a send; `None` if it has failed, or is closed. Sleeps.
    fn open(&self) -> Option<MutexGuard<'_, OwnedQp<Messages<I>>>> {
        while !self.outbox.is_down() {
            if let Some(qp) = self.qp.try_lock() {
                return Some(qp);
            }
            fsleep(SEND_TIME);
        }
        None
    }
}
