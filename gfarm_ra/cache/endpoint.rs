// SPDX-License-Identifier: GPL-2.0

//! The public queue pair of a mount: messages of other nodes come here, and go from here.

use kernel::{
    alloc::KVVec,
    new_mutex, new_spinlock,
    prelude::*,
    str::CStr,
    sync::{
        Arc,
        Mutex,
        SpinLock, //
    },
};
use kernel_ext::{
    random,
    sync::SetOnce, //
};
use rdma::{
    AddressHandle,
    Cq,
    Datagram,
    DatagramPort,
    Device,
    Gid,
    GidKind,
    LinkLayer,
    MessageBuffers,
    OwnedQp,
    Pd,
    Peer,
    PollContext,
    PortAddress,
    PortState,
    Qp,
    QpConfig,
    QpHandler,
    RecvRing,
    SendFlags,
    Source,
    WorkCompletion,
    GRH_LEN, //
};

use crate::proto::cache::{
    address::{
        Address,
        Port, //
    },
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

/// What a mount says of its port.
pub(crate) struct Place<'a> {
    /// The name of the device; the first one with an active port if there is none.
    pub(crate) device: Option<&'a CStr>,
    /// The number of the port, from 1 on.
    pub(crate) port: u8,
    /// The index of the port's own identifier; the first that is good if there is none.
    pub(crate) gid_index: Option<u8>,
    /// The service level.
    pub(crate) service_level: u8,
    /// The key of the public queue pair; a random one if there is none.
    pub(crate) qkey: Option<u32>,
    /// The number of receives.
    pub(crate) receives: u32,
}

/// Who is given what comes.
pub(crate) trait Incoming: Send + Sync + 'static {
    /// Handles a datagram, of which nothing is known but its length. Process context, in the worker
    /// of the completion queue: it may sleep, but holds up those behind it.
    fn datagram(&self, bytes: &[u8], from: Port, qpn: u32);
}

/// The handler of the queue pair.
struct Public<I> {
    incoming: Arc<I>,
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
        let (true, Some(bytes), Some(header)) = (is_read, bytes, header) else {
            return;
        };
        let source: Source = completion.source();
        let gid = source.gid(header).map(|gid| gid.0);
        if let Some(from) = Port::of_source(gid, source.lid()) {
            this.incoming.datagram(bytes, from, source.qp_number());
        }
    }
}

/// The public queue pair. Dropping it sleeps; what has come is handled before.
#[pin_data]
pub(crate) struct Endpoint<I: Incoming> {
    qp: OwnedQp<Public<I>>,
    port: DatagramPort,
    state: PortState,
    address: Address,
    #[pin]
    handles: Mutex<Handles>,
}

/// The handles of addresses. A new one replaces the one of its group that was made first; the
/// domain keeps what may still be in use.
struct Handles {
    places: KVVec<Option<Known>>,
    made: u64,
}

struct Known {
    port: Port,
    service_level: u8,
    handle: Arc<AddressHandle>,
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

    fn find(&mut self, to: &Address) -> Option<Arc<AddressHandle>> {
        let is_it = |known: &&Known| known.port == to.port() && known.service_level == to.sl();
        let known = self.group(to).iter().flatten().find(is_it);
        known.map(|known| known.handle.clone())
    }

    /// Adds a handle, and returns the one that it replaces.
    fn add(&mut self, to: &Address, handle: Arc<AddressHandle>) -> Option<Known> {
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
    /// Creates the queue pair, and posts its receives. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `ENODEV` if there is no such device, an error of the device if its port cannot be
    /// used, `ENOMEM` if an allocation fails.
    pub(crate) fn new(place: &Place<'_>, incoming: Arc<I>) -> Result<Arc<Self>> {
        let device = find(place)?;
        let state = device.port(place.port)?;
        let (gid_index, gid) = own_gid(&device, place, &state)?;
        let mut key = [0; 4];
        random::fill(&mut key);
        let drawn = u32::from_le_bytes(key) & (i32::MAX as u32);
        let port = DatagramPort {
            port: place.port,
            gid_index,
            qkey: place.qkey.unwrap_or(drawn.max(1)),
        };
        let receives = place.receives.next_multiple_of(BATCH).max(BATCH);
        let pd = Pd::new(&device)?;
        let config = QpConfig::new(SENDS, receives, receives.saturating_add(SENDS));
        let context = PollContext::Workqueue;
        let cq = Cq::new(&device, config.cq_entries(), 0, context, None)?;
        let public = Public {
            incoming,
            ring: SetOnce::new(),
            outgoing: MessageBuffers::new(&pd, SENDS, DATAGRAM_LEN_MAX as u32)?,
            free: Free::new()?,
            receives,
        };
        let qp = Qp::datagram(&pd, (&cq, &cq), &config, &port, public)?;
        let ring = RecvRing::new(&qp, receives, BATCH, WHOLE_LEN as u32)?;
        qp.handler().ring.populate(ring);
        if let Some(ring) = qp.handler().ring.as_ref() {
            ring.post(&qp)?;
        }
        let address = Address::new(
            gid.0,
            state.lid,
            qp.number(),
            port.qkey,
            place.service_level,
        );
        let address = address.ok_or(EINVAL)?;
        let handles = Handles::new()?;
        Arc::pin_init(
            pin_init!(Self {
                qp,
                port,
                state,
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

    /// Returns the most bytes of a datagram.
    pub(crate) fn mtu_bytes(&self) -> u32 {
        self.state.active_mtu_bytes
    }

    /// Returns the handle for an address, which may have to be looked up. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns what the look-up says.
    pub(crate) fn handle(&self, to: &Address) -> Result<Arc<AddressHandle>> {
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
        let handle = Arc::new(AddressHandle::new(self.pd(), &address)?, GFP_KERNEL)?;
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

/// Returns the device that a mount names.
fn find(place: &Place<'_>) -> Result<Device> {
    let found = match place.device {
        Some(name) => Device::find(name),
        None => Device::find_by(|device| {
            let port = device.port(place.port);
            !device.is_iwarp() && port.is_ok_and(|port| port.is_active)
        }),
    };
    found.ok_or(ENODEV)
}

/// Returns the port's own identifier: on Ethernet one of UDP packets, of an IPv4 address if it has
/// one.
fn own_gid(device: &Device, place: &Place<'_>, state: &PortState) -> Result<(u8, Gid)> {
    if let Some(index) = place.gid_index {
        return Ok((index, device.gid(place.port, index)?));
    }
    if state.link == LinkLayer::InfiniBand {
        return Ok((0, device.gid(place.port, 0)?));
    }
    let count = u8::try_from(state.gid_count).unwrap_or(u8::MAX);
    let good = (0..count).filter_map(|index| {
        let (gid, kind) = device.gid_entry(place.port, index).ok()?;
        (kind == GidKind::Udp).then_some((index, gid))
    });
    let is_mapped = |gid: &Gid| gid.0.starts_with(&[0; 10]);
    let best = good.max_by_key(|(index, gid)| (is_mapped(gid), u8::MAX.wrapping_sub(*index)));
    best.ok_or(ENODEV)
}
