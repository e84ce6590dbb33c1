// SPDX-License-Identifier: GPL-2.0

//! A store: the requests that come to it, and the work item that carries them out.

mod ending;
mod filing;
mod readers;

use kernel::{
    prelude::*,
    str::{
        BStr,
        CString, //
    },
    sync::{
        new_mutex,
        Arc,
        Mutex, //
    },
    time::{
        delay::fsleep,
        Delta, //
    },
    workqueue::{
        impl_has_work,
        new_work,
        Work,
        WorkItem, //
    },
};
use kernel_ext::{
    random,
    sync::{
        new_irq_lock,
        CompleteOnDrop,
        Completion,
        IrqLock, //
    },
    sysfs::ShowBuffer,
    workqueue::WorkQueue, //
};
use rtrs_server::Operation;

pub(super) use self::filing::Backing;
use super::{
    engine::{
        Engine,
        Place,
        Turn, //
    },
    log_io::{
        Ends,
        IOS_MAX, //
    },
    medium::Kept,
    memory::REQUESTS_MAX,
    one_device::{
        LogDevice,
        OneDevice, //
    },
    reading::Scratch,
    upkeep::Upkeep, //
};
use crate::proto::{
    answer::Attached,
    medium::Io,
    span::IO_BYTES_MAX, //
};

/// The most bytes of a session's name that are shown.
const NAME_SHOWN: usize = 40;

/// A store, on any medium.
pub(super) trait StoreService: Send + Sync {
    /// Returns its name.
    fn name(&self) -> &CStr;

    /// A request of a client that has attached has come. Any context.
    fn request(self: Arc<Self>, client: u32, operation: Operation);

    /// A client comes. Sleeps.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the store is being deleted; `ENOSPC` if it has no room for the client.
    fn attach(&self, name: [u64; 2], session: &CStr) -> Result<Attached>;

    /// A client has gone, and all of its requests are answered. Sleeps.
    fn detach(&self, client: u32);

    /// Whether it was deleted, or is being so.
    fn is_stopped(&self) -> bool;

    /// Ends what goes on, and frees its memory, in an item of `owed`. Sleeps, and can be killed;
    /// a device or files that hang are not waited for.
    ///
    /// # Errors
    ///
    /// `ERESTARTSYS` if it was killed: the item goes on.
    fn stop(self: Arc<Self>, owed: &WorkQueue) -> Result;

    /// Returns what completes when no IO has a reference to it any more.
    fn gone(&self) -> Arc<Completion>;

    /// Prints the state in words.
    fn show_state(&self, page: &mut ShowBuffer<'_>) -> Result;

    /// Prints the statistics.
    fn show_stats(&self, page: &mut ShowBuffer<'_>) -> Result;

    /// Prints a line for each client.
    fn show_clients(&self, page: &mut ShowBuffer<'_>) -> Result;
}

/// Requests that have come, and IO that has ended: what was not looked at.
struct Inbox {
    list: KVVec<(u32, Operation)>,
    ended: KVec<(Io, Result)>,
    is_closed: bool,
}

/// Memory of the work item: for a step, and for what it takes out of the inbox at once.
struct Worker {
    scratch: KBox<Scratch>,
    list: KVVec<(u32, Operation)>,
    ended: KVec<(Io, Result)>,
}

/// A store.
#[pin_data]
pub(super) struct StoreOn<D: Kept> {
    name: CString,
    boot: u64,
    queue: Arc<WorkQueue>,
    memory_bytes: u64,
    #[pin]
    inbox: IrqLock<Inbox>,
    #[pin]
    engine: Mutex<Option<KBox<Engine<D>>>>,
    /// Only the work item takes it, around the lock of the engine.
    #[pin]
    worker: Mutex<Option<Worker>>,
    /// Readers of the device of a log that are idle.
    #[pin]
    readers: IrqLock<readers::Idle<D>>,
    #[pin]
    upkeep: Mutex<Option<Upkeep<D>>>,
    /// The files of objects; only their work item takes it, and who ends the store.
    #[pin]
    filing: Mutex<Option<Backing>>,
    is_backed: bool,
    file_queue: Arc<WorkQueue>,
    #[pin]
    drained: Completion,
    #[pin]
    ended: Completion,
    #[pin]
    work: Work<StoreOn<D>>,
    #[pin]
    keeping: Work<StoreOn<D>, 1>,
    #[pin]
    files: Work<StoreOn<D>, 2>,
    gone: Arc<Completion>,
    // Dropped last: completes when no reference is left.
    _gone: CompleteOnDrop,
}

impl_has_work! {
    impl{D: Kept} HasWork<Self> for StoreOn<D> { self.work }
    impl{D: Kept} HasWork<Self, 1> for StoreOn<D> { self.keeping }
    impl{D: Kept} HasWork<Self, 2> for StoreOn<D> { self.files }
}

impl<D: Kept> WorkItem for StoreOn<D> {
    type Pointer = Arc<StoreOn<D>>;

    fn run(store: Arc<Self>) {
        let mut worker = store.worker.lock();
        let Some(worker) = &mut *worker else {
            return;
        };
        while store.go_on(worker) {}
        if store.wants_upkeep() {
            let queue = store.queue.clone();
            let _ = queue.enqueue::<Arc<Self>, 1>(store.clone());
        }
    }
}

impl<D: Kept> WorkItem<1> for StoreOn<D> {
    type Pointer = Arc<StoreOn<D>>;

    fn run(store: Arc<Self>) {
        let mut upkeep = store.upkeep.lock();
        let mut has_moved = false;
        if let Some(upkeep) = &mut *upkeep {
            while store.collect(upkeep) {
                has_moved = true;
                if let Some(pause_ms) = upkeep.take_pause_ms() {
                    fsleep(Delta::from_millis(pause_ms.into()));
                }
            }
        }
        // What was moved is to be written, and there may be room.
        if has_moved {
            store.clone().kick();
        }
    }
}

impl<D: Kept> Ends for StoreOn<D> {
    fn ended(self: Arc<Self>, io: Io, result: Result) {
        // There is room for all that are in flight.
        let _ = self.inbox.lock().ended.push_within_capacity((io, result));
        self.kick();
    }
}

impl<D: Kept> StoreOn<D> {
    /// Begins. Sleeps.
    #[inline(never)]
    pub(super) fn new(
        (name, memory_bytes): (&str, u64),
        (queue, file_queue): (Arc<WorkQueue>, Arc<WorkQueue>),
        engine: KBox<Engine<D>>,
        (device, filing): (Option<LogDevice>, Option<Backing>),
    ) -> Result<Arc<Self>> {
        let inbox = Inbox {
            list: KVVec::with_capacity(REQUESTS_MAX, GFP_KERNEL)?,
            ended: KVec::with_capacity(IOS_MAX, GFP_KERNEL)?,
            is_closed: false,
        };
        let one = OneDevice::new;
        let worker = Worker {
            scratch: Scratch::new(device.as_ref().map(one).transpose()?)?,
            list: KVVec::with_capacity(REQUESTS_MAX, GFP_KERNEL)?,
            ended: KVec::with_capacity(IOS_MAX, GFP_KERNEL)?,
        };
        let readers = readers::new(device.as_ref())?;
        let upkeep = device.as_ref().map(Upkeep::new).transpose()?;
        let gone = Arc::pin_init(Completion::new(), GFP_KERNEL)?;
        let completes = CompleteOnDrop::new(gone.clone());
        let name = CString::try_from_fmt(fmt!("{name}"))?;
        Arc::pin_init(
            pin_init!(Self {
                name,
                boot: random::number(),
                queue,
                memory_bytes,
                inbox <- new_irq_lock!(inbox, "rioc_server::inbox"),
                engine <- new_mutex!(Some(engine), "rioc_server::engine"),
                worker <- new_mutex!(Some(worker), "rioc_server::worker"),
                readers <- new_irq_lock!(readers, "rioc_server::readers"),
                upkeep <- new_mutex!(upkeep, "rioc_server::upkeep"),
                is_backed: filing.is_some(),
                filing <- new_mutex!(filing, "rioc_server::filing"),
                file_queue,
                drained <- Completion::new(),
                ended <- Completion::new(),
                work <- new_work!("rioc_server::StoreOn::work"),
                keeping <- new_work!("rioc_server::StoreOn::keeping"),
                files <- new_work!("rioc_server::StoreOn::files"),
                gone,
                _gone: completes,
            }),
            GFP_KERNEL,
        )
    }

    fn kick(self: Arc<Self>) {
        let queue = self.queue.clone();
        let _ = queue.enqueue::<Arc<Self>, 0>(self);
    }

    /// Lets the store begin IO of its log, and end what a restart has left.
    pub(super) fn run_log(self: &Arc<Self>) {
        if let Some(engine) = &mut *self.engine.lock() {
            if let Some(log) = &mut engine.acting.log {
                log.ends = Some(self.clone());
            }
        }
        self.clone().kick();
    }

    /// Does something of what can be done; returns whether there may be more.
    fn go_on(self: &Arc<Self>, worker: &mut Worker) -> bool {
        self.exchange(&mut worker.scratch);
        let mut locked = self.engine.lock();
        let Some(engine) = locked.as_deref_mut() else {
            return false;
        };
        self.take_in(engine, worker);
        let scratch = &mut worker.scratch;
        let turn = engine.turn(scratch);
        if self.is_backed && engine.begin_filing() {
            let _ = self.file_queue.enqueue::<Arc<Self>, 2>(self.clone());
        }
        match turn {
            Turn::Reads(tag) => {
                drop(locked);
                if self.read_beside(tag, scratch) {
                    return true;
                }
                scratch.fetch();
                if let Some(engine) = self.engine.lock().as_deref_mut() {
                    engine.finish(tag, scratch);
                }
                return true;
            }
            Turn::Done => return true,
            Turn::Idle => (),
        }
        let inbox = self.inbox.lock();
        let is_empty = inbox.list.is_empty() && inbox.ended.is_empty();
        if inbox.is_closed && is_empty && engine.is_quiet() {
            drop(inbox);
            self.drained.complete_all();
        }
        false
    }

    /// Takes what has come.
    #[inline(never)]
    fn take_in(&self, engine: &mut Engine<D>, worker: &mut Worker) {
        let mut inbox = self.inbox.lock();
        core::mem::swap(&mut inbox.list, &mut worker.list);
        core::mem::swap(&mut inbox.ended, &mut worker.ended);
        drop(inbox);
        for (io, result) in worker.ended.drain_all() {
            if let (Err(error), false) = (result, engine.store.medium().is_stopped()) {
                pr_err!(
                    "store '{}': its log has failed: {error:?}: nothing is written any more: \
                     delete it, and add it with mode=assemble when the device works\n",
                    &*self.name
                );
            }
            engine.io_ended(io, result.is_ok());
        }
        for (client, operation) in worker.list.drain_all() {
            engine.arrive(client, operation);
        }
    }

    /// Whether segments are to be collected.
    fn wants_upkeep(&self) -> bool {
        let wants = self.with_engine(|engine| {
            let (is_collecting, medium) = (engine.is_collecting, engine.store.medium_mut());
            Ok(!medium.is_stopped() && (is_collecting || medium.is_low()))
        });
        wants.unwrap_or_default()
    }

    /// Takes a step of collecting; returns whether the next one may follow.
    fn collect(&self, upkeep: &mut Upkeep<D>) -> bool {
        if upkeep.load() {
            return true;
        }
        let is_ending = self.is_stopped();
        let done = self.with_engine(|engine| Ok(upkeep.step(engine, is_ending)));
        done.unwrap_or_default()
    }

    fn with_engine<R>(&self, call: impl FnOnce(&mut Engine<D>) -> Result<R>) -> Result<R> {
        let mut engine = self.engine.lock();
        engine.as_deref_mut().map_or(Err(ENOENT), call)
    }
}

impl<D: Kept> StoreService for StoreOn<D> {
    fn name(&self) -> &CStr {
        &self.name
    }

    fn request(self: Arc<Self>, client: u32, operation: Operation) {
        let mut inbox = self.inbox.lock();
        if inbox.is_closed {
            drop(inbox);
            return operation.reply(Err(ENODEV));
        }
        // There is room: a client has one request for each chunk.
        let pushed = inbox.list.push_within_capacity((client, operation));
        drop(inbox);
        drop(pushed);
        self.kick();
    }

    fn attach(&self, name: [u64; 2], session: &CStr) -> Result<Attached> {
        if self.is_stopped() {
            return Err(ENOENT);
        }
        let memory = Place::new(session)?;
        let (client, incarnation) = self.with_engine(|engine| engine.attach(name, memory))?;
        let identity = self.with_engine(|engine| Ok(engine.store.medium().identity()))?;
        Ok(Attached {
            is_durable: D::IS_DURABLE,
            has_backing: self.is_backed,
            // CAST: 112 KiB.
            io_bytes_max: IO_BYTES_MAX as u32,
            boot: self.boot,
            client,
            incarnation,
            identity: identity.unwrap_or(self.boot),
        })
    }

    fn detach(&self, client: u32) {
        // Of one that was deleted nothing is left.
        let _ = self.with_engine(|engine| {
            engine.detach(client);
            Ok(())
        });
    }

    fn is_stopped(&self) -> bool {
        self.inbox.lock().is_closed
    }

    fn stop(self: Arc<Self>, owed: &WorkQueue) -> Result {
        self.end_on(owed)
    }

    fn gone(&self) -> Arc<Completion> {
        self.gone.clone()
    }

    fn show_state(&self, page: &mut ShowBuffer<'_>) -> Result {
        let is_failed = self.with_engine(|engine| Ok(engine.store.medium().is_stopped()));
        match D::IS_DURABLE {
            true if is_failed == Ok(true) => writeln!(
                page,
                "failed: its log gives errors: delete it, and add it with mode=assemble"
            ),
            true => writeln!(page, "durable"),
            false if self.is_backed => self.show_files(page),
            false => writeln!(
                page,
                "memory: what is acknowledged lasts until the store ends"
            ),
        }
    }

    fn show_stats(&self, page: &mut ShowBuffer<'_>) -> Result {
        self.with_engine(|engine| {
            let index = engine.store.index();
            let (blocks, blocks_max) = engine.store.medium().room();
            let (usage, counts) = (index.usage(), &engine.counts);
            writeln!(page, "objects {}", usage.objects)?;
            writeln!(page, "ranges {}", usage.ranges)?;
            writeln!(page, "extents {}", usage.extents)?;
            writeln!(page, "blocks {blocks}")?;
            writeln!(page, "blocks_max {blocks_max}")?;
            writeln!(page, "slots_free {}", index.slots().free_count())?;
            writeln!(page, "slots_max {}", index.slots().count())?;
            writeln!(page, "memory_bytes {}", self.memory_bytes)?;
            writeln!(page, "reads {}", counts.reads)?;
            writeln!(page, "writes {}", counts.writes)?;
            writeln!(page, "others {}", counts.others)?;
            writeln!(page, "failed {}", counts.failed)?;
            writeln!(page, "malformed {}", counts.malformed)?;
            self.show_file_stats(page, (usage.dirty, usage.clean, counts.hits()))
        })
    }

    fn show_clients(&self, page: &mut ShowBuffer<'_>) -> Result {
        self.with_engine(|engine| {
            // Those that have no room are left out.
            let _ = engine.each_client(|number, session, (operations, bytes, leases)| {
                // Clients choose their names, and all are in one page.
                let name = session.to_bytes();
                let name = BStr::from_bytes(name.get(..NAME_SHOWN).unwrap_or(name));
                page.write_fmt(fmt!("{number} {name} {operations} {bytes} {leases}\n"))
            });
            Ok(())
        })
    }
}
