// SPDX-License-Identifier: GPL-2.0

//! The connections of one path: each has a queue pair and a connection manager's identifier.

use ferro_proto::errno::Errno;
use kernel::{
    prelude::*,
    sync::Arc,
    time::Instant, //
};
use kernel_ext::sync::{
    atomic::{
        AtomicBool,
        Ordering::Relaxed, //
    },
    GraceArc,
    SetOnce, //
};
use rdma::{
    cm::{
        CmHandler,
        CmId,
        ConnectParam,
        Event,
        Id,
        Pending, //
    },
    Cq,
    Device,
    Notify,
    OwnedQp,
    PollContext,
    QpConfig,
    RecvRing, //
};
use rtrs_core::{
    device::queue_limits,
    proto::{
        budget,
        device::Unfit,
        handshake::{
            Connect,
            Refusal, //
        },
        path::ServerState,
        signal::{
            QueueError,
            QueueSizes,
            ADMIN_RECEIVES, //
        },
        wire::{
            ConnectResponse,
            InfoRequest,
            RkeyResponse,
            TAIL_LEN_MAX, //
        }, //
    },
};
use zerocopy::IntoBytes;

use crate::server::{
    io::{
        send_queue::SendQueue,
        tag::Tagged, //
    },
    listener::refuse_pending,
    path::{
        error::PathError,
        Path, //
    },
    quota::Charge,
    session::Session, //
};

/// Receives that are posted at a time, when as many were consumed.
pub(crate) const RECEIVE_BATCH: u32 = 16;

/// Messages on the admin connection whose chunks' keys may be in invalidation at a time. A client
/// that has more in flight, which no known client has, may lose the path.
const ADMIN_REVOCATIONS: u16 = 48;

/// Length of the message that brings a new key.
pub(crate) const KEY_MESSAGE_LEN: u32 = size_of::<RkeyResponse>() as u32;
/// The most bytes of such a message with a tail.
pub(crate) const ANSWER_MESSAGE_LEN: u32 = KEY_MESSAGE_LEN + TAIL_LEN_MAX;
/// Length of the info request.
pub(crate) const INFO_REQUEST_LEN: u32 = size_of::<InfoRequest>() as u32;

/// The context of one connection's queue pair, for its completion handlers.
pub(crate) struct Receiver {
    /// The path, which is freed after its queue pairs.
    pub(crate) path: Arc<Path>,
    /// Number of the connection in its path.
    pub(crate) cid: u16,
    /// The receives for requests; set while the path is up.
    pub(crate) receives: SetOnce<RecvRing>,
    /// The send queue.
    pub(crate) send_queue: Pin<KBox<SendQueue>>,
}

/// One connection.
pub(crate) struct Connection {
    /// The queue pair.
    pub(crate) qp: OwnedQp<Receiver>,
    /// The connection manager's identifier.
    pub(crate) cm: CmId,
    /// Dropped last.
    _charge: Charge,
}

/// The connections of one path, by their numbers.
///
/// The path drops it at its teardown, which breaks the reference cycle of path, queue pair and
/// context. Code that answers a request, under RCU, uses it without a reference.
pub(crate) struct Connections(KVec<SetOnce<Connection>>);

impl Connections {
    /// Allocates an empty table for `count` connections.
    pub(crate) fn new(count: u16) -> Result<GraceArc<Self>> {
        let mut table = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        for _ in 0..count {
            table.push(SetOnce::new(), GFP_KERNEL)?;
        }
        GraceArc::new(Self(table))
    }

    /// Returns the bytes of a table for `count` connections.
    pub(crate) const fn bytes(count: u16) -> u64 {
        // CAST: no type is that large.
        count as u64 * size_of::<SetOnce<Connection>>() as u64
    }

    /// Returns connection `cid`, if it exists.
    #[inline(always)]
    pub(crate) fn get(&self, cid: u16) -> Option<&Connection> {
        self.0.get(usize::from(cid))?.as_ref()
    }

    /// Returns the connections that exist.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.0.iter().filter_map(SetOnce::as_ref)
    }

    /// Returns whether every announced connection exists.
    pub(crate) fn is_complete(&self) -> bool {
        self.0.iter().all(|c| c.as_ref().is_some())
    }

    fn insert(&self, cid: u16, connection: Connection) -> Result {
        let entry = self.0.get(usize::from(cid)).ok_or(EINVAL)?;
        entry.populate(connection).then_some(()).ok_or(EEXIST)
    }
}

/// The queue sizes of one connection.
struct Sizes {
    /// Work requests.
    queue: QueueSizes,
    /// Answers that fit the send queue.
    answers: u32,
}

/// Returns the memory that a connection of `session` needs on `device`, in bytes.
///
/// Fails if the device's queues are too short for it.
pub(crate) fn cost_bytes(session: &Session, device: &Device) -> Result<u64, QueueError> {
    let (depth, limits) = (session.geometry().queue_depth(), queue_limits(device));
    QueueSizes::admin(RECEIVE_BATCH, limits)?;
    let io = QueueSizes::server_io(depth, session.always_invalidate(), RECEIVE_BATCH, limits)?;
    Ok(budget::connection_bytes(&io))
}

impl Sizes {
    fn new(path: &Path, cid: u16) -> Result<Self, QueueError> {
        let always_invalidate = path.policy.always_invalidate();
        let depth = path.geometry.queue_depth();
        let limits = queue_limits(&path.device);
        let (queue, requests) = if cid == 0 {
            let queue = QueueSizes::admin(RECEIVE_BATCH, limits)?;
            (queue, ADMIN_REVOCATIONS.min(depth))
        } else {
            let queue = QueueSizes::server_io(depth, always_invalidate, RECEIVE_BATCH, limits)?;
            (queue, depth)
        };
        Ok(Self {
            answers: queue.answers(requests, always_invalidate),
            queue,
        })
    }
}

impl Path {
    /// Adds a connection, whose handler is `events`; accepts or rejects the request. Called as an
    /// event handler of the connection is.
    pub(crate) fn join(self: &Arc<Self>, connect: &Connect, pending: Pending, events: &Events) {
        let mut joined = self.joined.lock();
        let connections = self.connections.lock().clone();
        let connecting = self.state() == ServerState::Connecting;
        let taken = connections
            .as_ref()
            .is_none_or(|c| c.get(connect.cid).is_some());
        let checked = connect.check_known_path(connecting, self.connection_count, taken);
        let connections = match (checked, connections) {
            (Ok(()), Some(connections)) => connections,
            (Err(refusal), _) => return refuse_pending(pending, &refusal),
            (Ok(()), None) => return refuse_pending(pending, &Refusal::PathState),
        };
        *joined = Instant::now();
        events.are_of(self);
        if let Err(e) = accept(self, &connections, connect.cid, pending) {
            self.fail(PathError::Accept(connect.cid, e));
        }
    }
}

/// Accepts connection `cid` of `path`, or rejects it with the error that is returned.
///
/// The caller has checked the request, holds the path's lock of connections, and is called as an
/// event handler of the connection is.
fn accept(path: &Arc<Path>, connections: &Connections, cid: u16, pending: Pending) -> Result {
    let made = charge(path).and_then(|charge| Ok((create(path, cid, pending.id()?)?, charge)));
    let (qp, charge) = match made {
        Ok(made) => made,
        Err(e) => {
            let errno = Errno::new(e.to_errno()).unwrap_or(Errno::ENOMEM);
            // If the reject cannot be sent, the client runs into its timeout.
            let _ = pending.reject(ConnectResponse::reject(errno).as_bytes());
            return Err(e);
        }
    };
    let param = ConnectParam {
        retry_count: 0,
        ..ConnectParam::default()
    };
    let response =
        ConnectResponse::accept(&path.geometry, path.policy.always_invalidate(), path.life);
    let cm = pending.accept(&param, response.as_bytes())?;
    let connection = Connection {
        qp,
        cm,
        _charge: charge,
    };
    connections.insert(cid, connection)
}

/// Charges what the next connection of `path` needs.
fn charge(path: &Path) -> Result<Charge> {
    let bytes = cost_bytes(&path.session, &path.device);
    path.charge_connection(bytes.map_err(|e| Error::from(Unfit::from(e).errno()))?)
}

/// Creates the queue pair, and on the admin connection posts the receive for the info request.
fn create(path: &Arc<Path>, cid: u16, id: &Id) -> Result<OwnedQp<Receiver>> {
    let sizes = Sizes::new(path, cid).map_err(|e| Error::from(Unfit::from(e).errno()))?;
    let depth = path.geometry.queue_depth();
    let config = QpConfig {
        max_send_wr: sizes.queue.send,
        max_recv_wr: sizes.queue.recv,
        max_send_sge: 1,
        max_recv_sge: 1,
        tags: Tagged::count(depth),
        receive_tags: Tagged::RECEIVES,
    };
    let cq = Cq::new(
        &path.device,
        config.cq_entries(),
        path.next_vector(),
        PollContext::Workqueue,
        Some(Arc::new(LostCompletions(path.clone()), GFP_KERNEL)?),
    )?;
    let receiver = Receiver {
        path: path.clone(),
        cid,
        receives: SetOnce::new(),
        send_queue: KBox::pin_init(SendQueue::new(sizes.answers, depth), GFP_KERNEL)?,
    };
    let qp = id.create_qp(&path.pd, &cq, &cq, &config, receiver)?;
    if cid == 0 {
        qp.post_receive(Tagged::InfoRequest.encode(), Some(path.info.segment()))?;
    }
    Ok(qp)
}

/// Posts the receives that a connection has while its path is up; called once, sleeps.
pub(crate) fn post_receives(connection: &Connection) -> Result {
    let receiver = connection.qp.handler();
    let needed = if receiver.cid == 0 {
        ADMIN_RECEIVES
    } else {
        u32::from(receiver.path.geometry.queue_depth())
    };
    // Less than a batch may be missing at any time.
    let count = needed
        .saturating_add(RECEIVE_BATCH)
        .checked_next_multiple_of(RECEIVE_BATCH)
        .ok_or(EINVAL)?;
    let receives = RecvRing::new(&connection.qp, count, RECEIVE_BATCH, 0)?;
    receiver.receives.populate(receives);
    match receiver.receives.as_ref() {
        Some(receives) => receives.post(&connection.qp),
        None => Ok(()),
    }
}

/// Handles errors of a completion queue.
struct LostCompletions(Arc<Path>);

impl Notify for LostCompletions {
    #[cold]
    fn broken(&self) {
        self.0.fail(PathError::CompletionsLost);
    }
}

/// Handles the connection manager's events of a connection.
pub(crate) struct Events {
    /// Its path, once it is known.
    path: SetOnce<Arc<Path>>,
    /// The client has given the request up before that.
    is_over: AtomicBool,
}

impl Events {
    pub(crate) fn new() -> Result<Arc<Self>> {
        let events = Self {
            path: SetOnce::new(),
            is_over: AtomicBool::new(false),
        };
        Ok(Arc::new(events, GFP_KERNEL)?)
    }

    /// Returns whether the client does not wait for an answer any more.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// Says whose connection it is.
    pub(crate) fn are_of(&self, path: &Arc<Path>) {
        self.path.populate(path.clone());
    }
}

impl CmHandler for Events {
    fn event(&self, _id: &Id, event: Event<'_>) {
        let Some(path) = self.path.as_ref() else {
            return self.is_over.store(true, Relaxed);
        };
        match event {
            Event::Established { .. } => {}
            Event::Disconnected => path.disconnected(),
            Event::Rejected { .. }
            | Event::Unreachable(_)
            | Event::ConnectError(_)
            | Event::TimewaitExit
            | Event::DeviceRemoval
            | Event::AddressChange => path.fail(PathError::Connection(&event)),
            _ => {}
        }
    }
}
