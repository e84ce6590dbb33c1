// SPDX-License-Identifier: GPL-2.0

//! Requests.
//!
//! C header: [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h), `struct request`

use super::{
    integrity::Bounce,
    Operations, //
};
use crate::{
    Command,
    Flags,
    Op, //
};
use core::{
    marker::PhantomData,
    mem::{
        self,
        offset_of, //
    },
    ptr::{
        self,
        NonNull, //
    }, //
};
use kernel::{
    bindings,
    prelude::*,
    sync::rcu, //
};
use kernel_ext::scatterlist::{
    SgHeader,
    SgList, //
};

/// The data behind a `struct request`: the driver's data and the scatter list.
#[repr(C)]
pub(super) struct Payload<T: Operations> {
    data: T::Pdu,
    /// The result, while the completion is on its way to the CPU that submitted the request.
    status: bindings::blk_status_t,
    /// The number of times that the request was started.
    starts: u32,
    /// The memory behind its data, and the part of that which lies there.
    pub(super) bounce: Bounce,
    sg: SgHeader,
    // The entries follow.
}

impl<T: Operations> Payload<T> {
    /// Returns the `cmd_size` of a tag set whose requests have `sg_entries` scatter list entries.
    pub(super) const fn size(sg_entries: u16) -> usize {
        offset_of!(Self, sg) + SgHeader::list_size(sg_entries)
    }

    #[inline]
    fn of(rq: *mut bindings::request) -> *mut Self {
        const {
            // Allocations of requests are aligned to 8 bytes and so is the end of the structure.
            assert!(align_of::<Self>() <= align_of::<bindings::request>());
        }
        // As `blk_mq_rq_to_pdu`.
        rq.wrapping_add(1).cast()
    }

    /// Initialises the payload of a new request.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `rq` is a request that nothing uses yet, with [`Self::size`]
    /// bytes behind it.
    pub(super) unsafe fn init(rq: *mut bindings::request, sg_entries: u16) {
        let this = Self::of(rq);
        // SAFETY: By the function requirements, the payload is not used yet; `of` checks its
        // alignment.
        unsafe {
            ptr::write(&raw mut (*this).data, T::Pdu::default());
            ptr::write(&raw mut (*this).status, 0);
            ptr::write(&raw mut (*this).starts, 0);
            ptr::write(&raw mut (*this).bounce, Bounce::default());
            SgHeader::init(&raw mut (*this).sg, sg_entries);
        }
    }

    /// Drops the payload of a request.
    ///
    /// # Safety
    ///
    /// The caller must ensure that [`Self::init`] was called for `rq`, which is never used again.
    pub(super) unsafe fn exit(rq: *mut bindings::request) {
        // SAFETY: By the function requirements, both are initialized and nothing refers to them.
        unsafe {
            ptr::drop_in_place(&raw mut (*Self::of(rq)).data);
            ptr::drop_in_place(&raw mut (*Self::of(rq)).bounce);
        }
    }

    /// Returns the result that [`Request::complete`] has stored.
    ///
    /// # Safety
    ///
    /// The caller must ensure that `rq` was given to [`Request::complete`] and has not ended yet.
    #[inline]
    pub(super) unsafe fn status(rq: *mut bindings::request) -> bindings::blk_status_t {
        // SAFETY: The payload is initialized, and by the function requirements no handle of the
        // request exists.
        unsafe { (*Self::of(rq)).status }
    }
}

/// A request that the driver owns: from [`Operations::queue_rq`] until it ends.
///
/// It has the size of a pointer. Dropping it ends the request with `EIO`. A request whose scatter
/// list is mapped for DMA never ends: its memory is in use.
///
/// # Invariants
///
/// - `raw` is a request of a [`TagSet<T>`](super::TagSet) that has been started and has not
///   ended, with an initialized [`Payload<T>`] behind it.
/// - There is no other [`Request`] for it.
pub struct Request<T: Operations> {
    pub(super) raw: NonNull<bindings::request>,
    _driver: PhantomData<T>,
}

// SAFETY: By the type invariants, this is the only handle of the request, which is not tied to a
// CPU or task; its data is `Send` (a bound of `Operations::Pdu`).
unsafe impl<T: Operations> Send for Request<T> {}

// SAFETY: Shared references only read fields that do not change while the driver owns the
// request, or give shared references to `T::Pdu`, hence the bound.
unsafe impl<T: Operations> Sync for Request<T> where T::Pdu: Sync {}

/// A request that the driver cannot take now and returns to the block layer.
pub struct Rejected<T: Operations>(
    /// The request.
    pub Request<T>,
);

impl<T: Operations> Rejected<T> {
    /// Requeues a request that [`Operations::queue_rqs`] has started: the block layer starts it
    /// again, by [`Operations::queue_rq`], possibly on another hardware queue. Any context.
    pub fn requeue(self) {
        self.0.requeue();
    }
}

/// One start of a request. The same `struct request` may be started again as soon as it has ended.
#[derive(Clone, Copy)]
pub(super) struct Start {
    raw: *mut bindings::request,
    starts: u32,
}

/// Reads one field of a request. The block layer's timeout worker writes to other fields
/// concurrently, so no reference to the request is created.
macro_rules! field {
    ($request:ident.$field:ident) => {
        // SAFETY: By the type invariants, the request is live and the driver owns it, and the block
        // layer does not write to the fields that are read here meanwhile.
        unsafe { (&raw const (*$request.raw.as_ptr()).$field).read() }
    };
}

impl<T: Operations> Request<T> {
    /// Takes a request from the block layer and starts it. Returns its handle, and what identifies
    /// this start.
    ///
    /// # Safety
    ///
    /// The caller must ensure that the block layer has just given `raw` to the driver of a
    /// [`TagSet<T>`](super::TagSet).
    #[inline]
    pub(super) unsafe fn start(raw: *mut bindings::request) -> (Self, Start) {
        // SAFETY: By the function requirements, the payload is initialized and no handle of the
        // request exists.
        let payload = unsafe { &mut *Payload::<T>::of(raw) };
        payload.sg.reset();
        payload.starts = payload.starts.wrapping_add(1);
        let start = Start {
            raw,
            starts: payload.starts,
        };
        // SAFETY: By the function requirements, the driver owns the request.
        unsafe { bindings::blk_mq_start_request(raw) };
        // INVARIANT: The request has just been started, and this is its first handle.
        let request = Request {
            // SAFETY: A request is not at address 0.
            raw: unsafe { NonNull::new_unchecked(raw) },
            _driver: PhantomData,
        };
        (request, start)
    }

    /// Releases the handle without ending the request, which the caller gives back to the block
    /// layer.
    ///
    /// Returns [`None`] if the scatter list is still mapped for DMA: a device, or a peer, may use
    /// the pages of the request, so it never ends. That is an error of the driver, and is logged.
    #[inline]
    pub(super) fn into_raw(self) -> Option<*mut bindings::request> {
        let raw = self.raw.as_ptr();
        let is_mapped = self.sg().mapped() != 0;
        mem::forget(self);
        if is_mapped {
            kept_for_ever();
            return None;
        }
        Some(raw)
    }

    /// Returns whether this is the handle that `start` returned, not that of another request or of
    /// a later start of the same one.
    #[inline]
    pub(super) fn is(&self, start: Start) -> bool {
        // SAFETY: By the type invariants, the payload is initialized, and only the owner of this
        // handle accesses it.
        let starts = unsafe { (*self.payload()).starts };
        self.raw.as_ptr() == start.raw && starts == start.starts
    }

    #[inline]
    pub(super) fn payload(&self) -> *mut Payload<T> {
        Payload::of(self.raw.as_ptr())
    }

    /// Returns the operation with its modifiers.
    #[inline]
    pub fn command(&self) -> Command {
        Command::from_raw(field!(self.cmd_flags))
    }

    /// Returns the operation.
    #[inline]
    pub fn op(&self) -> Op {
        self.command().op()
    }

    /// Returns the modifiers of the operation.
    #[inline]
    pub fn flags(&self) -> Flags {
        self.command().flags()
    }

    /// Returns whether a task waits for the result: see [`Command::is_sync`].
    #[inline]
    pub fn is_sync(&self) -> bool {
        self.command().is_sync()
    }

    /// Returns the first sector (of 512 bytes), counted from the start of the disk. A flush has no
    /// position; the block layer sets it to `u64::MAX`.
    #[inline]
    pub fn sector(&self) -> u64 {
        field!(self.__sector)
    }

    /// Returns the length of the range in bytes, whether or not it carries data; 0 for a flush.
    #[inline]
    pub fn len_bytes(&self) -> u32 {
        field!(self.__data_len)
    }

    /// Returns the IO priority as in `ioprio_set(2)`: class in the upper 3 bits, hint and level
    /// below; 0 for none.
    #[inline]
    pub fn ioprio(&self) -> u16 {
        let bio = self.first_bio();
        if bio.is_null() {
            return 0;
        }
        // SAFETY: The bios of a request live until it ends, and their priority does not change.
        unsafe { (*bio).bi_ioprio }
    }

    /// Returns the first bio, or null.
    #[inline(always)]
    pub(super) fn first_bio(&self) -> *mut bindings::bio {
        field!(self.bio)
    }

    /// Returns the tag: below [`TagSet::depth`](super::TagSet::depth) and different for all
    /// requests of the tag set in flight, on all disks and hardware queues.
    #[inline]
    pub fn tag(&self) -> u32 {
        // CAST: A request in flight has a tag, which is not negative.
        field!(self.tag) as u32
    }

    /// Returns the driver's data of the disk.
    #[inline]
    pub fn queue(&self) -> &T::Queue {
        let queue = field!(self.q);
        // SAFETY: By the type invariants, the request belongs to a queue of a `TagSet<T>`, whose
        // data is a `T::Queue`; the disk keeps it and waits for the request to end.
        unsafe { &*(*queue).queuedata.cast::<T::Queue>() }
    }

    /// Returns the driver's data of the request.
    #[inline]
    pub fn pdu(&self) -> &T::Pdu {
        // SAFETY: By the type invariants, the payload is initialized, and this handle has exclusive
        // access to it.
        unsafe { &(*self.payload()).data }
    }

    /// Returns the driver's data of the request.
    #[inline]
    pub fn pdu_mut(&mut self) -> &mut T::Pdu {
        // SAFETY: By the type invariants, the payload is initialized, and this handle, which is
        // borrowed exclusively, is the only one.
        unsafe { &mut (*self.payload()).data }
    }

    /// Returns the driver's data and the scatter list together.
    #[inline]
    pub fn parts_mut(&mut self) -> (&mut T::Pdu, &mut SgList) {
        let payload = self.payload();
        // SAFETY: By the type invariants, the payload is initialized, and this handle, which is
        // borrowed exclusively, is the only one; data and list do not overlap.
        unsafe {
            (
                &mut (*payload).data,
                &mut *SgHeader::list(&raw mut (*payload).sg),
            )
        }
    }

    /// Returns the bytes of data in memory: those of a read or a write, else 0.
    #[inline(always)]
    pub fn data_len(&self) -> u32 {
        if self.op().has_data() {
            self.len_bytes()
        } else {
            0
        }
    }

    /// Fills the scatter list with the data of a read or a write; the list of another operation
    /// stays empty. Any context, without allocations.
    ///
    /// Returns `EIO` if the request has more segments than the list has entries (impossible with
    /// limits that [`Disk::new`](crate::disk::Disk::new) accepted), `EBUSY` while the list is
    /// mapped for DMA.
    #[inline(always)]
    pub fn map_sg(&mut self) -> Result {
        let op = self.op();
        let segments = field!(self.nr_phys_segments);
        if !op.has_data() || segments == 0 {
            return Ok(());
        }
        let len_bytes = self.len_bytes();
        let rq = self.raw.as_ptr();
        let sg = self.sg_mut();
        if u32::from(segments) > sg.capacity() {
            return Err(EIO);
        }
        if sg.mapped() != 0 {
            return Err(EBUSY);
        }
        let mut last = ptr::null_mut();
        // SAFETY: By the type invariants, this handle owns the request. It has data, and the
        // entries suffice for its segments, whose number was checked.
        let nents = unsafe { bindings::__blk_rq_map_sg(rq, sg.as_raw(), &mut last) };
        // SAFETY: `__blk_rq_map_sg` fills and ends as many entries as it returns. The memory
        // belongs to the request until it ends. The list is part of the request, and the next start
        // resets it. Only the data of a read may be written to.
        // CAST: A number of entries is not negative.
        unsafe { sg.set_entries(nents as u32, len_bytes, op == Op::Read) };
        Ok(())
    }

    /// Returns the scatter list, empty before [`Self::map_sg`].
    #[inline]
    pub fn sg(&self) -> &SgList {
        // SAFETY: By the type invariants, the payload is initialized, and this handle has exclusive
        // access to it.
        unsafe { &*SgHeader::list(&raw mut (*self.payload()).sg) }
    }

    /// Returns the scatter list, empty before [`Self::map_sg`].
    #[inline]
    pub fn sg_mut(&mut self) -> &mut SgList {
        // SAFETY: By the type invariants, the payload is initialized, and this handle, which is
        // borrowed exclusively, is the only one.
        unsafe { &mut *SgHeader::list(&raw mut (*self.payload()).sg) }
    }

    /// Ends the request on the current CPU.
    ///
    /// Any context, hard interrupts, [`Operations::queue_rq`] and [`Operations::poll`] included.
    /// The cheapest way, but without the queue's `rq_affinity`; see [`Self::complete`].
    #[inline]
    pub fn end(self, result: Result) {
        let Some(raw) = self.into_raw() else { return };
        // SAFETY: By the type invariants, the request was started, has not ended, and this was its
        // only handle.
        unsafe { bindings::blk_mq_end_request(raw, to_status(result)) };
    }

    /// Ends the request on the CPU that submitted it if the queue's `rq_affinity` is set, otherwise
    /// on the current CPU. Any context.
    #[inline]
    pub fn complete(self, result: Result) {
        let status = to_status(result);
        let payload = self.payload();
        let Some(raw) = self.into_raw() else { return };
        // SAFETY: By the type invariants, the payload is initialized, and this was the only handle.
        unsafe { (*payload).status = status };
        // SAFETY: By the type invariants, the request was started and has not ended.
        if !unsafe { bindings::blk_mq_complete_request_remote(raw) } {
            // SAFETY: By the type invariants, and the function above did not end the request.
            unsafe { bindings::blk_mq_end_request(raw, status) };
        }
    }

    /// Forbids merges of the request, so that after a requeue it has the same sectors and the same
    /// memory. Any context.
    pub fn forbid_merges(&mut self) {
        let raw = self.raw.as_ptr();
        // SAFETY: By the type invariants, the request was started and has not ended, and this is
        // its only handle: the block layer does not access its flags before it is requeued.
        unsafe { (*raw).cmd_flags |= 1 << bindings::req_flag_bits___REQ_NOMERGE };
    }

    /// Requeues the request. The block layer starts it again, possibly on another hardware queue.
    /// Any context.
    pub(super) fn requeue(self) {
        let Some(raw) = self.into_raw() else { return };
        // Keeps the queue, as in `requeue_later`.
        let _guard = rcu::read_lock();
        // SAFETY: By the type invariants, the request was started, has not ended, and this was its
        // only handle.
        unsafe { bindings::blk_mq_requeue_request(raw, true) };
    }

    /// Requeues the request. The block layer starts it again, possibly on another hardware queue,
    /// after `delay_ms`, or sooner with another request that is requeued, or when the disk is
    /// [unquiesced](crate::disk::Quiesced).
    pub fn requeue_later(self, delay_ms: u32) {
        let Some(raw) = self.into_raw() else { return };
        // SAFETY: By the type invariants, the request belongs to a queue, which its disk keeps.
        let queue = unsafe { (*raw).q };
        // A concurrent kick of the requeue list may end the request before the kick below. From
        // then on this guard keeps the queue, as the removal of a disk waits for RCU readers before
        // it frees the queue.
        let _guard = rcu::read_lock();
        // SAFETY: By the type invariants, the request was started, has not ended, and this was its
        // only handle.
        unsafe { bindings::blk_mq_requeue_request(raw, false) };
        // CAST: `c_ulong` has 64 bits here.
        // SAFETY: The guard keeps the queue, see above.
        unsafe { block_ext_sys::block_ext_helper_kick_requeue_list_by(queue, delay_ms as c_ulong) };
    }
}

impl<T: Operations> Drop for Request<T> {
    fn drop(&mut self) {
        if self.sg().mapped() != 0 {
            return kept_for_ever();
        }
        // SAFETY: By the type invariants, the request was started and has not ended: the functions
        // that end a request forget its handle.
        unsafe { bindings::blk_mq_end_request(self.raw.as_ptr(), to_status(Err(EIO))) };
    }
}

/// Logs that a driver was about to end a request while its memory was mapped for DMA.
#[cold]
fn kept_for_ever() {
    pr_err!("a request was about to end while it is mapped for DMA, it is kept for ever\n");
}

/// Converts a result to a status of the block layer.
#[inline]
fn to_status(result: Result) -> bindings::blk_status_t {
    match result {
        Ok(()) => 0,
        // SAFETY: The function accepts any number.
        Err(error) => unsafe { bindings::errno_to_blk_status(error.to_errno()) },
    }
}
