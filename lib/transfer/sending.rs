// SPDX-License-Identifier: GPL-2.0

//! The sending side of transfers.

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
        Layout,
        PAGE_LEN, //
    },
    segments::{
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
use kernel_ext::scatterlist::{
    Lender,
    Loan, //
};
use rdma::{
    proto::retirement::Posted,
    AddressHandle,
    Cq,
    Datagram,
    DatagramPort,
    DmaDirection,
    Pd,
    Peer,
    Qp,
    QpConfig,
    QpHandler,
    SendFlags,
    WorkCompletion, //
};

/// The handler of a [`SendQp`], for all its transfers.
///
/// The methods are called in the context of the completion queue, and `failed` in any: a device may
/// say in an interrupt that a queue pair has failed. They are over when
/// [`Sending::finish`] returns.
pub trait SendEvents: Send + Sync + 'static {
    /// The module of the handler (`&crate::THIS_MODULE`), see [`QpHandler::MODULE`].
    const MODULE: &'static ThisModule;

    /// Handles the end of a [post](Sending::post): its fragments have left the machine.
    fn sent(&self);

    /// Handles a failure, after which nothing more is sent: the transfer is to be finished. May be
    /// called several times.
    fn failed(&self);
}

/// The tag of the last fragment of a post, which alone has a completion.
const TAG: u32 = 0;

/// The handler of the queue pair.
pub(super) struct Sends<H> {
    events: H,
    pending: Pending,
}

impl<H: SendEvents> QpHandler for Sends<H> {
    const MODULE: &'static ThisModule = H::MODULE;
    type Transport = Datagram;

    fn completed(qp: &Qp<Self>, _tag: u32, completion: &WorkCompletion) {
        let this = qp.handler();
        if completion.is_success() {
            this.events.sent();
        } else if this.pending.fails_by(completion) {
            // It may be that of a fragment without a completion of its own: the count is wrong.
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

impl<H: SendEvents> Counted for Sends<H> {
    fn pending(&self) -> &Pending {
        &self.pending
    }
}

/// The work requests of one transfer after the other.
///
/// # Invariants
///
/// `requests` does not move while it has elements: its capacity is that of all fragments of a
/// transfer.
struct Places {
    segments: Segments,
    requests: KVVec<sys::ib_ud_wr>,
}

// SAFETY: The pointers in the requests are to memory that the value, or the queue pair beside it,
// owns; they are followed by the device's driver only, during a post.
unsafe impl Send for Places {}
// SAFETY: As above; a shared reference does not give access to the requests.
unsafe impl Sync for Places {}

impl Places {
    fn new(fragments_max: u16) -> Result<KBox<Self>> {
        let places = Self {
            segments: Segments::new(fragments_max)?,
            // INVARIANT: The capacity is that of a whole transfer.
            requests: KVVec::with_capacity(fragments_max.into(), GFP_KERNEL)?,
        };
        Ok(KBox::new(places, GFP_KERNEL)?)
    }

    /// Writes a send of each fragment of the mapped memory of a loan.
    fn write<H: SendEvents, L: Lender>(
        &mut self,
        qp: &Qp<Sends<H>>,
        loan: &Loan<L>,
        layout: &Layout,
        to: Peer<'_>,
        imm: impl Fn(u16) -> u32,
    ) -> Result {
        if !to.address.belongs_to(qp.pd()) {
            return Err(EINVAL);
        }
        let cqe = qp.entry(TAG).ok_or(EINVAL)?;
        let Self { segments, requests } = self;
        requests.clear();
        segments.write(
            layout,
            loan,
            qp.pd().local_dma_key(),
            |_, _| Ok(None),
            |number, gathered| {
                let request = sys::ib_ud_wr {
                    wr: sys::ib_send_wr {
                        next: ptr::null_mut(),
                        __bindgen_anon_1: sys::ib_send_wr__bindgen_ty_1 { wr_cqe: cqe },
                        sg_list: gathered.first,
                        num_sge: gathered.count,
                        opcode: sys::ib_wr_opcode_IB_WR_SEND_WITH_IMM,
                        send_flags: SendFlags::NONE.as_raw(),
                        ex: sys::ib_send_wr__bindgen_ty_2 {
                            imm_data: imm(number).to_be(),
                        },
                    },
                    ah: to.address.as_raw(),
                    header: ptr::null_mut(),
                    hlen: 0,
                    mss: 0,
                    remote_qpn: to.qp_number,
                    remote_qkey: to.qkey,
                    pkey_index: 0,
                    port_num: 0,
                };
                requests.push_within_capacity(request).map_err(|_| EINVAL)
            },
        )
    }

    /// Links the requests of some fragments, and returns the first one.
    fn link(&mut self, fragments: Range<u16>) -> Result<*const sys::ib_send_wr> {
        let range = usize::from(fragments.start)..usize::from(fragments.end);
        let place = self.requests.as_mut_ptr();
        let some = self.requests.as_mut_slice().get_mut(range.clone());
        let some = some.ok_or(EINVAL)?;
        for (number, request) in range.clone().zip(some.iter_mut()) {
            let next = number.wrapping_add(1);
            let is_last = next == range.end;
            request.wr.next = match is_last {
                true => ptr::null_mut(),
                false => place.wrapping_add(next).cast(),
            };
            request.wr.send_flags = SendFlags::signaled(is_last).as_raw();
        }
        let first = some.first().ok_or(EINVAL)?;
        Ok(ptr::from_ref(first).cast())
    }
}

/// A queue pair that sends one transfer after the other. Creating and dropping it sleeps.
pub struct SendQp<H: SendEvents> {
    queue: QueueBox<Sends<H>>,
    places: KBox<Places>,
    fragments_max: u16,
}

impl<H: SendEvents> SendQp<H> {
    /// Returns the sizes of a queue pair for transfers of at most `fragments_max` fragments; its
    /// completion queue needs [`QpConfig::cq_entries`].
    pub fn config(fragments_max: u16) -> QpConfig {
        QpConfig {
            max_send_sge: SEGMENTS_MAX,
            ..QpConfig::new(fragments_max.into(), 1, 1)
        }
    }

    /// Creates a queue pair on `port`. Sleeps.
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
        let sends = Sends {
            events,
            pending: Pending::new(),
        };
        let places = Places::new(fragments_max)?;
        let config = Self::config(fragments_max);
        let qp = Qp::datagram(pd, (cq, cq), &config, port, sends)?;
        Ok(Self {
            queue: Queue::new(qp, *port)?,
            places,
            fragments_max,
        })
    }

    /// Has the next transfer begin on the partition of this index of the port's table, where the
    /// last one was on another.
    pub fn set_partition(&mut self, pkey_index: u16) {
        self.queue.set_partition(pkey_index);
    }

    /// Returns the handler.
    pub fn handler(&self) -> &H {
        &self.queue.qp().handler().events
    }

    /// Begins a transfer of the memory of `lender`, whole pages, to a queue pair of a peer; `imm`
    /// says which immediate data each fragment has. Nothing is sent before [`Sending::post`].
    /// Sleeps; does not allocate.
    ///
    /// # Errors
    ///
    /// Returns the error of the lender, `EINVAL` for a layout that is not possible, memory in too
    /// many pieces, or an address of another domain, `EIO` if the memory cannot be mapped, or what
    /// the device says.
    pub fn send<L: Lender>(
        mut self,
        lender: L,
        fragment_len: u32,
        to: Peer<'_>,
        imm: impl Fn(u16) -> u32,
    ) -> Result<Sending<H, L>, Refused<Self, L>> {
        if let Err(error) = self.queue.prepare_same() {
            return Err(Refused::new(error, self, lender));
        }
        let Self {
            queue,
            mut places,
            fragments_max,
        } = self;
        let to_address = to.address.clone();
        let begun = ActiveTransfer::begin(queue, lender, DmaDirection::ToDevice, |qp, loan| {
            let len = loan.len_bytes();
            let layout = Layout::new(fragment_len, 0, len, fragments_max)?;
            if len % PAGE_LEN != 0 {
                return Err(EINVAL);
            }
            places.write(qp, loan, &layout, to, imm)
        });
        match begun {
            Ok((active, ())) => Ok(Sending {
                active,
                places,
                to: to_address,
                fragments_max,
            }),
            Err(refused) => Err(refused.map(|queue| Self {
                queue,
                places,
                fragments_max,
            })),
        }
    }
}

/// A transfer that is being sent. Dropping it ends it, and sleeps.
pub struct Sending<H: SendEvents, L: Lender> {
    active: ActiveTransfer<Sends<H>, L>,
    places: KBox<Places>,
    /// The address that the requests name.
    to: AddressHandle,
    fragments_max: u16,
}

impl<H: SendEvents, L: Lender> Sending<H, L> {
    /// Returns the number of fragments.
    pub fn count(&self) -> u16 {
        // CAST: There are at most `fragments_max`.
        self.places.requests.len() as u16
    }

    /// Sends some of the fragments, in their order; [`SendEvents::sent`] is called when they have
    /// left. Any context that owns the transfer.
    ///
    /// # Errors
    ///
    /// Returns `EINVAL` for none, or one that does not exist; `ENOMEM` if more are on their way
    /// than the transfer has; or what the device says. After one of the device the transfer has
    /// [failed](SendEvents::failed), and is to be finished.
    pub fn post(&mut self, fragments: Range<u16>) -> Result {
        let (qp, _) = self.active.parts()?;
        let pending = &qp.handler().pending;
        if pending.has_failed() {
            return Err(EIO);
        }
        let first = self.places.link(fragments)?;
        pending.add(1);
        // SAFETY: The requests are linked, the last one to none, with an entry of the queue pair
        // and segments of its domain. Their memory is that of the loan, which is not given back
        // before the last of them has completed, and all before it: it is counted. The address
        // handle is one of the domain, and `self` has it; only the last request is signaled.
        unsafe { qp.post_send(first, Posted::LAST_SIGNALED) }.inspect_err(|_| pending.fail())
    }

    /// Ends the transfer: if fragments are on their way still, or one has failed, by way of the
    /// error state. Sleeps; after a failure of the device for up to 30 seconds.
    ///
    /// # Errors
    ///
    /// Returns the transfer if the device did not flush the sends.
    pub fn finish(self) -> Result<(SendQp<H>, L), Self> {
        let Self {
            active,
            places,
            to,
            fragments_max,
        } = self;
        match active.finish() {
            Ok((mut queue, loan)) => {
                let lender = queue.take_back(loan);
                let qp = SendQp {
                    queue,
                    places,
                    fragments_max,
                };
                Ok((qp, lender))
            }
            Err((_, active)) => Err(Self {
                active,
                places,
                to,
                fragments_max,
            }),
        }
    }

    /// Ends the transfer as [`finish`](Self::finish), and waits as long as the device takes: until
    /// then it may read the memory. Sleeps.
    pub fn end(self) -> (SendQp<H>, L) {
        until_flushed(self, Self::finish)
    }
}
