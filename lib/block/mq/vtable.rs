// SPDX-License-Identifier: GPL-2.0

//! The functions of each driver that the block layer calls.

use super::{
    request::{
        Payload,
        Start, //
    },
    HwQueue,
    Operations,
    Rejected,
    Request,
    RequestList,
    TagSet, //
};
use core::{
    marker::PhantomData,
    ptr, //
};
use kernel::{
    bindings,
    prelude::*, //
};

/// The operations of `T` for the block layer.
///
/// The driver keeps a request that times out: its timer is restarted, with and without a `timeout`
/// operation of the driver.
pub(super) struct VTable<T: Operations>(PhantomData<T>);

impl<T: Operations> VTable<T> {
    const OPS: bindings::blk_mq_ops = {
        // SAFETY: All zeroes is a valid value, without functions.
        let mut ops: bindings::blk_mq_ops = unsafe { core::mem::zeroed() };
        ops.queue_rq = Some(Self::queue_rq);
        ops.complete = Some(Self::complete);
        ops.init_request = Some(Self::init_request);
        ops.exit_request = Some(Self::exit_request);
        ops.map_queues = Some(Self::map_queues);
        if T::HAS_QUEUE_RQS {
            ops.queue_rqs = Some(Self::queue_rqs);
        }
        if T::HAS_POLL {
            ops.poll = Some(Self::poll);
        }
        if T::HAS_TIMEOUT {
            ops.timeout = Some(Self::timeout);
        }
        ops
    };

    pub(super) const fn get() -> *const bindings::blk_mq_ops {
        &Self::OPS
    }

    /// # Safety
    ///
    /// Must only be called by the block layer, for a queue of a [`TagSet<T>`] with a request for
    /// the driver.
    unsafe extern "C" fn queue_rq(
        hctx: *mut bindings::blk_mq_hw_ctx,
        bd: *const bindings::blk_mq_queue_data,
    ) -> bindings::blk_status_t {
        // SAFETY: By the function requirements, `bd` is valid, and the driver owns its request from
        // here on.
        let raw = unsafe { (*bd).rq };
        // SAFETY: The block layer has just passed the request to the driver.
        let (rq, start) = unsafe { Request::<T>::start(raw) };
        // SAFETY: By the function requirements; the queue is live during this call.
        let hw = unsafe { HwQueue::<T>::from_raw(hctx) };
        match T::queue_rq(hw, hw.queue(), rq) {
            Ok(()) => bindings::BLK_STS_OK as bindings::blk_status_t,
            Err(Rejected(rq)) => Self::take_back(rq, start),
        }
    }

    /// # Safety
    ///
    /// Must only be called by the block layer, with new requests of a queue of a [`TagSet<T>`].
    unsafe extern "C" fn queue_rqs(list: *mut bindings::rq_list) {
        // SAFETY: By the function requirements, the list is valid, and only this call uses it; it
        // keeps the queue of the requests.
        T::queue_rqs(unsafe { RequestList::<T>::from_raw(&mut *list) });
    }

    /// Takes a request back that the driver has rejected; `start` is that of the one it was given.
    #[cold]
    #[inline(never)]
    fn take_back(rq: Request<T>, start: Start) -> bindings::blk_status_t {
        if !rq.is(start) {
            // The driver has kept this request and returned an earlier one.
            rq.requeue();
            return bindings::BLK_STS_OK as bindings::blk_status_t;
        }
        match rq.into_raw() {
            // The block layer owns the request again.
            Some(_) => BLK_STS_RESOURCE,
            None => bindings::BLK_STS_OK as bindings::blk_status_t,
        }
    }

    /// # Safety
    ///
    /// Must only be called by the block layer, for a request of a [`TagSet<T>`] that timed out; the
    /// request is not freed during the call, though the driver may end it.
    unsafe extern "C" fn timeout(raw: *mut bindings::request) -> bindings::blk_eh_timer_return {
        // SAFETY: By the function requirements, the request lives; these fields do not change as
        // long as it is started.
        let (queue, tag) = unsafe { ((*raw).q, (*raw).tag) };
        // SAFETY: The queue of a request of a `TagSet<T>` has a `T::Queue`, which its disk keeps.
        let queue = unsafe { &*(*queue).queuedata.cast::<T::Queue>() };
        if let Ok(tag) = u32::try_from(tag) {
            T::timeout(queue, tag);
        }
        bindings::blk_eh_timer_return_BLK_EH_RESET_TIMER
    }

    /// # Safety
    ///
    /// Must only be called by the block layer, for a poll queue of a [`TagSet<T>`].
    unsafe extern "C" fn poll(
        hctx: *mut bindings::blk_mq_hw_ctx,
        _batch: *mut bindings::io_comp_batch,
    ) -> c_int {
        // SAFETY: By the function requirements; the queue is live during this call.
        let hw = unsafe { HwQueue::<T>::from_raw(hctx) };
        T::poll(hw, hw.queue()).try_into().unwrap_or(c_int::MAX)
    }

    /// Ends a request on the CPU that it came from.
    ///
    /// # Safety
    ///
    /// Must only be called by the block layer, for a request that was given to
    /// [`Request::complete`].
    unsafe extern "C" fn complete(rq: *mut bindings::request) {
        // SAFETY: By the function requirements.
        let status = unsafe { Payload::<T>::status(rq) };
        // SAFETY: `Request::complete` has released its handle without ending the request.
        unsafe { bindings::blk_mq_end_request(rq, status) };
    }

    /// # Safety
    ///
    /// Must only be called by the block layer, for a new request of a [`TagSet<T>`], which may
    /// still be under construction.
    unsafe extern "C" fn init_request(
        set: *mut bindings::blk_mq_tag_set,
        rq: *mut bindings::request,
        _hctx_idx: c_uint,
        _numa_node: c_int,
    ) -> c_int {
        // SAFETY: By the function requirements.
        let (sg_entries, _) = unsafe { TagSet::<T>::shape(set) };
        // SAFETY: The request is new, and `cmd_size` of the set is the payload's size.
        unsafe { Payload::<T>::init(rq, sg_entries) };
        0
    }

    /// # Safety
    ///
    /// Must only be called by the block layer, for a request that `init_request` has seen and that
    /// is freed.
    unsafe extern "C" fn exit_request(
        _set: *mut bindings::blk_mq_tag_set,
        rq: *mut bindings::request,
        _hctx_idx: c_uint,
    ) {
        // SAFETY: By the function requirements.
        unsafe { Payload::<T>::exit(rq) };
    }

    /// Maps CPUs to hardware queues: the first ones are for reads and writes, the rest for polled
    /// IO.
    ///
    /// # Safety
    ///
    /// Must only be called by the block layer, for a [`TagSet<T>`], which may still be under
    /// construction.
    unsafe extern "C" fn map_queues(set: *mut bindings::blk_mq_tag_set) {
        // SAFETY: By the function requirements.
        let (_, poll_queues) = unsafe { TagSet::<T>::shape(set) };
        // SAFETY: By the function requirements, the set is allocated, and this callback may change
        // its maps.
        let set = unsafe { &mut *set };
        let shared_queues = set.nr_hw_queues.saturating_sub(poll_queues);
        let maps = set.nr_maps as usize;
        for (kind, map) in set.map.iter_mut().enumerate().take(maps) {
            let is_poll = kind == bindings::hctx_type_HCTX_TYPE_POLL as usize;
            map.nr_queues = if is_poll { poll_queues } else { shared_queues };
            map.queue_offset = if is_poll { shared_queues } else { 0 };
            // SAFETY: The map was allocated with an entry for each CPU.
            unsafe { bindings::blk_mq_map_queues(ptr::from_mut(map)) };
        }
    }
}

/// The driver has no resources now; the block layer retries (`include/linux/blk_types.h`).
const BLK_STS_RESOURCE: bindings::blk_status_t = 9;
