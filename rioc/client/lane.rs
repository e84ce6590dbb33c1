// SPDX-License-Identifier: GPL-2.0

//! The lanes of a session: each has the memory of one operation, and its chunk at the server.
//!
//! An operation owns its lane's [`Flight`] until it has ended. While RTRS has it nothing of it is
//! used; then it lies in its lane until the task that waits takes it, or goes back to the idle ones
//! if that task was killed.

use kernel::{
    page::PAGE_SIZE,
    prelude::*,
    sync::Arc, //
};
use kernel_ext::{
    errno,
    new_irq_lock,
    pages::PageBlock,
    scatterlist::{
        SgList,
        SgTable, //
    },
    sync::{
        atomic::{
            AtomicBool,
            Ordering, //
        },
        new_wait_queue,
        IrqLock,
        WaitQueue, //
    }, //
};
use rtrs_client::{
    Direction,
    Transfer, //
};
use zerocopy::{
    little_endian::U64,
    FromBytes, //
};

use crate::proto::{
    message::{
        self,
        Message,
        Operation, //
    },
    retry::{
        Again,
        Life,
        Sendings, //
    },
    span::IO_BYTES_MAX,
    ticket::Ticket,
    wire::{
        Head,
        READ_ANSWER_BYTES,
        REQUEST_BYTES_MAX, //
    },
};

/// The place of what is written in the pages, and of what is read: behind the head of its answer.
pub(super) const DATA: usize = PAGE_SIZE;
/// The place of an answer.
pub(super) const ANSWER: usize = DATA - READ_ANSWER_BYTES as usize;

/// The most lanes of a session: with each there are 128 KiB.
const LANES_MAX: u16 = 64;

/// The state of an operation that RTRS has given back.
#[derive(Clone, Copy)]
pub(super) enum Ended {
    /// The server has answered.
    Answered(Result),
    /// The server may have carried it out or not; it is sent again.
    Lost(rtrs_client::Ticket),
}

/// The memory of a lane, and the operation for which it is used.
pub(super) struct Flight {
    lane: u16,
    /// The number of its last operation that has changed something.
    sequence: u64,
    sendings: Sendings,
    pages: Arc<PageBlock>,
    table: SgTable,
    message: [u8; REQUEST_BYTES_MAX],
    message_bytes: usize,
    direction: Direction,
    ended: Ended,
    /// A copy of it was lost since it was sent by [`Self::is_sent_in`].
    has_lost_a_copy: AtomicBool,
    /// Set while RTRS has it.
    lanes: Option<Arc<Lanes>>,
}

impl Flight {
    fn new(lane: u16) -> Result<KBox<Self>> {
        let order = PageBlock::order_for(DATA + IO_BYTES_MAX as usize);
        let flight = Self {
            lane,
            sequence: 0,
            sendings: Sendings::default(),
            pages: Arc::new(PageBlock::new(order)?, GFP_KERNEL)?,
            table: SgTable::new(1)?,
            message: [0; REQUEST_BYTES_MAX],
            message_bytes: 0,
            direction: Direction::Read,
            ended: Ended::Answered(Ok(())),
            has_lost_a_copy: AtomicBool::new(false),
            lanes: None,
        };
        Ok(KBox::new(flight, GFP_KERNEL)?)
    }

    /// Returns the number of a new operation.
    fn next_ticket(&mut self) -> Option<Ticket> {
        self.sequence = self.sequence.saturating_add(1);
        Ticket::new(self.lane, self.sequence)
    }

    /// Makes it a new operation, if it changes something: the server says that of its number
    /// nothing was carried out.
    pub(super) fn renew(&mut self) {
        self.has_lost_a_copy.store(false, Ordering::Relaxed);
        self.sendings.renew();
        self.renumber();
    }

    fn renumber(&mut self) {
        let ticket = self.next_ticket();
        if let (Some(head), Some(ticket)) = (self.head(), ticket) {
            if head.ticket != U64::ZERO {
                head.ticket = U64::new(ticket.word());
            }
        }
    }

    fn head(&mut self) -> Option<&mut Head> {
        let head = Head::mut_from_prefix(&mut self.message);
        head.ok().map(|(head, _)| head)
    }

    /// Makes its message, as a new operation of a file that has attached to this store of
    /// [`Life`].
    pub(super) fn prepare(
        &mut self,
        operation: Operation<'_>,
        (lease, store): (u32, u64),
    ) -> Result {
        let is_change = operation.is_change();
        let ticket = is_change.then(|| self.next_ticket()).flatten();
        self.ended = Ended::Answered(Ok(()));
        self.sendings = Sendings::new(is_change, store);
        self.has_lost_a_copy.store(false, Ordering::Relaxed);
        self.direction = match operation.direction() {
            message::Direction::Read => Direction::Read,
            message::Direction::Write => Direction::Write,
        };
        let message = Message {
            lease,
            ticket,
            // That of the life in which it is sent.
            incarnation: 0,
            operation,
        };
        self.message_bytes = message.write(&mut self.message).ok_or(EINVAL)?;
        self.table.clear()?;
        let data = match self.direction {
            Direction::Read => {
                // An answer of before is none of this operation.
                let bytes = match operation {
                    Operation::List { .. } => operation.data_bytes(),
                    _ => READ_ANSWER_BYTES,
                };
                self.pages.zero(ANSWER, bytes as usize)?;
                ANSWER
            }
            Direction::Write => DATA,
        };
        match operation.data_bytes() {
            0 => Ok(()),
            bytes => self.table.push(self.pages.clone(), data, bytes),
        }
    }

    /// Returns whether it changes something, and was sent before.
    pub(super) fn was_sent(&self) -> bool {
        self.sendings.was_sent()
    }

    /// Takes back what [`Self::is_sent_in`] has noted.
    pub(super) fn was_not_sent(&mut self) {
        self.sendings.was_not_sent();
    }

    /// Says that it is sent now, as a new operation if that is right; returns false if it must not
    /// be sent any more: the server does not know whether it was carried out, or has another store
    /// than that of its file.
    pub(super) fn is_sent_in(&mut self, life: Life) -> bool {
        if self.has_lost_a_copy.swap(false, Ordering::Acquire) {
            self.sendings.has_lost_a_copy();
        }
        match self.sendings.send(life) {
            Again::Refused => return false,
            Again::Renewed => self.renumber(),
            Again::Same => (),
        }
        if let Some(head) = self.head() {
            // Another task may attach to another store before it comes.
            head.incarnation = U64::new(life.incarnation);
        }
        true
    }

    /// A copy of it was lost: from now on it may have been carried out.
    fn doubt(&self) {
        self.has_lost_a_copy.store(true, Ordering::Release);
    }

    /// Returns its pages.
    pub(super) fn pages(&self) -> &PageBlock {
        &self.pages
    }

    /// Returns the number of its lane.
    pub(super) fn lane(&self) -> u16 {
        self.lane
    }

    /// Returns how it has ended.
    pub(super) fn ended(&self) -> Ended {
        self.ended
    }

    /// Passes it to RTRS.
    pub(super) fn submit(
        mut self: KBox<Self>,
        lanes: &Arc<Lanes>,
        send: impl FnOnce(u16, Direction, &[u8], Sent) -> Result<(), rtrs_client::Rejected<Sent>>,
    ) -> Result<(), (Error, KBox<Self>)> {
        let (lane, direction, message) = (self.lane, self.direction, self.message);
        let message = message.get(..self.message_bytes).unwrap_or_default();
        self.lanes = Some(lanes.clone());
        send(lane, direction, message, Sent(self)).map_err(|back| {
            let mut flight = back.transfer.0;
            // It may lie idle among these lanes, and would keep them.
            flight.lanes = None;
            (back.error, flight)
        })
    }
}

/// A flight that RTRS has.
pub(super) struct Sent(KBox<Flight>);

impl Sent {
    fn land(mut self, ended: Ended) {
        self.0.ended = ended;
        if let Some(lanes) = self.0.lanes.take() {
            lanes.land(self.0);
        }
    }
}

impl Transfer for Sent {
    fn data_len(&self) -> u32 {
        self.0.table.len_bytes()
    }

    fn sg(&mut self) -> &mut SgList {
        &mut self.0.table
    }

    fn done(self, result: Result) {
        if result == Err(errno::ECONNABORTED) {
            self.0.doubt();
        }
        self.land(Ended::Answered(result));
    }

    fn requeue(self, ticket: rtrs_client::Ticket) {
        self.0.doubt();
        self.land(Ended::Lost(ticket));
    }

    fn is_valid(&self, _message: &[u8]) -> bool {
        // The path to which it was sent is lost.
        self.0.doubt();
        // A path leads to the same life of the same store, or is not used.
        let lanes = self.0.lanes.as_ref();
        lanes.is_some_and(|lanes| self.0.sendings.is_valid(lanes.life()))
    }

    fn ticket(&self) -> Option<rtrs_client::Ticket> {
        match self.0.ended {
            Ended::Lost(ticket) => Some(ticket),
            Ended::Answered(_) => None,
        }
    }
}

/// A lane's operation, for the task that waits for it.
#[derive(Default)]
struct Landing {
    flight: Option<KBox<Flight>>,
    /// No task waits any more.
    is_given_up: bool,
}

#[pin_data]
struct Lane {
    #[pin]
    landing: IrqLock<Landing>,
    #[pin]
    landed: WaitQueue,
}

/// The lanes of a session.
#[pin_data]
pub(super) struct Lanes {
    /// The flights that no operation uses; there is room for all.
    #[pin]
    idle: IrqLock<KVec<KBox<Flight>>>,
    #[pin]
    freed: WaitQueue,
    lanes: KVec<Arc<Lane>>,
    /// The life of the store that the server has named last.
    #[pin]
    life: IrqLock<Life>,
}

impl Lanes {
    /// Allocates as many as the server has chunks, or as there is memory for, but at least one. May
    /// sleep.
    pub(super) fn new(count: u16) -> Result<Arc<Self>> {
        let count = count.min(LANES_MAX);
        let mut idle = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        let mut lanes = KVec::with_capacity(count.into(), GFP_KERNEL)?;
        for number in 0..count {
            let flight = match Flight::new(number) {
                Ok(flight) => flight,
                Err(_) if number > 0 => break,
                Err(error) => return Err(error),
            };
            idle.push(flight, GFP_KERNEL)?;
            let lane = pin_init!(Lane {
                landing <- new_irq_lock!(Landing::default()),
                landed <- new_wait_queue!(),
            });
            lanes.push(Arc::pin_init(lane, GFP_KERNEL)?, GFP_KERNEL)?;
        }
        Arc::pin_init(
            pin_init!(Self {
                idle <- new_irq_lock!(idle),
                freed <- new_wait_queue!(),
                lanes,
                life <- new_irq_lock!(Life::default()),
            }),
            GFP_KERNEL,
        )
    }

    /// Returns the life of the store, and of the numbers of operations. Any context.
    pub(super) fn life(&self) -> Life {
        *self.life.lock()
    }

    /// Sets it.
    pub(super) fn set_life(&self, life: Life) {
        *self.life.lock() = life;
    }

    /// Takes an idle one; sleeps until there is one, and can be killed.
    pub(super) fn take(&self) -> Result<KBox<Flight>> {
        let mut taken = None;
        self.freed.wait_until_killable(|| {
            taken = self.try_take();
            taken.is_some()
        })?;
        taken.ok_or(EAGAIN)
    }

    /// Takes an idle one, if there is one.
    pub(super) fn try_take(&self) -> Option<KBox<Flight>> {
        self.idle.lock().pop()
    }

    /// Gives back one that has ended.
    pub(super) fn give_back(&self, flight: KBox<Flight>) {
        // There is room for all: nothing is dropped.
        let _ = self.idle.lock().push_within_capacity(flight);
        self.freed.wake_all();
    }

    /// Any context.
    fn land(&self, flight: KBox<Flight>) {
        let Some(lane) = self.lanes.get(usize::from(flight.lane)) else {
            return;
        };
        let mut landing = lane.landing.lock();
        if core::mem::take(&mut landing.is_given_up) {
            drop(landing);
            self.give_back(flight);
        } else {
            landing.flight = Some(flight);
            drop(landing);
            lane.landed.wake_all();
        }
    }

    /// Waits until the operation of a lane has ended; sleeps, and can be killed.
    fn await_landing(&self, lane: u16) -> Result {
        let lane = self.lanes.get(usize::from(lane)).ok_or(EINVAL)?;
        let is_landed = || lane.landing.lock().flight.is_some();
        lane.landed.wait_until_killable(is_landed)
    }

    /// Takes the operation of a lane when it has ended; sleeps, and can be killed: then it is given
    /// up.
    pub(super) fn wait(&self, lane: u16) -> Result<KBox<Flight>> {
        let waited = self.await_landing(lane);
        let lane = self.lanes.get(usize::from(lane)).ok_or(EINVAL)?;
        let mut landing = lane.landing.lock();
        match (landing.flight.take(), waited) {
            (Some(flight), _) => Ok(flight),
            (None, waited) => {
                landing.is_given_up = true;
                waited.and(Err(errno::ECANCELED))
            }
        }
    }
}
