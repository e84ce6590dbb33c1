// SPDX-License-Identifier: GPL-2.0

//! Queue pairs of reliable connections.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

pub(crate) mod batch;
pub(crate) mod completion;
pub(crate) mod recv_ring;
pub(crate) mod status;

use crate::{
    cm::IdCore,
    cq::Cq,
    memory::{
        pd::Pd,
        segment::{
            Segment,
            SendFlags, //
        }, //
    },
    qp::{
        batch::{
            Batch,
            WrBuffer, //
        },
        completion::WorkCompletion, //
    },
    sys, //
};
use core::{
    ffi::{c_int, c_void},
    marker::PhantomPinned,
    mem::{size_of, MaybeUninit},
    ptr,
};
use kernel::{
    alloc::KVVec,
    prelude::*,
    str::CStr,
    sync::{Arc, UniqueArc},
};

/// The completion handler of a queue pair.
///
/// The methods are called in the context of the completion queue: with
/// [`PollContext::Softirq`](crate::PollContext::Softirq) they must not sleep. Sends and receives on
/// different queues may complete at the same time on several CPUs, hence `Sync`.
pub trait QpHandler: Send + Sync + Sized + 'static {
    /// Handles the completion of the work request that was posted with `tag`.
    ///
    /// After an error the queue pair is in the error state: all its work requests complete, those
    /// still queued with [`WcStatus::FLUSHED`](crate::WcStatus::FLUSHED).
    fn completed(qp: &Qp<Self>, tag: u32, completion: &WorkCompletion);

    /// Handles a fatal event of the queue pair (`IB_EVENT_QP_FATAL`, `IB_EVENT_QP_REQ_ERR`,
    /// `IB_EVENT_QP_ACCESS_ERR`), which need not come with a completion. Any context. The default
    /// logs it.
    #[cold]
    fn broken(qp: &Qp<Self>, why: &'static CStr) {
        pr_err!("queue pair {}: {}\n", qp.number(), why);
    }

    /// Handles the completion for a tag below [`QpConfig::receive_tags`]. Most completions of a
    /// connection are receives, hence the separate method.
    #[inline(always)]
    fn received(qp: &Qp<Self>, tag: u32, completion: &WorkCompletion) {
        Self::completed(qp, tag, completion);
    }
}

/// The sizes of a queue pair.
#[derive(Clone, Copy, Debug, Default)]
pub struct QpConfig {
    /// The maximum number of send work requests in flight, including unsignaled ones.
    pub max_send_wr: u32,
    /// The maximum number of posted receive work requests.
    pub max_recv_wr: u32,
    /// The maximum number of segments of a send work request.
    pub max_send_sge: u32,
    /// The maximum number of segments of a receive work request.
    pub max_recv_sge: u32,
    /// The maximum number of bytes of [`Batch::send_inline`]; 0 if it is not used.
    pub max_inline_data: u32,
    /// Tags are `0..tags`; each takes 8 bytes.
    pub tags: u32,
    /// Tags below this complete by [`QpHandler::received`].
    pub receive_tags: u32,
}

impl QpConfig {
    /// Creates the sizes of a queue pair whose work requests have one segment at most, without
    /// inline data.
    pub const fn new(max_send_wr: u32, max_recv_wr: u32, tags: u32) -> Self {
        Self {
            max_send_wr,
            max_recv_wr,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
            tags,
            receive_tags: 0,
        }
    }

    /// Returns the number of completion queue entries of this queue pair: one for each work request
    /// and two for draining.
    pub fn cq_entries(&self) -> u32 {
        self.max_send_wr
            .saturating_add(self.max_recv_wr)
            .saturating_add(2)
    }
}

/// The number of queue pairs that are drained concurrently.
const DRAIN_MAX: usize = sys::RDMA_HELPER_DRAIN_MAX as usize;

type PostSend = unsafe extern "C" fn(
    *mut sys::ib_qp,
    *const sys::ib_send_wr,
    *mut *const sys::ib_send_wr,
) -> c_int;
type PostReceive = unsafe extern "C" fn(
    *mut sys::ib_qp,
    *const sys::ib_recv_wr,
    *mut *const sys::ib_recv_wr,
) -> c_int;

/// A queue pair of a reliable connection with its handler, created by
/// [`Id::create_qp`](crate::cm::Id::create_qp).
///
/// Posting works in any context and on any number of CPUs. Dropping the last reference drains and
/// destroys the queue pair; it must happen where sleeping is allowed and not in
/// [`QpHandler::completed`] of the same queue pair.
///
/// # Invariants
///
/// - `raw` is a queue pair on the identifier `id`, which was created with `self` as its context and
///   with the given domain and queues, or null while `self` is being initialised.
/// - `post_send` and `post_receive` are the functions of its driver, or post nothing.
/// - Every entry of `table` is [`complete::<H>`] or [`receive::<H>`], and the table never moves.
#[pin_data(PinnedDrop)]
pub struct Qp<H: QpHandler> {
    raw: *mut sys::ib_qp,
    post_send: PostSend,
    post_receive: PostReceive,
    table: KVVec<sys::ib_cqe>,
    pd: Arc<Pd>,
    handler: H,
    id: Arc<IdCore>,
    _send_cq: Arc<Cq>,
    _receive_cq: Arc<Cq>,
    // Completions refer to `self` while it is being dropped.
    #[pin]
    _pinned: PhantomPinned,
}

// SAFETY: Any thread may use and destroy `raw`; everything else is `Send`.
unsafe impl<H: QpHandler> Send for Qp<H> {}
// SAFETY: Drivers lock each queue of a queue pair; everything else is `Sync`.
unsafe impl<H: QpHandler> Sync for Qp<H> {}

impl<H: QpHandler> Qp<H> {
    /// Creates a queue pair on a connection identifier (`rdma_create_qp()`). Sleeps.
    pub(crate) fn create(
        id: &Arc<IdCore>,
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        receive_cq: &Arc<Cq>,
        config: &QpConfig,
        handler: H,
    ) -> Result<Arc<Self>> {
        let entry = sys::ib_cqe {
            done: Some(complete::<H>),
        };
        let mut table = KVVec::from_elem(entry, config.tags.try_into()?, GFP_KERNEL)?;
        for entry in table.iter_mut().take(config.receive_tags as usize) {
            entry.done = Some(receive::<H>);
        }
        let mut qp = UniqueArc::pin_init(
            pin_init!(Qp {
                raw: ptr::null_mut(),
                post_send: no_send,
                post_receive: no_receive,
                table,
                pd: pd.clone(),
                handler,
                id: id.clone(),
                _send_cq: send_cq.clone(),
                _receive_cq: receive_cq.clone(),
                _pinned: PhantomPinned,
            }),
            GFP_KERNEL,
        )?;
        // One more of each for draining.
        let max_send_wr = config.max_send_wr.saturating_add(1);
        let max_recv_wr = config.max_recv_wr.saturating_add(1);
        if max_send_wr.max(max_recv_wr) > pd.device().max_qp_wr() {
            return Err(EINVAL);
        }
        let mut attributes = sys::ib_qp_init_attr {
            event_handler: Some(event::<H>),
            qp_context: ptr::from_ref(&*qp).cast_mut().cast::<c_void>(),
            send_cq: send_cq.as_raw(),
            recv_cq: receive_cq.as_raw(),
            cap: sys::ib_qp_cap {
                max_send_wr,
                max_recv_wr,
                max_send_sge: config.max_send_sge,
                max_recv_sge: config.max_recv_sge,
                max_inline_data: config.max_inline_data,
                ..Default::default()
            },
            sq_sig_type: sys::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: sys::ib_qp_type_IB_QPT_RC,
            ..Default::default()
        };
        pd.queue_pair_created();
        let raw = id
            .create_qp(pd, &mut attributes)
            .inspect_err(|_| pd.queue_pair_destroyed())?;
        // SAFETY: The queue pair was just created, and a driver's operations do not change.
        let ops = unsafe { &(*(*raw.as_ptr()).device).ops };
        let this = qp.as_mut().project();
        // INVARIANT: `raw` was created on `id` with `self` as its context.
        *this.raw = raw.as_ptr();
        *this.post_send = ops.post_send.unwrap_or(no_send);
        *this.post_receive = ops.post_recv.unwrap_or(no_receive);
        Ok(qp.into())
    }

    /// Returns the handler of the queue pair.
    #[inline(always)]
    pub fn handler(&self) -> &H {
        &self.handler
    }

    /// Returns the protection domain.
    #[inline(always)]
    pub fn pd(&self) -> &Arc<Pd> {
        &self.pd
    }

    /// Returns the queue pair's number.
    pub fn number(&self) -> u32 {
        // SAFETY: By the type invariants, the queue pair is valid; its number does not change.
        unsafe { (*self.raw).qp_num }
    }

    /// Returns an empty batch in `space`, which holds up to `N` work requests with `S` segments in
    /// total.
    #[inline(always)]
    pub fn batch<'a, const N: usize, const S: usize>(
        &'a self,
        space: &'a mut WrBuffer<N, S>,
    ) -> Batch<'a, H, N, S> {
        Batch::new(self, space)
    }

    /// Sends one message; a [batch](Self::batch) of one work request.
    #[inline]
    pub fn send<const S: usize>(
        &self,
        tag: u32,
        message: [Segment<'_>; S],
        flags: SendFlags,
    ) -> Result {
        let mut space = WrBuffer::new();
        let mut batch = self.batch::<1, S>(&mut space);
        batch.send(tag, &message, flags);
        batch.post()
    }

    /// Posts a receive for one message of the peer or one RDMA write with immediate data.
    ///
    /// Any context. Returns `EINVAL` for a wrong tag or segment, `ENOMEM` if the queue is full.
    #[inline(always)]
    pub fn post_receive(&self, tag: u32, into: Option<Segment<'_>>) -> Result {
        let cqe = self.entry(tag).ok_or(EINVAL)?;
        let mut sge = match into {
            Some(segment) if segment.belongs_to(&self.pd) => Some(segment.as_raw()),
            Some(_) => return Err(EINVAL),
            None => None,
        };
        let request = sys::ib_recv_wr {
            next: ptr::null_mut(),
            __bindgen_anon_1: sys::ib_recv_wr__bindgen_ty_1 { wr_cqe: cqe },
            sg_list: sge.as_mut().map_or(ptr::null_mut(), ptr::from_mut),
            num_sge: sge.is_some().into(),
        };
        // SAFETY: The request and its segment live until the call returns; the memory of the
        // segment stays allocated as long as queue pairs of its domain exist.
        unsafe { self.post_receive_chain(&request) }
    }

    /// Moves the queue pair into the error state and waits until all its work requests have
    /// completed and their handlers have returned (`ib_drain_qp()`). Sleeps. May be called
    /// repeatedly.
    ///
    /// Requests posted later complete as flushed.
    pub fn drain(&self) {
        Self::drain_all([self]);
    }

    /// Drains several queue pairs as [`drain`](Self::drain), with overlapping waits.
    pub fn drain_all<'a>(all: impl IntoIterator<Item = &'a Self>) {
        let mut all = all.into_iter();
        loop {
            let mut some = [ptr::null_mut(); DRAIN_MAX];
            let mut count = 0u32;
            for (place, qp) in some.iter_mut().zip(&mut all) {
                *place = qp.raw;
                count = count.wrapping_add(1);
            }
            if count == 0 {
                return;
            }
            // SAFETY: By the type invariants, the borrowed queue pairs are valid; `create` reserved
            // one more work request in each queue.
            unsafe { sys::rdma_helper_drain_qps(some.as_mut_ptr(), count) };
        }
    }

    /// Returns the completion entry for `tag`.
    #[inline(always)]
    pub(crate) fn entry(&self, tag: u32) -> Option<*mut sys::ib_cqe> {
        let entry = self.table.get(tag as usize)?;
        Some(ptr::from_ref(entry).cast_mut())
    }

    /// Posts a chain of send work requests.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `first` is a valid chain whose entries are in `self.table`, and
    /// that the memory of its segments belongs to the domain of `self` and is not freed while queue
    /// pairs of the domain exist.
    #[inline(always)]
    pub(crate) unsafe fn post_send(&self, first: *const sys::ib_send_wr) -> Result {
        let mut failed = MaybeUninit::uninit();
        // SAFETY: By the type invariants and the function requirements.
        let code = unsafe { (self.post_send)(self.raw, first, failed.as_mut_ptr()) };
        if code == 0 {
            return Ok(());
        }
        Err(Error::from_errno(code))
    }

    /// Posts a chain of receive work requests.
    ///
    /// # Safety
    ///
    /// As for [`Self::post_send`].
    #[inline(always)]
    pub(crate) unsafe fn post_receive_chain(&self, first: *const sys::ib_recv_wr) -> Result {
        let mut failed = MaybeUninit::uninit();
        // SAFETY: By the type invariants and the function requirements.
        let code = unsafe { (self.post_receive)(self.raw, first, failed.as_mut_ptr()) };
        if code == 0 {
            return Ok(());
        }
        Err(Error::from_errno(code))
    }
}

#[pinned_drop]
impl<H: QpHandler> PinnedDrop for Qp<H> {
    fn drop(self: Pin<&mut Self>) {
        if self.raw.is_null() {
            return;
        }
        self.drain();
        // SAFETY: By the type invariants, the queue pair is on `id`. Nothing uses it any more: no
        // reference is left, and draining completed all work requests.
        unsafe { self.id.destroy_qp() };
        self.pd.queue_pair_destroyed();
    }
}

/// Posts nothing; for a device without the operation, and until the queue pair is created.
///
/// # Safety
///
/// There are no requirements; the type of the function pointer is unsafe.
unsafe extern "C" fn no_send(
    _qp: *mut sys::ib_qp,
    _first: *const sys::ib_send_wr,
    _failed: *mut *const sys::ib_send_wr,
) -> c_int {
    ENODEV.to_errno()
}

/// Posts nothing, as [`no_send`].
///
/// # Safety
///
/// There are no requirements; the type of the function pointer is unsafe.
unsafe extern "C" fn no_receive(
    _qp: *mut sys::ib_qp,
    _first: *const sys::ib_recv_wr,
    _failed: *mut *const sys::ib_recv_wr,
) -> c_int {
    ENODEV.to_errno()
}

/// Handles a completion (`done`) of a queue pair whose handler is `H`, except those of [`receive`].
///
/// # Safety
///
/// Must only be called by the core, for a completion of a work request of such a queue pair.
unsafe extern "C" fn complete<H: QpHandler>(_cq: *mut sys::ib_cq, wc: *mut sys::ib_wc) {
    // SAFETY: By the function requirements.
    let (qp, tag, completion) = unsafe { identify::<H>(wc) };
    H::completed(qp, tag, completion);
}

/// Handles a completion (`done`) of an entry below [`QpConfig::receive_tags`].
///
/// # Safety
///
/// As for [`complete`].
unsafe extern "C" fn receive<H: QpHandler>(_cq: *mut sys::ib_cq, wc: *mut sys::ib_wc) {
    // SAFETY: By the function requirements.
    let (qp, tag, completion) = unsafe { identify::<H>(wc) };
    H::received(qp, tag, completion);
}

/// Returns the queue pair and the tag of a completion.
///
/// # Safety
///
/// The caller must ensure that `wc` is a completion of a work request of a queue pair whose handler
/// is `H`, and stays unchanged for `'a`, during which the queue pair is not destroyed.
#[inline(always)]
unsafe fn identify<'a, H: QpHandler>(wc: *mut sys::ib_wc) -> (&'a Qp<H>, u32, &'a WorkCompletion) {
    // SAFETY: By the function requirements; the queue pair's context is the `Qp`, which lives until
    // it is drained.
    let (qp, entry) = unsafe {
        let qp = (*(*wc).qp).qp_context.cast::<Qp<H>>();
        (&*qp, (*wc).__bindgen_anon_1.wr_cqe)
    };
    let offset = (entry as usize).wrapping_sub(qp.table.as_ptr() as usize);
    let tag = offset / size_of::<sys::ib_cqe>();
    // SAFETY: By the function requirements.
    let completion = unsafe { WorkCompletion::from_raw(wc) };
    (qp, tag as u32, completion)
}

/// Handles an asynchronous event of a queue pair whose handler is `H`.
///
/// # Safety
///
/// Must only be called by the core, for such a queue pair, with the queue pair's context.
unsafe extern "C" fn event<H: QpHandler>(event: *mut sys::ib_event, context: *mut c_void) {
    // SAFETY: The context is the `Qp`, which lives until the queue pair is destroyed.
    let qp = unsafe { &*context.cast::<Qp<H>>() };
    // SAFETY: The core passes a valid event.
    let event = unsafe { (*event).event };
    match event {
        sys::ib_event_type_IB_EVENT_QP_FATAL
        | sys::ib_event_type_IB_EVENT_QP_REQ_ERR
        | sys::ib_event_type_IB_EVENT_QP_ACCESS_ERR => {
            // SAFETY: `ib_event_msg` returns static text for every number.
            let why = unsafe { CStr::from_char_ptr(sys::ib_event_msg(event)) };
            H::broken(qp, why);
        }
        _ => qp.id.qp_event(event),
    }
}
