// SPDX-License-Identifier: GPL-2.0

//! What a device with a sidecar shares: its ports, what has ended, and the work item.

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
    ended::Ended,
    engine::{
        Engine,
        Event,
        EVENTS_MAX, //
    },
    growth::Growing,
    lease::Lease,
    port::Port,
    scrub::Scrub,
    Crc, //
};
use crate::{
    server::{
        io::Notice,
        session::CHANGES_LIMIT, //
    },
    sidecar::{
        arrival::Arrival,
        claim::mark::Holder,
        layout::Layout,
        ring::Ring,
        superblock::Superblock,
        tuple::Seal, //
    },
};

/// What the IO of a device needs.
pub(super) type Means = (
    Arc<BlockDevice>,
    Arc<BioPool<StoreIo>>,
    Arc<WorkQueue>,
    Arc<Lease>,
);

/// Who uses the engine: no thread.
const AT_REST: u32 = 0;
/// A thread, which has seen all that is new.
const IN_USE: u32 = 1;
/// A thread, or the work item when it runs, will look at what is new.
const HAS_NEWS: u32 = 2;

/// Who uses the engine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum User {
    /// The work item.
    Worker,
    /// The thread that has brought a request.
    Bringer,
}

impl User {
    /// The number of rounds after which it has done enough: a write that waits for nothing ends in
    /// the third one, and in the fourth there is nothing new.
    const fn rounds(self) -> u32 {
        match self {
            Self::Worker => u32::MAX,
            Self::Bringer => 8,
        }
    }
}

/// A device with a sidecar.
///
/// Locking: `engine` is taken by the one thread that has changed `use_` from [`AT_REST`], the work
/// item's or one that brings a request, and when the device is drained; `ports`, `scrub` and
/// `growing` inside it.
#[pin_data]
pub(super) struct Core {
    device: Arc<BlockDevice>,
    bios: Arc<BioPool<StoreIo>>,
    queue: Arc<WorkQueue>,
    lease: Arc<Lease>,
    /// Of the engine's layout.
    data_blocks: AtomicU64,
    seal: Seal,
    /// [`AT_REST`], [`IN_USE`] or [`HAS_NEWS`].
    use_: AtomicU32,
    /// An [`Arrival`]; of the thread that uses the engine.
    arrival: AtomicU32,
    is_draining: AtomicBool,
    /// There may be a piece of a scrub to be read.
    is_scrubbing: AtomicBool,
    #[pin]
    scrub: Mutex<Scrub>,
    /// There may be a step of a growth to be taken.
    is_growing: AtomicBool,
    #[pin]
    growing: Mutex<Growing>,
    /// The clock has ticked.
    has_ticked: AtomicBool,
    #[pin]
    drained: Completion,
    /// What has ended; there is room for all IO that can be in flight.
    #[pin]
    ended: IrqLock<KVec<Ended>>,
    #[pin]
    ports: Mutex<KVec<Arc<Port>>>,
    #[pin]
    engine: Mutex<KBox<Engine>>,
    #[pin]
    work: Work<Core>,
    #[pin]
    clock: DelayedWork<Core, 1>,
    // Dropped last: completes when no reference is left.
    _gone: Notice,
}

impl_has_work! {
    impl HasWork<Self> for Core { self.work }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 1> for Core { self.clock }
}

impl DelayedItem<1> for Core {
    fn wq(&self) -> &WorkQueue {
        &self.queue
    }
}

/// The clock, which ticks while something is to be done when the device rests.
impl WorkItem<1> for Core {
    type Pointer = Arc<Core>;

    fn run(core: Arc<Core>) {
        core.has_ticked.store(true, Release);
        Self::kick(&core);
    }
}

impl WorkItem for Core {
    type Pointer = Arc<Core>;

    fn run(core: Arc<Core>) {
        Self::use_engine(&core, User::Worker);
    }
}

impl Core {
    /// Creates the state of a device whose journal was replayed; `gone` completes when the last
    /// reference is dropped. A frame of its own: the caller has one of the replay.
    #[inline(never)]
    pub(super) fn new(
        (device, bios, queue, lease): Means,
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
                use_: AtomicU32::new(AT_REST),
                arrival: AtomicU32::new(Arrival::default().into_raw()),
                is_draining: AtomicBool::new(false),
                is_scrubbing: AtomicBool::new(false),
                scrub <- new_mutex!(Scrub::new(), "rnbd_server::Core::scrub"),
                is_growing: AtomicBool::new(false),
                growing <- new_mutex!(
                    Growing::new(superblock, holder),
                    "rnbd_server::Core::growing"
                ),
                has_ticked: AtomicBool::new(false),
                drained <- Completion::new(),
                ended <- new_irq_lock!(ended, "rnbd_server::Core::ended"),
                ports <- new_mutex!(KVec::new()),
                engine <- new_mutex!(engine),
                work <- new_work!("rnbd_server::Core::work"),
                clock <- new_delayed_work!("rnbd_server::Core::clock"),
                _gone: Notice::new(gone),
            }),
            GFP_KERNEL,
        )
    }

    /// Something is new: lets the work item run, unless another thread uses the engine, which will
    /// see it. Any context.
    pub(super) fn kick(core: &Arc<Self>) {
        if core.has_news() {
            let _ = core.queue.enqueue::<Arc<Self>, 0>(core.clone());
        }
    }

    /// A request has come: it is carried out here and now, or by the work item. Sleeps.
    pub(super) fn came(core: &Arc<Self>) {
        if !core.has_news() {
            return;
        }
        match Arrival::from_raw(core.arrival.load(Relaxed)).at_once() {
            Some(arrival) => {
                core.arrival.store(arrival.into_raw(), Relaxed);
                Self::use_engine(core, User::Bringer);
            }
            None => {
                let _ = core.queue.enqueue::<Arc<Self>, 0>(core.clone());
            }
        }
    }

    /// Notes that something is new; returns whether the caller has to see to it that the engine is
    /// used.
    fn has_news(&self) -> bool {
        self.use_.swap(HAS_NEWS, AcqRel) == AT_REST
    }

    /// The caller, who uses the engine, looks at all that is new from here on.
    pub(super) fn look(&self) {
        self.use_.swap(IN_USE, AcqRel);
    }

    /// Uses the engine until nothing is new, for the thread that is to see to it. Sleeps.
    fn use_engine(core: &Arc<Self>, by: User) {
        loop {
            let mut engine = core.engine.lock();
            let run = engine.run(core, by.rounds());
            drop(engine);
            if run.is_drained {
                core.drained.complete_all();
            }
            if by == User::Worker {
                let arrival = Arrival::from_raw(core.arrival.load(Relaxed));
                let arrival = arrival.after_worker(run.together);
                core.arrival.store(arrival.into_raw(), Relaxed);
            }
            let leave = || core.use_.compare_exchange(IN_USE, AT_REST, AcqRel, Relaxed);
            if run.is_complete && leave().is_ok() {
                return;
            }
            if by == User::Bringer {
                // It has other requests to bring.
                core.use_.store(HAS_NEWS, Release);
                let _ = core.queue.enqueue::<Arc<Self>, 0>(core.clone());
                return;
            }
        }
    }

    /// Writes all tuples home and empties the journal. No requests are left, and none come. Sleeps.
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
    pub(super) fn tick_in(core: &Arc<Self>, delay_ms: u32) {
        // It is not pending.
        let _ = workqueue::queue_delayed::<_, 1>(core.clone(), delay_ms);
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
    pub(super) fn add_port(&self, port: Arc<Port>) -> Result {
        Ok(self.ports.lock().push(port, GFP_KERNEL)?)
    }

    /// Removes a mapping.
    pub(super) fn remove_port(&self, port: &Arc<Port>) {
        let mut ports = self.ports.lock();
        let mut removed = None;
        if let Some(index) = ports.iter().position(|other| Arc::ptr_eq(other, port)) {
            removed = ports.remove(index).ok();
        }
        drop(ports);
        drop(removed);
    }

    /// Returns whether a mapping uses the device.
    pub(super) fn has_ports(&self) -> bool {
        !self.ports.lock().is_empty()
    }

    /// Takes a request that waits, of the ports in turn.
    pub(super) fn next_request(&self, turn: &mut usize) -> Option<(Operation, Arc<Port>)> {
        let ports = self.ports.lock();
        if self.lease.is_lost() {
            for port in ports.iter() {
                while let Some(operation) = port.pop() {
                    port.answer(operation, Err(EIO));
                }
            }
            return None;
        }
        for _ in 0..ports.len() {
            *turn = turn.wrapping_add(1).checked_rem(ports.len()).unwrap_or(0);
            let port = ports.get(*turn)?;
            if let Some(operation) = port.pop() {
                return Some((operation, port.clone()));
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
    core: Arc<Core>,
    event: Event,
    is_refused: Cell<bool>,
}

impl StoreIo {
    /// Creates one, whose end is `event`.
    pub(super) fn new(core: Arc<Core>, event: Event) -> Self {
        Self {
            core,
            event,
            is_refused: Cell::new(false),
        }
    }

    /// It will not be begun.
    #[cold]
    pub(super) fn refuse(&self) {
        self.is_refused.set(true);
    }
}

impl BioData for StoreIo {
    type Tuples = ();

    fn device(&self) -> &BlockDevice {
        &self.core.device
    }

    fn pool(&self) -> &BioPool<Self> {
        &self.core.bios
    }

    fn end(self, result: Result) {
        let ended = Ended {
            event: self.event,
            result,
            is_refused: self.is_refused.get(),
        };
        // There is room: see `EVENTS_MAX`.
        let _ = self.core.ended.lock().push_within_capacity(ended);
        Core::kick(&self.core);
    }
}
