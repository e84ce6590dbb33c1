// SPDX-License-Identifier: GPL-2.0

//! Requests.
//!
//! C header: [`include/linux/blk-mq.h`](srctree/include/linux/blk-mq.h), `struct request`

use super::Operations;
use crate::{
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

/// What lies behind a `struct request`: the driver's data and the scatter list.
#[repr(C)]
pub(super) struct Payload<T: Operations> {
    data: T::Pdu,
    /// The outcome, while the request is on its way to the CPU that it came from.
    status: bindings::blk_status_t,
    sg: SgHeader,
    // The entries follow.
}

impl<T: Operations> Payload<T> {
    /// `cmd_size` of a tag set whose requests have `sg_entries` scatter list entries.
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

    /// Makes the payload of a new request.
    ///
    /// # Safety
    ///
    /// `rq` is a request that nothing uses yet, with [`Self::size`] bytes behind it.
    pub(super) unsafe fn init(rq: *mut bindings::request, sg_entries: u16) {
        let this = Self::of(rq);
        // SAFETY: By the requirements the payload is ours to write; its alignment is checked in
        // `of`.
        unsafe {
            ptr::write(&raw mut (*this).data, T::Pdu::default());
            ptr::write(&raw mut (*this).status, 0);
            SgHeader::init(&raw mut (*this).sg, sg_entries);
        }
    }

    /// Drops the payload of a request.
    ///
    /// # Safety
    ///
    /// [`Self::init`] was called for `rq`, which is never used again.
    pub(super) unsafe fn exit(rq: *mut bindings::request) {
        // SAFETY: By the requirements the data is initialized and nothing refers to it.
        unsafe { ptr::drop_in_place(&raw mut (*Self::of(rq)).data) };
    }

    /// The outcome that [`Request::complete`] has left.
    ///
    /// # Safety
    ///
    /// `rq` was given to [`Request::complete`] and has not ended yet.
    #[inline]
    pub(super) unsafe fn status(rq: *mut bindings::request) -> bindings::blk_status_t {
        // SAFETY: The payload is initialized, and by the requirements nobody else uses it.
        unsafe { (*Self::of(rq)).status }
    }
}

/// A request that the driver owns: from [`Operations::queue_rq`] until it ends.
///
/// It is as long as a pointer. Dropping it ends the request with `EIO`.
///
/// # Invariants
///
/// - `raw` is a request of a [`TagSet<T>`](super::TagSet) that has been started and has not
///   ended, with an initialized [`Payload<T>`] behind it.
/// - There is no other [`Request`] for it.
pub struct Request<T: Operations> {
    raw: NonNull<bindings::request>,
    _driver: PhantomData<T>,
}

// SAFETY: By the type invariant this is the only handle of the request, which is tied to no CPU
// or task; its data is `Send` (a bound of `Operations::Pdu`).
unsafe impl<T: Operations> Send for Request<T> {}

// SAFETY: Shared references only read fields that do not change while the driver owns the
// request, or give shared references to `T::Pdu`, hence the bound.
unsafe impl<T: Operations> Sync for Request<T> where T::Pdu: Sync {}

/// A request that the driver cannot take now, on its way back to the block layer.
pub struct Rejected<T: Operations>(
    /// The request.
    pub Request<T>,
);

/// Reads one field of a request. The block layer's timeout worker writes to others at the same
/// time, so no reference to the request is made.
macro_rules! field {
    ($request:ident.$field:ident) => {
        // SAFETY: By the type invariant the request is live and the driver's, and the block layer
        // does not write to the fields that are read so meanwhile.
        unsafe { (&raw const (*$request.raw.as_ptr()).$field).read() }
    };
}

impl<T: Operations> Request<T> {
    /// Takes a request over from the block layer and starts it.
    ///
    /// # Safety
    ///
    /// The block layer has just given `raw` to the driver of a [`TagSet<T>`](super::TagSet).
    #[inline]
    pub(super) unsafe fn start(raw: *mut bindings::request) -> Self {
        // SAFETY: By the requirement the payload is initialized and nobody else uses it.
        unsafe { (*Payload::<T>::of(raw)).sg.reset() };
        // SAFETY: By the requirement the request is the driver's to start.
        unsafe { bindings::blk_mq_start_request(raw) };
        // INVARIANT: The request has just been started and this is the first handle of it.
        Request {
            // SAFETY: A request is not at address 0.
            raw: unsafe { NonNull::new_unchecked(raw) },
            _driver: PhantomData,
        }
    }

    /// Gives the request up without ending it.
    #[inline]
    pub(super) fn into_raw(self) -> *mut bindings::request {
        let raw = self.raw.as_ptr();
        mem::forget(self);
        raw
    }

    /// Whether this is the handle of `raw`.
    #[inline]
    pub(super) fn is(&self, raw: *mut bindings::request) -> bool {
        self.raw.as_ptr() == raw
    }

    #[inline]
    fn payload(&self) -> *mut Payload<T> {
        Payload::of(self.raw.as_ptr())
    }

    /// What is asked for.
    #[inline]
    pub fn op(&self) -> Op {
        Op::from_raw(field!(self.cmd_flags))
    }

    /// The modifiers of the operation.
    #[inline]
    pub fn flags(&self) -> Flags {
        Flags::from_raw(field!(self.cmd_flags))
    }

    /// Whether somebody waits for the outcome: all reads, and writes that are synchronous, forced
    /// or flush (`op_is_sync`).
    #[inline]
    pub fn is_sync(&self) -> bool {
        let waits = Flags::SYNC | Flags::FUA | Flags::PREFLUSH;
        self.op() == Op::Read || self.flags().intersects(waits)
    }

    /// First sector (of 512 bytes), counted from the start of the disk. A flush has no position:
    /// the block layer gives it `u64::MAX`.
    #[inline]
    pub fn sector(&self) -> u64 {
        field!(self.__sector)
    }

    /// Length of the range in bytes, whether or not it carries data; 0 for a flush.
    #[inline]
    pub fn len_bytes(&self) -> u32 {
        field!(self.__data_len)
    }

    /// IO priority as in `ioprio_set(2)`: class in the upper 3 bits, hint and level below; 0 for
    /// none.
    #[inline]
    pub fn ioprio(&self) -> u16 {
        let bio = field!(self.bio);
        if bio.is_null() {
            return 0;
        }
        // SAFETY: The bios of a request live until it ends, and their priority does not change.
        unsafe { (*bio).bi_ioprio }
    }

    /// The tag: below [`TagSet::depth`](super::TagSet::depth) and different for all requests of
    /// the tag set in flight, whichever disk and hardware queue they are for.
    #[inline]
    pub fn tag(&self) -> u32 {
        // CAST: A request in flight has a tag, which is not negative.
        field!(self.tag) as u32
    }

    /// The driver's data of the disk.
    #[inline]
    pub fn queue(&self) -> &T::Queue {
        let queue = field!(self.q);
        // SAFETY: By the type invariant the request belongs to a queue of a `TagSet<T>`, whose data
        // is a `T::Queue`; the disk, which waits for the request to end, keeps it.
        unsafe { &*(*queue).queuedata.cast::<T::Queue>() }
    }

    /// The driver's data of the request.
    #[inline]
    pub fn pdu(&self) -> &T::Pdu {
        // SAFETY: By the type invariants the payload is initialized and this handle's.
        unsafe { &(*self.payload()).data }
    }

    /// The driver's data of the request.
    #[inline]
    pub fn pdu_mut(&mut self) -> &mut T::Pdu {
        // SAFETY: As in `pdu`, and the handle is borrowed exclusively.
        unsafe { &mut (*self.payload()).data }
    }

    /// The driver's data and the scatter list together.
    #[inline]
    pub fn parts_mut(&mut self) -> (&mut T::Pdu, &mut SgList) {
        let payload = self.payload();
        // SAFETY: As in `pdu_mut` and `sg_mut`; data and list do not overlap.
        unsafe {
            (
                &mut (*payload).data,
                &mut *SgHeader::list(&raw mut (*payload).sg),
            )
        }
    }

    /// Fills the scatter list with the data of a read or a write; the list of any other operation
    /// stays empty. Any context, allocates nothing.
    ///
    /// `EIO` if the request has more pieces than the list has entries (impossible if the limits of
    /// the disk were accepted by [`Disk::new`](crate::disk::Disk::new)), `EBUSY` while the
    /// list is mapped for DMA.
    #[inline]
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
        // SAFETY: The request is ours by the type invariant and has data, and the entries suffice
        // for its segments, whose number was checked.
        let nents = unsafe { bindings::__blk_rq_map_sg(rq, sg.as_raw(), &mut last) };
        // SAFETY: `__blk_rq_map_sg` fills and ends as many entries as it returns. The memory
        // belongs to the request until it ends, the list lies in the request and is reset when the
        // request is started the next time. Only the data of a read may be written to.
        // CAST: a number of entries is not negative.
        unsafe { sg.set_entries(nents as u32, len_bytes, op == Op::Read) };
        Ok(())
    }

    /// The scatter list, empty before [`Self::map_sg`].
    #[inline]
    pub fn sg(&self) -> &SgList {
        // SAFETY: By the type invariants the payload is initialized and this handle's.
        unsafe { &*SgHeader::list(&raw mut (*self.payload()).sg) }
    }

    /// The scatter list, empty before [`Self::map_sg`].
    #[inline]
    pub fn sg_mut(&mut self) -> &mut SgList {
        // SAFETY: As in `sg`, and the handle is borrowed exclusively.
        unsafe { &mut *SgHeader::list(&raw mut (*self.payload()).sg) }
    }

    /// Ends the request here and now.
    ///
    /// Any context, hard interrupts included; from [`Operations::queue_rq`] and
    /// [`Operations::poll`] as well. Cheapest, but it does not honour the queue's `rq_affinity`;
    /// see [`Self::complete`].
    #[inline]
    pub fn end(self, result: Result) {
        let raw = self.into_raw();
        // SAFETY: By the type invariants the request was started, has not ended, and this was its
        // only handle.
        unsafe { bindings::blk_mq_end_request(raw, to_status(result)) };
    }

    /// Ends the request on the CPU that it came from if the queue's `rq_affinity` asks for that,
    /// else here. Any context.
    #[inline]
    pub fn complete(self, result: Result) {
        let status = to_status(result);
        let payload = self.payload();
        let raw = self.into_raw();
        // SAFETY: The payload is initialized and was this handle's, see `pdu`.
        unsafe { (*payload).status = status };
        // SAFETY: As in `end`.
        if !unsafe { bindings::blk_mq_complete_request_remote(raw) } {
            // SAFETY: As in `end`; the block layer left the ending to us.
            unsafe { bindings::blk_mq_end_request(raw, status) };
        }
    }

    /// Keeps the block layer from merging the request with others: if it is started again, it is
    /// for the same sectors and the same memory. Any context.
    pub fn forbid_merges(&mut self) {
        let raw = self.raw.as_ptr();
        // SAFETY: By the type invariants the request was started and has not ended, and this is its
        // only handle: nobody else looks at its flags before it is given back.
        unsafe { (*raw).cmd_flags |= 1 << bindings::req_flag_bits___REQ_NOMERGE };
    }

    /// Gives the request back to the block layer, which will start it again (possibly on another
    /// hardware queue). Any context.
    pub fn requeue(self) {
        let raw = self.into_raw();
        // SAFETY: As in `end`.
        unsafe { bindings::blk_mq_requeue_request(raw, true) };
    }

    /// As [`Self::requeue`], but the request is not started again before `delay_ms` have passed, or
    /// the disk is [let go](crate::disk::GenDisk::let_go).
    pub fn requeue_later(self, delay_ms: u32) {
        let raw = self.into_raw();
        // SAFETY: By the type invariants the request belongs to a queue, which its disk keeps.
        let queue = unsafe { (*raw).q };
        // Somebody else's kick may let the request end before ours: from then on it is this that
        // keeps the queue, for whoever removes a disk waits for readers before freeing anything.
        let _guard = rcu::read_lock();
        // SAFETY: As in `end`.
        unsafe { bindings::blk_mq_requeue_request(raw, false) };
        // CAST: `c_ulong` has 64 bits here.
        // SAFETY: The guard keeps the queue, see above.
        unsafe { bindings::blk_mq_delay_kick_requeue_list(queue, delay_ms as c_ulong) };
    }
}

impl<T: Operations> Drop for Request<T> {
    fn drop(&mut self) {
        // SAFETY: As in `end`: who ends a request otherwise forgets its handle.
        unsafe { bindings::blk_mq_end_request(self.raw.as_ptr(), to_status(Err(EIO))) };
    }
}

/// The block layer's form of an outcome.
#[inline]
fn to_status(result: Result) -> bindings::blk_status_t {
    match result {
        Ok(()) => 0,
        // SAFETY: The function takes any number.
        Err(error) => unsafe { bindings::errno_to_blk_status(error.to_errno()) },
    }
}
