// SPDX-License-Identifier: GPL-2.0

//! The info exchange: the client names its session, and gets the addresses and keys of its chunks.
//! After that the path is up.

use ferro_proto::errno::Errno;
use kernel::{
    new_mutex,
    prelude::*,
    sync::{
        Arc,
        Mutex, //
    }, //
};
use kernel_ext::sync::{
    atomic::{
        AtomicBool, AtomicU32,
        Ordering::{
            Relaxed,
            SeqCst, //
        },
    },
    Completion, //
};
use rdma::{
    Access,
    Batch,
    MessageBuffers,
    Mr,
    Pd,
    Qp,
    Segment,
    SendFlags, //
};
use rtrs_core::proto::{
    admission::NameClaim,
    info,
    path::{
        record::Operation,
        ServerEffect,
        ServerEvent, //
    },
    wire::{
        Descriptor,
        InfoRequest,
        InfoResponse, //
    },
    CONNECT_TIMEOUT_MS, //
};
use zerocopy::IntoBytes;

use crate::server::{
    io::tag::Tagged,
    module, //
    path::{
        chunks, //
        connections::{
            self,
            Receiver,
            INFO_REQUEST_LEN, //
        },
        error::PathError,
        fence,
        heartbeat,
        Path,
    },
};

/// Registrations that are posted at a time.
const REGISTER_BATCH: usize = 16;

/// Longest time to wait until the response of a refusal is sent, in milliseconds.
const REFUSAL_TIMEOUT_MS: u32 = 1000;

/// The info exchange of one path.
#[pin_data]
pub(crate) struct InfoExchange {
    /// The buffer that receives the info request.
    request: MessageBuffers,
    /// Bytes of the request; 0 until it has been received.
    request_len: AtomicU32,
    /// The session has asked for its name, which another session has.
    claims_name: AtomicBool,
    /// The info response, as long as it may be sent.
    #[pin]
    response: Mutex<Option<MessageBuffers>>,
    /// Completes when a batch of registrations or the response is done, or the queue pair has
    /// failed.
    #[pin]
    done: Completion,
}

impl InfoExchange {
    /// Allocates the buffer of the request. Sleeps.
    ///
    /// # Errors
    ///
    /// Those of [`MessageBuffers::new`].
    pub(crate) fn new(pd: &Arc<Pd>) -> Result<impl PinInit<Self>> {
        let request = MessageBuffers::new(pd, 1, INFO_REQUEST_LEN)?;
        Ok(pin_init!(Self {
            request,
            request_len: AtomicU32::new(0),
            claims_name: AtomicBool::new(false),
            response <- new_mutex!(None, "InfoExchange::response"),
            done <- Completion::new(),
        }))
    }

    /// Returns the buffer that receives the request.
    pub(crate) fn segment(&self) -> Segment<'_> {
        self.request.segment(0, 0, INFO_REQUEST_LEN)
    }

    /// Records that a request of `len` bytes has been received. Any context.
    pub(super) fn received(&self, len: u32) {
        self.request_len.store(len.max(1), SeqCst);
    }

    /// Returns whether the request has been received.
    pub(super) fn is_received(&self) -> bool {
        self.request_len.load(SeqCst) != 0
    }

    /// Records that the session asks for a name which another session has; `false` if it was
    /// recorded already.
    pub(crate) fn begin_claim(&self) -> bool {
        !self.claims_name.swap(true, Relaxed)
    }

    /// Signals that the posted work requests are done, or will never be. Any context.
    pub(crate) fn complete(&self) {
        self.done.complete_all();
    }

    /// Reads the request.
    fn read<'a>(&self, bytes: &'a mut [u8; INFO_REQUEST_LEN as usize]) -> Result<&'a [u8]> {
        let len = self.request_len.load(SeqCst).min(INFO_REQUEST_LEN) as usize;
        let message = bytes.get_mut(..len).unwrap_or(&mut []);
        self.request.read(0, 0, message)?;
        Ok(message)
    }
}

/// Processes the info request of `path`: in the end it is up, or being closed, or waits.
pub(crate) fn establish(path: &Arc<Path>) {
    // A client that sends it before all its connections exist would make us use missing ones
    // (CVE-2024-50062).
    let Some(connections) = path.joined() else {
        return;
    };
    let Some(admin) = connections.get(0) else {
        return path.fail(PathError::NoAdminConnection);
    };
    if !connections.is_complete() {
        return refuse(path, &admin.qp, PathError::TooFewConnections);
    }
    // No old write may be executed after a new one was (D26). The last of the older paths queues
    // this again when it ends.
    if path.session.has_predecessor_of(path) {
        return;
    }
    match name_session(path) {
        Ok(Name::Given) => {}
        Ok(Name::Awaited) => return path.tick_in(heartbeat::NAME_TICK_MS),
        Err(why) => return refuse(path, &admin.qp, why),
    }
    if let Err(e) = connections.iter().try_for_each(connections::post_receives) {
        return refuse(path, &admin.qp, PathError::Post("receives", e));
    }
    if let Err(e) = path.session.link_up(path) {
        return refuse(path, &admin.qp, PathError::LinkUp(e));
    }
    path.counted.store(true, SeqCst);
    if path.step(ServerEvent::InfoRequest { complete: true }) != ServerEffect::GoLive {
        return;
    }
    // A heartbeat that overtakes the response would be received instead of it, so the first one is
    // sent after it.
    path.tick_in(heartbeat::FIRST_TICK_MS);
    path.did(Operation::Respond);
    match respond(path, &admin.qp) {
        Ok(()) => path.tick_in(module::heartbeat().interval_ms),
        Err(e) => path.fail(PathError::Respond(e)),
    }
}

/// Closes `path`, whose client waits for the info response, after it has sent one with the error.
///
/// A client of the C driver refuses the response and closes the path as well. If the response
/// cannot be sent, the client gets only the disconnect that follows.
#[cold]
fn refuse(path: &Arc<Path>, qp: &Qp<Receiver>, why: PathError<'_>) {
    // Before the client has the response: its disconnect may close the path first.
    path.log_failure(why);
    path.info.done.reinit();
    let response = InfoResponse::refuse(why.errno());
    if post(path, qp, response.as_bytes()).is_ok() {
        let _ = path.info.done.wait_timeout_ms(REFUSAL_TIMEOUT_MS);
    }
    path.fail_logged();
}

/// The state of a session's name.
enum Name {
    /// The session has it.
    Given,
    /// Another session has the name, and may end soon.
    Awaited,
}

/// Reads the info request, and gives the session its name.
fn name_session(path: &Arc<Path>) -> Result<Name, PathError<'static>> {
    let mut bytes = [0; INFO_REQUEST_LEN as usize];
    let message = path.info.read(&mut bytes).map_err(PathError::Unnamed)?;
    let name = InfoRequest::parse(message)
        .and_then(InfoRequest::name)
        .map_err(PathError::Name)?;
    match path.session.registry.claim_name(path, name) {
        Ok(None) => Ok(Name::Given),
        Ok(Some(NameClaim::Wait)) => Ok(Name::Awaited),
        Ok(Some(NameClaim::Refused(Errno::EBUSY))) => Err(PathError::NameHeld),
        Ok(Some(NameClaim::Refused(_))) => Err(PathError::NameTaken),
        Err(e) if e == EPERM => Err(PathError::NameTaken),
        Err(e) => Err(PathError::Unnamed(e)),
    }
}

/// Registers the chunks and sends their addresses and keys to the client.
fn respond(path: &Arc<Path>, qp: &Qp<Receiver>) -> Result {
    let depth = path.geometry.queue_depth();
    let mut descriptors: KVVec<Descriptor> = KVVec::with_capacity(depth.into(), GFP_KERNEL)?;
    if path.policy.always_invalidate() {
        for chunk_states in path.chunks.chunk_states().chunks(REGISTER_BATCH) {
            let mut space = rdma::WrBuffer::new();
            let mut batch = qp.batch::<REGISTER_BATCH, 0>(&mut space);
            for (index, chunk_state) in (1..).zip(chunk_states) {
                // No request takes it before the client knows the key.
                let context = chunk_state.free.take().ok_or(EBUSY)?;
                let registered = match &context.region {
                    Some(region) => {
                        add(&mut batch, region, index == chunk_states.len());
                        chunks::descriptor(region)
                    }
                    None => Err(EINVAL),
                };
                path.release(context);
                descriptors.push(registered?, GFP_KERNEL)?;
            }
            run(path, &mut batch)?;
        }
    } else {
        for regions in path.chunks.regions().chunks(REGISTER_BATCH) {
            let mut space = rdma::WrBuffer::new();
            let mut batch = qp.batch::<REGISTER_BATCH, 0>(&mut space);
            for (index, region) in (1..).zip(regions) {
                add(&mut batch, region, index == regions.len());
                descriptors.push(chunks::descriptor(region)?, GFP_KERNEL)?;
            }
            run(path, &mut batch)?;
        }
    }
    fence::enter(path)?;
    send(path, qp, &descriptors)
}

type Registrations<'a> = Batch<'a, Receiver, REGISTER_BATCH, 0>;

/// Adds the registration of `region`; the last of a batch is signaled.
fn add(batch: &mut Registrations<'_>, region: &Mr, last: bool) {
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    if last {
        batch.reg_mr(Tagged::Setup.encode(), region, access, SendFlags::SIGNALED);
    } else {
        batch.reg_mr(Tagged::Register.encode(), region, access, SendFlags::NONE);
    }
}

/// Posts registrations and waits for them, since the send queue may not have room for all.
fn run(path: &Arc<Path>, batch: &mut Registrations<'_>) -> Result {
    path.info.done.reinit();
    batch.post()?;
    path.info.done.wait_timeout_ms(CONNECT_TIMEOUT_MS)
}

/// Sends the info response.
fn send(path: &Arc<Path>, qp: &Qp<Receiver>, descriptors: &[Descriptor]) -> Result {
    let count = u16::try_from(descriptors.len()).map_err(|_| EMSGSIZE)?;
    let len = info::response_len(count);
    let mut bytes = KVVec::from_elem(0, len, GFP_KERNEL)?;
    info::encode(&mut bytes, descriptors.iter().copied()).ok_or(EMSGSIZE)?;
    post(path, qp, &bytes)
}

/// Posts an info response; [`InfoExchange::complete`] is called when it has arrived.
fn post(path: &Arc<Path>, qp: &Qp<Receiver>, bytes: &[u8]) -> Result {
    let len = u32::try_from(bytes.len()).map_err(|_| EMSGSIZE)?;
    let message = MessageBuffers::new(&path.pd, 1, len)?;
    message.write(0, 0, bytes)?;

    let mut space = rdma::WrBuffer::new();
    let mut batch = qp.batch::<1, 1>(&mut space);
    batch.send(
        Tagged::Setup.encode(),
        &[message.segment(0, 0, len)],
        SendFlags::SIGNALED,
    );
    let posted = batch.post();
    *path.info.response.lock() = Some(message);
    posted
}
