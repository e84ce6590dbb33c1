// SPDX-License-Identifier: GPL-2.0

//! Handles the completions of a connection: requests, heartbeats, credit of the send queue.

use kernel::{
    prelude::*,
    str::CStr, //
};
use rdma::{
    Opcode,
    Qp,
    QpHandler,
    Reliable,
    SendFlags,
    WcStatus,
    WorkCompletion, //
};
use rtrs_core::proto::{
    chunk_policy::ChunkUse,
    fence::{
        look,
        Look, //
    },
    imm::Imm,
    request::{
        parse,
        parse_usual,
        Malformed,
        Request,
        HEAD_MAX, //
    },
};

use crate::server::{
    io::{
        operation::Operation,
        reply,
        request::RequestContext,
        tag::Tagged, //
    },
    path::{
        connections::Receiver,
        error::{
            PathError,
            RequestError, //
        },
        fence,
        fence_message,
        heartbeat, //
    },
};

impl QpHandler for Receiver {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;
    type Transport = Reliable;

    #[inline(always)]
    fn received(qp: &Qp<Self>, tag: u32, wc: &WorkCompletion) {
        let this = qp.handler();
        let success = match wc.status() {
            Ok(success) => success,
            Err(status) => return this.failed(tag, status),
        };
        match success.imm() {
            Some(imm) if success.opcode() == Opcode::ReceiveRdmaWithImm => {
                this.request_came(qp, imm)
            }
            _ => this.path.fail(PathError::NoRequest(this.cid)),
        }
    }

    #[inline(always)]
    fn completed(qp: &Qp<Self>, tag: u32, wc: &WorkCompletion) {
        let this = qp.handler();
        let success = match wc.status() {
            Ok(success) => success,
            Err(status) => return this.failed(tag, status),
        };
        match Tagged::decode(tag) {
            Tagged::Io => this.sent(qp),
            Tagged::Invalidate(id) => this.revoked(id),
            Tagged::InfoRequest => this.path.info_received(success.byte_len()),
            Tagged::Setup => this.path.info.complete(),
            // Receives come to `received`.
            Tagged::Register | Tagged::Receive => {}
        }
    }

    #[cold]
    fn broken(qp: &Qp<Self>, why: &'static CStr) {
        let Receiver { path, cid, .. } = qp.handler();
        path.fail(PathError::Broken(*cid, why));
    }
}

impl Receiver {
    /// Handles a receive with an immediate, most likely a request.
    #[inline(always)]
    fn request_came(&self, qp: &Qp<Self>, imm: u32) {
        self.path.liveness.heard();
        // They are set before the first is posted.
        let posted = match self.receives.as_ref() {
            Some(receives) => receives.consumed(qp),
            None => Err(EINVAL),
        };
        if let Err(e) = posted {
            return self.path.fail(PathError::Post("receive", e));
        }
        match Imm::request(imm) {
            Some(payload) => self.request(qp, payload),
            None => self.other(qp, imm),
        }
    }

    /// Handles an immediate that is not a request's.
    #[cold]
    fn other(&self, qp: &Qp<Self>, imm: u32) {
        match Imm::decode(imm) {
            Ok(Imm::Request { .. }) => {}
            Ok(Imm::Heartbeat) => heartbeat::acknowledge(qp),
            Ok(Imm::HeartbeatAck) => {}
            Ok(Imm::Fence(number)) => fence_message::received(self, number),
            Ok(Imm::Response(_) | Imm::Fenced(_)) | Err(_) => {
                self.path.fail(PathError::Immediate(imm));
            }
        }
    }

    /// Handles a request: `payload` has its chunk and the offset of its head.
    #[inline(always)]
    fn request(&self, qp: &Qp<Self>, payload: u32) {
        let path = &self.path;
        let (id, offset) = match path.geometry.split(payload) {
            Ok(at) => at,
            Err(bad) => return path.fail(PathError::Payload(bad)),
        };
        if !path.is_up() && !path.early_request() {
            return;
        }
        let chunk_state = path.chunks.chunk_state(id);
        let taken = chunk_state.and_then(|chunk| Some((chunk.free.take()?, chunk)));
        let Some((mut context, chunk)) = taken else {
            return path.fail(PathError::ChunkInUse(id));
        };
        context.cid = self.cid;
        context.offset = offset;
        let carriers = chunk.count(path.fencing.has_peers(), &mut context);
        match look(carriers, || path.is_up(), || fence::is_contested(path, id)) {
            Look::Serve => self.admit(qp, context, offset),
            Look::Discard => path.release(context),
            Look::Defer => fence::defer(path, context),
        }
    }

    /// Continues with a request whose chunk is free on all other paths, and whose head is at this
    /// offset.
    #[inline(always)]
    pub(crate) fn admit(&self, qp: &Qp<Self>, mut context: KBox<RequestContext>, offset: u32) {
        let Some(head) = context.head(offset) else {
            return self.validate_short(qp, context);
        };
        // Each kind of usual request has code of its own, in which the compiler knows the kind.
        match parse_usual(&head, offset) {
            Some(Request::Read(read)) => self.accept(qp, context, Request::Read(read)),
            Some(Request::Write(write)) => self.accept(qp, context, Request::Write(write)),
            None => self.validate_unusual(qp, context, head),
        }
    }

    /// Does what [`Self::validate`] does for a request that is not usual. Not inlined, and gets a
    /// copy, so that the head of a usual one stays in registers.
    #[inline(never)]
    fn validate_unusual(&self, qp: &Qp<Self>, context: KBox<RequestContext>, head: [u8; HEAD_MAX]) {
        self.validate(qp, context, &head);
    }

    /// Does what [`Self::validate`] does for a request whose head is near its chunk's end.
    #[cold]
    fn validate_short(&self, qp: &Qp<Self>, mut context: KBox<RequestContext>) {
        let mut bytes = [0; HEAD_MAX];
        match context.short_head(self.path.geometry.chunk_size(), &mut bytes) {
            Ok(head) => self.validate(qp, context, head),
            Err(malformed) => self.refuse(context, malformed.into()),
        }
    }

    /// Decides what to do with a request whose head was copied.
    #[inline(always)]
    fn validate(&self, qp: &Qp<Self>, context: KBox<RequestContext>, head: &[u8]) {
        match parse(head, context.offset) {
            Ok(request) => self.accept(qp, context, request),
            Err(malformed) => self.refuse(context, malformed.into()),
        }
    }

    /// Serves a request, now or when the client cannot change it any more.
    #[inline(always)]
    fn accept(&self, qp: &Qp<Self>, mut context: KBox<RequestContext>, request: Request) {
        // Each use has code of its own, in which the compiler knows it.
        match self.path.policy.of(&request) {
            ChunkUse::InPlace => {
                context.store(request, ChunkUse::InPlace);
                self.serve(context);
            }
            ChunkUse::Copied => {
                context.store(request, ChunkUse::Copied);
                self.serve(context);
            }
            ChunkUse::Invalidated => {
                context.store(request, ChunkUse::Invalidated);
                // The client can still change it: it is read again after the invalidation.
                self.revoke(qp, context);
            }
        }
    }

    /// Invalidates the chunk's key, so that the client cannot change the request any more.
    #[inline(always)]
    fn revoke(&self, qp: &Qp<Self>, mut context: KBox<RequestContext>) {
        let Some(region) = &context.region else {
            return self.refuse(context, RequestError::NoKey);
        };
        let (id, key) = (context.id, region.key());
        let Some(chunk_state) = self.path.chunks.chunk_state(id) else {
            return;
        };
        context.revoked = true;
        if chunk_state.armed.put(context).is_err() {
            return;
        }
        let mut space = rdma::WrBuffer::new();
        let mut batch = qp.batch::<1, 0>(&mut space);
        let tag = Tagged::Invalidate(id).encode();
        batch.local_invalidate(tag, key, SendFlags::SIGNALED);
        if let Err(e) = batch.post() {
            if let Some(context) = chunk_state.armed.take() {
                self.refuse(context, RequestError::Invalidate(e));
            }
        }
    }

    /// Handles the completion of that invalidation: the chunk's content is stable.
    #[inline]
    fn revoked(&self, id: u16) {
        let Some(mut context) = self.armed(id) else {
            return;
        };
        // Until now the client could change it.
        let offset = context.offset;
        let parsed = match context.head(offset) {
            Some(head) => parse(&head, offset),
            None => self.parse_short(&mut context),
        };
        match parsed {
            Ok(request @ Request::Write(_)) => {
                context.store(request, self.path.policy.of(&request));
                self.serve(context);
            }
            Ok(Request::Read(_)) => self.refuse(context, RequestError::Changed),
            Err(malformed) => self.refuse(context, malformed.into()),
        }
    }

    #[cold]
    fn parse_short(&self, context: &mut RequestContext) -> Result<Request, Malformed> {
        let mut bytes = [0; HEAD_MAX];
        let head = context.short_head(self.path.geometry.chunk_size(), &mut bytes)?;
        parse(head, context.offset)
    }

    /// Takes the context of chunk `id`, whose key was being invalidated.
    #[inline]
    fn armed(&self, id: u16) -> Option<KBox<RequestContext>> {
        self.path.chunks.chunk_state(id)?.armed.take()
    }

    /// Passes a request that was parsed to the service.
    #[inline(always)]
    fn serve(&self, mut context: KBox<RequestContext>) {
        let path = &*self.path;
        let (is_read, bytes) = (context.is_read(), context.offset);
        let begun = context.begin();
        path.stats.count(is_read, bytes);
        let (Ok(()), Some(service)) = (begun, path.service()) else {
            return reply::answer(context, begun.and(Err(EIO)));
        };
        service.request(Operation::new(context));
    }

    /// Releases `context` without serving it, and fails the path.
    #[cold]
    fn refuse(&self, context: KBox<RequestContext>, why: RequestError) {
        let id = context.id;
        self.path.release(context);
        self.path.fail(PathError::Request(id, why));
    }

    /// Handles a signaled completion: answers up to that one are sent.
    #[inline]
    fn sent(&self, qp: &Qp<Self>) {
        self.send_queue.completed();
        if self.send_queue.has_waiting() {
            reply::send_waiting(qp);
        }
    }

    /// Handles a work request that failed, or was flushed because the connection is down.
    #[cold]
    fn failed(&self, tag: u32, status: WcStatus) {
        match Tagged::decode(tag) {
            Tagged::Invalidate(id) => {
                if let Some(context) = self.armed(id) {
                    self.path.release(context);
                }
            }
            Tagged::Setup => self.path.info.complete(),
            Tagged::Receive | Tagged::Io | Tagged::Register | Tagged::InfoRequest => {}
        }
        // A flush is most often the consequence of an earlier error or close; but rxe flushes a
        // queue pair without another error when it has to repeat a registration.
        if !status.is_flush() || self.path.is_up() {
            self.path.fail(PathError::Completion(self.cid, status, tag));
        }
    }
}
