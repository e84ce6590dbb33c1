// SPDX-License-Identifier: GPL-2.0

//! A read that is under way, for its worker and for the handlers of what comes.
//!
//! Handlers give events to the read's machine, and leave what it decides for the worker. Two
//! decisions never wait at a time: behind one to stop, to ask or to end, no handler causes another.

use kernel::{
    new_spinlock,
    prelude::*,
    sync::{
        Arc,
        SpinLock, //
    },
};
use kernel_ext::{
    new_wait_queue,
    sync::{
        atomic::{
            AtomicBool,
            Ordering::Relaxed, //
        },
        WaitQueue, //
    }, //
};
use rdma::Notify;
use rdma_transfer::{
    Arrival,
    ReceiveEvents, //
};

use super::now_us;
use crate::proto::cache::{
    address::NodeId,
    fragment::FragmentLen,
    read_table::ReadId,
    reassembly::Move,
    request::{
        Ask,
        Wanted, //
    },
    requester::{
        event::{
            self,
            Effect,
            Event,
            Step, //
        },
        owners::Owners,
        Requester, //
    },
    tags::Tags, //
};

/// The messages and fragments that have come for a read.
#[pin_data]
pub(super) struct Inbox {
    /// The number of its queue pair.
    qp_index: u16,
    #[pin]
    mail: SpinLock<Mail>,
    /// Fragments have come since the worker has asked to be told.
    has_fragments: AtomicBool,
    /// The queue pair or its completion queue has failed. No mail: the device may say so in an
    /// interrupt, which must not wait for the lock of a thread.
    has_failed: AtomicBool,
    #[pin]
    wake: WaitQueue,
}

struct Mail {
    /// Allocated with the inbox: it is too large for the stack of a worker.
    machine: KBox<Requester>,
    tags: Tags,
    /// A read is under way.
    is_running: bool,
    /// The number of the read in the table of reads in flight.
    read_id: Option<ReadId>,
    /// The effect that a handler has left for the worker.
    effect: Effect,
}

impl Mail {
    fn step(&mut self, event: Event<'_>) -> Step {
        if self.is_running {
            return self.machine.step(event, now_us());
        }
        // What comes is of a read that has ended.
        Step {
            effect: Effect::Wait,
            note: None,
        }
    }
}

impl Inbox {
    /// Allocates it for queue pair `qp_index` of `qps`, for reads by the node `me` with fragments
    /// of this length, which go to the file server after `read_us` microseconds, and may compare
    /// pages with their sums. Sleeps.
    pub(super) fn new(
        (qp_index, qps): (u16, u16),
        me: NodeId,
        fragment_len: FragmentLen,
        (read_us, compares): (u64, bool),
    ) -> Result<Arc<Self>> {
        let mut machine = KBox::new(Requester::idle(me, fragment_len), GFP_KERNEL)?;
        machine.set_limit(read_us);
        if compares {
            machine.compare();
        }
        let mail = Mail {
            machine,
            tags: Tags::new(qp_index, qps),
            is_running: false,
            read_id: None,
            effect: Effect::Wait,
        };
        Arc::pin_init(
            pin_init!(Self {
                qp_index,
                mail <- new_spinlock!(mail, "Inbox::mail"),
                has_fragments: AtomicBool::new(false),
                has_failed: AtomicBool::new(false),
                wake <- new_wait_queue!("Inbox::wake"),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the number of its queue pair.
    pub(super) fn qp_index(&self) -> u16 {
        self.qp_index
    }

    /// Returns the tag of the next request.
    pub(super) fn take_tag(&self) -> u16 {
        self.mail.lock().tags.take()
    }

    /// Begins a read that does not ask the peers `lost`; `None` if its pages have too many
    /// fragments for one request.
    pub(super) fn begin(
        &self,
        wanted: &Wanted,
        read_id: Option<ReadId>,
        lost: &[Option<NodeId>],
    ) -> Option<Effect> {
        let mut mail = self.mail.lock();
        // That of a read before.
        self.has_failed.store(false, Relaxed);
        mail.read_id = read_id;
        mail.is_running = mail.machine.renew(wanted);
        for node in lost.iter().flatten() {
            mail.machine.avoid(*node);
        }
        mail.effect = Effect::Wait;
        let is_running = mail.is_running;
        is_running.then(|| mail.step(Event::Start).effect)
    }

    /// Ends the read; returns the owners that were asked.
    pub(super) fn end(&self) -> Owners {
        let mut mail = self.mail.lock();
        mail.is_running = false;
        *mail.machine.owners()
    }

    /// Takes an event of the worker.
    pub(super) fn step(&self, event: Event<'_>) -> Step {
        self.mail.lock().step(event)
    }

    /// Takes an event of a handler, and calls `count` before the worker can go on and end the read:
    /// its reader may look at the counters then. Returns what was learned of a peer.
    pub(super) fn post(&self, event: Event<'_>, count: impl FnOnce(&Step)) -> Step {
        let step = {
            let mut mail = self.mail.lock();
            let step = mail.step(event);
            count(&step);
            if step.effect != Effect::Wait {
                mail.effect = step.effect;
            }
            step
        };
        if step.effect != Effect::Wait {
            self.wake.wake_all();
        }
        step
    }

    /// Takes a datagram that has come to the queue pair for data, in the worker, which polls it.
    /// There is one for each fragment, and only the last one has an effect.
    fn arrived(&self, landed: event::Landed) {
        let mut mail = self.mail.lock();
        if mail.is_running && mail.machine.arrived(landed, now_us()) {
            mail.effect = Effect::Stop;
        }
    }

    /// Returns whether the worker is to be told of each fragment: the peer has said that all were
    /// sent, and some have not come yet. Until then it does not matter when they come, and the
    /// worker takes all of them at once.
    pub(super) fn misses_fragments(&self) -> bool {
        let mail = self.mail.lock();
        mail.is_running && mail.effect == Effect::Wait && mail.machine.misses_fragments()
    }

    /// Returns what others see of the read.
    pub(super) fn read_id(&self) -> Option<ReadId> {
        self.mail.lock().read_id
    }

    /// Takes what a handler has left; [`Effect::Wait`] if there is nothing.
    pub(super) fn take(&self) -> Effect {
        self.has_fragments.store(false, Relaxed);
        let mut mail = self.mail.lock();
        if self.has_failed.load(Relaxed) && self.has_failed.swap(false, Relaxed) {
            let step = mail.step(Event::Cancel);
            if step.effect != Effect::Wait {
                mail.effect = step.effect;
            }
        }
        core::mem::replace(&mut mail.effect, Effect::Wait)
    }

    /// Waits for what a handler leaves; [`Effect::Wait`] if the time is over, or there are
    /// fragments to be taken. Sleeps.
    pub(super) fn wait(&self, timeout_ms: u32) -> Effect {
        let has_any = || {
            self.has_fragments.load(Relaxed)
                || self.has_failed.load(Relaxed)
                || self.mail.lock().effect != Effect::Wait
        };
        // Both ends are looked at by the caller.
        let _ = self.wake.wait_until_timeout_ms(has_any, timeout_ms);
        self.take()
    }

    /// Returns what a node is asked for besides the pages.
    pub(super) fn ask_of(&self, node: NodeId) -> Option<Ask> {
        let mail = self.mail.lock();
        mail.is_running.then(|| mail.machine.ask_of(node))
    }

    /// Returns the sum that a page is to have, if it is to be compared.
    pub(super) fn sum(&self, page: u8) -> Option<u32> {
        self.mail.lock().machine.sum(page)
    }

    /// Returns the next copy to make.
    pub(super) fn next_move(&self) -> Option<Move> {
        self.mail.lock().machine.next_move()
    }

    /// Tells the worker to end the read. Any context: takes no lock.
    fn fail(&self) {
        self.has_failed.store(true, Relaxed);
        self.wake.wake_all();
    }
}

impl Notify for Inbox {
    // No lock: it may be called in an interrupt.
    fn notify(&self) {
        self.has_fragments.store(true, Relaxed);
        self.wake.wake_all();
    }

    fn broken(&self) {
        pr_err!("the completion queue of a read from other nodes has lost completions\n");
        self.fail();
    }
}

/// The handler of a queue pair for data.
pub(super) struct Landed(pub(super) Arc<Inbox>);

impl ReceiveEvents for Landed {
    const MODULE: &'static ThisModule = &crate::THIS_MODULE;

    fn received(&self, arrival: &Arrival<'_>) {
        if let Ok(slot) = u8::try_from(arrival.slot()) {
            self.0.arrived(event::Landed {
                slot,
                imm: arrival.imm(),
                len_bytes: arrival.len(),
            });
        }
    }

    fn failed(&self) {
        self.0.fail();
    }
}
