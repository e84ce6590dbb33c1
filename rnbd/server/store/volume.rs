// SPDX-License-Identifier: GPL-2.0

//! An open device with a sidecar: the queues of its clients, ended IO, and the work item.

use block_ext::{
    bdev::BlockDevice,
    bio::{
        BioData,
        BioPool, //
    },
};
use core::cell::Cell;
use kernel::{
    prelude::*,
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
    workqueue::{
        impl_has_delayed_work,
        impl_has_work,
        new_delayed_work,
        new_work,
        DelayedWork,
        Work,
        WorkItem, //
    },
};
use kernel_ext::{
    new_irq_lock,
    sync::{
        atomic::{
            AtomicBool,
            AtomicU32,
            AtomicU64,
            Ordering::{
                AcqRel,
                Acquire,
                Relaxed,
                Release, //
            }, //
        },
        CompleteOnDrop,
        Completion,
        IrqLock, //
    },
    workqueue::{
        self,
        DelayedItem,
        WorkQueue, //
    },
};
use rtrs_server::Operation;

use super::{
    client_queue::ClientQueue,
    ended::Ended,
    engine::{
        Engine,
        Event,
        EVENTS_MAX, //
    },
    growth::Growing,
    lease::Lease,
    scrub::Scrub,
    Crc, //
};
use crate::{
    server::log_limit::CHANGES_LIMIT,
    sidecar::{
        claim::mark::Holder,
        inline_submit::InlineSubmit,
        layout::Layout,
        ring::Ring,
        superblock::Superblock,
        tuple::Seal, //
    },
};

/// The resources for the IO of a device.
pub(super) type IoResources = (
    Arc<BlockDevice>,
    Arc<BioPool<StoreIo>>,
    Arc<WorkQueue>,
    Arc<Lease>,
);

/// No thread runs the engine, and nothing is new.
const IDLE: u32 = 0;
/// A thread runs the engine, and has seen all that is new.
const RUNNING: u32 = 1;
/// A change waits: the thread that runs the engine, or the work item when it runs, looks at it.
const PENDING: u32 = 2;

/// The thread that runs the engine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runner {
    /// The work item.
    Worker,
    /// The thread that has submitted a request.
    Submitter,
}

impl Runner {
    /// Returns the maximum number of rounds of one run: a write that waits for nothing ends in the
    /// third one, and in the fourth there is nothing new.
    const fn rounds(self) -> u32 {
        match self {
            Self::Worker => u32::MAX,
            Self::Submitter => 8,
        }
    }
}

/// A device with a sidecar.
///
/// Locking: `engine` is taken by the one thread that has changed `runner` from [`IDLE`], the work
/// item's or one that submits a request, and when the device is drained; `client_queues`, `scrub`
/// and `growing` inside it.
#[pin_data]
pub(super) struct Volume {
    device: Arc<BlockDevice>,
    bios: Arc<BioPool<StoreIo>>,
    queue: Arc<WorkQueue>,
    lease: Arc<Lease>,
    /// The number of data blocks of the engine's layout.
    data_blocks: AtomicU64,
    seal: Seal,
    /// [`IDLE`], [`RUNNING`] or [`PENDING`].
    runner: AtomicU32,
    /// An [`InlineSubmit`]; of the thread that uses the engine.
    inline_submit: AtomicU32,
    is_draining: AtomicBool,
    /// Whether a scrub may have a piece to be read.
    is_scrubbing: AtomicBool,
    #[pin]
    scrub: Mutex<Scrub>,
    /// Whether a growth may have a step to be taken.
    is_growing: AtomicBool,
    #[pin]
    growing: Mutex<Growing>,
    /// The clock has ticked.
    has_ticked: AtomicBool,
    #[pin]
    drained: Completion,
    /// The IO that has ended; there is room for all IO that can be in flight.
    #[pin]
    ended: IrqLock<KVec<Ended>>,
    #[pin]
    client_queues: Mutex<KVec<Arc<ClientQueue>>>,
    #[pin]
    engine: Mutex<KBox<Engine>>,
    #[pin]
    work: Work<Volume>,
    #[pin]
    clock: DelayedWork<Volume, 1>,
    // Dropped last: completes when no reference is left.
    _gone: CompleteOnDrop,
}

impl_has_work! {
    impl HasWork<Self> for Volume { self.work }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for Volume { self.clock }
}

impl DelayedItem<1> for Volume {
    fn wq(&self) -> &WorkQueue {
        &self.queue
    }
}

/// The clock, which ticks while something is to be done when the device rests.
impl WorkItem<1> for Volume {
    type Pointer = Arc<Volume>;

    fn run(volume: Arc<Volume>) {
        volume.has_ticked.store(true, Release);
        Self::kick(&volume);
    }
}

impl WorkItem for Volume {
    type Pointer = Arc<Volume>;

    fn run(volume: Arc<Volume>) {
        Self::run_engine(&volume, Runner::Worker);
    }
}

impl Volume {
    /// Creates the state of a device whose journal was replayed; `gone` completes when the last
    /// reference is dropped. A frame of its own: the caller has one of the replay.
    #[inline(never)]
    pub(super) fn new(
        (device, bios, queue, lease): IoResources,
        (superblock, holder): (KBox<Superblock>, Holder),
        ring: Ring,
        gone: Arc<Completion>,
    ) -> Result<Arc<Self>> {
        let seal = superblock.seal(&Crc);
        let layout = superblock.layout;
        let data_blocks = layout.data_blocks();
        let engine = Engine::new(layout, seal, ring, device.has_write_cache())?;
        let ended = KVec::with_capacity(EVENTS_MAX, GFP_KERNEL)?;
        Arc::pin_init(
            pin_init!(Self {
                device,
                bios,
                queue,
                lease,
                data_blocks: AtomicU64::new(data_blocks),
                seal,
                runner: AtomicU32::new(IDLE),
                inline_submit: AtomicU32::new(InlineSubmit::default().into_raw()),
                is_draining: AtomicBool::new(false),
                is_scrubbing: AtomicBool::new(false),
                scrub <- new_mutex!(Scrub::new(), "rnbd_server::Volume::scrub"),
                is_growing: AtomicBool::new(false),
                growing <- new_mutex!(
                    Growing::new(superblock, holder),
                    "rnbd_server::Volume::growing"
                ),
                has_ticked: AtomicBool::new(false),
                drained <- Completion::new(),
                ended <- new_irq_lock!(ended, "rnbd_server::Volume::ended"),
                client_queues <- new_mutex!(KVec::new()),
                engine <- new_mutex!(engine),
                work <- new_work!("rnbd_server::Volume::work"),
                clock <- new_delayed_work!("rnbd_server::Volume::clock"),
                _gone: CompleteOnDrop::new(gone),
            }),
            GFP_KERNEL,
        )
    }

    /// Queues the work item to look at what is new, unless a thread runs the engine, which sees it.
    /// Any context.
    pub(super) fn kick(volume: &Arc<Self>) {
        if volume.set_pending() {
            let _ = volume.queue.enqueue::<Arc<Self>, 0>(volume.clone());
        }
    }

    /// Carries out a request that the caller has just queued, in this thread or by the work item.
    /// Sleeps.
    pub(super) fn submitted(volume: &Arc<Self>) {
        if !volume.set_pending() {
            return;
        }
        match InlineSubmit::from_raw(volume.inline_submit.load(Relaxed)).at_once() {
            Some(inline_submit) => {
                volume
                    .inline_submit
                    .store(inline_submit.into_raw(), Relaxed);
                Self::run_engine(volume, Runner::Submitter);
            }
            None => {
                let _ = volume.queue.enqueue::<Arc<Self>, 0>(volume.clone());
            }
        }
    }

    /// Notes that something is new; returns whether the caller must run the engine or queue the
    /// work item, as no thread runs it.
    fn set_pending(&self) -> bool {
        self.runner.swap(PENDING, AcqRel) == IDLE
    }

    /// Notes that the caller, which runs the engine, is about to look at all that is new.
    pub(super) fn look(&self) {
        self.runner.swap(RUNNING, AcqRel);
    }

    /// Runs the engine until nothing is new, for the thread that has changed `runner` from
    /// [`IDLE`]. Sleeps.
    fn run_engine(volume: &Arc<Self>, by: Runner) {
        loop {
            let mut engine = volume.engine.lock();
            let run = engine.run(volume, by.rounds());
            drop(engine);
            if run.is_drained {
                volume.drained.complete_all();
            }
            if by == Runner::Worker {
                let inline_submit = InlineSubmit::from_raw(volume.inline_submit.load(Relaxed));
                let inline_submit = inline_submit.after_worker(run.together);
                volume
                    .inline_submit
                    .store(inline_submit.into_raw(), Relaxed);
            }
            let leave = || {
                volume
                    .runner
                    .compare_exchange(RUNNING, IDLE, AcqRel, Relaxed)
            };
            if run.is_complete && leave().is_ok() {
                return;
            }
            if by == Runner::Submitter {
                // It has other requests to submit.
                volume.runner.store(PENDING, Release);
                let _ = volume.queue.enqueue::<Arc<Self>, 0>(volume.clone());
                return;
            }
        }
    }

    /// Writes all tuples back and empties the journal. No requests are left, and none come. Sleeps.
    pub(super) fn drain(self: &Arc<Self>) {
        self.is_draining.store(true, Release);
        Self::kick(self);
        self.drained.wait();
        // The engine has seen that the device is being drained, and starts the clock no more.
        drop(workqueue::cancel_delayed_sync::<_, 1>(self));
        if !self.engine.lock().is_clean() && CHANGES_LIMIT.allow().is_some() {
            let name = self.device.name().unwrap_or_default();
            pr_warn!("{name}: closed with a journal that the next opening replays\n");
        }
    }

    /// Lets the clock tick in `delay_ms` milliseconds. Called by the thread that uses the engine,
    /// once for each tick.
    pub(super) fn tick_in(volume: &Arc<Self>, delay_ms: u32) {
        // It is not pending.
        let _ = workqueue::queue_delayed::<_, 1>(volume.clone(), delay_ms);
    }

    /// Returns whether the clock has ticked since the last call. Called by the thread that uses
    /// the engine.
    pub(super) fn take_tick(&self) -> bool {
        self.has_ticked.load(Relaxed) && self.has_ticked.swap(false, AcqRel)
    }

    /// Returns the scrub.
    pub(super) fn scrub(&self) -> &Mutex<Scrub> {
        &self.scrub
    }

    /// Returns whether the device is being drained.
    pub(super) fn is_draining(&self) -> bool {
        self.is_draining.load(Acquire)
    }

    /// Returns whether there may be a piece of a scrub to be read.
    pub(super) fn is_scrubbing(&self) -> bool {
        self.is_scrubbing.load(Acquire)
    }

    /// Says whether there may be a piece of a scrub to be read. Called under `scrub`.
    pub(super) fn set_scrubbing(&self, is_scrubbing: bool) {
        self.is_scrubbing.store(is_scrubbing, Release);
    }

    /// Returns the growth.
    pub(super) fn growing(&self) -> &Mutex<Growing> {
        &self.growing
    }

    /// Returns whether there may be a step of a growth to be taken.
    pub(super) fn is_growing(&self) -> bool {
        self.is_growing.load(Acquire)
    }

    /// Says whether there may be a step of a growth to be taken. Called under `growing`.
    pub(super) fn set_growing(&self, is_growing: bool) {
        self.is_growing.store(is_growing, Release);
    }

    /// Returns the permission to use the device.
    pub(super) fn lease(&self) -> &Lease {
        &self.lease
    }

    /// Returns the device.
    pub(super) fn device(&self) -> &BlockDevice {
        &self.device
    }

    /// Returns the seal of its tuples.
    pub(super) fn seal(&self) -> &Seal {
        &self.seal
    }

    /// Returns the number of data blocks.
    pub(super) fn data_blocks(&self) -> u64 {
        self.data_blocks.load(Relaxed)
    }

    /// The engine has another layout from now on. Called by the thread that uses it.
    pub(super) fn set_data_blocks(&self, layout: &Layout) {
        self.data_blocks.store(layout.data_blocks(), Relaxed);
    }

    /// Adds a mapping.
    pub(super) fn add_client_queue(&self, client_queue: Arc<ClientQueue>) -> Result {
        Ok(self.client_queues.lock().push(client_queue, GFP_KERNEL)?)
    }

    /// Removes a mapping.
    pub(super) fn remove_client_queue(&self, client_queue: &Arc<ClientQueue>) {
        let mut client_queues = self.client_queues.lock();
        let mut removed = None;
        if let Some(index) = client_queues
            .iter()
            .position(|other| Arc::ptr_eq(other, client_queue))
        {
            removed = client_queues.remove(index).ok();
        }
        drop(client_queues);
        drop(removed);
    }

    /// Returns whether a mapping uses the device.
    pub(super) fn has_client_queues(&self) -> bool {
        !self.client_queues.lock().is_empty()
    }

    /// Takes a request that waits, of the client queues in turn.
    pub(super) fn next_request(&self, turn: &mut usize) -> Option<(Operation, Arc<ClientQueue>)> {
        let client_queues = self.client_queues.lock();
        if self.lease.is_lost() {
            for client_queue in client_queues.iter() {
                while let Some(operation) = client_queue.pop() {
                    client_queue.answer(operation, Err(EIO));
                }
            }
            return None;
        }
        for _ in 0..client_queues.len() {
            *turn = turn
                .wrapping_add(1)
                .checked_rem(client_queues.len())
                .unwrap_or(0);
            let client_queue = client_queues.get(*turn)?;
            if let Some(operation) = client_queue.pop() {
                return Some((operation, client_queue.clone()));
            }
        }
        None
    }

    /// Takes something that has ended.
    pub(super) fn next_ended(&self) -> Option<Ended> {
        self.ended.lock().pop()
    }
}

/// An IO of a device with a sidecar.
pub(super) struct StoreIo {
    volume: Arc<Volume>,
    event: Event,
    is_refused: Cell<bool>,
}

impl StoreIo {
    /// Creates one, whose end is `event`.
    pub(super) fn new(volume: Arc<Volume>, event: Event) -> Self {
        Self {
            volume,
            event,
            is_refused: Cell::new(false),
        }
    }

    /// Notes that the IO is not begun; the caller ends it with an error.
    #[cold]
    pub(super) fn refuse(&self) {
        self.is_refused.set(true);
    }
}

impl BioData for StoreIo {
    type Tuples = ();

    fn device(&self) -> &BlockDevice {
        &self.volume.device
    }

    fn pool(&self) -> &BioPool<Self> {
        &self.volume.bios
    }

    fn end(self, result: Result) {
        let ended = Ended {
            event: self.event,
            result,
            is_refused: self.is_refused.get(),
        };
        // There is room: see `EVENTS_MAX`.
        let _ = self.volume.ended.lock().push_within_capacity(ended);
        Volume::kick(&self.volume);
    }
}
