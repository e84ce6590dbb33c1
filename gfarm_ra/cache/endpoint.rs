// SPDX-License-Identifier: GPL-2.0

//! The public queue pair of a mount: messages of other nodes come here, and go from here.

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
    AddressHandle,
    Cq,
    Datagram,
    DatagramPort,
    Gid,
    MessageBuffers,
    OwnedQp,
    Pd,
    Peer,
    PollContext,
    PortAddress,
    Qp,
    QpConfig,
    QpHandler,
    RecvRing,
    SendFlags,
    Source,
    WorkCompletion,
    GRH_LEN, //
};

use super::{
    counters::Counters,
    handles::{
        Handles,
        HANDLES, //
    },
    place::{
        Found,
        Local, //
    }, //
};
use crate::proto::cache::{
    address::{
        Address,
        Port, //
    },
    counter::Counter,
    fragment::FragmentLen,
    place::Unusable,
    wire::DATAGRAM_LEN_MAX, //
};

/// The bytes of a message with what stands before it.
const WHOLE_LEN: usize = GRH_LEN as usize + DATAGRAM_LEN_MAX;

/// The messages that are on their way at a time.
const SENDS: u32 = 64;

/// The receives that are posted at a time.
const BATCH: u32 = 4;

/// Limits the lines about queue pairs that have failed.
static LOG: RateLimit = RateLimit::new(10_000, 5);

/// About the time for which a send has the queue pair locked.
const SEND_TIME: Delta = Delta::from_micros(20);

/// The receiver of the datagrams that come.
pub(crate) trait Incoming: Send + Sync + 'static {
    /// Handles a datagram, of which nothing is known but its length. Process context, in the worker
    /// of the completion queue: it may sleep, but holds up those behind it.
    fn datagram(&self, bytes: &[u8], from: Port, qpn: u32);
}

/// The handler of the queue pair.
struct Public<I> {
    incoming: Arc<I>,
    counters: Arc<Counters>,
    ring: SetOnce<RecvRing>,
    outgoing: MessageBuffers,
    outbox: Arc<Outbox>,
    receives: u32,
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
    fn new() -> Result<Arc<Self>> {
        let mut slots = KVec::with_capacity(SENDS as usize, GFP_KERNEL)?;
        for slot in 0..SENDS {
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

impl<I: Incoming> QpHandler for Public<I> {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;
    type Transport = Datagram;

    fn completed(qp: &Qp<Self>, tag: u32, completion: &WorkCompletion) {
        let this = qp.handler();
        if !completion.is_success() {
            this.outbox.fail();
        }
        if let Some(slot) = tag.checked_sub(this.receives) {
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
            Some(from) => this.incoming.datagram(bytes, from, source.qp_number()),
            None => this.counters.dropped(Counter::DroppedAddress),
        }
    }

    fn broken(qp: &Qp<Self>, why: &'static CStr) {
        pr_err!("queue pair {}: {}\n", qp.number(), why);
        qp.handler().outbox.fail();
    }
}

/// The public queue pair. Dropping it sleeps; what has come is handled before.
#[pin_data]
pub(crate) struct Endpoint<I: Incoming> {
    /// Senders only try the lock, see [`open`](Self::open): the membership's worker and the unmount
    /// hold it while they wait for the handlers of the queue pair, some of which send.
    #[pin]
    qp: Mutex<OwnedQp<Public<I>>>,
    outbox: Arc<Outbox>,
    pd: Arc<Pd>,
    counters: Arc<Counters>,
    found: Found,
    /// The port as it was seen last, and the address of the queue pair.
    #[pin]
    local: SpinLock<Local>,
    /// The index of the partition with which the queue pair was started.
    pkey_index: AtomicU32,
    #[pin]
    handles: Mutex<Handles>,
}

impl<I: Incoming> Endpoint<I> {
    /// Creates the queue pair, and posts `receives` receives, or a few more. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns an error of the device if it has not enough of something, `ENOMEM` if an allocation
    /// fails.
    pub(crate) fn new(
        found: Found,
        receives: u32,
        incoming: Arc<I>,
        counters: &Arc<Counters>,
    ) -> Result<Arc<Self>> {
        let device = &found.device;
        let receives = receives.next_multiple_of(BATCH).max(BATCH);
        let pd = Pd::new(device)?;
        let config = QpConfig::new(SENDS, receives, receives.saturating_add(SENDS));
        let context = PollContext::Workqueue;
        let cq = Cq::new(device, config.cq_entries(), 0, context, None)?;
        let outbox = Outbox::new()?;
        let public = Public {
            incoming,
            counters: counters.clone(),
            ring: SetOnce::new(),
            outgoing: MessageBuffers::new(&pd, SENDS, DATAGRAM_LEN_MAX as u32)?,
            outbox: outbox.clone(),
            receives,
        };
        let qp = Qp::datagram(&pd, (&cq, &cq), &config, &found.port(), public)?;
        // Room for any datagram: one that is too long for its receive may stop a queue pair. And
        // for any message, which is read whole, also on a port whose datagrams are shorter.
        // CAST: A few messages of 1 KiB.
        let whole_bytes = (GRH_LEN.saturating_add(found.mtu_bytes)).max(WHOLE_LEN as u32);
        let ring = RecvRing::new(&qp, receives, BATCH, whole_bytes)?;
        qp.handler().ring.populate(ring);
        if let Some(ring) = qp.handler().ring.as_ref() {
            ring.post(&qp)?;
        }
        let local = found.local(qp.number()).ok_or(EINVAL)?;
        let handles = Handles::new()?;
        Arc::pin_init(
            pin_init!(Self {
                qp <- new_mutex!(qp, "Endpoint::qp"),
                outbox,
                pd,
                counters: counters.clone(),
                pkey_index: AtomicU32::new(local.port.pkey_index.into()),
                local <- new_spinlock!(local, "Endpoint::local"),
                found,
                handles <- new_mutex!(handles, "Endpoint::handles"),
            }),
            GFP_KERNEL,
        )
    }

    /// Ends it: nothing is sent any more, and the handlers of what has come have returned. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns an error if the device does not flush the queue pair.
    pub(crate) fn close(&self) -> Result {
        self.outbox.fail();
        self.qp.lock().close()
    }

    /// Starts the queue pair again, with the same number, if it has failed, or its partition has
    /// another index: what was on its way is lost. rxe stops a queue pair whose packet it cannot
    /// hand on, for want of memory or because the link goes down at that moment. Sleeps. Not after
    /// [`close`](Self::close).
    pub(crate) fn restart_failed(&self) {
        let port = self.port();
        let index = u32::from(port.pkey_index);
        let has_moved = self.pkey_index.load(Relaxed) != index;
        if has_moved {
            self.outbox.fail();
        }
        if !self.outbox.is_down() {
            return;
        }
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

    /// Returns the address of this node.
    pub(crate) fn address(&self) -> Address {
        self.local.lock().address
    }

    /// Looks at the port anew; returns the address of the queue pair if that has changed. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns why the port cannot be used now.
    pub(crate) fn look(&self) -> Result<Option<Address>, Unusable> {
        let old = *self.local.lock();
        let new = self.found.look_again(&old)?;
        if new == old {
            return Ok(None);
        }
        *self.local.lock() = new;
        for place in 0..HANDLES {
            let old = self.handles.lock().take(place);
            // Not under the lock: the device may take its time.
            drop(old);
        }
        Ok((new.address != old.address).then_some(new.address))
    }

    /// Returns the domain of the queue pair.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Returns the port, for queue pairs of data.
    pub(crate) fn port(&self) -> DatagramPort {
        self.local.lock().port
    }

    /// Returns the longest fragments that are sent and asked for.
    pub(crate) fn longest(&self) -> FragmentLen {
        self.found.longest
    }

    /// Returns what counts what happens here.
    pub(crate) fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Has an address looked up anew for the next message to it. Sleeps.
    pub(crate) fn forget(&self, to: &Address) {
        let forgotten = self.handles.lock().remove(to);
        drop(forgotten);
    }

    /// Returns whether an address needs no look-up.
    pub(crate) fn knows(&self, to: &Address) -> bool {
        self.handles.lock().find(to).is_some()
    }

    /// Returns the handle for an address, which may have to be looked up: that takes up to a second
    /// if no machine has it. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns what the look-up says.
    pub(crate) fn handle(&self, to: &Address) -> Result<AddressHandle> {
        if let Some(handle) = self.handles.lock().find(to) {
            return Ok(handle);
        }
        let (gid, port) = (Gid(to.gid()), self.port());
        let address = PortAddress {
            gid: (gid != Gid::default()).then_some(gid),
            lid: to.lid(),
            service_level: to.sl(),
            port: port.port,
            gid_index: port.gid_index,
            traffic_class: self.found.traffic_class,
        };
        let handle = AddressHandle::new(self.pd(), &address)?;
        let replaced = {
            let mut handles = self.handles.lock();
            // Another task may have made one meanwhile.
            if let Some(handle) = handles.find(to) {
                return Ok(handle);
            }
            // Or the port has changed, and with it all handles.
            if self.port() != port {
                return Ok(handle);
            }
            handles.add(to, handle.clone())
        };
        drop(replaced);
        Ok(handle)
    }

    /// Sends a message to the public queue pair of a node. Sleeps if the address is new.
    ///
    /// # Errors
    ///
    /// Returns `EAGAIN` if too many are on their way or the queue pair has failed, `EINVAL` if it
    /// is too long, or an error of the look-up of the address, or of the device.
    pub(crate) fn send(&self, to: &Address, bytes: &[u8]) -> Result {
        let handle = self.handle(to)?;
        let qp = self.open().ok_or(EAGAIN)?;
        let public = qp.handler();
        let slot = self.outbox.free.lock().pop().ok_or(EAGAIN)?;
        let slot = u32::from(slot);
        let len = u32::try_from(bytes.len()).map_err(|_| EINVAL)?;
        let sent = public.outgoing.write(slot, 0, bytes).and_then(|()| {
            let peer = Peer {
                address: &handle,
                qp_number: to.qpn(),
                qkey: to.qkey(),
            };
            let message = public.outgoing.segment(slot, 0, len);
            let tag = public.receives.saturating_add(slot);
            qp.send_to(tag, [message], peer, None, SendFlags::SIGNALED)
        });
        sent.inspect_err(|_| self.outbox.give_back(slot))
    }

    /// Locks the queue pair for a send; `None` if it has failed, or is closed. Sleeps.
    fn open(&self) -> Option<MutexGuard<'_, OwnedQp<Public<I>>>> {
        while !self.outbox.is_down() {
            if let Some(qp) = self.qp.try_lock() {
                return Some(qp);
            }
            fsleep(SEND_TIME);
        }
        None
    }
}
