// SPDX-License-Identifier: GPL-2.0

//! The receiving side of transfers.

use crate::{
    active::{
        until_flushed,
        ActiveTransfer,
        Counted,
        Pending,
        Queue,
        QueueBox,
        Refused, //
    },
    proto::layout::{
        Fragment,
        Layout,
        PAGE_LEN, //
    },
    received::{
        Arrived,
        Received, //
    },
    segments::{
        Around,
        Gathered,
        Segments,
        SEGMENTS_MAX, //
    },
    sys, //
};
use core::{
    ops::Range,
    ptr, //
};
use kernel::{
    alloc::KVVec,
    prelude::*,
    str::CStr,
    sync::Arc, //
};
use kernel_ext::{
    scatterlist::{
        Lender,
        Loan, //
    },
    sync::atomic::{
        AtomicU32,
        Ordering, //
    }, //
};
use rdma::{
    Cq,
    Datagram,
    DatagramPort,
    DmaDirection,
    MessageBuffers,
    Pd,
    Qp,
    QpConfig,
    QpHandler,
    Success,
    WorkCompletion,
    GRH_LEN, //
};

/// The handler of a [`ReceiveQp`], for all its transfers.
///
/// The methods are called in the context of the completion queue, and `failed` in any: a device may
/// say in an interrupt that a queue pair has failed. They are over when
/// [`Receiving::finish`] returns.
pub trait ReceiveEvents: Send + Sync + 'static {
    /// The module of the handler (`&crate::THIS_MODULE`), see [`QpHandler::MODULE`].
    const MODULE: &'static ThisModule;

    /// Handles a datagram that has come. Nothing says yet who has sent it, or what it is.
    fn received(&self, arrival: &Arrival<'_>);

    /// Handles a failure, after which no more datagrams come: the transfer is to be finished. May
    /// be called several times.
    fn failed(&self);
}

/// A datagram that has come into a slot: the receive of that number.
pub struct Arrival<'a> {
    completion: &'a Success,
    slot: u16,
    len: u32,
}

impl Arrival<'_> {
    /// Returns the number of its slot, which is the next one for each that comes.
    pub fn slot(&self) -> u16 {
        self.slot
    }

    /// Returns the number of its bytes, without those before it.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns its immediate data.
    pub fn imm(&self) -> Option<u32> {
        self.completion.imm()
    }
}

/// The handler of the queue pair.
pub(super) struct Slots<H> {
    events: H,
    headers: MessageBuffers,
    pending: Pending,
    arrived: Arrived,
    fragment_len: AtomicU32,
}

impl<H> Slots<H> {
    pub(super) fn events(&self) -> &H {
        &self.events
    }

    pub(super) fn arrived(&self) -> &Arrived {
        &self.arrived
    }
}

impl<H: ReceiveEvents> QpHandler for Slots<H> {
    const MODULE: &'static ThisModule = H::MODULE;
    type Transport = Datagram;

    fn completed(qp: &Qp<Self>, tag: u32, completion: &WorkCompletion) {
        let this = qp.handler();
        if let Some(completion) = completion.success() {
            // CAST: The tags are the numbers of slots.
            let slot = tag as u16;
            let len = completion.byte_len().saturating_sub(GRH_LEN);
            if len == this.fragment_len.load(Ordering::Relaxed) {
                this.arrived.add(slot);
            }
            this.events.received(&Arrival {
                completion,
                slot,
                len,
            });
        } else if this.pending.fails_by(completion) {
            this.events.failed();
        }
        this.pending.completed();
    }

    fn broken(qp: &Qp<Self>, why: &'static CStr) {
        pr_err!("queue pair {}: {}\n", qp.number(), why);
        qp.handler().pending.fail();
        qp.handler().events.failed();
    }
}

impl<H: ReceiveEvents> Counted for Slots<H> {
    fn pending(&self) -> &Pending {
        &self.pending
    }
}

/// Memory that a queue pair for transfers has beside itself.
///
/// # Invariants
///
/// `requests` does not move while it has elements: its capacity is that of all receives of a
/// transfer.
pub(super) struct Places {
    segments: Segments,
    requests: KVVec<sys::ib_recv_wr>,
    /// Two pages: for the bytes before the memory, and for those behind it.
    pub(super) around: MessageBuffers,
    /// Memory for one fragment that is being copied, and one that waits.
    pub(super) copies: KVVec<u8>,
}

// SAFETY: The pointers in the requests are to memory that the value, or the queue pair beside it,
// owns; they are followed by the device's driver only, during a post.
unsafe impl Send for Places {}
// SAFETY: As above; a shared reference does not give access to the requests.
unsafe impl Sync for Places {}

/// The numbers of the two buffers of [`Places::around`].
pub(super) const LEAD: u32 = 0;
pub(super) const TAIL: u32 = 1;

impl Places {
    fn new(pd: &Arc<Pd>, fragments_max: u16) -> Result<KBox<Self>> {
        let places = Self {
            segments: Segments::new(fragments_max)?,
            // INVARIANT: The capacity is that of a whole transfer.
            requests: KVVec::with_capacity(fragments_max.into(), GFP_KERNEL)?,
            around: MessageBuffers::new(pd, 2, PAGE_LEN)?,
            // CAST: The size of a page.
            copies: KVVec::from_elem(0, 2 * PAGE_LEN as usize, GFP_KERNEL)?,
        };
        Ok(KBox::new(places, GFP_KERNEL)?)
    }

    /// Lays a receive over each fragment of the mapped memory of a loan, and posts all.
    fn post<H: ReceiveEvents, L: Lender>(
        &mut self,
        qp: &Qp<Slots<H>>,
        loan: &Loan<L>,
        layout: &Layout,
    ) -> Result {
        let Self {
            segments,
            requests,
            around,
            ..
        } = self;
        requests.clear();
        let place = requests.as_mut_ptr();
        let headers = &qp.handler().headers;
        let edges = |number: u16, fragment: &Fragment| {
            let edge = |buffer: u32, range: &Range<u32>| {
                let len = range.end.saturating_sub(range.start);
                (len != 0).then(|| around.segment(buffer, range.start, len))
            };
            let segments = Around {
                header: headers.segment(number.into(), 0, GRH_LEN),
                lead: edge(LEAD, &fragment.lead),
                tail: edge(TAIL, &fragment.tail),
            };
            match segments.belongs_to(qp.pd()) {
                true => Ok(Some(segments)),
                false => Err(EINVAL),
            }
        };
        let count = layout.count();
        segments.write(
            layout,
            loan,
            qp.pd().local_dma_key(),
            edges,
            |number, gathered: Gathered| {
                let cqe = qp.entry(number.into()).ok_or(EINVAL)?;
                let next = number.wrapping_add(1);
                let request = sys::ib_recv_wr {
                    next: match next == count {
                        true => ptr::null_mut(),
                        false => place.wrapping_add(next.into()),
                    },
                    __bindgen_anon_1: sys::ib_recv_wr__bindgen_ty_1 { wr_cqe: cqe },
                    sg_list: gathered.first,
                    num_sge: gathered.count,
                };
                requests.push_within_capacity(request).map_err(|_| EINVAL)
            },
        )?;
        let handler = qp.handler();
        handler.pending.add(count.into());
        // SAFETY: The requests are linked in their order, the last one to none, with entries of the
        // queue pair and segments of its domain. The memory is that of message buffers, and of a
        // loan that is not given back before all `count` of them have completed: they are counted.
        unsafe { qp.post_receive_chain(requests.as_ptr()) }.inspect_err(|_| handler.pending.fail())
    }
}

/// A queue pair that receives one transfer after the other. Creating and dropping it sleeps.
pub struct ReceiveQp<H: ReceiveEvents> {
    queue: QueueBox<Slots<H>>,
    places: KBox<Places>,
    fragments_max: u16,
}

impl<H: ReceiveEvents> ReceiveQp<H> {
    /// Returns the sizes of a queue pair for transfers of at most `fragments_max` fragments; its
    /// completion queue needs [`QpConfig::cq_entries`].
    pub fn config(fragments_max: u16) -> QpConfig {
        let slots = fragments_max.into();
        QpConfig {
            max_recv_sge: SEGMENTS_MAX,
            ..QpConfig::new(1, slots, slots)
        }
    }

    /// Creates a queue pair on `port`; the key of that is not used. Sleeps.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` if the device has no such port, or no queues of that length, or if there is
    /// no room in `cq`; `ENOMEM` if an allocation fails.
    pub fn new(
        pd: &Arc<Pd>,
        cq: &Arc<Cq>,
        port: &DatagramPort,
        fragments_max: u16,
        events: H,
    ) -> Result<Self> {
        let slots = Slots {
            events,
            headers: MessageBuffers::packed(pd, fragments_max.into(), GRH_LEN)?,
            pending: Pending::new(),
            arrived: Arrived::new(fragments_max)?,
            fragment_len: AtomicU32::new(0),
        };
        let places = Places::new(pd, fragments_max)?;
        let config = Self::config(fragments_max);
        let qp = Qp::datagram(pd, (cq, cq), &config, port, slots)?;
        Ok(Self {
            queue: Queue::new(qp, *port)?,
            places,
            fragments_max,
        })
    }

    /// Returns the queue pair's number.
    pub fn number(&self) -> u32 {
        self.queue.qp().number()
    }

    /// Has the next transfer begin on the partition of this index of the port's table, where the
    /// last one was on another.
    pub fn set_partition(&mut self, pkey_index: u16) {
        self.queue.set_partition(pkey_index);
    }

    /// Prepares it for a transfer with the key `qkey`, as far as nothing has to be waited for: then
    /// [`receive`](Self::receive) asks the device for nothing but to take the receives. Datagrams
    /// with the key before are lost from now on. Sleeps.
    pub fn prepare_ahead(&mut self, qkey: u32) {
        self.queue.prepare_ahead(qkey);
    }

    /// Returns the key that it was [prepared](Self::prepare_ahead) for since the last transfer.
    pub fn prepared_key(&self) -> Option<u32> {
        self.queue.prepared()
    }

    /// Returns the handler.
    pub fn handler(&self) -> &H {
        &self.queue.qp().handler().events
    }

    /// Begins a transfer to the memory of `lender`: lays a receive over each fragment, and takes
    /// datagrams with the key `qkey` from now on. The memory begins `skip` bytes behind the start
    /// of the first page. Sleeps; does not allocate.
    ///
    /// # Errors
    ///
    /// Returns the error of the lender, `EINVAL` for a layout that is not possible, memory that is
    /// not writable or in too many pieces, `EIO` if it cannot be mapped, or what the device says.
    pub fn receive<L: Lender>(
        mut self,
        lender: L,
        skip: u32,
        fragment_len: u32,
        qkey: u32,
    ) -> Result<Receiving<H, L>, Refused<Self, L>> {
        if let Err(error) = self.queue.prepare(qkey) {
            return Err(Refused::new(error, self, lender));
        }
        let Self {
            queue,
            mut places,
            fragments_max,
        } = self;
        let begun = ActiveTransfer::begin(queue, lender, DmaDirection::FromDevice, |qp, loan| {
            let layout = Layout::new(fragment_len, skip, loan.len_bytes(), fragments_max)?;
            let slots = qp.handler();
            slots.arrived.clear();
            slots.fragment_len.store(fragment_len, Ordering::Relaxed);
            places.post(qp, loan, &layout)?;
            Ok(layout)
        });
        match begun {
            Ok((active, layout)) => Ok(Receiving {
                active,
                places,
                layout,
                fragments_max,
            }),
            Err(refused) => Err(refused.map(|queue| Self {
                queue,
                places,
                fragments_max,
            })),
        }
    }

    /// Makes it of its parts.
    pub(super) fn from_parts(
        queue: QueueBox<Slots<H>>,
        places: KBox<Places>,
        fragments_max: u16,
    ) -> Self {
        Self {
            queue,
            places,
            fragments_max,
        }
    }
}

/// A transfer that is being received. Dropping it ends it, and sleeps.
pub struct Receiving<H: ReceiveEvents, L: Lender> {
    /// Dropped first: it uses memory of the places.
    active: ActiveTransfer<Slots<H>, L>,
    places: KBox<Places>,
    layout: Layout,
    fragments_max: u16,
}

impl<H: ReceiveEvents, L: Lender> Receiving<H, L> {
    /// Returns the number of the queue pair to which the fragments are sent. There is no error
    /// before [`finish`](Self::finish).
    pub fn number(&self) -> Result<u32> {
        Ok(self.active.parts()?.0.number())
    }

    /// Returns the number of fragments, and of slots.
    pub fn count(&self) -> u16 {
        self.layout.count()
    }

    /// Ends the transfer: waits for the handlers of what has come, and takes back what has not, by
    /// way of the error state. Sleeps; after a failure of the device for up to 30 seconds.
    ///
    /// # Errors
    ///
    /// Returns the transfer if the device did not flush the receives.
    pub fn finish(self) -> Result<Received<H, L>, Self> {
        let Self {
            active,
            places,
            layout,
            fragments_max,
        } = self;
        match active.finish() {
            Ok((queue, loan)) => Ok(Received::new(queue, loan, places, layout, fragments_max)),
            Err((_, active)) => Err(Self {
                active,
                places,
                layout,
                fragments_max,
            }),
        }
    }

    /// Ends the transfer as [`finish`](Self::finish), and waits as long as the device takes: until
    /// then it may write to the memory. Sleeps.
    pub fn end(self) -> Received<H, L> {
        until_flushed(self, Self::finish)
    }
}
