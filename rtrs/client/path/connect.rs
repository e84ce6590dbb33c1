// SPDX-License-Identifier: GPL-2.0

//! Connects a path: one connection after the other, then the info exchange.

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
    MessageBuffers,
    Pd,
    PollContext,
    SendFlags, //
};
use rtrs_core::{
    device,
    proto::{
        agreement::Grant,
        budget,
        connect_retry,
        fence::Place,
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
        timeouts::ConnectTimeouts,
        wire::InfoRequest,
        CONNECT_TIMEOUT_MS,
        REGION_PAGES_MAX, //
    },
};
use zerocopy::IntoBytes;

use crate::client::{
    io::{
        connection::{
            Ready,
            Tagged,
            Tags,
            RECEIVE_BATCH, //
        },
        table::RequestTable, //
    },
    module,
    path::{
        connections::{
            hang_up,
            Connection,
            Connections, //
        }, //
        drain::Undrained,
        error::PathError,
        queue_pair::Plan,
        registration,
        resources::Resources,
        setup::Step,
        Path,
    }, //
};

/// Handles the connection manager's events of one connection.
struct ConnectionEvents {
    path: Arc<Path>,
    cid: u16,
    /// The path's connect that the connection belongs to.
    recon_cnt: u16,
}

impl CmHandler for ConnectionEvents {
    fn event(&self, _id: &Id, event: Event<'_>) {
        let setup = &self.path.setup;
        let late = self.path.life() != self.recon_cnt;
        let fault = match event {
            Event::DeviceRemoval => return self.path.device_removed(Some(self.recon_cnt)),
            // An event of an identifier that is kept as stale connection only.
            _ if late => return,
            Event::AddressResolved => return setup.reached(self.cid, Step::Address),
            Event::RouteResolved => return setup.reached(self.cid, Step::Route),
            Event::Established { private } => {
                let depth = self.path.session.depth_agreed();
                match handshake::accepted(private, depth) {
                    Ok(accepted) => return setup.accepted(self.cid, accepted),
                    Err(e) => PathError::Response(e),
                }
            }
            Event::Rejected { reason, private } => {
                PathError::Rejected(handshake::rejected(private), reason)
            }
            Event::AddressError(e) => PathError::Unreachable("address resolution", e),
            Event::RouteError(e) => PathError::Unreachable("route resolution", e),
            Event::Unreachable(e) => PathError::Connect("peer does not answer", e.to_errno()),
            Event::ConnectError(e) => PathError::Connect("connection manager error", e.to_errno()),
            Event::AddressChange => PathError::Connect("address has changed", 0),
            Event::Disconnected => {
                self.path.peer_disconnected();
                PathError::Disconnected
            }
            Event::TimewaitExit => PathError::Disconnected,
            _ => return,
        };
        self.path.fail_life(self.recon_cnt, fault);
    }
}

/// The device repeats what is not acknowledged after 268 ms, [`module::retry_count`] times: with
/// the default, after 0.8 s of silence the path is given up. (With rxe seven retries are endless.
/// Less time is not for it: when its peer is short of processor time its acknowledgements are late,
/// and a repeated registration ends the queue pair.)
const ACK_TIMEOUT_EXPONENT: u8 = 16;

/// Number of a path's first connect.
pub(super) const FIRST_CONNECT: u16 = 1;

/// The state that all connections of one attempt share.
struct Attempt<'a> {
    path: &'a Arc<Path>,
    recon_cnt: u16,
    first_conn: bool,
    timeouts: ConnectTimeouts,
    resources: &'a mut Resources,
    /// Set from the first connection on.
    pd: Option<Arc<Pd>>,
    requests: Option<Arc<RequestTable>>,
}

fn resource(what: &'static str) -> impl FnOnce(Error) -> PathError {
    move |e| PathError::Resource(what, e)
}

/// Connects a path; sleeps, and can be killed. On failure no connection is left,
/// unless it could not be drained.
pub(crate) fn connect(
    path: &Arc<Path>,
    resources: &mut Resources,
    recon_cnt: u16,
    first_conn: bool,
    timeouts: ConnectTimeouts,
) -> Result<Arc<Connections>, PathError> {
    let mut attempt = Attempt {
        path,
        recon_cnt,
        first_conn,
        timeouts,
        resources,
        pd: None,
        requests: None,
    };
    let mut connections = KVec::new();
    let done = attempt.connect_all(&mut connections).and_then(|()| {
        let place = attempt.reached();
        attempt.exchange_info(&connections)?;
        Ok(place)
    });
    let (requests, place) = match (done, attempt.requests.take()) {
        (Ok(place), Some(requests)) => (requests, place),
        (done, requests) => {
            match hang_up(&connections) {
                Ok(()) => {
                    drop(connections);
                    if let Some(requests) = requests {
                        attempt.resources.take_back(requests);
                    }
                }
                Err(e) => {
                    let undrained = Undrained::Setup(connections, requests);
                    path.keep_undrained(attempt.resources, undrained, e);
                }
            }
            return Err(done.err().unwrap_or(PathError::Disconnected));
        }
    };
    Connections::new(connections, requests, place).map_err(resource("transport"))
}

impl<'a> Attempt<'a> {
    fn connect_all(&mut self, connections: &mut KVec<Connection>) -> Result<(), PathError> {
        for cid in 0..self.path.session.connections() {
            let connection = self.connect_one(cid)?;
            // A connection that cannot be stored disconnects when it is dropped.
            connections
                .push(connection, GFP_KERNEL)
                .map_err(|e| PathError::Resource("list of connections", e.into()))?;
            self.progress_with(cid, connections)?;
        }
        Ok(())
    }

    /// Connects the last of `connections`, which [`Self::connect_one`] has created.
    fn progress_with(&mut self, cid: u16, connections: &[Connection]) -> Result<(), PathError> {
        let Some(connection) = connections.last() else {
            return Ok(());
        };
        let setup = &self.path.setup;
        let session = &self.path.session;
        connection
            .id
            .set_ack_timeout(ACK_TIMEOUT_EXPONENT)
            .map_err(resource("acknowledgement timeout"))?;
        setup.expect();
        connection
            .id
            .resolve_route(self.timeouts.step_ms)
            .map_err(|e| PathError::Unreachable("route resolution", e))?;
        setup.wait(cid, Step::Route, self.timeouts.step_ms)?;

        let request = Connect {
            cid,
            cid_num: session.connections(),
            recon_cnt: self.recon_cnt,
            sess_uuid: self.path.uuid,
            paths_uuid: session.uuid,
            first_conn: self.first_conn,
            fences: true,
        };
        let param = ConnectParam {
            retry_count: module::retry_count(),
            ..Default::default()
        };
        setup.expect();
        connection
            .id
            .connect(&param, request.to_wire().as_bytes())
            .map_err(resource("connect request"))?;
        setup.wait(cid, Step::Accept, self.timeouts.step_ms)?;

        if cid == 0 {
            let granted = setup.granted().ok_or(PathError::Disconnected)?;
            self.path.learn_ends(&connection.id)?;
            self.allocate(granted, connection)?;
        }
        Ok(())
    }

    /// Creates a connection's identifier and resolves its address.
    ///
    /// The kernel asks a neighbour three times, and again when an identifier is created. A connect
    /// that has time for more creates one now and then.
    fn resolve(&self, cid: u16) -> Result<CmId, PathError> {
        let mut done = Err(PathError::Timeout(Step::Address.name()));
        let total_ms = self.timeouts.address_ms;
        for timeout_ms in (0..).map_while(|n| connect_retry::resolution_ms(total_ms, n)) {
            done = self.resolve_within(cid, timeout_ms);
            if !matches!(done, Err(PathError::Timeout(_))) {
                break;
            }
        }
        done
    }

    /// Does what [`Self::resolve`] does, with one identifier; if it fails none is left.
    fn resolve_within(&self, cid: u16, timeout_ms: u32) -> Result<CmId, PathError> {
        let path = self.path;
        let (src, dst) = path.socket_addresses()?;
        let events = ConnectionEvents {
            path: path.clone(),
            cid,
            recon_cnt: self.recon_cnt,
        };
        let id =
            CmId::new(events, dst.address.port_space()).map_err(resource("connection identity"))?;
        path.setup.expect();
        // Longer than we wait: its own timeout would end the attempt.
        id.resolve_address(src.as_ref(), &dst, CONNECT_TIMEOUT_MS)
            .map_err(|e| PathError::Unreachable("address resolution", e))?;
        path.setup.wait(cid, Step::Address, timeout_ms)?;
        if cid == 0 && self.recon_cnt == FIRST_CONNECT {
            path.claim_ends(&id)?;
        }
        Ok(id)
    }

    /// Creates a connection up to its queue pair.
    fn connect_one(&mut self, cid: u16) -> Result<Connection, PathError> {
        let path = self.path;
        let id = self.resolve(cid)?;
        let device = id.device().ok_or(PathError::DeviceRemoval)?;
        let pd = match &self.pd {
            Some(pd) if pd.device() == device => pd.clone(),
            // All connections of a path are on one device, for they share their memory.
            Some(_) => return Err(PathError::Unreachable("route over another device", ENODEV)),
            None => {
                device::capabilities(device)
                    .check()
                    .map_err(PathError::Device)?;
                let pd = self.resources.pd(device);
                let pd = pd.map_err(resource("protection domain"))?;
                self.pd = Some(pd.clone());
                pd
            }
        };
        let polled = u32::from(cid) > path.session.io_queues();
        let plan = self
            .plan(cid, device)
            .map_err(|e| PathError::Device(e.into()))?;
        let context = if polled {
            PollContext::Direct
        } else {
            PollContext::Softirq
        };
        let queues = self
            .resources
            .queues(path, device, cid, &plan.config(), context)
            .map_err(resource("completion queue"))?;
        let qp = plan.create(&id, &pd, &queues, self.requests.as_ref())?;
        let cq = queues.receives;
        Ok(Connection { id, qp, cq })
    }

    /// Returns tags, queue sizes and [`signal`] mask of the next connection.
    fn plan(&self, cid: u16, device: &Device) -> Result<Plan<'a>, QueueError> {
        let (tags, sizes, signal_mask) = match &self.requests {
            None => (Tags::ADMIN, admin_sizes(device)?, ADMIN_MASK),
            Some(requests) => {
                let depth = requests.granted.geometry.queue_depth();
                let sizes = QueueSizes::client_io(depth, device::queue_limits(device))?;
                (Tags::io(depth), sizes, signal::client_mask(depth))
            }
        };
        Ok(Plan {
            path: self.path,
            life: self.recon_cnt,
            cid,
            tags,
            sizes,
            signal_mask,
        })
    }

    /// Allocates what the requests need, now that their number and size are known.
    fn allocate(&mut self, granted: Accepted, admin: &Connection) -> Result<(), PathError> {
        let pd = self.pd.as_ref().ok_or(PathError::DeviceRemoval)?;
        let pages = u32::from(REGION_PAGES_MAX).min(pd.device().max_fast_reg_pages());
        let queues = |e: QueueError| PathError::Device(e.into());
        let depth = granted.geometry.queue_depth();
        let sizes =
            QueueSizes::client_io(depth, device::queue_limits(pd.device())).map_err(queues)?;
        let keeps_page_offsets = pd.device().keeps_page_offsets();
        // CAST: at most REGION_PAGES_MAX.
        let grant = Grant::new(depth, granted.max_io_size, pages as u16, keeps_page_offsets);
        self.path.session.agree(grant)?;
        if !keeps_page_offsets && self.recon_cnt == FIRST_CONNECT {
            pr_info!(
                "session {}: bounce buffers of the path to {} lose the offset in a page, \
                 requests have one segment\n",
                self.path.session.name(),
                self.path.dst()
            );
        }
        self.afford(depth, &sizes)
            .map_err(resource("memory for the requests"))?;
        let requests = self
            .resources
            .requests(pd, granted, pages, module::read_buffers());
        let requests = requests.map_err(resource("memory for the requests"))?;
        let room = admin_sizes(pd.device()).map_err(queues)?.recv;
        let ready = Ready::new(&requests, Tags::ADMIN, room).map_err(resource("receives"))?;
        admin.qp.handler().introduce(ready);
        self.requests = Some(requests);
        Ok(())
    }

    /// Fails for a number of requests that this machine has no memory for. The server chooses the
    /// number, and allocations as small as these do not fail: the kernel kills processes, or
    /// panics, to serve them.
    ///
    /// A path that reconnects is not checked: its session has the same number of requests already,
    /// and the memory may be full of data that waits for it.
    fn afford(&self, depth: u16, sizes: &QueueSizes) -> Result {
        let reads = module::read_buffers().map_or(0, |layout| layout.bytes(depth));
        let connections = self.path.session.connections();
        let needed = budget::client_bytes(depth, connections, sizes).saturating_add(reads);
        let (available, total) = (memory::available_bytes(), memory::total_bytes());
        if self.recon_cnt == FIRST_CONNECT && !budget::is_to_spare(needed, available, total) {
            return Err(ENOMEM);
        }
        Ok(())
    }

    /// Returns the place that all connections have reached, before the info exchange.
    fn reached(&self) -> Place {
        let granted = self.requests.as_ref().map(|requests| requests.granted);
        let life = granted.and_then(|granted| granted.life);
        self.path.session.fences.lock().reached(life)
    }

    /// Sends the session's name to the server and gets the addresses of its chunks.
    fn exchange_info(&self, connections: &[Connection]) -> Result<(), PathError> {
        let (Some(admin), Some(requests)) = (connections.first(), &self.requests) else {
            return Err(PathError::Disconnected);
        };
        registration::register(&self.path.setup, admin, requests)?;
        let geometry = &requests.granted.geometry;
        let request = InfoRequest::new(self.path.session.name().to_bytes())
            .map_err(|_| PathError::Resource("info request", EINVAL))?;
        let len_max = info::response_len(geometry.queue_depth()) as u32;
        let memory = resource("memory for the info exchange");
        let (sent, received) =
            MessageBuffers::new(&requests.pd, 1, size_of::<InfoRequest>() as u32)
                .and_then(|sent| Ok((sent, MessageBuffers::new(&requests.pd, 1, len_max)?)))
                .map_err(memory)?;
        sent.write(0, 0, request.as_bytes())
            .map_err(PathError::Post)?;

        let tags = admin.qp.handler().tags;
        self.path.setup.expect();
        admin
            .qp
            .post_receive(
                tags.encode(Tagged::InfoResponse),
                Some(received.segment(0, 0, len_max)),
            )
            .map_err(PathError::Post)?;
        let message = sent.segment(0, 0, size_of::<InfoRequest>() as u32);
        admin
            .qp
            .send(
                tags.encode(Tagged::InfoRequest),
                [message],
                SendFlags::SIGNALED,
            )
            .map_err(PathError::Post)?;
        // The server is up, and may be busy. If it fails, the connection manager reports it.
        self.path.setup.wait(0, Step::Info, CONNECT_TIMEOUT_MS)?;

        let len = self.path.setup.info_len().min(len_max);
        let mut bytes = KVVec::from_elem(0u8, len as usize, GFP_KERNEL)
            .map_err(|e| PathError::Resource("memory for the info response", e.into()))?;
        received.read(0, 0, &mut bytes).map_err(PathError::Post)?;
        let chunks = Chunks::parse(&bytes, geometry).map_err(PathError::Info)?;
        requests.locate(chunks.iter());

        for connection in connections {
            let context = connection.qp.handler();
            context
                .post_receives(&connection.qp)
                .map_err(PathError::Post)?;
        }
        Ok(())
    }
}

/// Returns the queue sizes of the admin connection.
fn admin_sizes(device: &Device) -> Result<QueueSizes, QueueError> {
    QueueSizes::admin(RECEIVE_BATCH, device::queue_limits(device))
}
