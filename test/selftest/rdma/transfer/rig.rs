// SPDX-License-Identifier: GPL-2.0

//! A device that sends to itself: a queue pair for each direction, and what they hear.

use super::{
    super::{
        datagram::find,
        *, //
    },
    check, //
};
use kernel::time::{
    delay::fsleep,
    Delta, //
};
use kernel_ext::{
    new_irq_lock,
    scatterlist::BlockParts,
    sync::{
        atomic::{
            AtomicUsize,
            Ordering::Relaxed, //
        },
        IrqLock, //
    }, //
};
use rdma_transfer::{
    Arrival,
    ReceiveEvents,
    ReceiveQp,
    Receiving,
    SendEvents,
    SendQp,
    Sending, //
};

/// The most fragments of a transfer.
const FRAGMENTS_MAX: u16 = 64;

/// Datagrams that have come in the transfer that runs.
#[pin_data]
pub(crate) struct Inbox {
    /// The handlers take it in softirq context.
    #[pin]
    heard: IrqLock<KVec<Heard>>,
    wrong: AtomicUsize,
}

#[derive(Clone, Copy)]
struct Heard {
    slot: u16,
    imm: Option<u32>,
}

impl Inbox {
    pub(super) fn count(&self) -> usize {
        self.heard.lock().len()
    }

    /// Returns how often a failure was told.
    pub(super) fn wrong(&self) -> usize {
        self.wrong.load(Relaxed)
    }

    /// Forgets these.
    pub(super) fn forgive(&self) {
        self.wrong.store(0, Relaxed);
    }

    /// Waits for `count` datagrams in all.
    pub(super) fn wait(&self, count: usize) -> Result {
        for _ in 0..STEP_MS {
            if self.count() >= count {
                return Ok(());
            }
            fsleep(Delta::from_millis(1));
        }
        pr_err!("{} datagrams have come, of {}\n", self.count(), count);
        Err(ETIMEDOUT)
    }
}

/// The handler of the receiving queue pair.
pub(crate) struct Reception {
    inbox: Arc<Inbox>,
}

impl ReceiveEvents for Reception {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;

    fn received(&self, arrival: &Arrival<'_>) {
        let heard = Heard {
            slot: arrival.slot(),
            imm: arrival.imm(),
        };
        // There is room for all that are posted.
        let _ = self.inbox.heard.lock().push_within_capacity(heard);
    }

    fn failed(&self) {
        self.inbox.wrong.fetch_add(1, Relaxed);
    }
}

/// The number of posts that have been sent in the transfer that runs.
pub(crate) struct Outbox {
    posts: AtomicUsize,
}

impl Outbox {
    /// Waits until `count` posts have been sent in all.
    pub(super) fn wait(&self, count: usize) -> Result {
        for _ in 0..STEP_MS {
            if self.posts.load(Relaxed) >= count {
                return Ok(());
            }
            fsleep(Delta::from_millis(1));
        }
        Err(ETIMEDOUT)
    }
}

/// The handler of the sending queue pair.
pub(crate) struct Transmission(Arc<Outbox>, Arc<Inbox>);

impl SendEvents for Transmission {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;

    fn sent(&self) {
        self.0.posts.fetch_add(1, Relaxed);
    }

    fn failed(&self) {
        self.1.wrong.fetch_add(1, Relaxed);
    }
}

/// Both queue pairs, when they are not in a transfer.
pub(super) struct Rig {
    pub(super) receiver: Option<ReceiveQp<Reception>>,
    pub(super) sender: Option<SendQp<Transmission>>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) mtu_bytes: u32,
    address: AddressHandle,
    pub(super) pd: Arc<Pd>,
    turn: u32,
}

impl Rig {
    pub(super) fn new(address: &SocketAddress) -> Result<Self> {
        let (device, gid_index, _) = find(address)?;
        let pd = Pd::new(&device)?;
        let heard = KVec::with_capacity(FRAGMENTS_MAX.into(), GFP_KERNEL)?;
        let inbox = Arc::pin_init(
            pin_init!(Inbox {
                heard <- new_irq_lock!(heard),
                wrong: AtomicUsize::new(0),
            }),
            GFP_KERNEL,
        )?;
        let posts = AtomicUsize::new(0);
        let outbox = Arc::new(Outbox { posts }, GFP_KERNEL)?;
        let port = DatagramPort {
            port: 1,
            gid_index,
            pkey_index: 0,
            qkey: 0,
        };
        let cq =
            |config: QpConfig| Cq::new(&device, config.cq_entries(), 0, PollContext::Softirq, None);
        let reception = Reception {
            inbox: inbox.clone(),
        };
        let receives = cq(ReceiveQp::<Reception>::config(FRAGMENTS_MAX))?;
        let receiver = ReceiveQp::new(&pd, &receives, &port, FRAGMENTS_MAX, reception)?;
        let transmission = Transmission(outbox.clone(), inbox.clone());
        let sends = cq(SendQp::<Transmission>::config(FRAGMENTS_MAX))?;
        let sender = SendQp::new(&pd, &sends, &port, FRAGMENTS_MAX, transmission)?;
        let to_itself = PortAddress::own(&device, 1, gid_index)?;
        Ok(Self {
            receiver: Some(receiver),
            sender: Some(sender),
            inbox,
            outbox,
            mtu_bytes: device.port(1)?.active_mtu_bytes,
            address: AddressHandle::new(&pd, &to_itself)?,
            pd,
            turn: 0,
        })
    }

    pub(super) fn next_turn(&mut self) -> u32 {
        self.turn = self.turn.wrapping_add(1);
        self.turn
    }

    /// The key of the transfer that runs.
    fn key(&self) -> u32 {
        self.turn.wrapping_add(0x1000)
    }

    /// Makes the receiver ready for the transfer of [`Run::new`](super::Run::new) that is next.
    pub(super) fn prepare_ahead(&mut self) -> Result {
        // It takes a turn to fill the memory, and one to receive.
        let qkey = self.key().wrapping_add(2);
        let receiver = self.receiver.as_mut().ok_or(EINVAL)?;
        receiver.prepare_ahead(qkey);
        check(receiver.prepared_key() == Some(qkey), "it is ready")
    }

    /// Begins to receive, with a new key.
    pub(super) fn receive(
        &mut self,
        lender: BlockParts,
        skip: u32,
        fragment_len: u32,
    ) -> Result<Receiving<Reception, BlockParts>> {
        self.next_turn();
        self.inbox.heard.lock().clear();
        let qp = self.receiver.take().ok_or(EINVAL)?;
        qp.receive(lender, skip, fragment_len, self.key())
            .map_err(|refused| refused.error)
    }

    /// Prepares the sends to a receiver, with its key and `other` added to it.
    pub(super) fn send(
        &mut self,
        lender: BlockParts,
        fragment_len: u32,
        to: &Receiving<Reception, BlockParts>,
        other: u32,
    ) -> Result<Sending<Transmission, BlockParts>> {
        self.outbox.posts.store(0, Relaxed);
        let qp = self.sender.take().ok_or(EINVAL)?;
        let peer = Peer {
            address: &self.address,
            qp_number: to.number()?,
            qkey: self.key().wrapping_add(other),
        };
        let turn = self.turn;
        qp.send(lender, fragment_len, peer, |number| imm(turn, number))
            .map_err(|refused| refused.error)
    }

    /// Checks that what has come in each slot is what `posts` have sent, in this order.
    pub(super) fn check_order(&self, mut numbers: impl Iterator<Item = u16>) -> bool {
        let heard = self.inbox.heard.lock();
        let mut slots = 0u16..;
        let in_order = heard.iter().all(|heard| {
            let wanted = numbers.next().map(|number| imm(self.turn, number));
            Some(heard.slot) == slots.next() && heard.imm == wanted
        });
        in_order && numbers.next().is_none() && self.inbox.wrong.load(Relaxed) == 0
    }
}

/// The turn, and the number of the fragment.
fn imm(turn: u32, number: u16) -> u32 {
    turn << 16 | u32::from(number)
}
