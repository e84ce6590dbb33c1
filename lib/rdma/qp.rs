// SPDX-License-Identifier: GPL-2.0

//! Queue pairs.
//!
//! C header: [`include/rdma/ib_verbs.h`](srctree/include/rdma/ib_verbs.h)

pub(crate) mod batch;
mod callback;
pub(crate) mod completion;
pub(crate) mod config;
pub(crate) mod datagram;
mod drain;
mod origin;
mod owned;
pub(crate) mod recv_ring;
mod reserved;
mod restart;
pub(crate) mod status;
pub(crate) mod transport;

pub(crate) use self::drain::by_driver::Workers;
pub use self::owned::OwnedQp;

use crate::{
    address_handle::retirement::{
        SendCounts,
        Sender, //
    },
    cm::IdCore,
    cq::Cq,
    memory::{
        pd::Pd,
        segment::{
            Segment,
            SendFlags, //
        }, //
    },
    proto::retirement::Posted,
    qp::{
        batch::{
            Batch,
            WrBuffer, //
        },
        callback::{
            complete,
            event,
            no_receive,
            no_send,
            receive, //
        },
        completion::WorkCompletion,
        config::QpConfig,
        drain::{
            drain,
            results,
            Drain,
            Draining, //
        },
        origin::Origin,
        reserved::Reserved,
        transport::{
            sealed::Type,
            Reliable,
            Transport, //
        }, //
    },
    sys, //
};
use core::{
    ffi::{c_int, c_void},
    marker::PhantomPinned,
    mem::MaybeUninit,
    ptr,
};
use kernel::{
    alloc::KVVec,
    prelude::*,
    str::CStr,
    sync::Arc, //
};
use kernel_ext::{
    errno::ESHUTDOWN,
    sync::Users,
    sysfs::check_owner, //
};

/// The completion handler of a queue pair.
///
/// The methods are called in the context of the completion queue: with
/// [`PollContext::Softirq`](crate::PollContext::Softirq) they must not sleep. Sends and receives on
/// different queues may complete at the same time on several CPUs, hence `Sync`.
pub trait QpHandler: Send + Sync + Sized + 'static {
    /// The module of the handler (`&crate::THIS_MODULE`). It stays loaded with a queue pair that is
    /// leaked.
    const MODULE: &'static ThisModule;

    /// The transport service of the queue pair.
    type Transport: Transport;

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

/// The number of queue pairs that are drained concurrently.
const DRAIN_MAX: usize = 16;

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

/// A queue pair with its handler, created by [`Id::create_qp`](crate::cm::Id::create_qp) for a
/// reliable connection, by [`Qp::datagram`] for datagrams.
///
/// Posting works in any context and on any number of CPUs, until the queue pair is
/// [closed](Self::close). Its owner is an [`OwnedQp`].
///
/// # Invariants
///
/// - `raw` is a queue pair of `origin` and of the service of `H`, which was created with `self` as
///   its context and with the given domain and queues, or null while `self` is being initialised.
/// - `post_send` and `post_receive` are the functions of its driver, or post nothing. They are
///   called by users of `posters` only.
/// - `sender` is there once the queue pair is created, if its sends name addresses. It counts each
///   of them, but for the last one of a drain.
/// - Every entry of `table` is [`complete::<H>`] or [`receive::<H>`], and the table never moves.
#[pin_data]
pub struct Qp<H: QpHandler> {
    raw: *mut sys::ib_qp,
    post_send: PostSend,
    post_receive: PostReceive,
    table: KVVec<sys::ib_cqe>,
    pd: Arc<Pd>,
    handler: H,
    sender: Option<Sender>,
    origin: Origin,
    send_cq: Arc<Cq>,
    receive_cq: Arc<Cq>,
    posters: Users,
    drain: Drain,
    _reserved: Option<Reserved>,
    // Completions refer to `self` while it is being dropped.
    #[pin]
    _pinned: PhantomPinned,
}

// SAFETY: Any thread may use and destroy `raw`; everything else is `Send`.
unsafe impl<H: QpHandler> Send for Qp<H> {}
// SAFETY: Drivers lock each queue of a queue pair; everything else is `Sync`.
unsafe impl<H: QpHandler> Sync for Qp<H> {}

impl<H: QpHandler> Qp<H> {
    /// Creates a queue pair of `origin`, which must be one of the service of `H`. Sleeps.
    fn create(
        origin: Origin,
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        receive_cq: &Arc<Cq>,
        config: &QpConfig,
        handler: H,
    ) -> Result<OwnedQp<H>> {
        check_owner(H::MODULE, complete::<H> as *const () as usize)?;
        let entry = sys::ib_cqe {
            done: Some(complete::<H>),
        };
        let mut table = KVVec::from_elem(entry, config.tags.try_into()?, GFP_KERNEL)?;
        for entry in table.iter_mut().take(config.receive_tags as usize) {
            entry.done = Some(receive::<H>);
        }
        let posters = Users::new()?;
        let mut qp = KBox::pin_init(
            pin_init!(Qp {
                raw: ptr::null_mut(),
                post_send: no_send,
                post_receive: no_receive,
                table,
                pd: pd.clone(),
                handler,
                sender: None,
                origin,
                send_cq: send_cq.clone(),
                receive_cq: receive_cq.clone(),
                posters,
                drain: Drain::new(),
                _reserved: None,
                _pinned: PhantomPinned,
            }),
            GFP_KERNEL,
        )?;
        let mut attributes = qp.attributes(config)?;
        let cap = &attributes.cap;
        let reserved = Reserved::new(send_cq, cap.max_send_wr, receive_cq, cap.max_recv_wr)?;
        let is_addressed = <H::Transport as Type>::IS_ADDRESSED;
        let sender = is_addressed.then(|| Sender::new(pd)).transpose()?;
        pd.queue_pair_created()?;
        let raw = qp.origin.create(pd, &mut attributes).inspect_err(|_| {
            pd.queue_pair_drained();
            pd.queue_pair_destroyed();
        })?;
        // SAFETY: The queue pair was just created, and a driver's operations do not change.
        let ops = unsafe { &(*(*raw.as_ptr()).device).ops };
        let this = qp.as_mut().project();
        // INVARIANT: `raw` was created by `origin` with `self` as its context.
        *this.raw = raw.as_ptr();
        *this._reserved = Some(reserved);
        *this.sender = sender;
        *this.post_send = ops.post_send.unwrap_or(no_send);
        *this.post_receive = ops.post_recv.unwrap_or(no_receive);
        // INVARIANT: The queue pair was just created, and is not drained.
        Ok(OwnedQp::new(qp))
    }

    /// Returns the attributes of a queue pair with `self` as its context; `EINVAL` if the device
    /// has no queues of that length.
    fn attributes(&self, config: &QpConfig) -> Result<sys::ib_qp_init_attr> {
        // One more of each for draining.
        let max_send_wr = config.max_send_wr.saturating_add(1);
        let max_recv_wr = config.max_recv_wr.saturating_add(1);
        if max_send_wr.max(max_recv_wr) > self.pd.device().max_qp_wr() {
            return Err(EINVAL);
        }
        Ok(sys::ib_qp_init_attr {
            event_handler: Some(event::<H>),
            qp_context: ptr::from_ref(self).cast_mut().cast::<c_void>(),
            send_cq: self.send_cq.as_raw(),
            recv_cq: self.receive_cq.as_raw(),
            cap: sys::ib_qp_cap {
                max_send_wr,
                max_recv_wr,
                max_send_sge: config.max_send_sge,
                max_recv_sge: config.max_recv_sge,
                max_inline_data: 0,
                ..Default::default()
            },
            sq_sig_type: sys::ib_sig_type_IB_SIGNAL_REQ_WR,
            qp_type: <H::Transport as Type>::QP_TYPE,
            ..Default::default()
        })
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

    /// Returns the completion queue of its sends.
    pub fn send_cq(&self) -> &Arc<Cq> {
        &self.send_cq
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

    /// Posts a receive for one message of the peer or one RDMA write with immediate data; for a
    /// datagram with the [bytes before it](crate::GRH_LEN).
    ///
    /// Any context. Returns `EINVAL` for a wrong tag or segment, `ENOMEM` if the queue is full,
    /// `ESHUTDOWN` if the queue pair is closed.
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

    /// Closes the queue pair: posting fails with `ESHUTDOWN` from now on, also in handlers. Moves
    /// it into the error state and waits until all its work requests have completed and their
    /// handlers have returned. Sleeps; not for a handler of the same queue pair. May be called
    /// repeatedly.
    ///
    /// Returns an error if the device does not flush the work requests within 30 seconds. It may
    /// still use their memory then, which the domain keeps. Another call tries the rest again, and
    /// returns after a second if the device has still not flushed them.
    pub fn close(&self) -> Result {
        self.posters.close();
        // SAFETY: They were just closed.
        let qp = unsafe { self.closing() };
        drain(&mut [Some(qp)]);
        // Another context may be draining it.
        results(&[Some(qp)])
    }

    /// Closes several queue pairs as [`close`](Self::close) does, with overlapping waits. Tries
    /// all of them, and returns the error of one that could not be drained.
    pub fn close_all<'a>(all: impl IntoIterator<Item = &'a Self>) -> Result {
        let mut done = Ok(());
        let mut rest = all.into_iter();
        loop {
            let mut some = [None; DRAIN_MAX];
            for (place, qp) in some.iter_mut().zip(&mut rest) {
                *place = Some(qp);
            }
            Users::close_all(some.iter().flatten().map(|qp| &qp.posters));
            // SAFETY: They were just closed.
            let mut some = some.map(|qp: Option<&Self>| qp.map(|qp| unsafe { qp.closing() }));
            if some.first().is_none_or(Option::is_none) {
                return done;
            }
            let all = some;
            drain(&mut some);
            // Other contexts may be draining some.
            done = done.and(results(&all));
        }
    }

    /// Returns the parts that a drain uses.
    ///
    /// # Safety
    ///
    /// The caller has closed `posters`.
    unsafe fn closing(&self) -> Draining<'_> {
        // INVARIANT: `posters` is closed. `create` reserved one more work request in each queue.
        Draining {
            raw: self.raw,
            send_cq: &self.send_cq,
            receive_cq: &self.receive_cq,
            pd: &self.pd,
            drain: &self.drain,
            ah: self.origin.address_handle(),
            sender: self.sender.as_ref(),
            limit_ms: 0,
        }
    }

    /// Returns the completion entry for `tag`, which a work request on this queue pair names.
    #[inline(always)]
    pub fn entry(&self, tag: u32) -> Option<*mut sys::ib_cqe> {
        let entry = self.table.get(tag as usize)?;
        Some(ptr::from_ref(entry).cast_mut())
    }

    /// Returns the counts of its sends, if these name addresses.
    #[inline(always)]
    pub(crate) fn send_counts(&self) -> Option<&SendCounts> {
        match <H::Transport as Type>::IS_ADDRESSED {
            true => self.sender.as_ref().map(Sender::counts),
            false => None,
        }
    }

    /// Posts a chain of send work requests: those of a [batch](Self::batch), or of a crate that
    /// keeps its own. Any context, with the errors of [`Batch::post`].
    ///
    /// # Safety
    ///
    /// The caller must ensure that `first` is a valid chain whose entries are in `self.table`, and
    /// that the memory of its segments belongs to the domain of `self` and is not freed while queue
    /// pairs of the domain exist, or before the work requests have completed. If they name
    /// addresses, `posted` is what the chain has, and their handles are of the domain and borrowed
    /// until the call returns.
    #[inline(always)]
    pub unsafe fn post_send(&self, first: *const sys::ib_send_wr, posted: Posted) -> Result {
        let mut failed = MaybeUninit::uninit();
        let Some(_poster) = self.posters.enter() else {
            return Err(closed());
        };
        let counts = self.send_counts();
        if let Some(counts) = counts {
            // Some drivers leave it unset on failure.
            failed.write(ptr::null());
            counts.begin(posted);
        }
        // SAFETY: By the type invariants and the function requirements.
        let code = unsafe { (self.post_send)(self.raw, first, failed.as_mut_ptr()) };
        if code == 0 {
            return Ok(());
        }
        if let Some(counts) = counts {
            // SAFETY: It was written above, as there are counts.
            if ptr::eq(unsafe { failed.assume_init() }, first) {
                counts.refused(posted);
            }
        }
        Err(Error::from_errno(code))
    }

    /// Posts a chain of receive work requests. Any context, with the errors of
    /// [`Self::post_receive`]; some may be posted then.
    ///
    /// # Safety
    ///
    /// As for [`Self::post_send`].
    #[inline(always)]
    pub unsafe fn post_receive_chain(&self, first: *const sys::ib_recv_wr) -> Result {
        let mut failed = MaybeUninit::uninit();
        let Some(_poster) = self.posters.enter() else {
            return Err(closed());
        };
        // SAFETY: By the type invariants and the function requirements.
        let code = unsafe { (self.post_receive)(self.raw, first, failed.as_mut_ptr()) };
        if code == 0 {
            return Ok(());
        }
        Err(Error::from_errno(code))
    }
}

impl<H: QpHandler<Transport = Reliable>> Qp<H> {
    /// Creates a queue pair on a connection identifier (`rdma_create_qp()`). Sleeps.
    ///
    /// # Errors
    ///
    /// `EINVAL` if a completion queue is too short for it, and those of [`IdCore::create_qp`].
    pub(crate) fn connected(
        id: &Arc<IdCore>,
        pd: &Arc<Pd>,
        send_cq: &Arc<Cq>,
        receive_cq: &Arc<Cq>,
        config: &QpConfig,
        handler: H,
    ) -> Result<OwnedQp<H>> {
        let origin = Origin::Connection(id.clone());
        Self::create(origin, pd, send_cq, receive_cq, config, handler)
    }

    /// Sends one message; a [batch](Self::batch) of one work request. Any context.
    ///
    /// # Errors
    ///
    /// `ESHUTDOWN` after the queue pair was closed, and those of the device, as `ENOMEM` for a full
    /// send queue; nothing is sent then.
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
}

/// Returns the error of a post on a closed queue pair.
#[cold]
fn closed() -> Error {
    ESHUTDOWN
}
