// SPDX-License-Identifier: GPL-2.0

//! How a path is connected: the connections one after the other, then the info exchange.

use kernel::{
    prelude::*,
    sync::Arc, //
};
use kernel_ext::memory;
use rdma::{
    cm::{
        CmHandler,
        CmId,
        ConnectParam,
        Event,
        Id, //
    },
    Device,
    MessageSlots,
    Pd,
    PollContext,
    QpConfig,
    SendFlags, //
};
use rtrs_core::{
    device,
    proto::{
        agreement::Grant,
        budget,
        first_connect::{
            Failure,
            FirstConnect, //
        },
        handshake::{
            self,
            Accepted,
            Connect, //
        },
        info::{
            self,
            Chunks, //
        },
        signal::{
            self,
            QueueError,
            QueueSizes,
            ADMIN_MASK, //
        },
        wire::InfoRequest,
        CONNECT_TIMEOUT_MS,
        RETRY_COUNT,
        SEGMENTS_MAX, //
    },
};
use zerocopy::IntoBytes;

use crate::client::{
    io::{
        connection::{
            Channel,
            Ready,
            Tagged,
            Tags,
            RECEIVE_BATCH, //
        },
        table::{
            pieces_max,
            Exchange, //
        }, //
    },
    path::{
        connections::{
            hang_up,
            Connection,
            Transport, //
        }, //
        error::Fault,
        resources::Resources,
        setup::Step,
        Path,
    }, //
};

/// Hears what the connection manager has to say about one connection.
struct Listener {
    path: Arc<Path>,
    cid: u16,
    /// Which of the path's connects the connection belongs to.
    recon_cnt: u16,
}

impl CmHandler for Listener {
    fn event(&self, _id: &Id, event: Event<'_>) {
        let progress = &self.path.progress;
        let late = self.path.life() != self.recon_cnt;
        let fault = match event {
            Event::DeviceRemoval => return Path::let_device_go(&self.path, Some(self.recon_cnt)),
            // Of an identifier that is kept for its farewell only.
            _ if late => return,
            Event::AddressResolved => return progress.reached(self.cid, Step::Address),
            Event::RouteResolved => return progress.reached(self.cid, Step::Route),
            Event::Established { private } => {
                let depth = self.path.session.depth_agreed();
                match handshake::accepted(private, depth) {
                    Ok(accepted) => return progress.accepted(self.cid, accepted),
                    Err(e) => Fault::Response(e),
                }
            }
            Event::Rejected { reason, private } => {
                Fault::Rejected(handshake::rejected(private), reason)
            }
            Event::AddressError(e) => Fault::Unreachable("address resolution", e),
            Event::RouteError(e) => Fault::Unreachable("route resolution", e),
            Event::Unreachable(e) => Fault::Connect("peer does not answer", e.to_errno()),
            Event::ConnectError(e) => Fault::Connect("connection manager error", e.to_errno()),
            Event::AddressChange => Fault::Connect("address has changed", 0),
            Event::Disconnected | Event::TimewaitExit => Fault::Disconnected,
            _ => return,
        };
        Path::fail_life(&self.path, self.recon_cnt, fault);
    }
}

/// How long the steps of a connect may take.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// Resolving the peer's address, in milliseconds.
    address_ms: u32,
    /// Finding the way and being accepted, in milliseconds each.
    step_ms: u32,
}

/// The device repeats what is not acknowledged after 268 ms, [`RETRY_COUNT`] times: after 0.8 s of
/// silence the path is given up. (With rxe seven retries are endless. Less time is not for it: when
/// its peer is short of processor time its acknowledgements are late, and a repeated registration
/// ends the queue pair.)
const ACK_TIMEOUT_EXPONENT: u8 = 16;

/// Time for a step of most attempts to connect a path again, in milliseconds.
const AGAIN_MS: u32 = 1500;

/// One attempt in so many has more time, for a peer that is slow.
const AGAIN_ROUND: u32 = 4;

impl Patience {
    /// For a path that somebody waits for.
    pub(crate) const FIRST: Self = Self {
        address_ms: CONNECT_TIMEOUT_MS,
        step_ms: CONNECT_TIMEOUT_MS,
    };

    /// For a path that is to be back soon after its link, when `silent` attempts in a row were not
    /// answered by a peer whose address is known.
    ///
    /// A new attempt asks the peer at once, an old one may be between two of its questions: the
    /// connection manager repeats its own after 4 s, and a neighbour is asked for no more than
    /// three times. A slow peer is given more time in the last attempt of each round, and twice as
    /// much in the next round.
    pub(crate) const fn again(silent: u32) -> Self {
        let round = silent / AGAIN_ROUND;
        let step_ms = if silent % AGAIN_ROUND != AGAIN_ROUND - 1 {
            AGAIN_MS
        } else if round < 4 {
            (2 * AGAIN_MS).wrapping_shl(round)
        } else {
            CONNECT_TIMEOUT_MS
        };
        Self {
            address_ms: AGAIN_MS,
            step_ms,
        }
    }
}

/// Number of a path's first connect.
const FIRST_CONNECT: u16 = 1;

/// What all connections of one attempt have in common.
struct Attempt<'a> {
    path: &'a Arc<Path>,
    recon_cnt: u16,
    first_conn: bool,
    patience: Patience,
    resources: &'a mut Resources,
    /// From the first connection on.
    pd: Option<Arc<Pd>>,
    exchange: Option<Arc<Exchange>>,
}

fn resource(what: &'static str) -> impl FnOnce(Error) -> Fault {
    move |e| Fault::Resource(what, e)
}

/// Connects a path; sleeps, and can be killed. On failure nothing is connected.
pub(crate) fn connect(
    path: &Arc<Path>,
    resources: &mut Resources,
    recon_cnt: u16,
    first_conn: bool,
    patience: Patience,
) -> Result<Arc<Transport>, Fault> {
    let mut attempt = Attempt {
        path,
        recon_cnt,
        first_conn,
        patience,
        resources,
        pd: None,
        exchange: None,
    };
    let mut connections = KVec::new();
    let done = attempt
        .connect_all(&mut connections)
        .and_then(|()| attempt.exchange_info(&connections));
    let exchange = match (done, attempt.exchange.take()) {
        (Ok(()), Some(exchange)) => exchange,
        (done, exchange) => {
            hang_up(&connections);
            drop(connections);
            if let Some(exchange) = exchange {
                attempt.resources.take_back(exchange);
            }
            return Err(done.err().unwrap_or(Fault::Disconnected));
        }
    };
    Transport::new(connections, path.session.cpu_connections(), exchange)
        .map_err(resource("transport"))
}

impl Attempt<'_> {
    fn connect_all(&mut self, connections: &mut KVec<Connection>) -> Result<(), Fault> {
        for cid in 0..self.path.session.connections() {
            let connection = self.connect_one(cid)?;
            // A connection that cannot be kept hangs up when it is dropped.
            connections
                .push(connection, GFP_KERNEL)
                .map_err(|e| Fault::Resource("list of connections", e.into()))?;
            self.progress_with(cid, connections)?;
        }
        Ok(())
    }

    /// Connects what [`Self::connect_one`] has made, which is the last of `connections`.
    fn progress_with(&mut self, cid: u16, connections: &[Connection]) -> Result<(), Fault> {
        let Some(connection) = connections.last() else {
            return Ok(());
        };
        let progress = &self.path.progress;
        let session = &self.path.session;
        connection
            .id
            .set_ack_timeout(ACK_TIMEOUT_EXPONENT)
            .map_err(resource("acknowledgement timeout"))?;
        progress.expect();
        connection
            .id
            .resolve_route(self.patience.step_ms)
            .map_err(|e| Fault::Unreachable("route resolution", e))?;
        progress.wait(cid, Step::Route, self.patience.step_ms)?;

        let request = Connect {
            cid,
            cid_num: session.connections(),
            recon_cnt: self.recon_cnt,
            sess_uuid: self.path.uuid,
            paths_uuid: session.uuid,
            first_conn: self.first_conn,
        };
        let param = ConnectParam {
            retry_count: RETRY_COUNT,
            ..Default::default()
        };
        progress.expect();
        connection
            .id
            .connect(&param, request.to_wire().as_bytes())
            .map_err(resource("connect request"))?;
        progress.wait(cid, Step::Accept, self.patience.step_ms)?;

        if cid == 0 {
            let granted = progress.granted().ok_or(Fault::Disconnected)?;
            self.path.learn_ends(&connection.id)?;
            self.allocate(granted, connection)?;
        }
        Ok(())
    }

    /// Makes a connection's identifier, and resolves its address.
    ///
    /// The kernel asks a neighbour three times, and again when an identifier is made. The first
    /// connect of a path, which a task waits for, therefore makes one now and then.
    fn resolve(&self, cid: u16) -> Result<CmId, Fault> {
        let is_first = self.recon_cnt == FIRST_CONNECT;
        let mut first = FirstConnect::UNTRIED;
        loop {
            let timeout_ms = if is_first {
                first.address_ms()
            } else {
                self.patience.address_ms
            };
            let done = self.resolve_within(cid, timeout_ms);
            let is_late = matches!(done, Err(Fault::Timeout(_)));
            if !is_late || !is_first || first.failed(Failure::NoAddress, timeout_ms).is_none() {
                return done;
            }
        }
    }

    /// As [`Self::resolve`], with one identifier; if it fails none is left.
    fn resolve_within(&self, cid: u16, timeout_ms: u32) -> Result<CmId, Fault> {
        let path = self.path;
        let (src, dst) = path.socket_addresses();
        let listener = Listener {
            path: path.clone(),
            cid,
            recon_cnt: self.recon_cnt,
        };
        let id = CmId::new(listener, dst.address.port_space())
            .map_err(resource("connection identity"))?;
        path.progress.expect();
        // It has more time than we wait: that its time is over would end the attempt.
        id.resolve_address(src.as_ref(), &dst, CONNECT_TIMEOUT_MS)
            .map_err(|e| Fault::Unreachable("address resolution", e))?;
        path.progress.wait(cid, Step::Address, timeout_ms)?;
        if cid == 0 && self.recon_cnt == FIRST_CONNECT {
            Path::claim_ends(path, &id)?;
        }
        Ok(id)
    }

    /// Makes a connection up to its queue pair.
    fn connect_one(&mut self, cid: u16) -> Result<Connection, Fault> {
        let path = self.path;
        let id = self.resolve(cid)?;
        let device = id.device().ok_or(Fault::DeviceRemoval)?;
        let pd = match &self.pd {
            Some(pd) if pd.device() == device => pd.clone(),
            // All connections of a path are on one device, for they share their memory.
            Some(_) => return Err(Fault::Unreachable("route over another device", ENODEV)),
            None => {
                device::capabilities(device)
                    .check()
                    .map_err(Fault::Device)?;
                let pd = self.resources.pd(device);
                let pd = pd.map_err(resource("protection domain"))?;
                self.pd = Some(pd.clone());
                pd
            }
        };
        let polled = u32::from(cid) > path.session.cpu_connections();
        let (tags, sizes, signal_mask) = self.sizes(device).map_err(|e| Fault::Device(e.into()))?;
        let config = QpConfig {
            max_send_sge: pieces_max(device).saturating_add(1),
            receive_tags: tags.receives(),
            ..QpConfig::new(sizes.send, sizes.recv, tags.count())
        };
        let context = if polled {
            PollContext::Direct
        } else {
            PollContext::Softirq
        };
        let queues = self
            .resources
            .queues(path, device, cid, &config, context)
            .map_err(resource("completion queue"))?;
        let ready = match &self.exchange {
            Some(exchange) => {
                Some(Ready::new(exchange, tags, sizes.recv).map_err(resource("receives"))?)
            }
            None => None,
        };
        let channel = Channel::new(
            path.clone(),
            self.recon_cnt,
            cid,
            tags,
            signal_mask,
            queues.sends.clone(),
            ready,
        );
        let qp = id
            .create_qp(&pd, &queues.sends, &queues.receives, &config, channel)
            .map_err(resource("queue pair"))?;
        let cq = queues.receives;
        Ok(Connection { id, qp, cq })
    }

    /// Tags, queues and [`signal`] mask of the next connection.
    fn sizes(&self, device: &Device) -> Result<(Tags, QueueSizes, u32), QueueError> {
        Ok(match &self.exchange {
            None => (Tags::ADMIN, admin_sizes(device)?, ADMIN_MASK),
            Some(exchange) => {
                let depth = exchange.granted.geometry.queue_depth();
                let sizes = QueueSizes::client_io(depth, device::queue_limits(device))?;
                (Tags::io(depth), sizes, signal::client_mask(depth))
            }
        })
    }

    /// Makes what the requests need, now that their number and size are known.
    fn allocate(&mut self, granted: Accepted, admin: &Connection) -> Result<(), Fault> {
        let pd = self.pd.as_ref().ok_or(Fault::DeviceRemoval)?;
        let pages = u32::from(SEGMENTS_MAX).min(pd.device().max_fast_reg_pages());
        let queues = |e: QueueError| Fault::Device(e.into());
        let depth = granted.geometry.queue_depth();
        let sizes =
            QueueSizes::client_io(depth, device::queue_limits(pd.device())).map_err(queues)?;
        let grant = Grant {
            queue_depth: depth,
            max_io_size: granted.max_io_size,
            // CAST: at most SEGMENTS_MAX.
            max_segments: pages as u16,
        };
        self.path.session.agree(grant)?;
        self.afford(depth, &sizes)
            .map_err(resource("memory for the requests"))?;
        let exchange = self.resources.exchange(pd, granted, pages);
        let exchange = exchange.map_err(resource("memory for the requests"))?;
        let room = admin_sizes(pd.device()).map_err(queues)?.recv;
        let ready = Ready::new(&exchange, Tags::ADMIN, room).map_err(resource("receives"))?;
        admin.qp.handler().introduce(ready);
        self.exchange = Some(exchange);
        Ok(())
    }

    /// Refuses a number of requests that this machine has no memory for. The server names it, and
    /// allocations as small as these do not fail: the kernel ends programs, or itself, to serve
    /// them.
    ///
    /// A path that comes back is not asked: its session has the same number of requests already,
    /// and the memory may be full of data that waits for it.
    fn afford(&self, depth: u16, sizes: &QueueSizes) -> Result {
        let wanted = budget::client_bytes(depth, self.path.session.connections(), sizes);
        let (available, total) = (memory::available_bytes(), memory::total_bytes());
        if self.recon_cnt == FIRST_CONNECT && !budget::is_to_spare(wanted, available, total) {
            return Err(ENOMEM);
        }
        Ok(())
    }

    /// Names the session to the server and learns where its chunks are.
    fn exchange_info(&self, connections: &[Connection]) -> Result<(), Fault> {
        let (Some(admin), Some(exchange)) = (connections.first(), &self.exchange) else {
            return Err(Fault::Disconnected);
        };
        let geometry = &exchange.granted.geometry;
        let request = InfoRequest::new(self.path.session.name().to_bytes())
            .map_err(|_| Fault::Resource("info request", EINVAL))?;
        let len_max = info::response_len(geometry.queue_depth()) as u32;
        let memory = resource("memory for the info exchange");
        let (sent, received) = MessageSlots::new(&exchange.pd, 1, size_of::<InfoRequest>() as u32)
            .and_then(|sent| Ok((sent, MessageSlots::new(&exchange.pd, 1, len_max)?)))
            .map_err(memory)?;
        sent.write(0, 0, request.as_bytes()).map_err(Fault::Post)?;

        let tags = admin.qp.handler().tags;
        self.path.progress.expect();
        admin
            .qp
            .post_receive(
                tags.encode(Tagged::InfoResponse),
                Some(received.segment(0, 0, len_max)),
            )
            .map_err(Fault::Post)?;
        let message = sent.segment(0, 0, size_of::<InfoRequest>() as u32);
        admin
            .qp
            .send(
                tags.encode(Tagged::InfoRequest),
                [message],
                SendFlags::SIGNALED,
            )
            .map_err(Fault::Post)?;
        // The server is there, and may have work to do. If it goes, the connection tells.
        self.path.progress.wait(0, Step::Info, CONNECT_TIMEOUT_MS)?;

        let len = self.path.progress.info_len().min(len_max);
        let mut bytes = KVVec::from_elem(0u8, len as usize, GFP_KERNEL)
            .map_err(|e| Fault::Resource("memory for the info response", e.into()))?;
        received.read(0, 0, &mut bytes).map_err(Fault::Post)?;
        let chunks = Chunks::parse(&bytes, geometry).map_err(Fault::Info)?;
        exchange.locate(chunks.iter());

        for connection in connections {
            let channel = connection.qp.handler();
            channel.post_receives(&connection.qp).map_err(Fault::Post)?;
        }
        Ok(())
    }
}

/// How large the queues of the admin connection are.
fn admin_sizes(device: &Device) -> Result<QueueSizes, QueueError> {
    QueueSizes::admin(RECEIVE_BATCH, device::queue_limits(device))
}
