// SPDX-License-Identifier: GPL-2.0

//! Batches of send work requests, which share one call into the driver (one doorbell).
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

mod datagram;

use crate::{
    memory::{
        mr::Mr,
        segment::{
            Access,
            RemoteAddr,
            Segment,
            SendFlags, //
        },
        sg, //
    },
    proto::retirement::Posted,
    qp::{
        transport::{
            sealed::Type,
            Reliable, //
        },
        Qp,
        QpHandler, //
    },
    sys, //
};
use core::{marker::PhantomData, mem::MaybeUninit, ptr};
use kernel::prelude::*;
use kernel_ext::scatterlist::SgList;

/// Memory for `N` work requests with `S` segments in total, on the caller's stack, not initialised.
pub struct WrBuffer<const N: usize, const S: usize> {
    requests: [MaybeUninit<Request>; N],
    segments: [MaybeUninit<sys::ib_sge>; S],
}

impl<const N: usize, const S: usize> WrBuffer<N, S> {
    /// Returns uninitialised memory.
    #[inline(always)]
    #[expect(clippy::new_without_default)]
    pub const fn new() -> Self {
        Self {
            requests: [const { MaybeUninit::uninit() }; N],
            segments: [const { MaybeUninit::uninit() }; S],
        }
    }
}

/// Work requests that are posted together, in the order in which they were added.
///
/// The batch writes them into a [`WrBuffer`]; each method writes only the fields of its operation.
/// The methods copy their arguments, so these need not stay borrowed until [`post`](Self::post),
/// except inline data and the handles of addresses.
/// (Memory and batch are two objects, so that the batch stays in registers.)
///
/// Each request carries a tag, which comes back in its completion. A request without
/// [`SendFlags::SIGNALED`] has a completion only if it fails.
///
/// After an invalid argument (a tag beyond [`QpConfig::tags`](crate::QpConfig::tags), more requests
/// or segments than fit, memory of another protection domain) `post` fails with `EINVAL` and posts
/// nothing, and so does a second `post`. Dropping a batch posts nothing.
///
/// # Examples
///
/// ```ignore
/// let mut space = Space::new();
/// let mut batch = qp.batch::<2, 1>(&mut space);
/// batch.reg_mr(tag, &mr, Access::REMOTE_WRITE, SendFlags::NONE);
/// batch.write_imm(tag, &[slots.segment(slot, 0, len)], remote, imm, SendFlags::NONE);
/// batch.post()?;
/// ```
///
/// # Invariants
///
/// - `next` is in the array of requests that begins at `first`, or at its end; the requests before
///   it are initialised for their opcodes. Each request points to the next element, and to its
///   segments.
/// - `next_segment` is in the array of segments that begins at `first_segment`, or at its end; the
///   segments before it are initialised.
/// - Unless `bad`, the completion entries of the requests belong to `qp`, and the memory of their
///   segments belongs to `qp`'s protection domain, which retires it. So do the handles of their
///   addresses, which are borrowed for `'a`.
#[must_use = "a batch does nothing until it is posted"]
pub struct Batch<'a, H: QpHandler, const N: usize, const S: usize> {
    qp: &'a Qp<H>,
    bad: bool,
    first: *mut Request,
    next: *mut Request,
    first_segment: *mut sys::ib_sge,
    next_segment: *mut sys::ib_sge,
    _borrowed: PhantomData<(&'a mut WrBuffer<N, S>, &'a [u8])>,
}

/// The work requests, which all begin with the same part.
#[repr(C)]
union Request {
    any: sys::ib_send_wr,
    datagram: sys::ib_ud_wr,
    rdma: sys::ib_rdma_wr,
    reg: sys::ib_reg_wr,
}

/// The `ex` member of a work request.
#[derive(Clone, Copy)]
enum Extra {
    None,
    Imm(u32),
    Invalidate(u32),
}

impl<'a, H: QpHandler, const N: usize, const S: usize> Batch<'a, H, N, S> {
    #[inline(always)]
    pub(crate) fn new(qp: &'a Qp<H>, space: &'a mut WrBuffer<N, S>) -> Self {
        let first = space.requests.as_mut_ptr().cast::<Request>();
        let first_segment = space.segments.as_mut_ptr().cast::<sys::ib_sge>();
        // INVARIANT: Both arrays are empty.
        Self {
            qp,
            bad: false,
            first,
            next: first,
            first_segment,
            next_segment: first_segment,
            _borrowed: PhantomData,
        }
    }

    /// Returns whether the batch has no requests.
    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.next == self.first
    }

    /// Posts all requests (`ib_post_send()`). Any context.
    ///
    /// Returns `ENOMEM` if the send queue is full, `EINVAL` for an invalid argument (see the type)
    /// or a queue pair that is not connected yet. After an error of the driver the first requests
    /// may have been posted, and the caller must close the connection.
    #[inline(always)]
    pub fn post(&mut self) -> Result {
        if self.bad {
            return Err(EINVAL);
        }
        if self.is_empty() {
            return Ok(());
        }
        // SAFETY: By the type invariants, there is a request before `next`, as the batch is not
        // empty.
        unsafe { (&raw mut (*self.next.sub(1)).any.next).write(ptr::null_mut()) };
        // A second `post` fails.
        self.bad = true;
        // SAFETY: By the type invariants, the requests are initialised and linked, the last one to
        // none, and their memory stays allocated as long as a queue pair of the domain exists. The
        // handles of their addresses are borrowed for the lifetime of `self`.
        unsafe { self.qp.post_send(self.first.cast(), self.posted()) }
    }

    /// Returns what the batch has, if its sends name addresses.
    #[inline(always)]
    fn posted(&self) -> Posted {
        let mut posted = Posted::NONE;
        let mut request = self.first;
        while <H::Transport as Type>::IS_ADDRESSED && request != self.next {
            // SAFETY: By the type invariants, the requests before `next` are initialised.
            let flags = unsafe { (*request).any.send_flags };
            posted = posted.and(flags & SendFlags::SIGNALED.as_raw() != 0);
            request = request.wrapping_add(1);
        }
        posted
    }

    /// Marks the batch as bad unless `good`. The request is added nevertheless, which avoids
    /// branches on the path without errors.
    #[inline(always)]
    fn require(&mut self, good: bool) {
        if !good {
            cold();
            self.bad = true;
        }
    }

    /// Copies the segments and writes the common part of a work request.
    #[inline(always)]
    fn push(
        &mut self,
        tag: u32,
        opcode: sys::ib_wr_opcode,
        segments: &[Segment<'_>],
        extra: Extra,
        flags: SendFlags,
    ) -> Option<*mut Request> {
        let list = self.next_segment;
        for segment in segments {
            self.require(segment.belongs_to(self.qp.pd()));
            self.push_segment(segment.as_raw());
        }
        self.push_raw(tag, opcode, list, segments.len(), extra, flags)
    }

    #[inline(always)]
    fn push_segment(&mut self, sge: sys::ib_sge) {
        if self.next_segment == self.first_segment.wrapping_add(S) {
            self.bad = true;
            return;
        }
        // SAFETY: By the type invariants, this is an element of the borrowed array.
        unsafe { self.next_segment.write(sge) };
        // INVARIANT: The position is not beyond the end.
        self.next_segment = self.next_segment.wrapping_add(1);
    }

    /// Writes the common part of a work request for segments that were added already.
    #[inline(always)]
    fn push_raw(
        &mut self,
        tag: u32,
        opcode: sys::ib_wr_opcode,
        list: *mut sys::ib_sge,
        segments: usize,
        extra: Extra,
        flags: SendFlags,
    ) -> Option<*mut Request> {
        let cqe = self.qp.entry(tag);
        self.require(cqe.is_some());
        let cqe = cqe.unwrap_or(ptr::null_mut());
        if self.next == self.first.wrapping_add(N) {
            self.bad = true;
            return None;
        }
        let request = self.next;
        // INVARIANT: The position is not beyond the end; the common part is written below.
        self.next = request.wrapping_add(1);
        // SAFETY: By the type invariants, this is an element of the borrowed array; writing a field
        // needs no initialised value.
        unsafe {
            let any = &raw mut (*request).any;
            // `post()` resets the link of the last one.
            (&raw mut (*any).next).write(self.next.cast());
            (&raw mut (*any).__bindgen_anon_1.wr_cqe).write(cqe);
            (&raw mut (*any).sg_list).write(list);
            (&raw mut (*any).num_sge).write(segments as i32);
            (&raw mut (*any).opcode).write(opcode);
            (&raw mut (*any).send_flags).write(flags.as_raw());
            match extra {
                Extra::None => (&raw mut (*any).ex.invalidate_rkey).write(0),
                Extra::Imm(imm) => (&raw mut (*any).ex.imm_data).write(imm.to_be()),
                Extra::Invalidate(key) => (&raw mut (*any).ex.invalidate_rkey).write(key),
            }
        }
        Some(request)
    }
}

/// The work requests of a reliable connection.
impl<'a, H, const N: usize, const S: usize> Batch<'a, H, N, S>
where
    H: QpHandler<Transport = Reliable>,
{
    /// Registers `mr`, as it was last mapped, under its current key. Memory that the device may
    /// only read is not registered for writing.
    #[inline(always)]
    pub fn reg_mr(&mut self, tag: u32, mr: &Mr, access: Access, flags: SendFlags) {
        self.require(mr.belongs_to(self.qp.pd()) && mr.permits(access));
        let opcode = sys::ib_wr_opcode_IB_WR_REG_MR;
        if let Some(request) = self.push(tag, opcode, &[], Extra::None, flags) {
            // SAFETY: `push` returns a request that it has written; this writes the fields of a
            // registration.
            unsafe {
                (&raw mut (*request).reg.mr).write(mr.as_raw());
                (&raw mut (*request).reg.key).write(mr.key());
                (&raw mut (*request).reg.access).write(access.as_raw() as i32);
            }
        }
    }

    /// Invalidates a local key.
    #[inline(always)]
    pub fn local_invalidate(&mut self, tag: u32, key: u32, flags: SendFlags) {
        let opcode = sys::ib_wr_opcode_IB_WR_LOCAL_INV;
        self.push(tag, opcode, &[], Extra::Invalidate(key), flags);
    }

    /// Writes into the peer's memory.
    #[inline(always)]
    pub fn write(&mut self, tag: u32, from: &[Segment<'_>], to: RemoteAddr, flags: SendFlags) {
        let opcode = sys::ib_wr_opcode_IB_WR_RDMA_WRITE;
        self.push_rdma(tag, opcode, from, to, Extra::None, flags);
    }

    /// Writes into the peer's memory and consumes one of its receives, which carries `imm`.
    #[inline(always)]
    pub fn write_imm(
        &mut self,
        tag: u32,
        from: &[Segment<'_>],
        to: RemoteAddr,
        imm: u32,
        flags: SendFlags,
    ) {
        let opcode = sys::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
        self.push_rdma(tag, opcode, from, to, Extra::Imm(imm), flags);
    }

    /// Writes as [`Self::write_imm`], with the pieces of a list that
    /// [`sg::map`](crate::memory::sg::map) has mapped for the domain's device, without a memory
    /// region, followed by `tail`.
    ///
    /// No request has more than `pieces_max` pieces: further pieces go into separate writes before
    /// it, with the tag `part`.
    #[inline(always)]
    pub fn write_sg_with_imm(
        &mut self,
        (part, tag): (u32, u32),
        pieces_max: u32,
        (data, tail): (&SgList, Segment<'_>),
        mut to: RemoteAddr,
        imm: u32,
        flags: SendFlags,
    ) {
        let mut list = self.next_segment;
        let end = self.first_segment.wrapping_add(S) as usize;
        let room = end.wrapping_sub(list as usize) / size_of::<sys::ib_sge>();
        let mut pieces = data.mapped() as usize;
        if pieces == 0 || pieces >= room {
            self.bad = true;
            return;
        }
        self.require(sg::is_mapped_for(data, self.qp.pd().device()));
        let key = self.qp.pd().local_dma_key();
        // SAFETY: The list has this many mapped entries in one array, and the check above made sure
        // that the array of segments has room for them.
        unsafe { sys::rdma_helper_sg_gather(data.as_raw(), data.mapped(), list, key) };
        // INVARIANT: The position is not beyond the end, and the segments were just written. The
        // owner of the list keeps the pages, see `sg`.
        self.next_segment = list.wrapping_add(pieces);
        self.require(tail.belongs_to(self.qp.pd()));
        self.push_segment(tail.as_raw());
        if pieces > pieces_max as usize {
            cold();
            let whole = (list, pieces);
            // The batch that `write_parts` returns replaces this one.
            let batch = Self { ..*self };
            // SAFETY: The segments are in the array, and were just written.
            let rest = unsafe { batch.write_parts(part, pieces_max, whole, to) };
            (*self, (list, pieces), to) = rest;
        }
        let opcode = sys::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
        let segments = pieces.wrapping_add(1);
        let request = self.push_raw(tag, opcode, list, segments, Extra::Imm(imm), flags);
        Self::set_remote(request, to);
    }

    /// Writes as [`Self::write_sg_with_imm`] does, if the list is mapped to one piece; else returns
    /// `false` and adds nothing.
    #[inline(always)]
    pub fn write_piece_with_imm(
        &mut self,
        tag: u32,
        (data, tail): (&SgList, Segment<'_>),
        to: RemoteAddr,
        imm: u32,
        flags: SendFlags,
    ) -> bool {
        let Some((addr, length)) = data.only_dma_segment() else {
            return false;
        };
        let (pd, list) = (self.qp.pd(), self.next_segment);
        self.require(sg::is_mapped_for(data, pd.device()) && tail.belongs_to(pd));
        let lkey = pd.local_dma_key();
        // INVARIANT: The owner of the list keeps the pages, see `sg`.
        self.push_segment(sys::ib_sge { addr, length, lkey });
        self.push_segment(tail.as_raw());
        let opcode = sys::ib_wr_opcode_IB_WR_RDMA_WRITE_WITH_IMM;
        let request = self.push_raw(tag, opcode, list, 2, Extra::Imm(imm), flags);
        Self::set_remote(request, to);
        true
    }

    /// Adds writes of the first of the `pieces` segments at `list`, as many per request as fit,
    /// until one request can hold the rest; returns the batch, the rest and its remote address.
    ///
    /// Not inlined, and takes the batch by value, so that the batch stays in registers for a write
    /// of one part.
    ///
    /// # Safety
    ///
    /// The caller must ensure that the `pieces` segments from `list` on are in the array of
    /// segments, before `next_segment`.
    #[inline(never)]
    unsafe fn write_parts(
        mut self,
        tag: u32,
        pieces_max: u32,
        (mut list, mut pieces): (*mut sys::ib_sge, usize),
        mut to: RemoteAddr,
    ) -> (Self, (*mut sys::ib_sge, usize), RemoteAddr) {
        let count = pieces_max as usize;
        // With `pieces_max` 0 the loop ends at the first request that does not fit.
        while pieces > count && !self.bad {
            let opcode = sys::ib_wr_opcode_IB_WR_RDMA_WRITE;
            let request = self.push_raw(tag, opcode, list, count, Extra::None, SendFlags::NONE);
            Self::set_remote(request, to);
            for _ in 0..count {
                // SAFETY: By the function requirements, this is one of the `pieces` segments; by
                // the type invariants, it is initialised.
                let length = unsafe { (*list).length };
                to.addr = to.addr.wrapping_add(length.into());
                list = list.wrapping_add(1);
            }
            pieces = pieces.wrapping_sub(count);
        }
        (self, (list, pieces), to)
    }

    /// Consumes one of the peer's receives, which carries `imm`, without writing data.
    #[inline(always)]
    pub fn empty_write_imm(&mut self, tag: u32, imm: u32, flags: SendFlags) {
        self.write_imm(tag, &[], RemoteAddr { addr: 0, key: 0 }, imm, flags);
    }

    /// Reads the peer's memory.
    #[inline(always)]
    pub fn read(&mut self, tag: u32, to: &[Segment<'_>], from: RemoteAddr, flags: SendFlags) {
        let opcode = sys::ib_wr_opcode_IB_WR_RDMA_READ;
        self.push_rdma(tag, opcode, to, from, Extra::None, flags);
    }

    /// Sends a message.
    #[inline(always)]
    pub fn send(&mut self, tag: u32, message: &[Segment<'_>], flags: SendFlags) {
        let opcode = sys::ib_wr_opcode_IB_WR_SEND;
        self.push(tag, opcode, message, Extra::None, flags);
    }

    /// Sends a message with immediate data.
    #[inline(always)]
    pub fn send_imm(&mut self, tag: u32, message: &[Segment<'_>], imm: u32, flags: SendFlags) {
        let opcode = sys::ib_wr_opcode_IB_WR_SEND_WITH_IMM;
        self.push(tag, opcode, message, Extra::Imm(imm), flags);
    }

    /// Sends a message that invalidates the peer's key `key`.
    #[inline(always)]
    pub fn send_invalidate(
        &mut self,
        tag: u32,
        message: &[Segment<'_>],
        key: u32,
        flags: SendFlags,
    ) {
        let opcode = sys::ib_wr_opcode_IB_WR_SEND_WITH_INV;
        self.push(tag, opcode, message, Extra::Invalidate(key), flags);
    }

    #[inline(always)]
    fn push_rdma(
        &mut self,
        tag: u32,
        opcode: sys::ib_wr_opcode,
        local: &[Segment<'_>],
        remote: RemoteAddr,
        extra: Extra,
        flags: SendFlags,
    ) {
        let request = self.push(tag, opcode, local, extra, flags);
        Self::set_remote(request, remote);
    }

    /// Writes the RDMA fields of a request that was just pushed.
    #[inline(always)]
    fn set_remote(request: Option<*mut Request>, remote: RemoteAddr) {
        if let Some(request) = request {
            // SAFETY: `push` has just written this request in the array.
            unsafe {
                (&raw mut (*request).rdma.remote_addr).write(remote.addr);
                (&raw mut (*request).rdma.rkey).write(remote.key);
            }
        }
    }
}

/// Marks the calling branch as unlikely.
#[cold]
#[inline(always)]
fn cold() {}
