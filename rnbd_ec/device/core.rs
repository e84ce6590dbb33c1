// SPDX-License-Identifier: GPL-2.0

//! State that all contexts of an array share.

use block_ext::{
    bdev::BlockDevice,
    bio::BioPool,
    mq::Request, //
};
use kernel::{
    prelude::*,
    str::{
        CStr,
        CString, //
    },
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
    time::{
        Instant,
        Monotonic, //
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
    sync::{
        atomic::{
            AtomicBool, AtomicU32, AtomicU64,
            Ordering::{
                AcqRel,
                Acquire,
                Relaxed,
                Release, //
            },
        },
        new_irq_lock,
        new_wait_queue,
        CompleteOnDrop,
        Completion,
        IrqLock,
        WaitQueue, //
    },
    workqueue::{
        self,
        DelayedItem,
        WorkQueue, //
    },
};

use super::{
    engine::Engine,
    prepare::{
        Helper,
        Job, //
    },
    queue::Queue,
    stats::Stats,
    submit::{
        MemberIo,
        Submitter, //
    },
    tags::DEPTH,
    upkeep::Upkeep,
    work_queues::ArrayQueues,
    Device, //
};
use crate::proto::{
    array::Io,
    command::Settings, //
};

/// The time between two looks at members, in milliseconds.
const TICK_MS: u32 = 1000;
/// The IOs that can have ended and wait for the engine: for each member the columns of batches, a
/// flush of each kind, a superblock and a page; and the parts of the reads.
pub(super) const ENDED_MAX: usize = 256;

/// The origin of an IO, by which its end is handled.
#[derive(Clone, Copy)]
pub(super) enum Event {
    /// The array's.
    Array {
        /// Kind of the IO.
        io: Io,
        /// The member.
        member: usize,
    },
    /// A part of a piece of a read.
    Piece {
        /// The piece.
        piece: usize,
        /// The member.
        member: usize,
    },
}

/// An IO that has ended.
pub(super) struct Ended {
    pub(super) event: Event,
    pub(super) result: Result,
    /// Dropped by who may sleep; `None` of what was not submitted.
    _means: Option<(Arc<BlockDevice>, Arc<BioPool<MemberIo>>)>,
}

impl Ended {
    /// Creates one; `means` are what the IO has kept.
    pub(super) fn new(
        event: Event,
        result: Result,
        means: Option<(Arc<BlockDevice>, Arc<BioPool<MemberIo>>)>,
    ) -> Self {
        Self {
            event,
            result,
            _means: means,
        }
    }
}

/// An array that is assembled.
///
/// Locking: `engine` by the work item, and by the upkeep for moments; `upkeep` outside of it.
#[pin_data]
pub(crate) struct Core {
    name: CString,
    pub(super) queues: Arc<ArrayQueues>,
    born: Instant<Monotonic>,
    pub(super) stats: Stats,
    pub(super) settings: Settings,
    pub(super) recover_every_n: AtomicU32,
    is_stopping: AtomicBool,
    has_ticked: AtomicBool,
    /// Time at which the last read has begun, in milliseconds.
    read_ms: AtomicU64,
    /// Counts the runs of the engine.
    runs: AtomicU64,
    #[pin]
    has_run: WaitQueue,
    #[pin]
    drained: Completion,
    #[pin]
    arrived: IrqLock<KVec<Request<Queue>>>,
    #[pin]
    ended: IrqLock<KVec<Ended>>,
    /// Writes that are to be made records, and those that were.
    #[pin]
    unprepared: Mutex<KVec<Job>>,
    #[pin]
    prepared: Mutex<KVec<Job>>,
    #[pin]
    engine: Mutex<Option<KBox<Engine>>>,
    #[pin]
    upkeep: Mutex<Option<KBox<Upkeep>>>,
    /// Sends events as long as its disk is there.
    #[pin]
    pub(super) announcer: Mutex<Option<Arc<Device>>>,
    #[pin]
    work: Work<Core>,
    #[pin]
    keeping: Work<Core, 1>,
    #[pin]
    clock: DelayedWork<Core, 2>,
    // Dropped last: completes when no reference is left.
    _gone: CompleteOnDrop,
}

impl_has_work! {
    impl HasWork<Self> for Core { self.work }
    impl HasWork<Self, 1> for Core { self.keeping }
}

impl_has_delayed_work! {
    impl HasDelayedWork<Self, 2> for Core { self.clock }
}

impl DelayedItem<2> for Core {
    fn wq(&self) -> &WorkQueue {
        &self.queues.shared.engines
    }
}

impl WorkItem for Core {
    type Pointer = Arc<Core>;

    fn run(core: Arc<Core>) {
        let mut engine = core.engine.lock();
        if let Some(engine) = &mut *engine {
            engine.run(&core);
        }
        drop(engine);
        core.note_run();
    }
}

impl WorkItem<1> for Core {
    type Pointer = Arc<Core>;

    fn run(core: Arc<Core>) {
        // Who replaces a member gets the lock between two segments.
        while core.with_upkeep(|upkeep| upkeep.run(&core)) == Some(true) {}
    }
}

impl WorkItem<2> for Core {
    type Pointer = Arc<Core>;

    fn run(core: Arc<Core>) {
        core.has_ticked.store(true, Release);
        Self::kick(&core);
        // Also while the array is being stopped: a member that does not answer then has failed, and
        // what it has not is made durable by the others. The stop cancels it in the end.
        let delay_ms = core.tick_ms();
        let _ = workqueue::queue_delayed::<_, 2>(core, delay_ms);
    }
}

/// Parts of which an array is made when it begins.
pub(super) struct Beginning {
    pub(super) name: CString,
    pub(super) settings: Settings,
    pub(super) engine: KBox<Engine>,
    pub(super) upkeep: KBox<Upkeep>,
}

impl Core {
    /// Begins; `gone` completes when the last reference is dropped. Sleeps.
    #[inline(never)]
    pub(super) fn new(
        beginning: Beginning,
        queues: Arc<ArrayQueues>,
        gone: Arc<Completion>,
    ) -> Result<Arc<Self>> {
        let Beginning {
            name,
            settings,
            engine,
            upkeep,
        } = beginning;
        let arrived = KVec::with_capacity(DEPTH, GFP_KERNEL)?;
        let ended = KVec::with_capacity(ENDED_MAX, GFP_KERNEL)?;
        let jobs = || KVec::with_capacity(DEPTH, GFP_KERNEL);
        let (unprepared, prepared) = (jobs()?, jobs()?);
        let core = Arc::pin_init(
            pin_init!(Self {
                name,
                queues,
                born: Instant::now(),
                stats: Stats::default(),
                settings,
                recover_every_n: AtomicU32::new(settings.recover_every_n),
                is_stopping: AtomicBool::new(false),
                has_ticked: AtomicBool::new(false),
                read_ms: AtomicU64::new(0),
                runs: AtomicU64::new(0),
                has_run <- new_wait_queue!("rnbd_ec::Core::has_run"),
                drained <- Completion::new(),
                arrived <- new_irq_lock!(arrived, "rnbd_ec::Core::arrived"),
                ended <- new_irq_lock!(ended, "rnbd_ec::Core::ended"),
                unprepared <- new_mutex!(unprepared, "rnbd_ec::Core::unprepared"),
                prepared <- new_mutex!(prepared, "rnbd_ec::Core::prepared"),
                engine <- new_mutex!(Some(engine), "rnbd_ec::Core::engine"),
                upkeep <- new_mutex!(Some(upkeep), "rnbd_ec::Core::upkeep"),
                announcer <- new_mutex!(None, "rnbd_ec::Core::announcer"),
                work <- new_work!("rnbd_ec::Core::work"),
                keeping <- new_work!("rnbd_ec::Core::keeping"),
                clock <- new_delayed_work!("rnbd_ec::Core::clock"),
                _gone: CompleteOnDrop::new(gone),
            }),
            GFP_KERNEL,
        )?;
        // Without them nothing has begun, so that nothing is drained: all of it is dropped.
        Self::make_helpers(&core)?;
        let _ = workqueue::queue_delayed::<_, 2>(core.clone(), TICK_MS);
        Ok(core)
    }

    fn make_helpers(core: &Arc<Self>) -> Result {
        let helpers = Helper::make(core)?;
        let [first, second, third] = &core.queues.submitters;
        let submitter = |queue| Submitter::new(core, queue);
        let submitters = [submitter(first)?, submitter(second)?, submitter(third)?];
        core.with_engine(|engine| {
            engine.set_helpers(helpers);
            engine.means.submitters = Some(submitters);
        });
        Ok(())
    }

    /// Returns the name of the disk.
    pub(crate) fn name(&self) -> &CStr {
        &self.name
    }

    /// Returns the milliseconds since it was assembled.
    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.born.elapsed().as_millis()).unwrap_or_default()
    }

    /// Returns the time until the next look at members: short while something is read.
    fn tick_ms(&self) -> u32 {
        let hedge_ms = self.settings.hedge_ms;
        let since_ms = self.now_ms().saturating_sub(self.read_ms.load(Relaxed));
        if hedge_ms > 0 && since_ms < u64::from(TICK_MS) {
            (hedge_ms / 2).clamp(5, TICK_MS)
        } else {
            TICK_MS
        }
    }

    /// Notes that something is read. The first read in a while has the clock tick faster.
    pub(super) fn note_read(core: &Arc<Self>) {
        let now_ms = core.now_ms();
        let before_ms = core.read_ms.load(Relaxed);
        core.read_ms.store(now_ms, Relaxed);
        let is_first = now_ms.saturating_sub(before_ms) >= u64::from(TICK_MS);
        if is_first && core.settings.hedge_ms > 0 && !core.is_stopping() {
            workqueue::mod_delayed::<_, 2>(core.clone(), core.tick_ms());
        }
    }

    /// Has a worker run the engine, as something is new. Any context.
    pub(super) fn kick(core: &Arc<Self>) {
        let queue = &core.queues.shared.engines;
        let _ = queue.enqueue::<Arc<Self>, 0>(core.clone());
    }

    /// A member may return, or a segment is to be collected. Any context.
    pub(super) fn keep_up(core: &Arc<Self>) {
        let _ = core.queues.upkeep.enqueue::<Arc<Self>, 1>(core.clone());
    }

    /// A request has come. Any context.
    ///
    /// # Errors
    ///
    /// Returns it if there are too many, which the tags exclude.
    pub(super) fn arrive(core: &Arc<Self>, request: Request<Queue>) -> Result<(), Request<Queue>> {
        let pushed = core.arrived.lock().push_within_capacity(request);
        pushed.map_err(|error| error.0)?;
        Self::kick(core);
        Ok(())
    }

    /// Exchanges the requests that have come for an empty list.
    pub(super) fn take_arrived(&self, list: &mut KVec<Request<Queue>>) {
        core::mem::swap(&mut *self.arrived.lock(), list);
        list.reverse();
    }

    /// A write is to be made records.
    pub(super) fn prepare(&self, job: Job) {
        // There is room: as many as there are tags.
        let _ = self.unprepared.lock().push_within_capacity(job);
    }

    /// Returns how many writes are to be made records.
    pub(super) fn unprepared(&self) -> usize {
        self.unprepared.lock().len()
    }

    /// Takes the first of these.
    pub(super) fn next_unprepared(&self) -> Option<Job> {
        self.unprepared.lock().remove(0).ok()
    }

    /// A write was made records by a helper.
    pub(super) fn is_prepared(self: &Arc<Self>, job: Job) {
        // There is room: as many as there are tags.
        let _ = self.prepared.lock().push_within_capacity(job);
        Self::kick(self);
    }

    /// Takes one of these.
    pub(super) fn next_prepared(&self) -> Option<Job> {
        self.prepared.lock().remove(0).ok()
    }

    /// An IO of a member has ended. Any context.
    pub(super) fn has_ended(core: &Arc<Self>, ended: Ended) {
        // There is room: see `ENDED_MAX`.
        let _ = core.ended.lock().push_within_capacity(ended);
        Self::kick(core);
    }

    /// Takes an IO that has ended.
    pub(super) fn next_ended(&self) -> Option<Ended> {
        self.ended.lock().pop()
    }

    /// Returns whether the clock has ticked since the last call.
    pub(super) fn take_tick(&self) -> bool {
        self.has_ticked.swap(false, AcqRel)
    }

    /// Returns whether the array is being stopped.
    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Acquire)
    }

    /// Nothing is left to be done, and nothing is in flight.
    pub(super) fn is_drained(&self) {
        self.drained.complete_all();
    }

    /// Calls with the engine; `None` if the array was stopped. Sleeps.
    pub(super) fn with_engine<R>(&self, call: impl FnOnce(&mut Engine) -> R) -> Option<R> {
        let mut engine = self.engine.lock();
        engine.as_deref_mut().map(call)
    }

    /// Calls with the engine, for what begins IO beside its work item; `None` if the array is being
    /// stopped, which waits for no such IO any more. Sleeps.
    pub(super) fn with_running<R>(&self, call: impl FnOnce(&mut Engine) -> R) -> Option<R> {
        let mut engine = self.engine.lock();
        // Looked at under the lock: the engine is found drained under it, after the flag was set.
        if self.is_stopping() {
            return None;
        }
        engine.as_deref_mut().map(call)
    }

    /// Calls with the upkeep; `None` if the array is being stopped. Sleeps until it has done what
    /// it does.
    pub(super) fn with_upkeep<R>(&self, call: impl FnOnce(&mut Upkeep) -> R) -> Option<R> {
        let mut upkeep = self.upkeep.lock();
        if self.is_stopping() {
            return None;
        }
        upkeep.as_deref_mut().map(call)
    }

    /// The engine has run.
    pub(super) fn note_run(&self) {
        self.runs.fetch_add(1, AcqRel);
        self.has_run.wake_all();
    }

    /// Returns how often the engine has run.
    pub(super) fn runs(&self) -> u64 {
        self.runs.load(Acquire)
    }

    /// Waits until the engine has run again since it had run `runs` times, or for some time.
    pub(super) fn await_run(&self, runs: u64) {
        let _ = self
            .has_run
            .wait_until_timeout_ms(|| self.runs() != runs || self.is_stopping(), TICK_MS);
    }

    /// Has what goes on by itself end as soon as it can: the array is to be stopped. No request
    /// comes any more.
    pub(super) fn begin_stop(&self) {
        self.is_stopping.store(true, Release);
        self.has_run.wake_all();
    }

    /// Makes all durable and ends what goes on by itself. The disk was removed. Sleeps until each
    /// IO has ended.
    pub(super) fn stop(core: &Arc<Self>) {
        core.begin_stop();
        Self::kick(core);
        core.drained.wait();
        drop(workqueue::cancel_delayed_sync::<_, 2>(core));
        drop(workqueue::cancel_sync::<_, 1>(core));
        drop(workqueue::cancel_sync::<_, 0>(core));
        // Here, as both close devices; one after the other, as `engine` is not locked first.
        let upkeep = core.upkeep.lock().take();
        let engine = core.engine.lock().take();
        drop((upkeep, engine));
    }
}
