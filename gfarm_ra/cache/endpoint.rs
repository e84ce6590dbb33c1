// SPDX-License-Identifier: GPL-2.0

//! The public queue pair of a mount: messages of other nodes come here, and go from here.

use kernel::{
    alloc::KVVec,
    new_mutex, new_spinlock,
    prelude::*,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    },
};
use kernel_ext::sync::SetOnce;
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
    place::Found, //
};
use crate::proto::cache::{
    address::{
        Address,
        Port, //
    },
    counter::Counter,
    fragment::FragmentLen,
    wire::DATAGRAM_LEN_MAX, //
};

/// The bytes of a message with what stands before it.
const WHOLE_LEN: usize = GRH_LEN as usize + DATAGRAM_LEN_MAX;

/// The messages that are on their way at a time.
const SENDS: u32 = 64;

/// The handles of addresses that are kept, and among how many an address has its place.
const HANDLES: usize = 4096;
const WAYS: usize = 8;

/// The receives that are posted at a time.
const BATCH: u32 = 4;

/// Who is given what comes.
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
    /// The buffers that are not on their way.
    free: Arc<Free>,
    receives: u32,
}

#[pin_data]
struct Free {
    #[pin]
    slots: SpinLock<KVec<u16>>,
}

impl Free {
    fn new() -> Result<Arc<Self>> {
        let mut slots = KVec::with_capacity(SENDS as usize, GFP_KERNEL)?;
        for slot in 0..SENDS {
            // CAST: Below `SENDS`.
            slots.push(slot as u16, GFP_KERNEL)?;
        }
        Arc::pin_init(
            pin_init!(Self { slots <- new_spinlock!(slots, "Free::slots") }),
            GFP_KERNEL,
        )
    }

    fn give_back(&self, slot: u32) {
        // CAST: Below `SENDS`. There is room for all.
        let _ = self.slots.lock().push_within_capacity(slot as u16);
    }
}

impl<I: Incoming> QpHandler for Public<I> {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;
    type Transport = Datagram;

    fn completed(qp: &Qp<Self>, tag: u32, completion: &WorkCompletion) {
        let this = qp.handler();
        if let Some(slot) = tag.checked_sub(this.receives) {
            this.free.give_back(slot);
            return;
        }
        if !completion.is_success() {
            return;
        }
        let Some(ring) = this.ring.as_ref() else {
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
}

/// The public queue pair. Dropping it sleeps; what has come is handled before.
#[pin_data]
pub(crate) struct Endpoint<I: Incoming> {
    qp: OwnedQp<Public<I>>,
    port: DatagramPort,
    longest: FragmentLen,
    address: Address,
    #[pin]
    handles: Mutex<Handles>,
}

/// The handles of addresses. A new one replaces the one of its group that was made first, which the
/// domain destroys when no send uses it any more.
struct Handles {
    places: KVVec<Option<Known>>,
    made: u64,
}

struct Known {
    port: Port,
    service_level: u8,
    handle: AddressHandle,
    order: u64,
}

impl Handles {
    fn new() -> Result<Self> {
        let mut places = KVVec::with_capacity(HANDLES, GFP_KERNEL)?;
        for _ in 0..HANDLES {
            places.push(None, GFP_KERNEL)?;
        }
        Ok(Self { places, made: 0 })
    }

    fn group(&mut self, to: &Address) -> &mut [Option<Known>] {
        let group = to.port().hash() as usize % (HANDLES / WAYS);
        let begin = group.saturating_mul(WAYS);
        let group = self.places.get_mut(begin..begin.saturating_add(WAYS));
        group.unwrap_or_default()
    }

    fn find(&mut self, to: &Address) -> Option<AddressHandle> {
        let is_it = |known: &&Known| known.port == to.port() && known.service_level == to.sl();
        let known = self.group(to).iter().flatten().find(is_it);
        known.map(|known| known.handle.clone())
    }

    /// Adds a handle, and returns the one that it replaces.
    fn add(&mut self, to: &Address, handle: AddressHandle) -> Option<Known> {
        self.made = self.made.saturating_add(1);
        let known = Known {
            port: to.port(),
            service_level: to.sl(),
            handle,
            order: self.made,
        };
        let places = self.group(to).iter_mut();
        // One that is free comes before all others.
        let place = places.min_by_key(|place| place.as_ref().map_or(0, |known| known.order));
        place.and_then(|place| place.replace(known))
    }
}

impl<I: Incoming> Endpoint<I> {
    /// Creates the queue pair, and posts `receives` receives, or a few more. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns an error of the device if it has not enough of something, `ENOMEM` if an allocation
    /// fails.
    pub(crate) fn new(
        found: &Found,
        receives: u32,
        incoming: Arc<I>,
        counters: &Arc<Counters>,
    ) -> Result<Arc<Self>> {
        let (device, port) = (&found.device, found.port);
        let receives = receives.next_multiple_of(BATCH).max(BATCH);
        let pd = Pd::new(device)?;
        let config = QpConfig::new(SENDS, receives, receives.saturating_add(SENDS));
        let context = PollContext::Workqueue;
        let cq = Cq::new(device, config.cq_entries(), 0, context, None)?;
        let public = Public {
            incoming,
            counters: counters.clone(),
            ring: SetOnce::new(),
            outgoing: MessageBuffers::new(&pd, SENDS, DATAGRAM_LEN_MAX as u32)?,
            free: Free::new()?,
            receives,
        };
        let qp = Qp::datagram(&pd, (&cq, &cq), &config, &port, public)?;
        // Room for any datagram: one that is too long for its receive may stop a queue pair.
        let whole_bytes = GRH_LEN.saturating_add(found.mtu_bytes);
        let ring = RecvRing::new(&qp, receives, BATCH, whole_bytes)?;
        qp.handler().ring.populate(ring);
        if let Some(ring) = qp.handler().ring.as_ref() {
            ring.post(&qp)?;
        }
        let address = found.address(qp.number()).ok_or(EINVAL)?;
        let handles = Handles::new()?;
        Arc::pin_init(
            pin_init!(Self {
                qp,
                port,
                longest: found.longest,
                address,
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
        self.qp.close()
    }

    /// Returns the address of this node.
    pub(crate) fn address(&self) -> Address {
        self.address
    }

    /// Returns the domain of the queue pair.
    pub(crate) fn pd(&self) -> &Arc<Pd> {
        self.qp.pd()
    }

    /// Returns the port, for queue pairs of data.
    pub(crate) fn port(&self) -> &DatagramPort {
        &self.port
    }

    /// Returns the longest fragments that are sent and asked for.
    pub(crate) fn longest(&self) -> FragmentLen {
        self.longest
    }

    /// Returns what counts what happens here.
    pub(crate) fn counters(&self) -> &Counters {
        &self.qp.handler().counters
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
        let gid = Gid(to.gid());
        let address = PortAddress {
            gid: (gid != Gid::default()).then_some(gid),
            lid: to.lid(),
            service_level: to.sl(),
            port: self.port.port,
            gid_index: self.port.gid_index,
        };
        let handle = AddressHandle::new(self.pd(), &address)?;
        let replaced = {
            let mut handles = self.handles.lock();
            // Another task may have made one meanwhile.
            if let Some(handle) = handles.find(to) {
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
    /// Returns `EAGAIN` if too many are on their way, `EINVAL` if it is too long, or an error of
    /// the look-up of the address, or of the device.
    pub(crate) fn send(&self, to: &Address, bytes: &[u8]) -> Result {
        let handle = self.handle(to)?;
        let public = self.qp.handler();
        let slot = public.free.slots.lock().pop().ok_or(EAGAIN)?;
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
            self.qp
                .send_to(tag, [message], peer, None, SendFlags::SIGNALED)
        });
        sent.inspect_err(|_| public.free.give_back(slot))
    }
}
